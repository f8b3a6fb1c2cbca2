"""Where an engine gets memory from."""

from __future__ import annotations

from typing import Final, Protocol

PAST: Final = 0
"""A mark that all work is past."""
UNKNOWN: Final = -1
"""A mark that could not be set: nobody may ask now. It counts as not past, and another is set later."""


class Supply(Protocol):
    """The calls of a device that an engine makes, all of them rare: none happens while cached memory serves.

    Streams are named by their handles. What a call raises passes through the engine to the caller; `is_out_of_memory`
    tells a lack of memory, which the engine answers by giving up idle memory, from other failures.
    """

    granule: int
    """The bytes that memory is mapped in; 0 where the device cannot map, and memory comes in segments."""

    # Virtual memory: addresses, and memory behind them. None of these waits for work.

    def reserve(self, nbytes: int, /) -> int:
        """Return the start of a range of addresses with nothing behind them."""
        ...

    def unreserve(self, start: int, nbytes: int, /) -> None:
        """Give a range of addresses back, which nothing is behind."""
        ...

    def create(self, nbytes: int, /) -> int:
        """Return a handle of new memory."""
        ...

    def release(self, handle: int, /) -> None:
        """Give memory back, which is gone once it is mapped nowhere."""
        ...

    def map(self, start: int, nbytes: int, handle: int, /) -> None:
        """Put memory behind addresses, which cannot be touched before `grant`."""
        ...

    def unmap(self, start: int, nbytes: int, /) -> None:
        """Take away what is behind addresses."""
        ...

    def grant(self, start: int, nbytes: int, /) -> None:
        """Let the device, and those that it was shared with, touch mapped addresses."""
        ...

    def share(self, ordinal: int, ranges: list[tuple[int, int]], /, *, enable: bool) -> None:
        """Let another device touch mapped ranges, and what `grant` concerns from now on, or not."""
        ...

    # Segments, and the kinds of memory of the policy "mlx"

    def malloc(self, nbytes: int, /) -> int:
        """Return new memory of the device."""
        ...

    def free(self, ptr: int, /) -> None:
        """Give memory of `malloc` or `malloc_managed` back, after the device's work."""
        ...

    def malloc_managed(self, nbytes: int, /) -> int:
        """Return new managed memory."""
        ...

    def malloc_async(self, nbytes: int, stream: int, /) -> int:
        """Return new memory of the device's pool in the order of a stream."""
        ...

    def free_async(self, ptr: int, stream: int, /) -> None:
        """Give memory of `malloc_async` back in the order of a stream."""
        ...

    # Work in flight

    def mark(self, stream: int, /) -> int:
        """Return a mark of a stream's present end; `PAST` if there is no work, `UNKNOWN` if it cannot be set now."""
        ...

    def is_past(self, mark: int, /) -> bool:
        """Return whether the work before a mark is done; ``False`` also where nobody may ask now."""
        ...

    def drop(self, mark: int, /) -> None:
        """Forget a mark."""
        ...

    def synchronize(self, stream: int, /) -> bool:
        """Wait for a stream's work; return ``False``, at once, where nobody may wait now."""
        ...

    def forget(self, stream: int, /) -> None:
        """Forget a stream: nothing is cached for it any more."""
        ...

    def watch(self, stream: int, /) -> None:
        """Know a stream by its handle alone: a caller in C works on it."""
        ...

    def now(self) -> float:
        """Return the time in seconds, which only grows."""
        ...

    def is_out_of_memory(self, error: BaseException, /) -> bool:
        """Return whether a failure of one of these calls is a lack of memory."""
        ...
