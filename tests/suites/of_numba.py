"""Numba's own tests of its CUDA target, ``numba.cuda.tests``."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from tests.suites.suite import STORE, Known, Suite, Way

_ABOUT_SHARING = ("cudapy/test_ipc.py", "cudadrv/*.py", "cudapy/test_cuda_array_interface.py", "cudapy/test_array.py")


def _package() -> Path:
    spec = find_spec("numba_cuda")
    if spec is None or spec.origin is None:
        raise SystemExit("numba-cuda is not installed")
    return Path(spec.origin).parent


def _prepare(scratch: Path) -> Path:
    """Unpack what the tests need; return where they are."""
    if not (scratch / "site").exists():
        for wheel in (STORE / "wheels").glob("*.whl"):
            ZipFile(wheel).extractall(scratch / "site")
    return _overlay(scratch)


def _overlay(scratch: Path) -> Path:
    """Return the tests, in a copy of the package, which is published without them."""
    copy = scratch / "overlay" / "numba_cuda"
    tests = copy / "numba" / "cuda" / "tests"
    if not tests.exists():
        shutil.copytree(_package(), copy, ignore=shutil.ignore_patterns("tests"))
        shutil.copytree(STORE / "numba" / "tests", tests)
        shutil.copy(STORE / "numba" / "testing" / "conftest.py", tests)
    return tests


def _paths(scratch: Path) -> tuple[Path, ...]:
    return scratch / "overlay", scratch / "site"


SUITE = Suite(
    library="numba",
    distribution="numba-cuda",
    folder=_prepare,
    paths=_paths,
    files=("cudapy/test_*.py", "cudadrv/test_*.py", "nrt/test_*.py", "core/test_*.py", "doc_examples/test_*.py"),
    left_out=(
        "cudapy/test_math.py",
        "cudapy/test_libdevice.py",
        "cudapy/test_bfloat16_bindings.py",
        "cudapy/test_fp8_bindings.py",
    ),
    why_left_out="four files of tests of arithmetic, which compile for minutes and allocate what all others do, if "
    "anything. NumPy is the newest that Numba-CUDA 0.30 works with: 2.5 lacks a name that it asks for.",
    ways=(Way(allocator="mempool"), Way(allocator="caching"), Way(allocator="default", files=_ABOUT_SHARING)),
    ini="[pytest]\nconsider_namespace_packages = true\n",
    with_bridge={"NUMBA_CUDA_MEMORY_MANAGER": "allotment_numba_bridge"},
    shards=8,
    known=(
        Known(
            tests="cudadrv/test_deallocations.py::TestDeallocation::test_*",
            becomes="skipped",
            why="Numba skips these under every memory manager but its own: they look at its queue of frees.",
        ),
        Known(
            tests="cudapy/test_cuda_array_interface.py::*::test_ownership",
            becomes="skipped",
            why="Numba skips this under every memory manager but its own: it looks at its queue of frees.",
        ),
        *(
            Known(
                tests=f"cudapy/test_ipc.py::{name}*",
                becomes=becomes,
                allocators=("mempool", "caching"),
                why="CUDA has no inter-process handles for memory of pools, and the allocator says that its memory has "
                "none. `default` has them; see there.",
            )
            for name in ("TestIpcMemory", "TestIpcStaged")
            for becomes in ("failed", "error")
        ),
    ),
)
