"""What the kit leaves alone when it lets a kernel fault."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from allotment.testing import ErrorTests


@pytest.mark.parametrize("has_server", [True, False])
def test_no_kernel_faults_where_mps_shares_the_devices(monkeypatch, tmp_path, has_server):
    faulted = []
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path if has_server else tmp_path / "absent"))
    monkeypatch.setattr("allotment.testing._errors.run_program", lambda act, _: faulted.append(act))
    subject = SimpleNamespace(platform=SimpleNamespace(name="cuda", device_count=lambda: 1))
    suite = type("Suite", (ErrorTests,), {"told_of": lambda _self, _subject: {}})()

    with pytest.raises(pytest.skip.Exception, match="MPS shares the devices") if has_server else nullcontext():
        suite.test_after_a_kernel_that_faulted_no_failure_is_hidden(subject)

    assert faulted == ([] if has_server else ["fault"])
