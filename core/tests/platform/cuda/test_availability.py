"""Whether CUDA can be used: an answer, never an exception."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from allotment.errors import PlatformUnavailableError
from allotment.platform.cuda import CudaPlatform, availability

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def visible_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def unloaded_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded of CuPy is put aside, so that an import starts anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def install_cupy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unloaded_cupy: None) -> Callable[[str], None]:
    """Return a function that installs a package of CuPy's name with the source given."""

    def install(source: str) -> None:
        package = tmp_path / "cupy"
        package.mkdir()
        (package / "__init__.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


@pytest.fixture
def broken_cupy(install_cupy: Callable[[str], None]) -> None:
    """A CuPy that is installed and cannot be imported."""
    install_cupy("raise OSError('libnvrtc.so.13: cannot open shared object file')")


@pytest.mark.parametrize("value", ["", "-1", "-1,0", " ", ",0"])
def test_a_list_that_hides_every_device_is_told_apart_from_an_unset_one(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    answer = availability()
    assert not answer
    assert f"CUDA_VISIBLE_DEVICES is {value!r}" in answer.reason


@pytest.mark.parametrize("value", ["GPU-8f3c1b2a", "MIG-1c2d3e4f-0000-0000-0000-000000000000", "0,GPU-8f3c", "1,0"])
def test_a_list_of_identifiers_is_left_to_the_driver(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert "hides every device" not in availability().reason


@pytest.mark.usefixtures("visible_unset", "unloaded_cupy")
def test_without_cupy_the_answer_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    answer = availability()
    assert not answer
    assert answer.reason.startswith("CuPy is not installed. Install allotment[cuda13]")


@pytest.mark.usefixtures("visible_unset", "broken_cupy")
def test_a_cupy_that_cannot_be_imported_is_an_answer_with_the_cause():
    answer = availability()
    assert not answer
    assert "OSError: libnvrtc.so.13: cannot open shared object file" in answer.reason


@pytest.mark.usefixtures("visible_unset")
def test_a_cupy_without_a_part_it_needs_is_not_called_missing(install_cupy: Callable[[str], None]):
    install_cupy("import pathfinder_that_is_not_there")
    assert "pathfinder_that_is_not_there" in availability().reason


@pytest.mark.usefixtures("visible_unset", "broken_cupy")
def test_a_platform_that_cannot_be_made_is_an_error_with_reason_and_remedy():
    with pytest.raises(PlatformUnavailableError) as refusal:
        CudaPlatform()
    assert refusal.value.platform == "cuda"
    assert "libnvrtc" in refusal.value.reason
    assert refusal.value.remedy


@pytest.mark.usefixtures("visible_unset")
def test_an_answer_says_yes_or_gives_a_reason():
    answer = availability()
    assert answer.ok != bool(answer.reason)


def test_a_cupy_without_a_driver_is_an_answer():
    pytest.importorskip("cupy", reason="the case needs CuPy")
    from cupy.cuda import runtime

    if runtime.driverGetVersion() != 0:
        pytest.skip("a CUDA driver is installed here")
    assert availability().reason.startswith("no CUDA driver is installed")


def test_importing_the_package_imports_neither_cupy_nor_the_bindings():
    script = "import sys, allotment.platform.cuda; print('cupy' in sys.modules, 'cuda.bindings' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
