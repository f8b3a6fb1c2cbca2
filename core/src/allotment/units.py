"""Amounts of memory: parsing what people write, printing what they read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import Final

MAX_BYTES: Final = 2**63 - 1
"""The largest size that an allocator is ever asked for: what a signed 64-bit ``size_t`` user can hold."""

_DECIMAL: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY: Final = {f"{prefix}i": 2 ** (10 * power) for power, prefix in enumerate("kmgtp", start=1)}
_FACTORS: Final = _DECIMAL | _BINARY
_AMOUNT: Final = re.compile(
    r"\s*(?P<number>\d+(?:_\d+)*(?:\.\d+)?|\.\d+)\s*(?P<prefix>[kmgtp]i?)?(?P<unit>b|bytes?)?\s*", re.IGNORECASE
)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PERCENT: Final = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class MemoryAmount:
    """An amount of memory: bytes, or a fraction of a device's memory.

    Parameters
    ----------
    nbytes
        The amount in bytes. ``None`` where the amount is a fraction.
    fraction
        The part of a device's total memory, in ``(0, 1]``. ``None`` where the amount is in bytes.
    """

    nbytes: int | None = None
    fraction: float | None = None

    def __post_init__(self) -> None:
        if (self.nbytes is None) == (self.fraction is None):
            raise ValueError("an amount of memory is either bytes or a fraction")
        if self.nbytes is not None:
            check_range(self.nbytes)
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ValueError(f"a fraction of a device's memory is above 0 and at most 1, not {self.fraction!r}")

    def resolve(self, total: int) -> int:
        """Return the amount in bytes on a device with ``total`` bytes of memory."""
        if self.nbytes is not None:
            return self.nbytes
        return int((self.fraction or 0.0) * total)

    @classmethod
    def parse(cls, value: object) -> MemoryAmount:
        """Read an amount as the guides' release threshold is read.

        Parameters
        ----------
        value
            A number in ``(0, 1]`` is a fraction of the device's memory (1 is all of it); a larger whole number is
            bytes; zero and below are 0 bytes. Text is a size with a unit (``"2 GiB"``, ``"512MB"``), a percentage
            (``"50%"``) or one of these numbers.

        Raises
        ------
        TypeError
            For anything that is neither a number nor text.
        ValueError
            For text that cannot be read, a number above 1 that is not whole, NaN, infinity, or above 2^63 - 1.
        """
        if isinstance(value, MemoryAmount):
            return value
        if isinstance(value, str):
            return cls._parse_text(value)
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise TypeError(f"an amount of memory is a number or text such as '2 GiB', not {value!r}")
        return cls._parse_number(value)

    @classmethod
    def _parse_text(cls, text: str) -> MemoryAmount:
        if percent := _PERCENT.fullmatch(text):
            number = float(percent["number"])
            if number > 100:
                raise ValueError(f"{text!r} is more than 100 % of a device's memory")
            return cls._parse_number(number / 100)
        try:
            number = float(text) if "." in text or "e" in text.lower() else int(text)
        except ValueError:
            return cls(nbytes=parse_bytes(text))
        return cls._parse_number(number)

    @classmethod
    def _parse_number(cls, number: object) -> MemoryAmount:
        if isinstance(number, int):
            # Also numbers beyond the range of a float, which a file can hold.
            return cls(nbytes=check_range(number)) if number > 1 else cls._parse_number(float(max(number, 0)))
        as_float = float(number)  # type: ignore[arg-type]
        if not isfinite(as_float):
            raise ValueError(f"an amount of memory is finite, not {number!r}")
        if as_float <= 0:
            return cls(nbytes=0)
        if as_float <= 1:
            return cls(fraction=as_float)
        if as_float != int(as_float):
            raise ValueError(f"{number!r} is neither a fraction (0 to 1) nor a whole number of bytes")
        nbytes = int(number)  # type: ignore[call-overload]
        return cls(nbytes=check_range(nbytes))

    def __str__(self) -> str:
        return f"{100 * (self.fraction or 0):.3g} % of the device" if self.nbytes is None else format_bytes(self.nbytes)


def check_range(nbytes: int) -> int:
    """Return ``nbytes``, or raise `ValueError` if it is negative or above `MAX_BYTES`."""
    if nbytes < 0:
        raise ValueError(f"a size in bytes cannot be negative: {nbytes}")
    if nbytes > MAX_BYTES:
        raise ValueError(f"a size of {nbytes:,} bytes is above the largest that can be asked for, 2^63 - 1")
    return nbytes


def parse_bytes(text: str) -> int:
    """Read a size in bytes from text.

    Parameters
    ----------
    text
        A number with an optional unit: ``k``, ``M``, ``G``, ``T``, ``P`` are powers of 1000 and ``Ki`` … ``Pi`` powers
        of 1024, each with or without ``B``. Case does not matter.

    Raises
    ------
    ValueError
        If the text is not such a size, is not a whole number of bytes, or is above 2^63 - 1.

    Examples
    --------
    >>> parse_bytes("2 GiB"), parse_bytes("512MB"), parse_bytes("1.5k")
    (2147483648, 512000000, 1500)
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size: write a number and a unit, such as '2 GiB' or '512MB'")
    digits, prefix = match["number"].replace("_", ""), (match["prefix"] or "").lower()
    # Exact: 2.3 GB is a whole number of bytes, which 2.3 * 10**9 as a float is not.
    whole, _, part = digits.partition(".")
    nbytes, rest = divmod(int(whole + part) * _FACTORS[prefix], 10 ** len(part))
    if rest:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return check_range(nbytes)


def format_bytes(nbytes: int) -> str:
    """Return ``nbytes`` as people read it, in powers of 1024 with three significant digits.

    Examples
    --------
    >>> format_bytes(0), format_bytes(1536), format_bytes(150109880320)
    ('0 B', '1.5 KiB', '140 GiB')
    """
    size, units = float(nbytes), iter(_UNITS)
    unit = next(units)
    # A size is told in the unit in which it rounds to less than 1024.
    while abs(size) >= 1023.5 and unit != _UNITS[-1]:
        size, unit = size / 1024, next(units)
    return f"{size:.3g} {unit}" if abs(size) < 999.5 else f"{size:.0f} {unit}"


def positive(number: int) -> int:
    """Return a number of things of which there must be one; raise `ValueError` below that."""
    if number < 1:
        raise ValueError(f"expected a number from 1, got {number}")
    return number


def not_negative(number: int) -> int:
    """Return a number of things of which there may be none; raise `ValueError` below that."""
    if number < 0:
        raise ValueError(f"expected a number from 0, got {number}")
    return number
