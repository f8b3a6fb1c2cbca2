"""Work that must come to an end."""

import signal
import threading

import pytest

from allotment.testing._watchdog import finish, watchdog

needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timer")


def test_all_work_is_done_in_threads_of_its_own():
    idents = []

    finish([lambda: idents.append(threading.get_ident())] * 3, deadline=10)

    assert len(idents) == 3
    assert threading.get_ident() not in idents


def test_what_a_thread_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        finish([lambda: 1 / 0], deadline=10)


def test_a_thread_that_is_stuck_fails_the_test():
    lock = threading.Lock()
    lock.acquire()

    with pytest.raises(pytest.fail.Exception, match="stuck"):
        finish([lock.acquire], deadline=0.05)

    lock.release()


@needs_timer
def test_a_main_thread_that_is_stuck_fails_the_test():
    lock = threading.Lock()
    lock.acquire()

    with pytest.raises(pytest.fail.Exception, match="stuck"), watchdog(0.05):
        lock.acquire()


@needs_timer
def test_the_timer_is_gone_afterwards():
    before = signal.getsignal(signal.SIGALRM)

    with watchdog(10):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0

    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is before


@needs_timer
def test_a_timer_that_somebody_else_has_set_is_left_alone():
    signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with watchdog(0.01):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 100
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 100
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_other_threads_are_not_timed():
    done = []

    def work():
        with watchdog(10):
            done.append(True)

    finish([work], deadline=10)

    assert done == [True]
