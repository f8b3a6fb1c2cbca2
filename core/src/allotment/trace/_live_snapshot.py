"""Writing what is live now as a memory snapshot of PyTorch."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from allotment.leaks import live_blocks, tracking
from allotment.trace._event import EventKind, TraceEvent, TraceSite, TraceSource
from allotment.trace._pytorch_format import (
    FrameLists,
    device_names,
    document,
    entry_of,
    gap,
    live_block,
    segment_of,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from allotment.device import DeviceLike
    from allotment.layers.holder import LiveBlock

_PAGE: Final = 2 * 2**20
"""The bytes in which a driver maps memory of a device: blocks that are closer lie in one piece of it."""


def memory_snapshot(path: str | Path, device: DeviceLike = None, allocator: str | None = None) -> None:
    """Write the live blocks of allocators with the layer ``track`` as a memory snapshot of PyTorch.

    Its memory viewer, https://pytorch.org/memory_viz, shows them by address and in the order of their allocation, with
    label and call site. It reads the file in the browser and sends it nowhere.

    Parameters
    ----------
    path
        The file to write.
    device
        One device; all if not given.
    allocator
        The name of one allocator; all if not given.

    Raises
    ------
    UnsupportedError
        If no allocator in question has the layer ``track``, so that nothing can be said.
    TraceError
        If the file cannot be written.

    Notes
    -----
    What an allocator holds beside the live blocks is not in it. Segments are the pieces of memory that blocks lie in
    with less than 2 MiB between them.
    """
    tracking(device, allocator, "live blocks are not known")
    write(_snapshot(live_blocks(device, allocator)), path)


def _snapshot(blocks: Sequence[LiveBlock]) -> dict[str, Any]:
    devices = device_names(sorted({block.device for block in blocks}))
    index = {device: number for number, device in enumerate(devices)}
    frames = FrameLists()
    traces: list[list[dict[str, Any]]] = [[] for _ in devices]
    for block in sorted(blocks, key=lambda block: block.number):
        event = _event(block)
        entry = entry_of(event, frames.of(event.site), block.label, action="alloc", addr=block.ptr)
        traces[index[block.device]].append(entry)
    segments = [
        segment_of(index[piece[0].device], piece[0].stream or 0, list(_without_gaps(piece, frames)))
        for piece in _pieces(blocks)
    ]
    return document(devices, traces, segments)


def _event(block: LiveBlock) -> TraceEvent:
    return TraceEvent(
        EventKind.ALLOCATE,
        block.number,
        block.nbytes,
        block.stream or 0,
        source=TraceSource(block.device, block.allocator),
        site=TraceSite(block.call_site.frames, block.call_site.library),
    )


def _pieces(blocks: Sequence[LiveBlock]) -> Iterator[list[LiveBlock]]:
    """Yield blocks by address that lie together: of one allocator, device and stream, and less than a page apart."""
    in_order = sorted(blocks, key=lambda block: (*_home(block), block.ptr))
    for _, group in groupby(in_order, key=_home):
        piece: list[LiveBlock] = []
        for block in group:
            if piece and not 0 <= block.ptr - (piece[-1].ptr + piece[-1].nbytes) < _PAGE:
                yield piece
                piece = []
            piece.append(block)
        yield piece


def _home(block: LiveBlock) -> tuple[str, str, int]:
    return block.device, block.allocator, block.stream or 0


def _without_gaps(piece: list[LiveBlock], frames: FrameLists) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a segment, the free ones in between too."""
    start = piece[0].ptr
    for block in piece:
        yield from gap(start, block.ptr)
        yield live_block(block.ptr, block.nbytes, block.nbytes, frames.of(_event(block).site))
        start = block.ptr + block.nbytes
