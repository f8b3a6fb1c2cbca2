"""Writing traces as memory snapshots of PyTorch.

A trace has no addresses, so blocks get made-up ones: each stream of a device has one segment, and a new block takes the
place of a freed one of its size, or else the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from allotment.trace._event import EventKind, TraceEvent, TraceSource
from allotment.trace._ledger import TraceLedger
from allotment.trace._pytorch_format import (
    FIRST_DEVICE,
    FrameLists,
    device_names,
    document,
    entry_of,
    gap,
    live_block,
    segment_of,
    write,
)
from allotment.trace._summary import checked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from allotment.trace._pytorch_format import Frames

_ALIGNMENT: Final = 512
_FIRST_ADDRESS: Final = 1 << 32
"""Where the made-up segments begin; the viewer's numbers are exact up to 2^53."""


def write_pytorch_snapshot(events: Iterable[TraceEvent], path: str | Path) -> None:
    """Write a trace as a memory snapshot of PyTorch, for its memory viewer at https://pytorch.org/memory_viz.

    Parameters
    ----------
    events
        The trace; it is held in memory as a whole.
    path
        The file to write.

    Raises
    ------
    TraceError
        If an event cannot follow those before, or the file cannot be written.

    Notes
    -----
    Sizes, times, call sites, labels (as categories) and streams are those of the trace. Addresses and segments are made
    up, so the viewer's heap map shows no real fragmentation; the free memory of out-of-memory events is unknown and
    given as 0.
    """
    builder = _Builder()
    for event in checked(events, TraceLedger()):
        builder.add(event)
    write(builder.document(), path)


@dataclass(slots=True)
class _Block:
    """A live block: where in its segment it is, what was asked for, and what is known of its allocation."""

    offset: int
    size: int
    frames: Frames
    label: str | None


@dataclass(slots=True)
class _Segment:
    """The made-up segment of one stream of a device.

    Parameters
    ----------
    address
        Where it begins; told once all segments are complete.
    extent
        The bytes that were ever in use.
    vacant
        The offsets of freed blocks by their size.
    live
        The live blocks by their number.
    """

    address: int = 0
    extent: int = 0
    vacant: dict[int, list[int]] = field(default_factory=dict)
    live: dict[int, _Block] = field(default_factory=dict)

    def place(self, size: int) -> int:
        if vacant := self.vacant.get(_rounded(size)):
            return vacant.pop()
        self.extent += _rounded(size)
        return self.extent - _rounded(size)

    def vacate(self, block: _Block) -> None:
        self.vacant.setdefault(_rounded(block.size), []).append(block.offset)

    def blocks(self) -> list[dict[str, Any]]:
        """Return the live blocks and the gaps between them."""
        blocks: list[dict[str, Any]] = []
        start = self.address
        for each in sorted(self.live.values(), key=lambda block: block.offset):
            address, size = self.address + each.offset, _rounded(each.size)
            blocks += [*gap(start, address), live_block(address, size, each.size, each.frames)]
            start = address + size
        return blocks + gap(start, self.address + self.extent)


def _rounded(size: int) -> int:
    return max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a device's trace; the address in it is relative to a segment."""

    device: str
    segment: _Segment | None
    content: dict[str, Any]


class _Builder:
    """Makes a snapshot of events, one after the other."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._segments: dict[tuple[str, int], _Segment] = {}
        self._homes: dict[int, _Segment] = {}
        self._frames = FrameLists()

    def add(self, event: TraceEvent) -> None:
        """Add an event that can follow those before."""
        device = (event.source or TraceSource()).device or FIRST_DEVICE
        if event.kind is EventKind.FREE:
            self._free(event, device)
        elif event.kind is EventKind.OUT_OF_MEMORY:
            self._enter(event, device, None, event.label, action="oom", device_free=0)
        else:
            self._allocate(event, device)

    def _allocate(self, event: TraceEvent, device: str) -> None:
        segment = self._segments.setdefault((device, event.stream), _Segment())
        frames = self._frames.of(event.site)
        segment.live[event.id] = block = _Block(segment.place(event.size), event.size, frames, event.label)
        self._homes[event.id] = segment
        held = {"held": True} if event.kind is EventKind.HELD else {}
        self._enter(event, device, segment, event.label, action="alloc", addr=block.offset, **held)

    def _free(self, event: TraceEvent, device: str) -> None:
        segment = self._homes.pop(event.id)
        block = segment.live.pop(event.id)
        segment.vacate(block)
        for action in ("free_requested", "free_completed"):
            self._enter(event, device, segment, block.label, action=action, addr=block.offset)

    def _enter(
        self, event: TraceEvent, device: str, segment: _Segment | None, label: str | None, **content: Any
    ) -> None:
        entry = entry_of(event, self._frames.of(event.site), label, **content)
        self._entries.append(_Entry(device, segment, entry))

    def document(self) -> dict[str, Any]:
        """Return the snapshot, once all events are added."""
        end = _FIRST_ADDRESS
        for segment in self._segments.values():
            segment.address, end = end, end + segment.extent
        devices = device_names(entry.device for entry in self._entries)
        index = {device: number for number, device in enumerate(devices)}
        traces: list[list[dict[str, Any]]] = [[] for _ in devices]
        for entry in self._entries:
            if entry.segment is not None:
                entry.content["addr"] += entry.segment.address
            traces[index[entry.device]].append(entry.content)
        segments = [
            segment_of(index[device], stream, segment.blocks()) for (device, stream), segment in self._segments.items()
        ]
        return document(devices, traces, segments)
