"""What an array holds and how it gives its memory back, of both twins."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref

import numpy as np
import pytest

import allotment as al
from allotment import _array_memory
from allotment._twins import preferred

TWINS = [pytest.param(_array_memory.ArrayMemory, id="python")]
if (compiled := preferred(_array_memory)) is not _array_memory:
    TWINS.append(pytest.param(compiled.ArrayMemory, id="compiled"))

F4 = np.dtype("f4")
NAMES = ("ptr", "shape", "dtype", "device", "_account", "_capacity", "_owner", "_strides", "_kind", "readonly")


class Account:
    """What takes blocks back, and may fail to."""

    name = "recorder"

    def __init__(self, error=None):
        self.error = error
        self.freed = []

    def deallocate(self, ptr, size):
        self.freed.append((ptr, size))
        if self.error is not None:
            raise self.error


@pytest.fixture(params=TWINS)
def memory(request):
    """The twin itself."""
    return request.param


@pytest.fixture
def make(memory):
    """A function that makes an array of 12 bytes at address 64."""

    class Array(memory):
        __slots__ = ("__weakref__",)

    def make(account=None, kind=Array):
        return kind(64, (3,), F4, "device", account, 12)

    make.array = Array
    return make


def held(array):
    return [getattr(array, name) for name in NAMES]


# What it holds


def test_it_holds_what_it_is_given(memory):
    given = 1, (2,), F4, "device", None, 3, "owner", (4,), "kind", True
    assert held(memory(*given)) == list(given)


def test_names_may_be_given(memory):
    array = memory(ptr=1, shape=(2,), dtype=F4, device="device", readonly=True, owner="owner", strides=(8,))
    assert held(array) == [1, (2,), F4, "device", None, 0, "owner", (8,), None, True]


def test_memory_is_writable_and_of_nobody_unless_said(memory):
    assert held(memory(1, (2,), F4, "device"))[4:] == [None, 0, None, None, None, False]


@pytest.mark.parametrize(
    ("given", "names"),
    [((), {}), ((1, (2,), F4), {}), ((1,) * 11, {}), ((1,) * 4, {"nonsense": 1}), ((1,) * 4, {"ptr": 1})],
)
def test_what_does_not_fit_is_refused(memory, given, names):
    with pytest.raises(TypeError):
        memory(*given, **names)


def test_it_has_no_other_attributes(make):
    array = make()
    assert not hasattr(array, "__dict__")
    with pytest.raises(AttributeError):
        array.other = 1


def test_what_was_never_initialised_holds_nothing_and_gives_nothing_back(make):
    array = make.array.__new__(make.array)
    for name in NAMES:
        with pytest.raises(AttributeError):
            getattr(array, name)
    array.discard()
    del array


def test_nothing_that_it_held_is_kept(make):
    class Held:
        pass

    things = [Held() for _ in NAMES]
    references = [weakref.ref(thing) for thing in things]
    array = make.array(*things[:4], None, *things[5:])
    array.__init__(*things[:4], None, *things[5:])
    view = array._viewing(array, *things[:1], *things[1:3], F4)
    things[4] = None
    things.clear()
    assert sum(reference() is not None for reference in references) == len(NAMES) - 1
    del array, view
    assert [reference() for reference in references] == [None] * len(NAMES)


# Giving memory back


def test_memory_goes_back_once_when_the_array_goes(make):
    account = Account()
    array = make(account)
    gone = weakref.ref(array)
    assert not account.freed
    del array
    assert account.freed == [(64, 12)]
    assert gone() is None


def test_the_twin_gives_memory_back_without_a_class_built_on_it(memory):
    account = Account()
    memory(64, (3,), F4, "device", account, 12)
    assert account.freed == [(64, 12)]


def test_memory_that_was_discarded_goes_back_no_second_time(make):
    account = Account()
    array = make(account)
    assert array.discard() is None
    assert account.freed == [(64, 12)]
    assert array.ptr == 64
    array.discard()
    array.__del__()
    del array
    assert len(account.freed) == 1


def test_an_account_lives_as_long_as_the_array(make):
    account = Account()
    gone = weakref.ref(account)
    array = make(account)
    del account
    assert gone() is not None
    del array
    assert gone() is None


def test_an_array_in_a_cycle_gives_its_memory_back(make):
    account = Account()
    array = make(account)
    array._owner = [array]
    account.array = array
    freed = account.freed
    del array, account
    assert not freed
    gc.collect()
    assert freed == [(64, 12)]


def test_a_finaliser_of_a_class_built_on_it_may_keep_the_array(make):
    kept = []

    class Kept(make.array):
        def __del__(self):
            kept.append(self)
            super().__del__()

    account = Account()
    array = make(account, Kept)
    del array
    assert account.freed == [(64, 12)]
    assert (kept[0].ptr, kept[0]._account) == (64, None)
    kept.clear()
    gc.collect()
    assert len(account.freed) == 1


def test_a_class_built_on_it_may_have_a_constructor_and_attributes_of_its_own(make):
    class Named(make.array):
        def __init__(self, name, *given):
            super().__init__(*given)
            self.name = name

    account = Account()
    array = Named("x", 64, (3,), F4, "device", account, 12)
    assert (array.name, array.ptr) == ("x", 64)
    del array
    assert account.freed == [(64, 12)]


# Failures


@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), AttributeError("broken"), KeyboardInterrupt(), SystemExit(3)]
)
@pytest.mark.parametrize("drop", [lambda arrays: arrays.clear(), lambda arrays: arrays[0].discard()])
def test_a_free_that_fails_is_a_warning_about_the_line_that_caused_it(make, error, drop):
    account = Account(error)
    arrays = [make(account)]
    text = f"12 bytes at 0x40 .* allocator 'recorder' .*{type(error).__name__}"
    with pytest.warns(al.FreeFailedWarning, match=text) as said:
        drop(arrays)
    assert [(warning.filename, warning.lineno) for warning in said] == [(__file__, drop.__code__.co_firstlineno)]
    assert account.freed == [(64, 12)]


@pytest.mark.parametrize("error", [None, RuntimeError("broken")])
def test_an_exception_in_flight_is_not_replaced(make, error):
    account = Account(error)
    mine = KeyError("mine")

    def items():
        yield make(account)
        raise mine

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KeyError) as caught:
            list(items())  # a list drops what it has while the exception is on its way
    assert caught.value is mine
    assert mine.__context__ is None
    assert account.freed == [(64, 12)]
    assert len(said) == (error is not None)


def test_a_warning_that_is_an_error_leaves_no_finaliser(make, monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda said: unraisable.append(said.exc_type))
    array = make(Account(RuntimeError("broken")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del array
    assert unraisable == [al.FreeFailedWarning]


def test_a_warning_that_is_an_error_leaves_a_call(make):
    array = make(Account(RuntimeError("broken")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(al.FreeFailedWarning):
            array.discard()


# Views


def test_a_view_has_the_device_and_the_kind_of_its_array_and_frees_nothing(make):
    account = Account()
    array = make.array(64, (3,), F4, "device", account, 12, None, None, "kind", True)
    view = make.array._viewing(array, 68, (1, 2), (8, 4), np.dtype("i4"))
    assert type(view) is make.array
    assert held(view) == [68, (1, 2), np.dtype("i4"), "device", None, 0, array, (8, 4), "kind", True]
    del view
    assert not account.freed


def test_views_keep_the_array_alive_and_not_one_another(make):
    account = Account()
    array = make(account)
    first = make.array._viewing(array, 64, (3,), None, F4)
    second = make.array._viewing(first, 64, (3,), None, F4)
    assert second._owner is array
    gone = weakref.ref(first)
    del array, first
    assert gone() is None
    assert not account.freed
    del second
    assert account.freed == [(64, 12)]


def test_a_view_of_memory_of_another_owner_keeps_the_array(make):
    array = make.array(64, (3,), F4, "device", owner="another")
    assert make.array._viewing(array, 64, (3,), None, F4)._owner is array


def test_there_is_no_view_of_what_was_never_initialised_or_is_no_array(make):
    for array in (make.array.__new__(make.array), object(), None):
        with pytest.raises((TypeError, AttributeError)):
            make.array._viewing(array, 64, (3,), None, F4)
