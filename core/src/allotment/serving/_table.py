"""A tick as people read it. It imports rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from allotment.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from allotment.serving._pace import Tick
    from allotment.serving._reading import AllocatorStatus, DeviceStatus

_COLUMNS: Final = (
    ("device", False),
    ("allocator", False),
    ("in use", True),
    ("peak", True),
    ("reserved", True),
    ("allocs/s", True),
    ("allocations", True),
    ("failed", True),
)
"""The titles, and whether the cells are numbers."""
_UNKNOWN: Final = "–"


def view_of(tick: Tick, note: str | None = None) -> RenderableType:
    """Return what rich prints of a tick: a heading, the table, the devices, and what else is to be said.

    Parameters
    ----------
    tick
        The tick.
    note
        A line below.
    """
    from rich.console import Group
    from rich.text import Text

    status = tick.status
    where = "no device was used yet" if status.platform is None else status.platform
    lines: list[RenderableType] = [
        Text.assemble((f"process {status.pid}", "bold"), f"  {status.program}  ", (where, "dim"))
    ]
    if status.allocators:
        lines.append(_table(tick))
    elif status.platform is not None:
        lines.append(Text("No allocator was used."))
    lines += [Text(f"{_told(each)}", "dim") for each in status.devices if each.free is not None]
    lines += [
        Text(f"{each.allocator} on {each.device}: {each.problem}", "red") for each in status.allocators if each.problem
    ]
    if note is not None:
        lines.append(Text(note, "yellow"))
    return Group(*lines)


def _told(device: DeviceStatus) -> str:
    free = format_bytes(device.free or 0)
    return f"{device.device}: {free} free of {format_bytes(device.total)}, {device.name}"


def _table(tick: Tick) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for title, is_number in _COLUMNS:
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for each, rate in zip(tick.status.allocators, tick.rates, strict=True):
        table.add_row(*_cells(each, rate))
    return table


def _cells(each: AllocatorStatus, rate: float | None) -> tuple[str, ...]:
    amounts = (each.current, each.peak, each.reserved)
    return (
        each.device,
        each.allocator,
        *(_UNKNOWN if nbytes is None else format_bytes(nbytes) for nbytes in amounts),
        _UNKNOWN if rate is None else f"{rate:,.0f}",
        *(_UNKNOWN if number is None else f"{number:,}" for number in (each.allocations, each.failed)),
    )
