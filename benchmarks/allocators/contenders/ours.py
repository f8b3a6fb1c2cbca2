"""Allotment's allocators by name, and the floor below all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import allotment as al
from benchmarks.allocators.session import MissingError, Streams
from benchmarks.contenders import pair

if TYPE_CHECKING:
    from collections.abc import Callable


class AllotmentSession:
    """An allocator of Allotment; its two methods have the shape that is wanted here."""

    def __init__(
        self, limit: int | None, *, allocator: str, device: str = "cuda:0", limit_option: str = "", **options: Any
    ) -> None:
        if limit is not None:
            options[limit_option] = limit
        try:
            self._device = al.get_device(device)
            self._account = al.get_allocator(allocator, self._device, **options)
        except (al.PluginError, al.DeviceNotFoundError) as error:
            raise MissingError(str(error)) from error
        self.allocate, self.free = self._account.allocate, self._account.deallocate
        if self._device.is_cuda:
            self._streams = Streams(al.get_stream(self._device), self._make_stream)
        self._account.reset_peak()

    def _make_stream(self) -> al.Stream:
        return al.Stream(self._device, non_blocking=True)

    def use(self, stream: int) -> None:
        """Make a stream the one in force for the whole process."""
        if self._device.is_cuda:
            al.set_stream(self._streams[stream])

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two method calls."""
        return pair(self._account, size)

    def reserved(self) -> int:
        """Return what the allocator says that it holds, or else what it handed out."""
        return self._account.statistics().reserved

    def peak_reserved(self) -> int:
        """Return the high-water mark of the same."""
        return self._account.statistics().peak_reserved


class NullSession:
    """Hands out addresses that only go up. What it takes is the cost of the loop and of two calls in Python."""

    def __init__(self, limit: int | None = None) -> None:
        del limit
        self._next = 1 << 30

    def allocate(self, size: int) -> int:
        """Return the next address."""
        self._next += size
        return self._next

    def free(self, block: int, size: int) -> None:
        """Do nothing."""

    def use(self, stream: int) -> None:
        """Do nothing."""

    def pair(self, size: int) -> Callable[[], object]:
        """Return the two calls."""
        allocate, free = self.allocate, self.free

        def allocate_and_free() -> None:
            free(allocate(size), size)

        return allocate_and_free

    def reserved(self) -> None:
        """Return nothing: it holds none."""

    def peak_reserved(self) -> None:
        """Return nothing: it holds none."""
