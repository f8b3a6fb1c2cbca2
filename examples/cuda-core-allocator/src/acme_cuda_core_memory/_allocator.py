"""The allocator: a buffer of the resource for each block."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, ClassVar

from acme_cuda_core_memory._options import OWN_POOL, CudaCoreOptions
from acme_cuda_core_memory._resource import is_installed, make_resource
from allotment import API_VERSION, AllocatorTraits, Availability, MemoryKind, get_stream

if TYPE_CHECKING:
    from allotment import Device, Stream


class CudaCoreAllocator:
    """Memory of a ``cuda.core`` memory resource.

    Each call gets the stream. A block is the resource's ``Buffer``, kept until it is freed.

    Parameters
    ----------
    device
        The device it serves.
    options
        See `CudaCoreOptions`.

    Notes
    -----
    ``cuda.core`` reports a buffer whose release failed to standard error, or as a warning, and raises nothing:
    Allotment counts the block as freed then. A graph capture needs another resource than the arrays outside of it, so
    the allocator is not declared capturable.
    """

    api_version: ClassVar = API_VERSION
    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_MEMPOOL, alignment=256, stream_ordered=True)
    Options: ClassVar[type[CudaCoreOptions]] = CudaCoreOptions

    def __init__(self, *, device: Device, options: CudaCoreOptions | None = None) -> None:
        options = options or self.Options()
        self.device = device
        self.traits = self.traits_for(options)
        self._resource = make_resource(options, device.ordinal)
        self._waits = not options.keeps_stream_order
        self._closes = not options.is_pool or options.resource == OWN_POOL
        if options.is_pool:
            self.pool_handle = int(self._resource.handle)
        self._buffers: dict[int, Any] = {}
        # Never destroyed by the interpreter's end: each buffer would call the driver, which may be gone by then.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._buffers))

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a block that work queued on ``stream`` from now on may use."""
        try:
            buffer = self._resource.allocate(size_in_bytes, stream=self._as_cuda_core(stream))
        except Exception as error:
            if "OUT_OF_MEMORY" in str(error):  # the driver's name for it; cuda.core has one class for all its errors
                raise MemoryError(str(error)) from error
            raise
        ptr = int(buffer.handle)
        self._buffers[ptr] = buffer
        return ptr

    def deallocate_on(self, ptr: int, size_in_bytes: int, stream: Stream) -> None:  # noqa: ARG002 - as the contract
        """Take a block back once the work queued on ``stream`` so far is done."""
        if self._waits:
            self.device.synchronize()
        self._buffers.pop(ptr).close(self._as_cuda_core(stream))

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block that work on the stream in force may use."""
        return self.allocate_on(size_in_bytes, get_stream(self.device))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Take a block back in the order of the stream in force."""
        self.deallocate_on(ptr, size_in_bytes, get_stream(self.device))

    def _as_cuda_core(self, stream: Stream) -> Any:
        """Return the stream as ``cuda.core`` has it; a resource that no device reaches knows none."""
        from cuda.core import LEGACY_DEFAULT_STREAM
        from cuda.core import Stream as CudaCoreStream

        if not self._resource.is_device_accessible:
            return None
        return CudaCoreStream.from_handle(stream.handle) if stream.handle else LEGACY_DEFAULT_STREAM

    def close(self) -> None:
        """Close the resource, if it was made for this allocator and can be closed."""
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._buffers))
        if self._closes and hasattr(self._resource, "close"):
            self.device.synchronize()
            self._resource.close()

    @classmethod
    def traits_for(cls, options: CudaCoreOptions) -> AllocatorTraits:
        """Return what holds for a pool; of another resource, nothing is known but what options say."""
        if options.is_pool and options.keeps_stream_order:
            return cls.traits
        kind = MemoryKind.CUDA_MEMPOOL if options.is_pool else MemoryKind.UNKNOWN
        return AllocatorTraits(memory_kind=kind, alignment=256, stream_ordered=options.keeps_stream_order)

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Say that it serves real CUDA devices with memory pools, where ``cuda.core`` is installed."""
        if not device.is_cuda:
            return Availability(ok=False, reason="cuda.core has memory of CUDA devices")
        if device.platform.name != "cuda":
            return Availability(
                ok=False, reason=f"cuda.core reaches real devices only, and this is {device.platform.name}"
            )
        if not is_installed():
            remedy = "pip install 'acme-cuda-core-memory[cuda13]' (cuda12 likewise)"
            return Availability(ok=False, reason=f"cuda.core is not installed: {remedy}")
        if not device.is_mempool_supported:
            return Availability(ok=False, reason="the device does not support memory pools")
        return Availability(ok=True)
