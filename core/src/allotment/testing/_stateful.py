"""Random sequences of calls, held against a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, run_state_machine_as_test
from hypothesis.stateful import rule as step

from allotment.allocator import SupportsTrim
from allotment.errors import SizeMismatchError
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._memory import pattern
from allotment.testing._rule import concerning, rule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from allotment.testing._subject import Subject

SIZES: Final = st.one_of(
    st.integers(1, 600),
    st.builds(lambda power, more: max(1, 2**power + more), st.integers(0, 16), st.integers(-1, 1)),
    st.integers(1, 200_000),
)
"""Sizes in bytes, many of them around the boundaries that allocators round to."""


class CallSequence(RuleBasedStateMachine):
    """Calls of an allocator in any order, with a model of what must be so after each.

    Parameters
    ----------
    subject
        The allocator under test.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._memory = subject.memory
        self._calls = subject.bare()
        self._subject = subject
        self._account = subject.account(allocator=self._calls.allocator)
        self._live: list[tuple[int, NDArray[np.uint8]]] = []
        self._peak = self._count = 0

    @step(size=SIZES)
    def allocate(self, size: int) -> None:
        """Allocate a block and write to all of it."""
        others, data = list(self._live), pattern(size, seed=self._count)
        ptr = self._account.allocate(size)
        self._live.append((ptr, data))
        self._count += 1
        for other, held in others:
            with concerning("A3" if ptr == other else "M3"):
                assert ptr + size <= other or other + held.nbytes <= ptr, "blocks overlap"
        self._memory.write(ptr, data)
        self._peak = max(self._peak, self._current)

    @precondition(lambda self: self._live)
    @step(place=st.integers(0, 2**16))
    def deallocate(self, place: int) -> None:
        """Check what a block holds, and free it."""
        ptr, data = self._live[place % len(self._live)]
        assert (self._memory.read(ptr, data.nbytes) == data).all(), "the contents of a live block changed"
        self._account.deallocate(ptr, data.nbytes)
        self._live.remove((ptr, data))

    @precondition(lambda self: self._live)
    @step(place=st.integers(0, 2**16), other=SIZES)
    def deallocate_with_a_wrong_size(self, place: int, other: int) -> None:
        """Be refused."""
        ptr, data = self._live[place % len(self._live)]
        if other == data.nbytes:
            return
        try:
            self._account.deallocate(ptr, other)
        except SizeMismatchError:
            return
        self._live.remove((ptr, data))
        with concerning("O1"):
            raise AssertionError("a wrong size was accepted")

    @step(keep=st.sampled_from((0, 4096, 2**40)))
    def trim(self, keep: int) -> None:
        """Give idle memory back."""
        if isinstance(self._calls.allocator, SupportsTrim):
            with concerning("R3"):
                assert self._account.trim(keep) >= 0
                for ptr, data in self._live:
                    assert (self._memory.read(ptr, data.nbytes) == data).all(), "trimming changed a live block"

    @step()
    def reset_peak(self) -> None:
        """Set the peaks to what is current."""
        self._account.reset_peak()
        self._peak = self._current

    @invariant()
    def accounts_are_those_of_the_model(self) -> None:
        """Compare the accounts."""
        statistics = self._account.statistics()
        with concerning("R1"):
            assert (statistics.current, statistics.live) == (self._current, len(self._live))
            assert (statistics.peak, statistics.allocations) == (self._peak, self._count)
        with concerning("R2"):
            assert statistics.peak_reserved >= statistics.reserved >= statistics.current

    @property
    def _current(self) -> int:
        return sum(data.nbytes for _, data in self._live)

    def teardown(self) -> None:
        """Free what is left."""
        while self._live:
            self.deallocate(0)
        self._account.close()
        self._subject.forget(self._calls)


class SequenceTests(AllocatorFixtures):
    """Random sequences of calls."""

    @rule("M3", "A3", "R1", "R2", "R3", "O1")
    def test_any_sequence_of_calls_keeps_contents_and_accounts(self, subject: Subject) -> None:
        machine: Any = lambda: CallSequence(subject)  # noqa: E731
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=self.examples,
                stateful_step_count=30,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
