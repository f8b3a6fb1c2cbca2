"""Labels: what memory is for, in one thread or task."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from threading import Thread

import pytest

import allotment as al
from allotment.labels import current_label


def test_a_label_is_in_force_within_its_block():
    with al.label("weights") as full:
        within = current_label()

    assert (full, within, current_label()) == ("weights", "weights", None)


def test_labels_within_labels_are_joined():
    with al.label("step"):
        with al.label("activations"):
            inner = current_label()
        outer = current_label()

    assert (inner, outer) == ("step/activations", "step")


def test_an_exception_ends_a_label():
    with pytest.raises(KeyError), al.label("weights"):
        raise KeyError

    assert current_label() is None


def test_a_function_can_be_labelled():
    @al.label("weights")
    def load():
        return current_label()

    assert (load(), load(), current_label()) == ("weights", "weights", None)


def test_a_thread_starts_without_a_label():
    seen = []
    with al.label("weights"):
        thread = Thread(target=lambda: seen.append(current_label()))
        thread.start()
        thread.join()

    assert seen == [None]


def test_tasks_begin_with_the_label_of_their_maker_and_have_their_own():
    async def work(name, turn, other):
        with al.label(name):
            turn.set()
            await other.wait()
            return current_label()

    async def both():
        turns = asyncio.Event(), asyncio.Event()
        with al.label("step"):
            return await asyncio.gather(work("a", *turns), work("b", *reversed(turns)))

    assert asyncio.run(both()) == ["step/a", "step/b"]


def test_a_label_that_is_left_in_another_context_is_not_taken_from_that_one():
    def labelled():
        with al.label("weights"):
            yield

    generator = labelled()
    next(generator)
    copy_context().run(generator.close)

    assert current_label() == "weights"
    _leave_all()


def _leave_all():
    from allotment import labels

    labels._labels.clear()


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (None, TypeError), (3, TypeError)])
def test_what_is_no_label_is_refused(name, error):
    with pytest.raises(error, match="label"), al.label(name):
        pass
