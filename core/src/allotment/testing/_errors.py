"""Rules E: failures."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pytest

from allotment.allocator import SupportsClose, SupportsReservation, SupportsTrim
from allotment.errors import OutOfMemoryError, PlatformError
from allotment.testing._allocation import BEYOND
from allotment.testing._child_process import run_program
from allotment.testing._fixtures import CUDA, AllocatorFixtures
from allotment.testing._ledger import ALLOCATIONS, FREES, outstanding_bytes
from allotment.testing._memory import pattern
from allotment.testing._rule import cannot_check, rule
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.layers.accounting import AccountedAllocator
    from allotment.platform.simulated import Call
    from allotment.testing._subject import BareCalls, Subject

_SHARE: Final = 42 * 2**30
"""A size of which the simulated machines hold only some dozens."""
_MOST_SHARES: Final = 100
_NO_MEMORY: Final = "cudaErrorMemoryAllocation"
_UNKNOWN: Final = "cudaErrorUnknown"


class ErrorTests(AllocatorFixtures):
    """Rules E: failures."""

    @rule("E1")
    def test_a_request_beyond_the_machine_is_out_of_memory(self, subject: Subject) -> None:
        account = subject.account()
        ptr = account.allocate(1000)

        with pytest.raises(OutOfMemoryError) as refusal:
            account.allocate(BEYOND)

        error = refusal.value
        assert (error.requested, error.in_use, error.allocator) == (BEYOND, 1000, account.name)
        assert error.device == subject.device.alias
        assert account.statistics().current == 1000
        account.deallocate(ptr, 1000)

    @rule("E1")
    def test_out_of_memory_harms_no_live_block_and_no_later_call(self, subject: Subject) -> None:
        account, data = subject.account(), pattern(5000, seed=1)
        ptr = account.allocate(5000)
        subject.memory.write(ptr, data)

        for size in (BEYOND, MAX_BYTES) * 5:
            with pytest.raises(OutOfMemoryError):
                account.allocate(size)
            account.deallocate(account.allocate(3000), 3000)

        assert (subject.memory.read(ptr, 5000) == data).all()
        account.deallocate(ptr, 5000)

    @rule("E1", on_cuda=False)
    def test_the_machine_can_be_filled_again_and_again(self, subject: Subject) -> None:
        account = subject.account()
        account.deallocate(account.allocate(1000), 1000)
        if not any(call.name in ALLOCATIONS for call in subject.simulation.calls):
            pytest.skip(f"{self.allocator_name} takes no memory from the platform")

        counts = [_fill_and_empty(account) for _ in range(3)]

        assert len(set(counts)) == 1, f"the machine held {counts} blocks of {_SHARE:,} bytes, one time after another"
        assert account.statistics().live == 0

    @rule("E1", on_cuda=False)
    def test_the_drivers_refusal_is_out_of_memory(self, subject: Subject) -> None:
        account = subject.account()
        _let_fail(subject, ALLOCATIONS, _NO_MEMORY, times=5)

        error = _error_of(lambda: account.deallocate(account.allocate(3_000_000), 3_000_000))

        assert (error is not None) == bool(_failures(subject)), "the driver refused, and nobody heard of it"
        assert error is None or isinstance(error, OutOfMemoryError)

    @rule("E1", on_cuda=False)
    def test_another_failure_is_not_out_of_memory(self, subject: Subject) -> None:
        account = subject.account()
        _let_fail(subject, ALLOCATIONS, _UNKNOWN, times=5)

        error = _error_of(lambda: account.deallocate(account.allocate(3_000_000), 3_000_000))

        assert (error is not None) == bool(_failures(subject)), "the driver failed, and nobody heard of it"
        assert error is None or getattr(error, "code", None) == _UNKNOWN, f"the user is told {error!r}"

    @rule("E2", on_cuda=False)
    def test_a_call_that_fails_leaves_nothing_behind(self, subject: Subject) -> None:
        for name, nth in _driver_calls(subject):
            held = subject.outstanding()
            subject.simulation.fail(name, nth=nth, code=_UNKNOWN)
            calls = None
            try:
                calls = subject.bare()
                calls.allocate(70_000)
            except (PlatformError, MemoryError):
                pass
            _finish(subject, calls)

            assert subject.outstanding() == held, f"after call {nth} of {name} failed"

    @rule("E2")
    def test_a_request_beyond_the_machine_leaves_what_is_held_as_it_was(self, subject: Subject) -> None:
        subject.require(SupportsReservation, "it does not say what it holds")
        calls = subject.bare()
        calls.allocate(70_000)
        allocator = cast("SupportsReservation", calls.allocator)
        held = allocator.reservation().current

        assert _error_of(lambda: calls.allocate(BEYOND)) is not None
        assert allocator.reservation().current <= held

    @rule("E2")
    def test_a_failed_allocation_is_in_no_account(self, subject: Subject) -> None:
        account = subject.account()

        for _ in range(3):
            with pytest.raises(OutOfMemoryError):
                account.allocate(MAX_BYTES)

        statistics = account.statistics()
        assert (statistics.current, statistics.live, statistics.failed_allocations) == (0, 0, 3)

    @rule("E3", on_cuda=False)
    def test_a_free_that_fails_raises_and_can_be_repeated(self, subject: Subject) -> None:
        calls = subject.bare()
        account = subject.account(allocator=calls.allocator)
        ptr = account.allocate(3_000_000)
        _let_fail(subject, FREES, _UNKNOWN)

        error = _error_of(lambda: account.deallocate(ptr, 3_000_000))

        failed = error is not None
        assert failed == bool(_failures(subject)), "the driver failed, and nobody heard of it"
        assert not failed or isinstance(error, PlatformError), f"the user is told {error!r}"
        assert account.is_live(ptr) == failed
        if failed:
            account.deallocate(ptr, 3_000_000)
        assert account.statistics().current == 0

    @rule("E3", "E1")
    def test_after_a_kernel_that_faulted_no_failure_is_hidden(self, subject: Subject) -> None:
        if not subject.platform.device_count():
            cannot_check("no CUDA device, whose kernel could fault")
        if subject.platform.name == CUDA and _is_shared_by_mps():
            cannot_check("MPS shares the devices, and a kernel that faults would end the processes of others")
        run_program("fault", self.told_of(subject))

    @rule("E3", on_cuda=False)
    def test_a_trim_that_fails_raises_and_loses_nothing(self, subject: Subject) -> None:
        subject.require(SupportsTrim, "there is nothing to trim")
        calls = subject.bare()
        for size in (3_000_000, 5000, 70_000):
            calls.allocate(size)
        calls.free_all()
        _let_fail(subject, (*FREES, "trim_pool"), _UNKNOWN)
        allocator = cast("SupportsTrim", calls.allocator)

        failed = _error_of(lambda: allocator.trim(0)) is not None
        assert failed == bool(_failures(subject)), "the driver failed, and nobody heard of it"
        allocator.trim(0)

        assert outstanding_bytes(subject.simulation.calls) == 0


def _is_shared_by_mps() -> bool:
    """Return whether CUDA may find a server of MPS: whether there is the folder that is documented for pipes to one."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")).is_dir()


def _fill_and_empty(account: AccountedAllocator) -> int:
    """Allocate blocks until memory runs out, free them, and return how many there were."""
    pointers: list[int] = []
    with suppress(OutOfMemoryError):
        while len(pointers) < _MOST_SHARES:
            pointers.append(account.allocate(_SHARE))
    assert len(pointers) < _MOST_SHARES, "memory never ran out"
    for ptr in pointers:
        account.deallocate(ptr, _SHARE)
    return len(pointers)


def _error_of(call: Callable[[], object]) -> Exception | None:
    """Return what a call raises, if anything."""
    try:
        call()
    except Exception as error:
        return error
    return None


def _let_fail(subject: Subject, names: tuple[str, ...], code: str, times: int = 1) -> None:
    for name in names:
        subject.simulation.fail(name, code=code, times=times)


def _failures(subject: Subject) -> list[Call]:
    """Return the calls that failed because a test wanted it."""
    return [call for call in subject.simulation.calls if call.error in (_NO_MEMORY, _UNKNOWN)]


def _driver_calls(subject: Subject) -> list[tuple[str, int]]:
    """Return which calls making an object and allocating from it take, each with its number among those of its name."""
    start = len(subject.simulation.calls)
    calls = subject.bare()
    calls.allocate(70_000)
    names = [call.name for call in subject.simulation.calls][start:]
    _finish(subject, calls)
    return [(name, names[: place + 1].count(name)) for place, name in enumerate(names)]


def _finish(subject: Subject, calls: BareCalls | None) -> None:
    """Free all blocks and close the object, if it came to one."""
    if calls is not None:
        calls.free_all()
        if isinstance(calls.allocator, SupportsClose):
            calls.allocator.close()
        subject.forget(calls)
