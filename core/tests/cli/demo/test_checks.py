import numpy as np
import pytest

import allotment as al
from allotment.cli.demo import _checks
from allotment.cli.demo._checks import Bench, run_checks


class Plain:
    name = "plain"

    def __init__(self, platform):
        self.platform = platform

    def allocate(self, size_in_bytes):
        return self.platform.malloc(size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        self.platform.free(ptr)


@pytest.fixture
def bench(sim):
    al.register_allocator("plain", lambda device: Plain(device.platform))
    al.set_cuda_allocator("plain")
    first, second = al.get_cuda_devices()
    return Bench(allocator="plain", device=first, others=(second, al.get_device("cpu")), has_pinned=False)


def failed(bench):
    return {check.subject for check in run_checks(bench) if not check.ok}


def test_all_come_out_right_for_an_allocator_that_works(bench):
    checks = list(run_checks(bench))

    assert len(checks) > 30
    assert all(check.ok for check in checks), [check for check in checks if not check.ok]


def test_both_devices_and_the_host_take_part(bench):
    texts = [check.text for check in run_checks(bench)]

    assert {"to cuda:1", "back from cuda:1", "to cpu", "back from cpu"} <= set(texts)


def test_memory_that_loses_what_is_written_is_noticed(bench, sim, monkeypatch):
    monkeypatch.setattr(sim, "copy", lambda *_: None)

    assert "arrays of many shapes and types come back as they were" in failed(bench)


def test_a_fill_that_writes_nothing_is_noticed(bench, sim, monkeypatch):
    monkeypatch.setattr(sim, "fill_elements", lambda *_: None)

    assert failed(bench) == {"fills write what NumPy's write"}


def test_another_allocator_in_force_is_noticed(bench):
    with al.ScopedAllocator("cuda:0", Plain(bench.device.platform)):
        assert "the file decides where arrays come from" in failed(bench)


def test_a_block_that_is_left_is_noticed(bench):
    kept = al.empty(4, device="cuda:0")

    assert failed(bench) == {"the books are right when all is freed"}
    del kept


def test_an_exception_is_a_check_that_failed_and_the_others_go_on(bench, monkeypatch):
    def explode(bench):
        yield "before", True
        raise OSError("no more")

    monkeypatch.setattr(_checks, "_CHECKS", (("one", explode), ("two", lambda bench: [("after", np.True_)])))

    assert [(check.subject, check.text, check.ok) for check in run_checks(bench)] == [
        ("one", "before", True),
        ("one", "OSError: no more", False),
        ("two", "after", True),
    ]
