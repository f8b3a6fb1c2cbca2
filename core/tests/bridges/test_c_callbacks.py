"""Functions in C that a library allocates by: each twin, called as a library does, with the lock and without."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest

import allotment as al
from allotment.bridges import _c_callbacks, c_callbacks, has_compiled_callbacks

SIGNATURES = {
    "allocate": (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
    "free": (None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
    "free_later": (None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p),
    "record_use": (None, ctypes.c_void_p, ctypes.c_void_p),
    "trim": (None,),
}


class Library:
    """Calls the functions as a library does."""

    def __init__(self, callbacks, kind):
        for name, address in callbacks.addresses().items():
            setattr(self, name, kind(*SIGNATURES[name])(address))


class Receiver:
    """Draws from Allotment, and notes what it is told."""

    def __init__(self, callbacks):
        self.delivery, self.callbacks, self.told = al.Delivery("library", "mempool"), callbacks, []

    def allocate(self, size, device, stream):
        self.told.append(("allocate", size, device, stream))
        return self.delivery.allocate(device, size, stream)

    def free(self, ptr):
        self.delivery.deallocate(ptr)

    def settle(self):
        for ptr in self.callbacks.take_freed():
            self.delivery.deallocate(ptr)

    def record_use(self, ptr, stream):
        self.told.append(("record_use", ptr, stream))

    def trim(self):
        self.told.append("trim")


@pytest.fixture(params=["python", "compiled"])
def callbacks(request):
    if request.param == "compiled" and not has_compiled_callbacks():
        pytest.skip("the compiled callbacks were not built here")
    twin = _c_callbacks if request.param == "python" else import_module("allotment.bridges._c_callbacks_native")
    yield twin
    twin.connect(None)
    twin.take_freed()


@pytest.fixture(params=[ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE], ids=["without-interpreter", "with-interpreter"])
def library(request, callbacks):
    return Library(callbacks, request.param)


@pytest.fixture
def receiver(sim, callbacks):
    receiver = Receiver(callbacks)
    callbacks.connect(receiver)
    return receiver


@pytest.fixture
def reports(monkeypatch):
    """Return what reaches `sys.unraisablehook`."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: found.append(report.exc_value))
    return found


def used(device="cuda:0"):
    return al.get_allocator("mempool", device).statistics().current


def test_a_block_is_drawn_for_the_device_and_the_stream_that_are_named(receiver, library):
    stream = al.Stream("cuda:1")
    ptr = library.allocate(100, 1, stream.handle)

    assert (used("cuda:1"), receiver.told) == (100, [("allocate", 100, 1, stream.handle)])
    library.free(ptr, 100, 1, stream.handle)
    assert used("cuda:1") == 0


def test_the_null_stream_and_an_empty_block_are_nothing_special(receiver, library):
    library.free(library.allocate(100, 0, None), 100, 0, None)

    assert library.allocate(0, 0, None) is None
    library.free(None, 0, 0, None)
    assert receiver.told == [("allocate", 100, 0, 0)]


def test_what_is_not_to_be_had_is_a_null_pointer(receiver, library, reports):
    assert library.allocate(2**50, 0, None) is None
    assert reports == []


def test_any_other_error_is_a_null_pointer_and_reported(receiver, library, reports):
    receiver.delivery = al.Delivery("library", "nothing")

    assert library.allocate(100, 0, None) is None
    assert [type(error) for error in reports] == [al.UnknownAllocatorError]


def test_what_is_no_address_is_a_null_pointer_and_reported(receiver, library, reports):
    receiver.allocate = lambda *_: "here"

    assert library.allocate(100, 0, None) is None
    assert len(reports) == 1


def test_a_free_that_fails_is_reported(receiver, library, reports):
    library.free(12345, 100, 0, None)

    assert [type(error) for error in reports] == [al.InvalidPointerError]


def test_an_exception_on_its_way_through_the_library_is_left_alone(receiver, callbacks):
    free = ctypes.PYFUNCTYPE(*SIGNATURES["free"])(callbacks.addresses()["free"])
    ptr = receiver.allocate(100, 0, 0)

    class Freed:
        def __del__(self):
            free(ptr, 100, 0, None)

    def fail():
        held = Freed()
        raise KeyError(str(held))

    with pytest.raises(KeyError):
        fail()
    assert used() == 0


def test_threads_that_never_met_the_interpreter_may_call(receiver, library):
    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(lambda _: library.allocate(100, 0, None), range(40)))
        assert used() == 4000
        list(pool.map(lambda ptr: library.free(ptr, 100, 0, None), blocks))

    assert used() == 0


def test_what_is_freed_later_waits_for_the_receiver(receiver, callbacks, library):
    blocks = [receiver.allocate(100, 0, 0) for _ in range(3)]
    receiver.settle, settle = list, receiver.settle
    for ptr in blocks:
        library.free_later(ptr, 100, 0, None)

    assert used() == 300
    settle()
    assert (used(), callbacks.take_freed()) == (0, [])


def test_what_is_freed_later_is_returned_in_order(receiver, callbacks, library):
    receiver.settle = list
    for ptr in (3, 1, 2):
        library.free_later(ptr, 100, 0, None)

    assert callbacks.take_freed() == [3, 1, 2]


def test_uses_and_trims_are_passed_on(receiver, library):
    library.record_use(4096, 7)
    library.trim()

    assert receiver.told == [("record_use", 4096, 7), "trim"]


def test_functions_in_c_serve_a_device_first(receiver, callbacks, library):
    calls = []
    allocate = ctypes.CFUNCTYPE(*SIGNATURES["allocate"])(lambda size, *_: 8192 if size < 100 else None)
    free = ctypes.CFUNCTYPE(*SIGNATURES["free"])(lambda ptr, *_: calls.append(ptr))
    callbacks.serve(1, ctypes.cast(allocate, ctypes.c_void_p).value, ctypes.cast(free, ctypes.c_void_p).value)
    try:
        assert library.allocate(10, 1, None) == 8192
        assert library.allocate(100, 1, None) not in (8192, None)
        library.free(8192, 10, 1, None)
    finally:
        callbacks.serve(1, 0, 0)

    assert (calls, receiver.told) == ([8192], [("allocate", 100, 1, 0)])


def test_nobody_is_called_without_a_receiver(callbacks, library, reports):
    callbacks.connect(None)

    assert library.allocate(100, 0, None) is None
    library.free(4096, 100, 0, None)
    library.record_use(4096, 7)
    library.trim()
    assert reports == []


def test_the_functions_stay_where_they_are(callbacks):
    assert callbacks.addresses() == callbacks.addresses()
    assert c_callbacks().addresses() == c_callbacks().addresses()


@pytest.mark.skipif(not has_compiled_callbacks(), reason="the compiled callbacks were not built here")
def test_the_main_thread_takes_back_what_is_freed_later(sim):
    callbacks = c_callbacks()
    receiver = Receiver(callbacks)
    callbacks.connect(receiver)
    free_later = ctypes.CFUNCTYPE(*SIGNATURES["free_later"])(callbacks.addresses()["free_later"])
    ptr = receiver.allocate(100, 0, 0)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(free_later, ptr, 100, 0, None).result()
    for _ in range(1000):  # pending calls are made between two steps of the main thread
        if not used():
            break
    callbacks.connect(None)

    assert used() == 0


AT_EXIT = """
import ctypes
import allotment as al
from allotment.bridges import c_callbacks

class Receiver:
    def __getattr__(self, name):
        return lambda *_: 1 / 0

callbacks = c_callbacks()
callbacks.connect(Receiver())
libc = ctypes.CDLL(None)
at = callbacks.addresses()
for name in ("free", "free_later", "allocate", "record_use", "trim"):
    libc.on_exit(ctypes.c_void_p(at[name]), ctypes.c_void_p(16))  # called as (status, 16, ...) when all else is gone
raise SystemExit(3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="on_exit is Linux's")
@pytest.mark.skipif(not has_compiled_callbacks(), reason="the compiled callbacks were not built here")
def test_after_the_interpreter_nothing_is_done(run_script):
    done = run_script(AT_EXIT)

    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
