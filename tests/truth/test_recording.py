"""The simulator answers as two H200 were recorded to answer."""

from __future__ import annotations

import pytest

from . import (  # noqa: F401 - the replays register themselves
    recording,
    replay_access,
    replay_attr,
    replay_capture,
    replay_copying,
    replay_graph,
    replay_ipc,
    replay_managed,
    replay_peer,
    replay_pointer,
    replay_pool,
    replay_size,
)
from .conftest import OUTCOME
from .registry import replay


@pytest.mark.parametrize("name", recording.cases())
def test_a_recorded_case_is_answered_alike(name, machine, record_property):
    if recording.is_left_out(name):
        record_property(OUTCOME, "left out")
        return
    try:
        answers = replay(name, machine)
    except Exception:
        record_property(OUTCOME, "differing")
        raise
    if name in recording.unmodelled():
        record_property(OUTCOME, "unmodelled")
        assert answers != recording.expected(name), "it is answered alike: take it off the list in unmodelled.toml"
        return
    matches = answers == recording.expected(name)
    record_property(OUTCOME, "matched" if matches else "differing")
    assert answers == recording.expected(name)


def test_every_case_is_matched_unmodelled_or_left_out():
    names = set(recording.cases())
    left_out = {name for name in names if recording.is_left_out(name)}
    listed = set(recording.unmodelled())
    assert listed <= names - left_out
    assert len(names - left_out - listed) + len(listed) + len(left_out) == len(names) == 665


def test_the_list_of_what_is_not_modelled_is_short():
    assert len(recording.unmodelled()) <= 10
    assert all(len(reason) > 20 for reason in recording.unmodelled().values())
