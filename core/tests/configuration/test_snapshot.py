import pytest

from allotment.configuration import Origin, OriginKind
from allotment.configuration._schema import parse
from allotment.configuration._snapshot import Snapshot, changed_keys
from allotment.configuration._sources import Source
from allotment.errors import ConfigError

PLACES = {
    OriginKind.CALL: "call",
    OriginKind.ENVIRONMENT: "variable",
    OriginKind.PROJECT_FILE: "project",
    OriginKind.USER_FILE: "user",
}


def source(kind, table):
    if kind is OriginKind.ENVIRONMENT:
        table = {key: str(value) for key, value in table.items()}
    return Source(kind, parse(table, Origin(kind, PLACES[kind])).settings)


def snapshot(**tables):
    return Snapshot.of([source(kind, tables[place]) for kind, place in PLACES.items() if place in tables])


def decisive(said, device="cuda:1"):
    setting = said.allocator_for(device)
    return None if setting is None else (setting.value, setting.origin.place)


def test_sources_are_ranked_whatever_order_they_come_in():
    user, call = source(OriginKind.USER_FILE, {"quiet": True}), source(OriginKind.CALL, {"quiet": False})
    assert Snapshot.of([user, call]) == Snapshot.of([call, user])
    assert Snapshot.of([user, call]).setting("quiet").value is False


@pytest.mark.parametrize("strongest", range(4))
def test_the_strongest_place_that_says_something_counts(strongest):
    places = list(PLACES.values())[strongest:]
    setting = snapshot(**{place: {"allocator": place} for place in places}).setting("allocator")
    assert setting.value == setting.origin.place == places[0]
    assert [weaker.value for weaker in setting.shadowed] == places[1:]


def test_without_any_source_the_defaults_count():
    setting = snapshot().setting("platform")
    assert (setting.value, setting.origin.kind, setting.shadowed) == ("auto", OriginKind.DEFAULT, ())


def test_an_unknown_key_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"platfrom: no such setting.*Did you mean 'platform'"):
        snapshot().setting("platfrom")


def test_nothing_said_about_a_device_is_none():
    assert decisive(snapshot()) is None
    assert decisive(snapshot(call={"devices": {"cuda:0": "a"}})) is None


def test_the_general_allocator_is_that_of_a_device():
    assert decisive(snapshot(project={"allocator": "a"})) == ("a", "project")


def test_within_one_source_the_device_comes_before_the_general():
    assert decisive(snapshot(project={"allocator": "a", "devices": {"cuda:1": "b"}})) == ("b", "project")


def test_the_general_allocator_of_a_stronger_source_comes_before_the_device_of_a_weaker():
    said = snapshot(variable={"allocator": "a"}, project={"devices": {"cuda:1": "b"}})
    assert decisive(said) == ("a", "variable")
    ((overruled, by),) = said.overruled_devices()
    assert (overruled.key, by.key) == ("devices.cuda:1.allocator", "allocator")


def test_layers_are_chosen_as_allocators_are():
    said = snapshot(variable={"layers": "a"}, project={"devices": {"cuda:1": {"layers": ["b"]}}, "layers": ["c"]})
    assert (said.layers_for("cuda:1").value, snapshot().layers_for("cuda:1").value) == (("a",), ())
    ((overruled, by),) = said.overruled_devices()
    assert (overruled.key, by.key) == ("devices.cuda:1.layers", "layers")
    assert not list(snapshot(project={"devices": {"cuda:1": {"layers": []}}, "layers": ["c"]}).overruled_devices())


def test_a_device_that_is_not_overruled_is_not_reported():
    assert not list(snapshot(call={"devices": {"cuda:1": "b"}}, user={"allocator": "a"}).overruled_devices())


def test_what_is_said_about_options_comes_weakest_first():
    said = snapshot(
        call={"allocators": {"mempool": {"x": 1}}}, user={"allocators": {"mempool": {"x": 2}, "other": {"x": 3}}}
    )
    assert [setting.value for setting in said.options_of("mempool")] == [2, 1]


def test_keys_are_in_the_order_of_the_schema():
    said = snapshot(call={"devices": {"cuda:1": "b"}, "allocators": {"z": {"x": 1}, "a": {"x": 1}}})
    assert [setting.key for setting in said.effective.values()] == [
        "allocator",
        "layers",
        "devices.cuda:1.allocator",
        "allocators.a.x",
        "allocators.z.x",
        "platform",
        "plugins.allow",
        "plugins.deny",
        "enable_mempools_at_init",
        "quiet",
        "launch_array_access_mode",
        "bridges.install",
        "watch",
        "metrics.address",
        "metrics.port",
    ]


def test_a_changed_value_and_a_changed_origin_are_changes():
    before, after = snapshot(user={"quiet": True, "platform": "host"}), snapshot(call={"quiet": True})
    assert changed_keys(before, after) == {"quiet", "platform"}
    assert changed_keys(before, before) == frozenset()
