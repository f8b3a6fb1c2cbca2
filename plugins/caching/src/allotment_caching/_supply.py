"""Memory from a device's platform, as the engine asks for it."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from allotment import MemoryAdvice, PoolAccess, PoolAttribute, Stream
from allotment_caching.engine.streams import Streams
from allotment_caching.engine.supply import PAST, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment import Device, PlatformError

T = TypeVar("T")

DRIVER_FUNCTIONS: Final = (
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
)
"""In the order of ``driver::Functions`` in native/driver.hpp."""


class PlatformSupply:
    """The calls of one device.

    Parameters
    ----------
    device
        The device.
    maps_memory
        Whether memory is mapped where the device can; otherwise it comes in segments.

    Attributes
    ----------
    granule : int
        What memory is mapped in; 0 if it is not.
    streams : Streams
        The streams that were seen. One that was closed has no work left: closing waits.
    stream_owners : list of callables
        Each returns a stream's object by its handle, if it is current in a library that allocates in C, or raises.
    """

    def __init__(self, device: Device, *, maps_memory: bool = True) -> None:
        self._device, self._platform, self._ordinal = device, device.platform, device.ordinal
        self.granule = 0
        if maps_memory and device.is_virtual_memory_supported:
            self.granule = self._platform.mapping_granularity(self._ordinal)
        self.streams = Streams()
        self.stream_owners: list[Callable[[int], Any]] = []
        self._readers = [self._ordinal]

    # Virtual memory

    def reserve(self, nbytes: int) -> int:
        """Return the start of a range of addresses with nothing behind them."""
        return self._platform.address_range(nbytes)

    def unreserve(self, start: int, nbytes: int) -> None:
        """Give a range of addresses back."""
        self._platform.free_address_range(start, nbytes)

    def create(self, nbytes: int) -> int:
        """Return a handle of new memory."""
        return self._platform.create_physical(self._ordinal, nbytes)

    def release(self, handle: int) -> None:
        """Give memory back."""
        self._platform.release_physical(handle)

    def map(self, start: int, nbytes: int, handle: int) -> None:
        """Put memory behind addresses."""
        self._platform.map_physical(start, nbytes, handle)

    def unmap(self, start: int, nbytes: int) -> None:
        """Take away what is behind addresses."""
        self._platform.unmap_physical(start, nbytes)

    def grant(self, start: int, nbytes: int) -> None:
        """Let the device, and those that it was shared with, touch mapped addresses."""
        for ordinal in self._readers:
            self._platform.set_mapping_access(start, nbytes, ordinal, PoolAccess.READ_WRITE)

    def share(self, ordinal: int, regions: list[tuple[int, int]], *, enable: bool) -> None:
        """Let another device touch all that is mapped in regions, and all that will be, or not."""
        done: list[tuple[int, int]] = []
        try:
            for start, nbytes in regions:
                self._platform.set_mapping_access(start, nbytes, ordinal, _access(enable))
                done.append((start, nbytes))
        except BaseException:
            for start, nbytes in done:
                self._platform.set_mapping_access(start, nbytes, ordinal, _access(not enable))
            raise
        self._readers = [reader for reader in self._readers if reader != ordinal] + [ordinal] * enable

    # Segments, and the memory of the policy "mlx"

    def malloc(self, nbytes: int) -> int:
        """Return new memory of the device."""
        return self._on_device(self._platform.malloc, nbytes, undo=self._platform.free)

    def free(self, ptr: int) -> None:
        """Give memory of `malloc` or `malloc_managed` back, after the device's work."""
        self._on_device(self._platform.free, ptr)

    def malloc_managed(self, nbytes: int) -> int:
        """Return new managed memory, which every device that can will access."""
        ptr = self._on_device(self._platform.malloc_managed, nbytes, undo=self._platform.free)
        try:
            for device in self._device.registry.cuda:
                if device.is_concurrent_managed_access_supported:
                    advice = MemoryAdvice.SET_ACCESSED_BY, device.ordinal
                    self._device.captures.relaxed(self._platform.advise, ptr, nbytes, *advice)
        except BaseException:
            self.free(ptr)
            raise
        return ptr

    def malloc_async(self, nbytes: int, stream: int) -> int:
        """Return new memory of the device's default pool in the order of a stream."""
        pool = self._platform.default_pool(self._ordinal)
        return self._on_device(
            self._platform.malloc_from_pool,
            nbytes,
            pool,
            stream,
            undo=lambda ptr: self._platform.free_async(ptr, stream),
        )

    def free_async(self, ptr: int, stream: int) -> None:
        """Give memory of `malloc_async` back in the order of a stream; of the null stream if that was closed."""
        found = self.streams.find(stream)
        is_gone = found is None or found.is_closed
        self._on_device(self._platform.free_async, ptr, 0 if is_gone else stream)

    def may_free(self, stream: int) -> bool:  # noqa: ARG002 - the platform tells of captures, not of streams
        """Return whether `free_async` frees now: in a capture it would become part of the graph."""
        return not self._may_not_ask

    def share_pool(self, ordinal: int, *, enable: bool) -> None:
        """Let another device touch memory of the device's default pool, or not."""
        self._platform.set_pool_access(self._platform.default_pool(self._ordinal), ordinal, _access(enable))

    def pool_reserved(self) -> int:
        """Return what the device's default pool holds."""
        return self._platform.pool_attribute(self._platform.default_pool(self._ordinal), PoolAttribute.RESERVED_CURRENT)

    def _on_device(self, call: Callable[..., T], *arguments: int, undo: Callable[[T], object] | None = None) -> T:
        """Make a call with the device current; undo it if what was current before cannot be restored."""
        before = self._platform.switch_device(self._ordinal)
        try:
            result: T = self._device.captures.relaxed(call, *arguments)
        except BaseException:
            self._platform.restore_context(before)
            raise
        try:
            self._platform.restore_context(before)
        except BaseException:
            if undo is not None:
                undo(result)
            raise
        return result

    # Work in flight

    def mark(self, stream: int) -> int:
        """Return a mark of a stream's present end: an event."""
        if self._may_not_ask:
            return UNKNOWN
        found = self.streams.find(stream)
        if found is None:
            return UNKNOWN
        if found.is_closed:
            return PAST
        event = self._on_device(self._platform.create_event, self._ordinal, undo=self._platform.destroy_event)
        try:
            self._platform.record_event(event, stream, self._ordinal)
        except BaseException:
            self._platform.destroy_event(event)
            raise
        return event

    def is_past(self, mark: int) -> bool:
        """Return whether the work before a mark is done."""
        return not self._may_not_ask and self._platform.event_is_done(mark)

    def drop(self, mark: int) -> None:
        """Forget a mark."""
        self._platform.destroy_event(mark)

    def synchronize(self, stream: int) -> bool:
        """Wait for a stream's work, unless a capture is under way, which that would end."""
        found = self.streams.find(stream)
        if self._may_not_ask or found is None:
            return False
        if not found.is_closed:
            self._platform.synchronize_stream(stream, self._ordinal)
        return True

    @property
    def _may_not_ask(self) -> bool:
        """Whether a graph is captured: asking whether work is done would end it."""
        return bool(self._device.captures.on_devices)

    def forget(self, stream: int) -> None:
        """Forget a stream, which may be destroyed now."""
        self.streams.forget(stream)

    def watch(self, stream: int) -> None:
        """Know a stream by its handle, and keep the object of it that a library has current."""
        found = self._current_in_library(stream)
        if self.streams.find(stream) is None:
            self.streams.see(found or Stream.from_external(stream, self._device))

    def _current_in_library(self, handle: int) -> Stream | None:
        found = (find_owner(handle) for find_owner in self.stream_owners)
        owner = next((owner for owner in found if owner is not None), None)
        return None if owner is None else Stream.from_external(owner, self._device)

    now = staticmethod(monotonic)

    @property
    def ordinal(self) -> int:
        """The device's number."""
        return self._ordinal

    def driver_functions(self) -> list[int]:
        """Return the addresses of the driver's functions that compiled code calls; none without a driver."""
        if not self.granule:
            return []
        addresses = [self._platform.driver_entry_point(name) for name in DRIVER_FUNCTIONS]
        return addresses if all(addresses) else []

    def driver_error(self, call: str, result: int) -> PlatformError:
        """Return the error for what one of these functions answered."""
        return self._platform.driver_error(call, result)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether a failure is a lack of memory."""
        found = self._platform.error_from(error)
        return found is not None and found.is_out_of_memory


def _access(is_granted: bool) -> PoolAccess:
    return PoolAccess.READ_WRITE if is_granted else PoolAccess.NONE
