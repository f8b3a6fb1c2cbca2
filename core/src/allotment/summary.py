"""How the memory of all allocators stands, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from allotment.statistics import accounts_of
from allotment.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from allotment.allocator import Statistics
    from allotment.device import DeviceLike


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """How one allocator stands on one device.

    Parameters
    ----------
    device, allocator
        The alias of the device and the name of the allocator.
    statistics
        Its accounts.
    largest_free
        The bytes of the largest request that needs no more of the device; ``None`` if the allocator does not say.
    """

    device: str
    allocator: str
    statistics: Statistics
    largest_free: int | None = None

    @property
    def idle(self) -> int:
        """Bytes that are held and not handed out; what sizes are rounded up by is part of it."""
        return self.statistics.reserved - self.statistics.current

    @property
    def utilisation(self) -> float | None:
        """The part of what is held now that is handed out; ``None`` if nothing is held."""
        return self.statistics.current / self.statistics.reserved if self.statistics.reserved else None

    @property
    def peak_fragmentation(self) -> float | None:
        """External fragmentation at the peak, 1 - peak / peak reserved; ``None`` if nothing was ever held."""
        held = self.statistics.peak_reserved
        return 1 - self.statistics.peak / held if held else None

    @property
    def fragmentation(self) -> float | None:
        """External fragmentation now, 1 - largest free / idle: 0 if none is idle, ``None`` if it is not known."""
        if self.largest_free is None:
            return None
        return 1 - min(self.largest_free, self.idle) / self.idle if self.idle else 0.0


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """A table of `MemoryRow`, one for each allocator that was used on a device.

    As text it is a plain table; `rich` prints it as its own.
    """

    rows: tuple[MemoryRow, ...]

    def __str__(self) -> str:
        if not self.rows:
            return "No allocator was used."
        lines = [tuple(title for title, _ in _COLUMNS), *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(_padded(line, widths) for line in lines)

    __repr__ = __str__

    def __rich__(self) -> Table | str:
        """Return what rich prints."""
        if not self.rows:
            return str(self)
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
        for title, is_number in _COLUMNS:
            table.add_column(title, justify="right" if is_number else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*_cells(row))
        return table


_COLUMNS: Final = (
    ("device", False),
    ("allocator", False),
    ("in use", True),
    ("peak", True),
    ("reserved", True),
    ("peak reserved", True),
    ("idle", True),
    ("allocations", True),
    ("frees", True),
    ("failed", True),
    ("utilisation", True),
    ("fragmented", True),
    ("at peak", True),
)
"""The titles, and whether the cells are numbers."""


def _cells(row: MemoryRow) -> tuple[str, ...]:
    stats = row.statistics
    amounts = (stats.current, stats.peak, stats.reserved, stats.peak_reserved, row.idle)
    calls = (stats.allocations, stats.frees, stats.failed_allocations + stats.failed_frees)
    parts = (row.utilisation, row.fragmentation, row.peak_fragmentation)
    return (
        row.device,
        row.allocator,
        *map(format_bytes, amounts),
        *(f"{number:,}" for number in calls),
        *("-" if part is None else f"{100 * part:.1f} %" for part in parts),
    )


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    columns = zip(cells, widths, _COLUMNS, strict=True)
    return "  ".join(cell.rjust(width) if column[1] else cell.ljust(width) for cell, width, column in columns).rstrip()


def memory_summary(device: DeviceLike = None, allocator: str | None = None) -> MemorySummary:
    """Return how the memory of the allocators that were used stands, to print or to look into.

    Parameters
    ----------
    device
        One device; all if not given.
    allocator
        The name of one allocator; all if not given.

    Raises
    ------
    DeviceNotFoundError
        If there is no such device.
    """
    rows = [
        MemoryRow(
            device=account.device.alias,
            allocator=account.name,
            statistics=account.statistics(),
            largest_free=account.largest_free(),
        )
        for account in accounts_of(device, allocator)
    ]
    return MemorySummary(tuple(rows))
