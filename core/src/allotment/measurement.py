"""How much memory a part of a program allocates and frees: scopes that measure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from allotment.layers.measure import Count, MeasuredScope, meter, scopes
from allotment.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCount:
    """What a scope counted, in bytes, as they were asked for, and in calls.

    Parameters
    ----------
    current, peak
        Bytes of blocks that were allocated in the scope and are live, and the most of them at once. What was live
        before the scope is not in them, so a peak tells what the part of the program needs on top.
    allocations, allocated_bytes
        Blocks that were allocated in the scope, and their bytes.
    frees, freed_bytes
        Those of them that were freed while the scope was open, in whatever thread or task.
    outside_frees, outside_freed_bytes
        Blocks that were freed in the scope, but allocated outside of it.
    """

    current: int = 0
    peak: int = 0
    allocations: int = 0
    frees: int = 0
    allocated_bytes: int = 0
    freed_bytes: int = 0
    outside_frees: int = 0
    outside_freed_bytes: int = 0

    def __str__(self) -> str:
        text = (
            f"peak {format_bytes(self.peak)}, {format_bytes(self.current)} kept; {_blocks(self.allocations)} of "
            f"{format_bytes(self.allocated_bytes)} allocated, {self.frees:,} of {format_bytes(self.freed_bytes)} freed"
        )
        if self.outside_frees:
            text += f", and {self.outside_frees:,} of {format_bytes(self.outside_freed_bytes)} from outside"
        return text


def _blocks(number: int) -> str:
    return f"{number:,} block" if number == 1 else f"{number:,} blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(MemoryCount):
    """What a scope counted on all devices together, and on each; the peak is that of their sum.

    Parameters
    ----------
    name
        What the scope is called.
    devices
        The figures of each device that was used, by its alias.
    """

    name: str = ""
    devices: Mapping[str, MemoryCount] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.name or 'measured'}: {MemoryCount.__str__(self)}"]
        if len(self.devices) > 1:
            lines += [f"  {device}: {count}" for device, count in self.devices.items()]
        return "\n".join(lines)


_FIGURES: Final = tuple(item.name for item in fields(MemoryCount))


def _figures(count: Count) -> dict[str, int]:
    return {name: getattr(count, name) for name in _FIGURES}


class ScopedMeasurement:
    """What `measure` returns. Entered, it counts; its figures are those so far, and those of the scope once it is left.

    Parameters
    ----------
    name
        What the scope is called.

    Notes
    -----
    It may be entered again: it then begins anew. Entered by several threads or tasks at once, it tells of the scope
    that was opened last; give each its own.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._scope = MeasuredScope(is_open=False)
        self._opened: list[MeasuredScope] = []

    def __enter__(self) -> Self:
        self._scope = meter.open()
        self._opened.append(self._scope)
        scopes.push(self, self._scope)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # In a context that never entered it, as when a generator is closed from elsewhere, the stack does not know it.
        scope = scopes.pop(self) or self._opened[-1]
        self._opened.remove(scope)
        meter.close(scope)

    @property
    def result(self) -> Measurement:
        """All figures, as they are now: those of the scope once it is left."""
        with meter.lock():
            total = _figures(self._scope.total)
            devices = {alias: _figures(count) for alias, count in self._scope.devices.copy().items()}
        counts = {alias: MemoryCount(**figures) for alias, figures in devices.items()}
        return Measurement(**total, name=self.name, devices=MappingProxyType(counts))

    @property
    def current(self) -> int:
        """Bytes that were allocated in the scope and are live."""
        return self._scope.total.current

    @property
    def peak(self) -> int:
        """The most of them at once."""
        return self._scope.total.peak

    def __str__(self) -> str:
        return str(self.result)

    def __repr__(self) -> str:
        state = "open" if self._scope.is_open else "closed"
        return f"<{state} measurement {self.name!r}: {MemoryCount.__str__(self.result)}>"


def measure(name: str = "") -> ScopedMeasurement:
    """Count what is allocated and freed in a ``with`` block, by the thread or task that is in it.

    Parameters
    ----------
    name
        What the scope is called where its figures are printed.

    Returns
    -------
    ScopedMeasurement
        To be entered. ``result`` of it is a `Measurement`, also while it is open.

    Notes
    -----
    Scopes nest, and what an inner one counts its outer ones count too. A task that is made in a scope is in it;
    threads start outside of all scopes. A block belongs to the scopes that it was allocated in, whoever frees it.
    Memory that a graph owns is not counted: it is allocated at each launch. Allocators pay for it only while a scope
    is open.

    Examples
    --------
    >>> import allotment as al
    >>> with al.simulate("2xh200"), al.measure("step") as step:
    ...     for _ in range(3):
    ...         array = al.empty(1024, "uint8", "cuda:0")
    >>> print(step)
    step: peak 2 KiB, 1 KiB kept; 3 blocks of 3 KiB allocated, 2 of 2 KiB freed
    """
    return ScopedMeasurement(name)
