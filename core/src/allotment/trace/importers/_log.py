"""Logs that are read line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment.errors import TraceError
from allotment.trace._file import refuse
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from allotment.trace._event import TraceEvent
    from allotment.trace._file import OnProblem


def parsed(
    file: BinaryIO, origin: str, on_problem: OnProblem, parse: Callable[[str], Iterable[TraceEvent]]
) -> Iterator[TraceEvent]:
    """Yield what becomes of each line of a file; lines that are refused by a `ValueError` are problems."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            events = parse(text) if text else ()
        except ValueError as error:
            on_problem(TraceError(origin=origin, line=number, problem=_told(error)))
            continue
        yield from events


def _told(error: ValueError) -> str:
    return f"it is not UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else str(error)


def report_strays(count: int, origin: str, on_problem: OnProblem) -> None:
    """Tell how many frees were left out because their allocation is not in the file; it is no reason to raise."""
    if count and on_problem is not refuse:
        what = "1 free is of a block that was" if count == 1 else f"{count:,} frees are of blocks that were"
        on_problem(TraceError(origin=origin, problem=f"{what} allocated before the file begins; left out"))


def whole_number(name: str, value: object) -> int:
    """Return a value that must be a count of bytes, an address or the like; text may have it in decimal or hex.

    Raises
    ------
    ValueError
        If it is none.
    """
    number = _as_number(value)
    if number is None or not 0 <= number <= MAX_BYTES:
        raise ValueError(f"{name} is {value!r}, and must be a whole number from 0 to 2^63 - 1")
    return number


def _as_number(value: object) -> int | None:
    if isinstance(value, str):
        digits = value.removeprefix("0x")
        is_plain = digits.isascii() and digits.isalnum() and len(digits) <= _MOST_DIGITS
        try:
            return int(digits, 10 if digits == value else 16) if is_plain else None
        except ValueError:
            return None
    return value if type(value) is int else None


_MOST_DIGITS = 20
"""The digits of the largest number of 64 bits."""
