"""Warp's tests of its allocators, its memory pool, graphs, streams, arrays and their exchange."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tests.suites.suite import Known, Suite, Way


def _folder(_: Path) -> Path:
    spec = find_spec("warp")
    if spec is None or spec.origin is None:
        raise SystemExit("Warp is not installed")
    return Path(spec.origin).parents[1]


SUITE = Suite(
    library="warp",
    distribution="warp-lang",
    folder=_folder,
    files=(
        "warp/tests/test_allocator.py",
        "warp/tests/test_allocation_tracker.py",
        "warp/tests/test_array.py",
        "warp/tests/test_copy.py",
        "warp/tests/test_devices.py",
        "warp/tests/test_graph.py",
        "warp/tests/test_indexedarray.py",
        "warp/tests/cuda/test_array_fill_capture.py",
        "warp/tests/cuda/test_async.py",
        "warp/tests/cuda/test_capture_mode.py",
        "warp/tests/cuda/test_capture_release.py",
        "warp/tests/cuda/test_conditional_captures.py",
        "warp/tests/cuda/test_ipc.py",
        "warp/tests/cuda/test_mempool.py",
        "warp/tests/cuda/test_pinned.py",
        "warp/tests/cuda/test_streams.py",
        "warp/tests/cuda/test_unified_memory.py",
        "warp/tests/interop/test_dlpack.py",
        "warp/tests/interop/test_torch.py",
    ),
    ini="[pytest]\npython_functions = none_but_those_of_classes\n",
    left_out=("*_cpu", "*jax*"),
    why_left_out="tests of Warp's CPU device, whose name ends so, and those with JAX, which takes three quarters of "
    "the card when it first looks at it, and gives up where others use it.",
    ways=(Way(allocator="mempool"), Way(allocator="caching")),
    shards=4,
    known=(
        Known(
            tests="*test_allocator.py::*::test_reset_to_default*",
            becomes="failed",
            why="`wp.set_cuda_allocator(None)` gives a device Warp's built-in allocator, and the one before was ours: "
            "so it is with every allocator that is no built-in one.",
        ),
        Known(
            tests="*test_allocation_tracker.py::*",
            becomes="failed",
            why="Warp's allocation tracker sees the memory of its built-in allocators alone, of no custom one.",
        ),
        Known(
            tests="*test_ipc.py::*",
            becomes="failed",
            why="Warp makes inter-process handles for memory of its built-in allocator alone, of no custom one.",
        ),
        Known(
            tests="*test_unified_memory.py::*_cuda_memory_kind_queries*",
            becomes="failed",
            why="The test expects the kind that Warp's built-in allocator has, and arrays have that of the supplier: "
            "`CUDA_MEMPOOL` of `mempool`, and no kind that Warp has a name for of `caching`, whose memory is mapped.",
        ),
        Known(
            tests="*test_unified_memory.py::*_ipc_handle_rejects_unsupported_arrays*",
            becomes="failed",
            why="Warp makes inter-process handles for memory of its built-in allocator alone, of no custom one, and "
            "says so before it looks at what the test is about.",
        ),
        Known(
            tests="*test_mempool.py::*usage*",
            becomes="failed",
            why="The test asks Warp's own pool how much of it is used, and arrays come from Allotment.",
        ),
    ),
)
