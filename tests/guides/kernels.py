"""The names that the guides use and do not define."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import allotment as al


def count_up(values: np.ndarray) -> None:
    """Add 1, 2, 3, … to the elements."""
    values += np.arange(1, values.size + 1).reshape(values.shape)


class Kernel:
    """A kernel for the host and for CUDA devices, as kernels of Warp are."""

    @cached_property
    def on_device(self) -> Any:
        """The kernel for a real CUDA device."""
        import cupy

        return cupy.ElementwiseKernel("", "float64 a", "a = a + i + 1", "count_up")


@dataclass(frozen=True)
class KernelOfBoth:
    """Launches such a kernel where it is wanted."""

    kernels: str = "the kernel of the guides"

    def accepts(self, kernel: Any) -> bool:
        """Return whether it is that kernel."""
        return isinstance(kernel, Kernel)

    def launch(self, request: al.LaunchRequest) -> None:
        """Launch what fits the device."""
        is_real = request.device.is_cuda and request.device.platform.name == "cuda"
        kernel = request.kernel.on_device if is_real else count_up
        al.launch(kernel, request.dim, request.inputs, request.outputs, request.device)


class PlainAllocator:
    """Any allocator of a user's."""

    def __init__(self) -> None:
        self.live: dict[int, int] = {}

    def allocate(self, size_in_bytes: int) -> int:
        """Return memory of the current device."""
        ptr = al.get_cuda_device().platform.malloc(size_in_bytes)
        self.live[ptr] = size_in_bytes
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Free it."""
        assert self.live.pop(ptr) == size_in_bytes
        al.get_cuda_device().platform.free(ptr)


def common_names() -> dict[str, Any]:
    """Return what a block may use, made anew for each."""
    return {
        "wp": al,
        "n": 1000,
        "MAX_N": 4096,
        "get_size": lambda i: 1 + 37 * i % 4096,
        "kernel": Kernel(),
        "cpu_kernel": count_up,
        "my_allocator": PlainAllocator(),
    }
