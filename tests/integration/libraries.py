"""CuPy, PyTorch, Numba, Warp and Allotment, each as the tests use it: arrays of 32-bit floats on ``cuda:0``."""

from __future__ import annotations

import gc
from importlib import import_module
from importlib.util import find_spec
from time import monotonic, sleep
from typing import Any

import numpy as np

NAMES = ("cupy", "torch", "numba", "warp")
"""The libraries that there are bridges to, as bridges are named."""
NEEDED = {"cupy": "cupy", "torch": "torch", "numba": "numba_cuda", "warp": "warp"}


_PATIENCE = 10
"""Seconds to wait for what a library gives back later."""


def missing() -> list[str]:
    """Return the libraries that are not installed."""
    return [name for name in NAMES if find_spec(NEEDED[name]) is None]


class Cupy:
    """CuPy."""

    name, speaks_dlpack = "cupy", True

    def __init__(self) -> None:
        self.module: Any = import_module("cupy")

    def full(self, count: int, value: float) -> Any:
        return self.module.full(count, value, dtype="float32")

    def empty(self, count: int) -> Any:
        return self.module.empty(count, dtype="float32")

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def numpy(self, array: Any) -> Any:
        return self.module.asnumpy(array)

    def from_interface(self, array: Any) -> Any:
        return self.module.asarray(array)

    def from_dlpack(self, array: Any) -> Any:
        return self.module.from_dlpack(array)

    def synchronize(self) -> None:
        self.module.cuda.runtime.deviceSynchronize()

    def release(self) -> None:
        """Give back what the library keeps for itself."""
        self.module.get_default_memory_pool().free_all_blocks()


class Torch:
    """PyTorch."""

    name, speaks_dlpack = "torch", True

    def __init__(self) -> None:
        self.module: Any = import_module("torch")

    def full(self, count: int, value: float) -> Any:
        return self.module.full((count,), value, dtype=self.module.float32, device="cuda:0")

    def empty(self, count: int) -> Any:
        return self.module.empty(count, dtype=self.module.float32, device="cuda:0")

    def pointer(self, array: Any) -> int:
        return array.data_ptr()

    def numpy(self, array: Any) -> Any:
        return array.cpu().numpy()

    def from_interface(self, array: Any) -> Any:
        return self.module.as_tensor(array, device="cuda:0")

    def from_dlpack(self, array: Any) -> Any:
        return self.module.from_dlpack(array)

    def synchronize(self) -> None:
        self.module.cuda.synchronize()

    def release(self) -> None:
        """Give back what the library keeps for itself."""
        self.module.cuda.empty_cache()


class Numba:
    """Numba's CUDA target, which has no DLPack."""

    name, speaks_dlpack = "numba", False

    def __init__(self) -> None:
        self.module: Any = import_module("numba.cuda")

    def full(self, count: int, value: float) -> Any:
        return self.module.to_device(np.full(count, value, dtype="float32"))

    def empty(self, count: int) -> Any:
        return self.module.device_array(count, dtype="float32")

    def pointer(self, array: Any) -> int:
        return array.__cuda_array_interface__["data"][0]

    def numpy(self, array: Any) -> Any:
        return array.copy_to_host()

    def from_interface(self, array: Any) -> Any:
        return self.module.as_cuda_array(array)

    def synchronize(self) -> None:
        self.module.synchronize()

    def release(self) -> None:
        """Give back what the library keeps for itself: nothing, where it draws from a bridge."""


class Warp:
    """NVIDIA Warp."""

    name, speaks_dlpack = "warp", True

    def __init__(self) -> None:
        self.module: Any = import_module("warp")
        self.module.config.log_level = 30  # no banner
        self.module.init()

    def full(self, count: int, value: float) -> Any:
        return self.module.full(count, value, dtype=self.module.float32, device="cuda:0")

    def empty(self, count: int) -> Any:
        return self.module.empty(count, dtype=self.module.float32, device="cuda:0")

    def pointer(self, array: Any) -> int:
        return array.ptr

    def numpy(self, array: Any) -> Any:
        return array.numpy()

    def from_interface(self, array: Any) -> Any:
        return self.module.array(array, dtype=self.module.float32, device="cuda:0", copy=False)

    def from_dlpack(self, array: Any) -> Any:
        return self.module.from_dlpack(array)

    def synchronize(self) -> None:
        self.module.synchronize_device("cuda:0")

    def release(self) -> None:
        """Give back what the library keeps for itself: nothing, where it draws from a bridge."""


class Allotment:
    """Allotment itself."""

    name, speaks_dlpack = "allotment", True

    def __init__(self) -> None:
        self.module: Any = import_module("allotment")

    def full(self, count: int, value: float) -> Any:
        return self.module.full(count, value, "float32", "cuda:0")

    def empty(self, count: int) -> Any:
        return self.module.empty(count, "float32", "cuda:0")

    def pointer(self, array: Any) -> int:
        return array.ptr

    def numpy(self, array: Any) -> Any:
        return array.numpy()

    def from_interface(self, array: Any) -> Any:
        return self.module.asarray(array)

    def from_dlpack(self, array: Any) -> Any:
        return self.module.from_dlpack(array)

    def synchronize(self) -> None:
        self.module.synchronize()

    def release(self) -> None:
        """Give back what the library keeps for itself: nothing."""


CLASSES = {kind.name: kind for kind in (Cupy, Torch, Numba, Warp, Allotment)}


def used() -> dict[str, int]:
    """Return what is handed out on ``cuda:0``, in bytes, of each allocator that has something out."""
    import allotment as al

    stats = al.memory_stats("cuda:0")["cuda:0"]
    return {name: each.current for name, each in stats.items() if each.current}


def let_go(*libraries: Any) -> None:
    """Take the bridges down and let the libraries give back all that is dropped."""
    import allotment as al

    gc.collect()
    for library in libraries:
        library.synchronize()
    al.uninstall()
    gc.collect()
    for library in libraries:
        library.release()
    gc.collect()
    al.synchronize()
    end = monotonic() + _PATIENCE
    while used() and monotonic() < end:  # PyTorch's segments come back a moment after it has let them go
        sleep(0.05)
        for library in libraries:
            library.release()
