"""Who holds memory: live blocks, one by one and grouped by label and call site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment.device import Device
    from allotment.layers.call_site import CallSite


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBlock:
    """A block that is handed out.

    Parameters
    ----------
    ptr, nbytes
        Its address, and the size that was asked for.
    device, allocator
        The names of both.
    label
        The label in force when it was allocated; see `allotment.label`.
    call_site
        Where it was allocated.
    stream
        The handle of the stream it was allocated on; ``None`` if the allocator takes no streams.
    number
        A running number: the younger of two blocks of an allocator has the greater one.
    """

    ptr: int
    nbytes: int
    device: str
    allocator: str
    label: str | None
    call_site: CallSite
    stream: int | None
    number: int

    def __str__(self) -> str:
        return f"{self.nbytes:,} bytes of {self.allocator!r} on {self.device!r}{_of(self.label)} from {self.call_site}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Live blocks of one label that were allocated at one place.

    Parameters
    ----------
    nbytes, blocks
        Their size together, and their number.
    allocator
        The name of their allocator.
    label
        Their label, if they have one.
    call_site
        Where they were allocated.
    """

    nbytes: int
    blocks: int
    allocator: str
    label: str | None
    call_site: CallSite

    def __str__(self) -> str:
        count = "1 block" if self.blocks == 1 else f"{self.blocks:,} blocks"
        return (
            f"{self.nbytes:,} bytes in {count} of {self.allocator!r}{_of(self.label)} from {self.call_site.innermost}"
        )


def _of(label: str | None) -> str:
    return "" if label is None else f" labelled {label!r}"


@runtime_checkable
class KnowsBlocks(Protocol):
    """A layer that knows who holds the blocks of its account, and who held those that were freed lately."""

    depth: int
    """How many frames of a call site it keeps."""

    def live_blocks(self) -> list[LiveBlock]:
        """Return the live blocks."""
        ...

    def holders(self) -> list[Holder]:
        """Return them grouped by label and call site, the largest group first. The cost is bounded."""
        ...

    def history(self, ptr: int) -> str | None:
        """Return where the block was allocated and freed that was last at an address, if it is remembered."""
        ...


def knowing_layers(device: Device) -> list[KnowsBlocks]:
    """Return the layers of a device's accounts that know blocks."""
    accounts = list(device.accounts.values())
    return [layer for account in accounts for layer in account.layers if isinstance(layer, KnowsBlocks)]


def largest_holders(device: Device, most: int = 5) -> tuple[Holder, ...] | None:
    """Return who holds most of a device's memory; ``None`` if no block of it is tracked."""
    return _largest(holder for layer in knowing_layers(device) for holder in layer.holders()[:most])[:most] or None


def _largest(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    return tuple(sorted(holders, key=lambda holder: -holder.nbytes))
