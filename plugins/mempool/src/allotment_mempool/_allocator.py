"""The allocator over one CUDA memory pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from allotment import API_VERSION, AllocatorTraits, Availability, MemoryKind, PoolAttribute, Reservation, get_stream
from allotment_mempool._options import MempoolOptions

if TYPE_CHECKING:
    from allotment import Device, Stream


class MempoolAllocator:
    """Device memory from a pool that hands it out and takes it back in the order of a stream's work.

    Neither call waits for the device. The pool is Allotment's own, so no setting of another library changes, unless
    ``share_default_pool`` asks for the common one.

    Parameters
    ----------
    device
        The device it serves.
    options
        See `MempoolOptions`.

    Notes
    -----
    Memory is drawn with ``cudaMallocFromPoolAsync``. CuPy's ``MemoryAsyncPool`` would install the pool as the device's
    current one for every library of the process, open a context on every device, and read two attributes of the pool in
    each call, which ends a graph capture.
    """

    api_version: ClassVar = API_VERSION
    traits: ClassVar = AllocatorTraits(
        memory_kind=MemoryKind.CUDA_MEMPOOL,
        alignment=512,
        stream_ordered=True,
        capturable=True,
        straight_from_pool=True,
    )
    Options: ClassVar = MempoolOptions

    def __init__(self, *, device: Device, options: MempoolOptions | None = None) -> None:
        options = options or MempoolOptions()
        platform = device.platform
        self.device = device
        self._malloc_from_pool, self._free_async = platform.malloc_from_pool, platform.free_async
        self._is_shared = options.share_default_pool
        self.pool_handle = (
            platform.default_pool(device.ordinal) if self._is_shared else platform.create_pool(device.ordinal)
        )
        try:
            self._apply(options)
        except BaseException:
            self.close()
            raise

    def _apply(self, options: MempoolOptions) -> None:
        if options.release_threshold is not None:
            self._set_release_threshold(options.release_threshold.resolve(self.device.total_memory))
        elif not self._is_shared:
            self._set_release_threshold(self.device.total_memory)

    def _set_release_threshold(self, nbytes: int) -> None:
        self.device.platform.set_pool_attribute(self.pool_handle, PoolAttribute.RELEASE_THRESHOLD, nbytes)

    def _attribute(self, attribute: PoolAttribute) -> int:
        return self.device.platform.pool_attribute(self.pool_handle, attribute)

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a block that work queued on ``stream`` from now on may use."""
        return self._malloc_from_pool(size_in_bytes, self.pool_handle, stream.handle)

    def deallocate_on(self, ptr: int, size_in_bytes: int, stream: Stream) -> None:  # noqa: ARG002 - as the contract
        """Take a block back once the work queued on ``stream`` so far is done."""
        self._free_async(ptr, stream.handle)

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block that work on the stream in force may use."""
        return self.allocate_on(size_in_bytes, get_stream(self.device))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Take a block back in the order of the stream in force."""
        self.deallocate_on(ptr, size_in_bytes, get_stream(self.device))

    def reservation(self) -> Reservation:
        """Return what the pool holds of the device; of a shared pool, for all libraries together."""
        return Reservation(
            current=self._attribute(PoolAttribute.RESERVED_CURRENT), peak=self._attribute(PoolAttribute.RESERVED_HIGH)
        )

    def reset_peak_reservation(self) -> None:
        """Set the high-water marks of the pool, of reserved and of used memory, to the current values."""
        for mark in (PoolAttribute.RESERVED_HIGH, PoolAttribute.USED_HIGH):
            self.device.platform.set_pool_attribute(self.pool_handle, mark, 0)

    def trim(self, keep_bytes: int = 0) -> int:
        """Wait for the device and give idle memory back until at most ``keep_bytes`` are reserved."""
        before = self._attribute(PoolAttribute.RESERVED_CURRENT)
        if before <= keep_bytes:
            return 0
        self.device.synchronize()
        self.device.platform.trim_pool(self.pool_handle, keep_bytes)
        return before - self._attribute(PoolAttribute.RESERVED_CURRENT)

    def close(self) -> None:
        """Destroy the pool; a shared one is left alone."""
        if not self._is_shared:
            self.device.synchronize()
            self.device.platform.destroy_pool(self.pool_handle)

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Ask the device, not its driver's version, whether it has memory pools."""
        if device.is_cpu:
            return Availability(ok=False, reason="memory pools are a feature of CUDA devices")
        if not device.is_mempool_supported:
            return Availability(ok=False, reason="the device does not support memory pools; use allocator 'default'")
        return Availability(ok=True)
