"""CuPy's tests of memory, of arrays and of their creation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.suites.suite import STORE, Known, Suite, Way

if TYPE_CHECKING:
    from pathlib import Path


def _folder(_: Path) -> Path:
    folder = STORE / "cupy"
    if not folder.exists():
        raise SystemExit(f"{folder} is missing: run python3 -m tests.suites.prepare first")
    return folder


SUITE = Suite(
    library="cupy",
    distribution="cupy-cuda13x or cupy-cuda12x",
    folder=_folder,
    paths=lambda _: (STORE / "cupy" / "tests",),
    files=(
        "tests/cupy_tests/cuda_tests/test_memory.py",
        "tests/cupy_tests/cuda_tests/test_memory_hook.py",
        "tests/cupy_tests/cuda_tests/memory_hooks_tests/test_*.py",
        "tests/cupy_tests/cuda_tests/test_device.py",
        "tests/cupy_tests/cuda_tests/test_graph.py",
        "tests/cupy_tests/cuda_tests/test_pinned_memory.py",
        "tests/cupy_tests/cuda_tests/test_stream.py",
        "tests/cupy_tests/core_tests/test_*.py",
        "tests/cupy_tests/creation_tests/test_*.py",
        "tests/cupy_tests/manipulation_tests/test_*.py",
        "tests/cupy_tests/indexing_tests/test_*.py",
    ),
    left_out=(
        "tests/cupy_tests/core_tests/test_raw.py",
        "tests/cupy_tests/core_tests/test_mdspan.py",
        "tests/cupy_tests/core_tests/test_include.py",
        "tests/cupy_tests/core_tests/test_cub_reduction.py",
    ),
    why_left_out="four files of tests of compilation, which take minutes.",
    arguments=("-m", "not slow and not multi_gpu"),
    ini="pyproject.toml",
    ways=(Way(allocator="mempool"), Way(allocator="caching")),
    shards=8,
    divided={"tests/cupy_tests/core_tests/test_ndarray_reduction.py": 4},
    known=(
        Known(
            tests="*test_memory_hook.py::*",
            becomes="failed",
            why="CuPy's memory hooks are called by CuPy's own memory pool, in whose place the bridge is.",
        ),
    ),
)
