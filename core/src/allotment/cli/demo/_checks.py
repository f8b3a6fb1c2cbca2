"""What the demo does with arrays, each result compared with NumPy's."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allotment.copying import array, copy
from allotment.factories import empty, full, ones, zeros
from allotment.memory_kind import MemoryKind
from allotment.selection import get_allocator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from allotment._array import Array
    from allotment.device import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a check works with.

    Parameters
    ----------
    allocator
        The name of the allocator that the configuration names.
    device
        The device that draws from it.
    others
        The devices to copy to and from.
    has_pinned
        Whether arrays in page-locked memory can be made.
    """

    allocator: str
    device: Device
    others: tuple[Device, ...]
    has_pinned: bool


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison.

    Parameters
    ----------
    subject
        What it is about; several checks have the same.
    text
        What was compared, or what went wrong.
    ok
        Whether it came out as it should.
    """

    subject: str
    text: str
    ok: bool


def run_checks(bench: Bench) -> Iterator[Check]:
    """Yield the outcome of every check. What a check raises is an outcome that is not right."""
    for subject, look in _CHECKS:
        try:
            for text, right in look(bench):
                yield Check(subject, text, bool(right))
        except Exception as error:  # noqa: BLE001 - an allocator on trial may raise anything
            yield Check(subject, f"{type(error).__name__}: {error}", ok=False)


_SHAPES: Final = ((1,), (1000,), (17, 31), (4, 5, 6), (0, 3), ())
_TYPES: Final = ("float64", "float32", "float16", "int64", "int16", "uint8", "bool", "complex64")


def _sample(shape: tuple[int, ...], dtype: Any = "int64") -> NDArray[Any]:
    return (np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(dtype)


def _same(ours: Array, expected: NDArray[Any]) -> bool:
    found = ours.numpy()
    return found.dtype == expected.dtype and found.shape == expected.shape and np.array_equal(found, expected)


def _choice(bench: Bench) -> Iterator[tuple[str, bool]]:
    found = empty(8, device=bench.device)
    named = get_allocator(bench.allocator, bench.device)
    yield f"an array drew from {found.allocator.name!r}", found.allocator is named
    declared = named.memory_kind
    yield f"its memory is {found.memory_kind.name}", declared in (MemoryKind.UNKNOWN, found.memory_kind)


def _round_trips(bench: Bench) -> Iterator[tuple[str, bool]]:
    for shape in _SHAPES:
        data = _sample(shape)
        yield f"int64 {shape} came back", _same(array(data, device=bench.device), data)
    for dtype in _TYPES:
        data = _sample((7, 9), dtype)
        yield f"{dtype} (7, 9) came back", _same(array(data, device=bench.device), data)


def _views(bench: Bench) -> Iterator[tuple[str, bool]]:
    data = _sample((8, 12))
    ours = array(data, device=bench.device)
    yield "a slice", _same(ours[2:6], data[2:6])
    yield "every third column", _same(ours[:, ::3], data[:, ::3])
    yield "rows backwards", _same(ours[::-1], data[::-1])
    yield "the transpose", _same(ours.T, data.T)
    yield "another shape", _same(ours.reshape(4, 24), data.reshape(4, 24))
    part = ours[3]
    del ours
    yield "a row that outlives its array", _same(part, data[3])


def _fills(bench: Bench) -> Iterator[tuple[str, bool]]:
    shape = (6, 10)
    yield "zeros", _same(zeros(shape, np.float32, bench.device), np.zeros(shape, np.float32))
    yield "ones", _same(ones(shape, np.int16, bench.device), np.ones(shape, np.int16))
    yield "a value", _same(full(shape, 2.5, device=bench.device), np.full(shape, 2.5))
    ours, data = zeros(shape, device=bench.device), np.zeros(shape)
    ours[1:4, ::2].fill_(-7)
    data[1:4, ::2] = -7
    yield "a value in part of an array", _same(ours, data)


def _copies(bench: Bench) -> Iterator[tuple[str, bool]]:
    data = _sample((64, 33), np.float32)
    here = array(data, device=bench.device)
    yield "a copy on the device", _same(here.copy(), data)
    for other in bench.others:
        there = here.to(other)
        yield f"to {other.alias}", there.device is other and _same(there, data)
        back = empty(data.shape, data.dtype, bench.device)
        copy(back, there)
        yield f"back from {other.alias}", _same(back, data)
    if bench.has_pinned:
        page_locked = empty(data.shape, data.dtype, "cpu", pinned=True)
        copy(page_locked, here)
        bench.device.synchronize()
        yield "into page-locked memory", _same(page_locked, data)


def _accounts(bench: Bench) -> Iterator[tuple[str, bool]]:
    accounts = get_allocator(None, bench.device)
    gc.collect()  # what failed before, here or in another allocator's trial, may hold arrays in a cycle
    before = accounts.statistics()
    block = empty(1000, np.uint8, bench.device)
    held = accounts.statistics()
    yield "an array is on the books", (held.live, held.current) == (before.live + 1, before.current + 1000)
    del block
    after = accounts.statistics()
    yield "all arrays of the demo are off the books", (after.live, after.current) == (0, 0)


_CHECKS: Final[tuple[tuple[str, Callable[[Bench], Iterator[tuple[str, bool]]]], ...]] = (
    ("the file decides where arrays come from", _choice),
    ("arrays of many shapes and types come back as they were", _round_trips),
    ("views show what NumPy's show", _views),
    ("fills write what NumPy's write", _fills),
    ("copies between memories arrive unchanged", _copies),
    ("the books are right when all is freed", _accounts),
)
