"""Which plugin a name means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.errors import PluginConflictError, PluginDisabledError, PluginError, UnknownAllocatorError
from allotment.registry import PluginOrigin, PluginPolicy, PluginRecord, PluginStatus
from allotment.registry._resolution import apply_policy, mark_conflicts, resolve, usable_names


def record(name, distribution, origin=PluginOrigin.ENTRY_POINT, status=PluginStatus.AVAILABLE):
    return PluginRecord(
        name=name, reference="m:A", distribution=distribution, version="1.0", origin=origin, status=status, error=None
    )


ONE, TWO = record("pool", "one"), record("pool", "two")
BUILTIN = record("pool", "allotment", PluginOrigin.BUILTIN)
RUNTIME = record("pool", None, PluginOrigin.RUNTIME)
OTHER = record("other", "one")


def judge(*records, policy=None):
    return mark_conflicts(apply_policy(records, policy or PluginPolicy()))


def test_a_name_in_any_spelling_means_its_plugin():
    assert resolve("OTHER", judge(ONE, OTHER)).name == "other"


def test_two_distributions_with_one_name_are_both_marked():
    records = judge(ONE, TWO, OTHER)

    assert [record.status.value for record in records] == ["conflict", "conflict", "available"]
    assert usable_names(records) == ("one:pool", "two:pool", "other")
    assert records[0].error == "two 1.0 has the name too"


def test_choosing_a_name_that_two_provide_names_both_and_the_way_out():
    with pytest.raises(PluginConflictError) as caught:
        resolve("pool", judge(ONE, TWO))

    assert str(caught.value) == (
        "allocator 'pool' is ambiguous: it is provided by one 1.0 and two 1.0. "
        "Choose one of them as 'one:pool' or 'two:pool'."
    )


@pytest.mark.parametrize(("name", "distribution"), [("one:pool", "one"), ("Two:POOL", "two")])
def test_a_qualified_name_chooses_one_of_them(name, distribution):
    assert resolve(name, judge(ONE, TWO)).distribution == distribution


def test_a_qualified_name_of_another_distribution_is_unknown():
    with pytest.raises(UnknownAllocatorError):
        resolve("three:pool", judge(ONE, TWO))


def test_denying_one_of_two_settles_the_conflict():
    records = judge(ONE, TWO, policy=PluginPolicy(deny=("one:pool",)))

    assert resolve("pool", records).distribution == "two"
    assert records[1].status is PluginStatus.AVAILABLE


def test_an_incompatible_namesake_has_no_claim():
    records = judge(record("pool", "one", status=PluginStatus.INCOMPATIBLE), TWO)

    assert resolve("pool", records).distribution == "two"


def test_a_namesake_that_failed_keeps_its_claim():
    with pytest.raises(PluginConflictError):
        resolve("pool", judge(record("pool", "one", status=PluginStatus.BROKEN), TWO))


def test_a_plugin_loaded_by_its_qualified_name_is_still_offered_by_it():
    records = judge(record("pool", "one", status=PluginStatus.LOADED), TWO)

    assert usable_names(records) == ("one:pool", "two:pool")


def test_an_installed_plugin_does_not_take_the_name_of_a_built_in():
    records = judge(BUILTIN, ONE)

    assert resolve("pool", records).origin is PluginOrigin.BUILTIN
    assert records[1].status is PluginStatus.CONFLICT
    assert records[1].error == "allotment 1.0 has the name too"
    assert resolve("one:pool", records).distribution == "one"


def test_what_the_program_registers_takes_precedence_over_all():
    records = judge(BUILTIN, ONE, RUNTIME)

    assert resolve("pool", records).origin is PluginOrigin.RUNTIME
    assert resolve("allotment:pool", records).origin is PluginOrigin.BUILTIN


def test_a_disabled_plugin_says_which_list_disables_it():
    with pytest.raises(PluginDisabledError, match="the deny list names it"):
        resolve("pool", judge(ONE, policy=PluginPolicy(deny=("pool",))))


def test_an_unknown_name_lists_what_can_be_used_the_nearest_and_what_cannot_and_why():
    records = (OTHER, record("bad", "worse").become(PluginStatus.BROKEN, "RuntimeError: no driver"))

    with pytest.raises(UnknownAllocatorError) as caught:
        resolve("othr", records)

    assert str(caught.value) == (
        "allocator 'othr' is not installed. Usable here: other. Did you mean 'other'? "
        "Installed but not usable: worse:bad (RuntimeError: no driver)."
    )


own_statuses = [status for status in PluginStatus if status is not PluginStatus.CONFLICT]
records = st.builds(
    record,
    st.sampled_from(["pool", "other"]),
    st.sampled_from(["one", "two", "three"]),
    st.sampled_from(PluginOrigin),
    st.sampled_from(own_statuses),
)


@given(st.lists(records, unique_by=lambda record: record.key), st.randoms(), st.sampled_from(["pool", "one:pool"]))
def test_the_order_of_records_makes_no_difference(found, random, name):
    def outcome(records):
        try:
            return resolve(name, records).key
        except PluginError as error:
            return type(error)

    shuffled = list(found)
    random.shuffle(shuffled)

    assert outcome(found) == outcome(shuffled)


@given(st.lists(records, unique_by=lambda record: record.key))
def test_every_usable_name_chooses_a_plugin(found):
    judged = mark_conflicts(found)

    for name in usable_names(judged):
        assert resolve(name, judged).usable
