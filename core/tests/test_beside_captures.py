"""Calls beside the captures of others, by each of the twins. The compiled one calls a driver, here a simulator."""

import ctypes
import gc

import pytest

from allotment import _beside_captures
from allotment._twins import preferred
from allotment.errors import PlatformError
from allotment.platform import CaptureMode

COMPILED = preferred(_beside_captures)
REFUSED = 900


class DriverOfSimulator:
    """The functions of the driver, over a simulated platform."""

    def __init__(self, platform):
        self.platform, self.has_failed, self.asked, self.recorded = platform, False, [], []
        self.functions = [
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(self.exchange),
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(self.is_capturing),
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))(self.current_device),
            ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self.record_event),
        ]
        self.addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in self.functions]

    def exchange(self, mode):
        if self.has_failed:
            return REFUSED
        mode[0] = int(self.platform.exchange_capture_mode(CaptureMode(mode[0])))
        return 0

    def is_capturing(self, stream, status):
        self.asked.append(stream)
        try:
            status[0] = int(self.platform.capture_status(stream or 0, self.platform.current_device()))
        except PlatformError:
            return REFUSED
        return 0

    def record_event(self, event, stream):
        if self.has_failed:
            return REFUSED
        self.platform.record_event(event, stream or 0, self.platform.current_device())
        self.recorded.append(event)
        return 0

    def current_device(self, device):
        if self.has_failed:
            return REFUSED
        device[0] = self.platform.current_device()
        return 0


@pytest.fixture
def driver(sim):
    return DriverOfSimulator(sim)


@pytest.fixture(params=["python", "compiled"])
def beside(request, sim, driver):
    in_python = _beside_captures.BesideCaptures(sim)
    if request.param == "python":
        return in_python
    if COMPILED is _beside_captures:
        pytest.skip("the compiled twin was not built here")
    return COMPILED.BesideCaptures(in_python, *driver.addresses)


@pytest.fixture
def capturing(sim):
    """Return the handle of a stream that is captured, in the mode that ends with any unsafe call."""
    stream = sim.create_stream(0, non_blocking=False, priority=0)
    sim.begin_capture(stream, 0, CaptureMode.GLOBAL)
    yield stream
    sim.end_capture(stream, 0)


def mode_of(sim):
    """Return the mode in force, by exchanging it and setting it back."""
    mode = sim.exchange_capture_mode(CaptureMode.RELAXED)
    sim.exchange_capture_mode(mode)
    return mode


def test_a_call_is_made_in_relaxed_mode_with_its_arguments(sim, beside):
    assert beside.call(lambda *given: (mode_of(sim), given), 1, "two") == (CaptureMode.RELAXED, (1, "two"))


def test_the_mode_before_comes_back(sim, beside):
    sim.exchange_capture_mode(CaptureMode.THREAD_LOCAL)
    beside.call(int)
    assert mode_of(sim) is CaptureMode.THREAD_LOCAL


def test_a_call_within_a_call_is_relaxed_and_so_is_what_follows_it(sim, beside):
    assert beside.call(lambda: (beside.call(mode_of, sim), mode_of(sim))) == (CaptureMode.RELAXED, CaptureMode.RELAXED)


def test_an_exception_leaves_the_call_and_the_mode_as_it_was(sim, beside):
    before = mode_of(sim)
    with pytest.raises(ZeroDivisionError):
        beside.call(lambda: 1 // 0)
    assert mode_of(sim) is before


def test_a_free_in_it_ends_no_capture(sim, beside, capturing):
    ptr = beside.call(sim.malloc, 256)
    beside.call(sim.free, ptr)
    assert beside.is_captured(capturing, 0)


def test_a_stream_is_captured_while_a_capture_of_it_lasts(sim, beside):
    stream, other = (sim.create_stream(0, non_blocking=True, priority=0) for _ in range(2))
    assert not beside.is_captured(stream, 0)
    sim.begin_capture(stream, 0, CaptureMode.RELAXED)
    assert beside.is_captured(stream, 0)
    assert not beside.is_captured(other, 0)
    sim.end_capture(stream, 0)
    assert not beside.is_captured(stream, 0)


def test_the_null_stream_counts_as_captured_while_a_stream_is_that_keeps_order_with_it(beside, capturing):
    assert beside.is_captured(0, 0)


def test_the_null_stream_is_that_of_the_device_that_is_named(sim, beside, capturing):
    sim.set_current_device(1)
    assert beside.is_captured(0, 0)
    sim.set_current_device(0)
    assert not beside.is_captured(0, 1)


def test_the_compiled_twin_asks_the_driver(beside, driver, capturing):
    if type(beside) is _beside_captures.BesideCaptures:
        pytest.skip("it asks the platform")
    beside.is_captured(capturing, 0)
    assert driver.asked == [capturing]


def test_what_the_driver_refuses_goes_by_the_platform(sim, beside, driver, capturing):
    driver.has_failed = True
    assert beside.call(mode_of, sim) is CaptureMode.RELAXED
    assert beside.is_captured(0, 0)
    assert driver.asked == []


def test_later_work_is_ordered_by_a_mark_on_the_null_stream(sim, beside):
    before = len(sim.calls)
    assert beside.order_after_all_work(sim.create_event(0), 0)
    (recorded,) = (call for call in list(sim.calls)[before:] if call.name == "record_event")
    assert (recorded.arguments["stream"], recorded.error) == (0, None)


def test_nothing_is_ordered_while_that_would_end_a_capture(sim, beside, capturing):
    mark, before = sim.create_event(0), len(sim.calls)
    assert not beside.order_after_all_work(mark, 0)
    assert not any(call.name == "record_event" for call in list(sim.calls)[before:])
    assert beside.is_captured(capturing, 0)


def test_a_capture_that_keeps_no_order_with_the_null_stream_bears_a_mark(sim, beside):
    stream = sim.create_stream(0, non_blocking=True, priority=0)
    sim.begin_capture(stream, 0, CaptureMode.GLOBAL)
    assert beside.order_after_all_work(sim.create_event(0), 0)
    sim.destroy_graph(sim.end_capture(stream, 0))


def test_the_device_whose_work_is_ordered_is_the_one_that_is_named(sim, beside, driver):
    mark = sim.create_event(1)
    assert beside.order_after_all_work(mark, 1)
    assert driver.recorded == []
    assert [call.error for call in sim.calls if call.name == "record_event"] == [None]


@pytest.mark.parametrize("name", ["is_captured", "order_after_all_work"])
@pytest.mark.parametrize("arguments", [(), (1,), (0, 0, 0)])
def test_too_few_or_many_arguments_are_refused(beside, name, arguments):
    with pytest.raises(TypeError):
        getattr(beside, name)(*arguments)


def test_a_call_of_nothing_is_refused(beside):
    with pytest.raises(TypeError):
        beside.call()


def test_nothing_keeps_it_alive(sim, driver):
    if COMPILED is _beside_captures:
        pytest.skip("the compiled twin was not built here")
    in_python = _beside_captures.BesideCaptures(sim)
    before = len(gc.get_referrers(in_python))
    for _ in range(10):
        COMPILED.BesideCaptures(in_python, *driver.addresses)
    assert len(gc.get_referrers(in_python)) == before


def test_an_address_of_nothing_is_refused(sim, driver):
    if COMPILED is _beside_captures:
        pytest.skip("the compiled twin was not built here")
    with pytest.raises(ValueError, match="was given 0"):
        COMPILED.BesideCaptures(_beside_captures.BesideCaptures(sim), 0, *driver.addresses[1:])
