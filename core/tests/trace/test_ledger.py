import pytest

from allotment.trace import EventKind, TraceEvent, TraceLedger

A, F = EventKind.ALLOCATE, EventKind.FREE


@pytest.fixture
def ledger():
    ledger = TraceLedger()
    ledger.enter(TraceEvent(A, 1, 10))
    ledger.enter(TraceEvent(A, 2, 5))
    return ledger


def test_the_books_hold_what_is_live_and_the_peak(ledger):
    ledger.enter(TraceEvent(F, 1, 10))

    assert (ledger.live, ledger.current, ledger.peak) == ({2: 5}, 5, 15)


def test_a_number_may_be_used_again_once_it_is_freed(ledger):
    ledger.enter(TraceEvent(F, 1, 10))
    ledger.enter(TraceEvent(A, 1, 99))

    assert ledger.live[1] == 99


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (TraceEvent(A, 1, 3), "live already"),
        (TraceEvent(F, 3, 1), "is not live"),
        (TraceEvent(F, 1, 11), "has 10 bytes and is freed with 11"),
    ],
)
def test_what_cannot_follow_is_refused_and_leaves_the_books_alone(ledger, event, problem):
    with pytest.raises(ValueError, match=problem):
        ledger.enter(event)

    assert (ledger.live, ledger.current, ledger.peak) == ({1: 10, 2: 5}, 15, 15)
