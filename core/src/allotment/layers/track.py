"""Who holds what: each live block with its label and the place in the program that allocated it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, NamedTuple
from warnings import warn

from allotment._process import on_shutdown
from allotment.errors import LeakWarning
from allotment.labels import current_label
from allotment.layers.call_site import capture_site, read_site
from allotment.layers.holder import Holder, LiveBlock
from allotment.layers.layer import Place
from allotment.units import not_negative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.call_site import CallSite, RawSite
    from allotment.layers.layer import Calls
    from allotment.stream import Stream

_MOST_GROUPED: Final = 100_000
"""How many blocks are grouped for an error: the oldest ones, which takes a tenth of a second at most."""
_MOST_NAMED: Final = 10
"""How many blocks a report names."""
_MOST_FREED: Final = 1024
"""How many freed blocks are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackOptions:
    """Options of the layer ``track``.

    Parameters
    ----------
    depth
        How many frames of the program are kept of each call site; 0 keeps labels only.
    report_at_exit
        Whether blocks that are live when the interpreter exits are named in a `LeakWarning`. Those of variables of
        modules are among them.
    """

    depth: Annotated[int, not_negative] = 6
    report_at_exit: bool = False


class _Entry(NamedTuple):
    number: int
    nbytes: int
    label: str | None
    site: RawSite
    stream: Stream | None


class Track:
    """Remembers of each live block its label, call site and stream, and of the last freed ones where they were freed.

    Blocks that belong to graphs are not tracked.

    Parameters
    ----------
    options
        See `TrackOptions`.
    device
        The device of the account.

    """

    name: ClassVar = "track"
    Options: ClassVar = TrackOptions
    place: ClassVar = Place.TRACK

    def __init__(self, options: TrackOptions, device: Device) -> None:
        self.depth = options.depth
        self._device, self._allocator = device, ""
        self._numbers = count(1)
        self._blocks: dict[int, _Entry] = {}
        self._freed: deque[tuple[int, RawSite, RawSite]] = deque(maxlen=_MOST_FREED)
        if options.report_at_exit:
            on_shutdown(self._report_at_exit)

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:
        """Return the calls with a note of each block."""
        self._allocator = account.name
        inner_allocate, inner_deallocate, _ = calls
        blocks, freed, depth, numbers = self._blocks, self._freed, self.depth, self._numbers

        def allocate(size: int, *stream: Stream) -> int:
            ptr = inner_allocate(size, *stream)
            blocks[ptr] = _Entry(
                next(numbers), size, current_label(), capture_site(depth), stream[0] if stream else None
            )
            return ptr

        def deallocate(ptr: int, size: int, *stream: Stream) -> None:
            entry = blocks.pop(ptr, None)  # before the allocator has it: it may hand the address out again
            try:
                inner_deallocate(ptr, size, *stream)
            except BaseException:
                if entry is not None:
                    blocks[ptr] = entry
                raise
            if entry is not None:
                freed.append((ptr, entry.site, capture_site(depth)))

        return calls._replace(allocate=allocate, deallocate=deallocate)

    def mark(self) -> int:
        """Return a number above those of the blocks so far and below those of later ones."""
        return next(self._numbers)

    def live_blocks(self) -> list[LiveBlock]:
        """Return the live blocks, the oldest first."""
        return [self._read(ptr, entry) for ptr, entry in list(self._blocks.items())]

    def _read(self, ptr: int, entry: _Entry) -> LiveBlock:
        return LiveBlock(
            ptr=ptr,
            nbytes=entry.nbytes,
            device=self._device.alias,
            allocator=self._allocator,
            label=entry.label,
            call_site=read_site(entry.site),
            stream=None if entry.stream is None else entry.stream.handle,
            number=entry.number,
        )

    def holders(self) -> list[Holder]:
        """Return the live blocks grouped by label and call site, the largest group first.

        At most the oldest 100,000 blocks are looked at.
        """
        sizes: dict[tuple[str | None, CallSite], list[int]] = {}
        read = lru_cache(None)(read_site)
        for entry in islice(list(self._blocks.values()), _MOST_GROUPED):
            sizes.setdefault((entry.label, read(entry.site)), []).append(entry.nbytes)
        largest = sorted(sizes.items(), key=lambda item: -sum(item[1]))
        return [
            Holder(nbytes=sum(nbytes), blocks=len(nbytes), allocator=self._allocator, label=label, call_site=call_site)
            for (label, call_site), nbytes in largest
        ]

    def history(self, ptr: int) -> str | None:
        """Return where the block was allocated and freed that was last at an address, if it is remembered."""
        for address, allocated, freed in reversed(list(self._freed)):
            if address == ptr:
                return f"The last block there was allocated at {read_site(allocated)} and freed at {read_site(freed)}."
        return None

    def _report_at_exit(self) -> None:
        if self._blocks:
            blocks = sorted(self.live_blocks(), key=lambda block: -block.nbytes)
            warn(LeakWarning(leak_report(blocks, "when the interpreter exits")), stacklevel=2)


def leak_report(blocks: Sequence[LiveBlock], when: str) -> str:
    """Return the text about blocks that are still live: the largest ones line by line."""
    count_of = "1 block is" if len(blocks) == 1 else f"{len(blocks):,} blocks are"
    lines = [f"{count_of} live {when}, {sum(block.nbytes for block in blocks):,} bytes:"]
    lines += [f"  {block}" for block in blocks[:_MOST_NAMED]]
    if len(blocks) > _MOST_NAMED:
        lines.append(f"  and {len(blocks) - _MOST_NAMED:,} more")
    return "\n".join(lines)
