"""Live blocks of all allocators that are tracked, those that a part of a program leaves behind, and damaged ones."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from warnings import warn

from allotment.errors import LeakWarning, UnsupportedError
from allotment.layers.guard import Guard
from allotment.layers.track import Track, leak_report
from allotment.statistics import accounts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.device import DeviceLike
    from allotment.layers.holder import Holder, LiveBlock

T = TypeVar("T")


def live_blocks(device: DeviceLike = None, allocator: str | None = None) -> list[LiveBlock]:
    """Return the live blocks of allocators with the layer ``track``, the largest first.

    Parameters
    ----------
    device
        One device; all if not given.
    allocator
        The name of one allocator; all if not given.
    """
    blocks = [block for layer in _layers(Track, device, allocator) for block in layer.live_blocks()]
    return sorted(blocks, key=lambda block: -block.nbytes)


def memory_holders(device: DeviceLike = None, allocator: str | None = None) -> list[Holder]:
    """Return the live blocks of `live_blocks` grouped by allocator, label and call site, the largest group first.

    At most the oldest 100,000 blocks of an allocator are looked at.
    """
    holders = [holder for layer in _layers(Track, device, allocator) for holder in layer.holders()]
    return sorted(holders, key=lambda holder: -holder.nbytes)


@contextmanager
def expect_no_leaks(device: DeviceLike = None, allocator: str | None = None) -> Iterator[None]:
    """Warn of blocks that were allocated in a ``with`` block and are live at its end.

    Parameters
    ----------
    device
        One device; all if not given.
    allocator
        The name of one allocator; all if not given.

    Warns
    -----
    LeakWarning
        If there are such blocks, with their call sites. Garbage is collected before they are counted; those of other
        threads count too.

    Raises
    ------
    UnsupportedError
        If no allocator in question has the layer ``track`` at the end, so that nothing can be said.

    Notes
    -----
    An exception that leaves the block is let through without a report: its traceback holds what it meets.
    """
    before = {layer: layer.mark() for layer in _layers(Track, device, allocator)}
    yield
    gc.collect()
    layers = tracking(device, allocator, "leaks cannot be seen")
    made = [block for layer in layers for block in layer.live_blocks() if block.number > before.get(layer, 0)]
    if made:
        report = leak_report(
            sorted(made, key=lambda block: -block.nbytes),
            "at the end of the scope that made " + ("it" if len(made) == 1 else "them"),
        )
        warn(LeakWarning(report), stacklevel=3)


def tracking(device: DeviceLike, allocator: str | None, loss: str) -> list[Track]:
    """Return the layers ``track`` of allocators.

    Raises
    ------
    UnsupportedError
        If there is none; ``loss`` is what does not go without.
    """
    layers = _layers(Track, device, allocator)
    if not layers:
        raise UnsupportedError(
            f"no allocator has the layer 'track', so {loss}. Ask for it before the first allocation: "
            "allotment.configure(layers=['track'])"
        )
    return layers


def check_guards(device: DeviceLike = None, allocator: str | None = None) -> None:
    """Look at all blocks of allocators with the layer ``guard`` now, also at freed ones in quarantine.

    Parameters
    ----------
    device
        One device; all if not given.
    allocator
        The name of one allocator; all if not given.

    Raises
    ------
    GuardError
        The first finding. Others are raised by the next call.
    """
    for layer in _layers(Guard, device, allocator):
        layer.check()


def _layers(kind: type[T], device: DeviceLike, allocator: str | None) -> list[T]:
    layers: list[object] = [layer for account in accounts_of(device, allocator) for layer in account.layers]
    return [layer for layer in layers if isinstance(layer, kind)]
