"""The plot of several replays of one trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from allotment.errors import TraceError, UnsupportedError
from allotment.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from allotment.trace import ReplayResult

MOMENTS: Final = 1000
"""How many figures of each replay are drawn: as many as there are points in a line of that width."""
_INCHES: Final = (9, 5)


def check_plot(path: Path) -> None:
    """Say that a plot cannot be drawn before there is anything to draw.

    Raises
    ------
    UnsupportedError
        If the package is not installed.
    ValueError
        If files of that kind cannot be written, or there is no such folder.
    """
    kinds = _figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"{str(path)!r} must end in one of {', '.join(f'.{kind}' for kind in sorted(kinds))}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {str(path.absolute().parent)!r}")


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"no plot can be drawn: the package matplotlib is not installed ({error}). "
            "Install it with: pip install 'allotment[plot]'."
        ) from error
    return Figure(figsize=_INCHES, layout="constrained")


def draw(results: Sequence[ReplayResult], title: str, path: Path) -> None:
    """Draw what each allocator reserved over the trace, and what the trace requested.

    Raises
    ------
    TraceError
        If the file cannot be written.
    """
    figure = _figure()
    axes = figure.subplots()
    unit, name = _unit(max((result.peak_reserved for result in results), default=0))
    fullest = max(results, key=lambda result: result.peak_requested)
    moments = [moment.events for moment in fullest.moments]
    requested = [moment.requested / unit for moment in fullest.moments]
    label = f"requested, at most {format_bytes(fullest.peak_requested)}"
    axes.fill_between(moments, requested, color="0.85", label=label)
    for result in results:
        moments = [moment.events for moment in result.moments]
        label = f"{result.allocator}, at most {format_bytes(result.peak_reserved)}"
        axes.plot(moments, [moment.reserved / unit for moment in result.moments], label=label)
    axes.set(title=title, xlabel="event of the trace", ylabel=f"reserved, {name}", ylim=(0, None), xlim=(0, None))
    axes.legend(loc="best")
    try:
        figure.savefig(path)
    except OSError as error:
        raise TraceError(origin=str(path), problem=f"it cannot be written: {error.strerror or error}") from error


_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def _unit(largest: int) -> tuple[int, str]:
    """Return the unit of an axis, in bytes and by name: the largest that the axis has two of."""
    return next((unit for unit in _UNITS if largest >= 2 * unit[0]), (1, "bytes"))
