"""Rules F: functions that libraries call in C."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar, cast

import pytest

from allotment.allocator import KeepsAccounts, SupportsCFunctions
from allotment.errors import UnsupportedError
from allotment.testing._allocation import SIZES
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._memory import pattern
from allotment.testing._rule import rule
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.testing._subject import BareCalls, Subject

_ALLOCATE: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_FREE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_CLIENT_ALLOCATE: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_CLIENT_FREE: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_FIND_STREAM: Final = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)


T = TypeVar("T")


class CFunctionTests(AllocatorFixtures):
    """Rules F: functions that libraries call in C."""

    @rule("F1")
    def test_functions_in_c_hand_out_memory_and_take_it_back(self, subject: Subject) -> None:
        calls, ordinal = _with_functions(subject), subject.device.ordinal
        functions = _known_here(cast("SupportsCFunctions", calls.allocator).c_functions)
        allocate, free = _ALLOCATE(functions.allocate), _FREE(functions.free)

        _check(
            subject,
            calls,
            lambda size: allocate(size, ordinal, None),
            lambda ptr, size: free(ptr, size, ordinal, None),
        )

    @rule("F1")
    def test_a_client_in_c_gets_memory_and_gives_it_back(self, subject: Subject) -> None:
        calls, ordinal = _with_functions(subject), subject.device.ordinal
        find_stream = _FIND_STREAM(lambda: 0)
        address = ctypes.cast(find_stream, ctypes.c_void_p).value
        allocator = cast("SupportsCFunctions", calls.allocator)
        client = _known_here(lambda: allocator.c_client(address or 0))
        allocate, free = _CLIENT_ALLOCATE(client.allocate), _CLIENT_FREE(client.free)

        _check(
            subject,
            calls,
            lambda size: allocate(client.param, size, ordinal),
            lambda ptr, _: free(client.param, ptr, ordinal),
        )


def _with_functions(subject: Subject) -> BareCalls:
    subject.require(SupportsCFunctions, "it has no functions in C")
    _ = subject.simulation  # on real devices they would serve for ever
    return subject.bare()


def _known_here(question: Callable[[], T]) -> T:
    """Return what the allocator answers, or skip the test where it says that there is nothing."""
    try:
        return question()
    except UnsupportedError as unsupported:
        pytest.skip(str(unsupported))


def _check(
    subject: Subject,
    calls: BareCalls,
    allocate: Callable[[int], int | None],
    free: Callable[[int, int], object],
) -> None:
    """Check that blocks are whole, apart and on the accounts, and that what is not to be had is a null pointer."""
    account = subject.account(allocator=calls.allocator)
    blocks = [(allocate(size) or 0, size) for size in SIZES]
    refused = allocate(MAX_BYTES)
    booked = account.statistics().current

    assert all(ptr > 0 and ptr % subject.traits.alignment == 0 for ptr, _ in blocks), blocks
    assert all(ptr + size <= following for (ptr, size), (following, _) in pairwise(sorted(blocks))), "blocks overlap"
    for number, (ptr, size) in enumerate(blocks):
        subject.memory.write(ptr, pattern(size, seed=number))
    for number, (ptr, size) in enumerate(blocks):
        assert (subject.memory.read(ptr, size) == pattern(size, seed=number)).all()
    for block in blocks:
        free(*block)
    assert refused is None, "a size that is not to be had is a null pointer"
    if isinstance(calls.allocator, KeepsAccounts):
        assert (booked, account.statistics().current) == (sum(SIZES), 0)
