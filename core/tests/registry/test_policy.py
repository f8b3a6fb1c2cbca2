"""Allow and deny lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.registry import PluginOrigin, PluginPolicy, PluginRecord


def record(origin=PluginOrigin.ENTRY_POINT, distribution="their-pools"):
    return PluginRecord(name="my-pool", reference="m:A", origin=origin, distribution=distribution)


SPELLINGS = ["my-pool", "My_Pool", "their-pools:my-pool", "Their_Pools:MY_POOL"]


def test_by_default_everything_is_allowed():
    assert PluginPolicy().refusal(record()) is None


@pytest.mark.parametrize("entry", SPELLINGS)
def test_the_allow_list_takes_any_spelling_of_a_name(entry):
    assert PluginPolicy(allow=(entry,)).refusal(record()) is None


@pytest.mark.parametrize("entry", SPELLINGS)
def test_the_deny_list_takes_any_spelling_of_a_name(entry):
    assert PluginPolicy(deny=(entry,)).refusal(record()) == "the deny list names it"


@pytest.mark.parametrize("allow", [(), ("other",), ("others:my-pool",)])
def test_what_an_allow_list_does_not_name_is_refused(allow):
    assert PluginPolicy(allow=allow).refusal(record()) == "the allow list does not name it"


@pytest.mark.parametrize("origin", [PluginOrigin.BUILTIN, PluginOrigin.RUNTIME])
def test_what_is_not_installed_needs_no_permission(origin):
    assert PluginPolicy(allow=()).refusal(record(origin, None)) is None


@pytest.mark.parametrize("origin", PluginOrigin)
def test_the_deny_list_holds_for_every_origin(origin):
    assert PluginPolicy(deny=("my-pool",)).refusal(record(origin, None)) is not None


@given(st.none() | st.lists(st.sampled_from([*SPELLINGS, "other"])), st.lists(st.sampled_from([*SPELLINGS, "other"])))
def test_deny_beats_allow(allow, deny):
    policy = PluginPolicy(None if allow is None else tuple(allow), tuple(deny))

    if set(deny) & set(SPELLINGS):
        assert policy.refusal(record()) == "the deny list names it"
