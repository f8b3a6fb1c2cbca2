"""The registry: one scan, one load, and what choosing a plugin gives."""

import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from allotment.errors import (
    AllocatorContractError,
    PluginConflictError,
    PluginDisabledError,
    PluginIncompatibleError,
    PluginLoadError,
    UnknownAllocatorError,
)
from allotment.registry import PluginOrigin, PluginPolicy, PluginStatus, Registry


class Mine:
    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass


def record_of(registry, name):
    (record,) = (record for record in registry.records() if name in (record.name, record.qualified_name))
    return record


def test_listing_imports_nothing(registry):
    registry.records()
    registry.names()

    assert not [name for name in sys.modules if name.startswith("fake_")]


def test_the_scan_is_made_once(registry, site, tmp_path, monkeypatch):
    before = registry.records()
    shutil.copytree(site / "fake_good-1.2.0.dist-info", tmp_path / "fake_late-1.2.0.dist-info")
    metadata = tmp_path / "fake_late-1.2.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("fake-good", "fake-late"))
    monkeypatch.syspath_prepend(str(tmp_path))

    assert registry.records() == before
    registry.refresh()
    assert "fake-late" in {record.distribution for record in registry.records()}


def test_only_the_chosen_plugin_is_imported(registry):
    import fake_good  # the module is there to be compared with

    assert registry.get("Good_One").factory is fake_good.GoodAllocator
    assert {name for name in sys.modules if name.startswith("fake_")} == {"fake_good"}


def test_a_chosen_plugin_is_loaded_and_its_record_says_so(registry):
    plugin = registry.get("good-one")

    assert plugin.record.status is PluginStatus.LOADED
    assert record_of(registry, "good-one") == plugin.record


def test_a_record_taken_before_does_not_change(registry):
    before = record_of(registry, "good-one")
    registry.get("good-one")

    assert before.status is PluginStatus.AVAILABLE


def test_the_same_plugin_is_returned_each_time(registry):
    assert registry.get("good-one") is registry.get("GOOD-ONE") is registry.get("fake-good:good-one")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("import-error", ImportError),
        ("attribute-error", AttributeError),
        ("syntax-error", SyntaxError),
        ("runtime-error", RuntimeError),
        ("system-exit", SystemExit),
        ("key-error", KeyError),
        ("recursion-error", RecursionError),
        ("stale", ModuleNotFoundError),
        ("no-methods", AllocatorContractError),
    ],
)
def test_a_plugin_that_fails_raises_when_it_is_chosen_and_only_then(registry, name, cause):
    for _ in range(2):
        with pytest.raises(PluginLoadError) as caught:
            registry.get(name)
        assert type(caught.value.__cause__) is cause

    assert registry.get("good-one").name == "good-one"


def test_the_error_of_a_failed_load_says_what_why_and_what_to_do(registry):
    with pytest.raises(PluginLoadError) as caught:
        registry.get("needy")

    assert str(caught.value).startswith(
        "allocator 'needy' (fake-needy 1.0) failed to load: ModuleNotFoundError: No module named 'absent_backend'. "
        "Install it with: pip install 'fake-needy[cuda12]' or pip install 'fake-needy[cuda13]'. Usable here: "
    )
    assert "good-one" in caught.value.usable
    assert "needy" not in caught.value.usable


def test_a_plugin_that_failed_is_listed_with_the_reason(registry):
    with pytest.raises(PluginLoadError):
        registry.get("runtime-error")

    record = record_of(registry, "runtime-error")
    assert record.status is PluginStatus.BROKEN
    assert record.error == "RuntimeError: no driver found"


def test_an_unknown_name_tells_which_plugins_failed_and_why(registry):
    with pytest.raises(PluginLoadError):
        registry.get("runtime-error")
    with pytest.raises(UnknownAllocatorError, match="fake-broken:runtime-error \\(RuntimeError: no driver found\\)"):
        registry.get("good-two")


def test_an_unknown_name_offers_the_nearest(registry):
    with pytest.raises(UnknownAllocatorError, match="Did you mean 'good-one'"):
        registry.get("goodone")


def test_a_failed_import_is_tried_again_after_a_refresh(registry, site, tmp_path, monkeypatch):
    with pytest.raises(PluginLoadError):
        registry.get("stale")
    package = tmp_path / "fake_removed"
    package.mkdir()
    (package / "pool.py").write_text("from fake_good import PlainAllocator as Allocator\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginLoadError):
        registry.get("stale")

    registry.refresh()

    assert registry.get("stale").record.status is PluginStatus.LOADED


def test_a_refresh_keeps_what_is_loaded_and_registered(registry):
    loaded = registry.get("good-one")
    registry.register("mine", Mine)

    registry.refresh()

    assert registry.get("good-one") is loaded
    assert registry.get("mine").factory is Mine


def test_an_incompatible_plugin_is_never_imported(registry, marks):
    with pytest.raises(PluginIncompatibleError, match=r"requires allotment <10,>=9, and this is allotment 0\.1\.0"):
        registry.get("incompatible")

    assert marks.read_text() == ""


def test_a_plugin_for_another_contract_is_refused_after_its_import(registry):
    with pytest.raises(PluginIncompatibleError, match=r"version 1\.99 of the allocator contract"):
        registry.get("newer-minor")
    assert record_of(registry, "newer-minor").status is PluginStatus.INCOMPATIBLE


def test_many_threads_that_choose_a_plugin_at_once_load_it_once(registry, marks):
    together = threading.Barrier(16)

    def choose(_):
        together.wait()
        return registry.get("marking")

    with ThreadPoolExecutor(16) as pool:
        plugins = set(map(id, pool.map(choose, range(16))))

    assert len(plugins) == 1
    assert marks.read_text() == "fake_marking\n"


def test_many_threads_that_choose_a_failing_plugin_at_once_load_it_once(registry, marks):
    together = threading.Barrier(16)

    def choose(_):
        together.wait()
        with pytest.raises(PluginLoadError) as caught:
            registry.get("marking-and-failing")
        return caught.value.__cause__

    with ThreadPoolExecutor(16) as pool:
        causes = set(map(id, pool.map(choose, range(16))))

    assert len(causes) == 1
    assert marks.read_text() == "fake_marking_and_failing\n"


# Conflicts


def test_a_conflict_does_no_harm_until_it_is_chosen(both_sites):
    registry = Registry(core_version="0.1.0")

    assert {record.status for record in registry.records() if record.name == "pool"} == {PluginStatus.CONFLICT}
    assert registry.get("good-one").name == "good-one"
    with pytest.raises(PluginConflictError, match="'fake-pool-one:pool' or 'fake-pool-two:pool'"):
        registry.get("pool")


def test_either_side_of_a_conflict_can_be_chosen_by_its_qualified_name(both_sites):
    registry = Registry(core_version="0.1.0")

    assert registry.get("fake-pool-one:pool").factory.__name__ == "PlainAllocator"
    assert registry.get("Fake_Pool_Two:pool").factory.__name__ == "GoodAllocator"
    with pytest.raises(PluginConflictError):
        registry.get("pool")


def test_a_built_in_keeps_its_name(both_sites):
    registry = Registry(builtin={"host": "fake_good:GoodAllocator"}, core_version="0.1.0")

    assert registry.get("host").record.origin is PluginOrigin.BUILTIN
    assert registry.get("fake-host:host").factory.__name__ == "PlainAllocator"


def test_a_built_in_goes_through_the_same_checks(site):
    registry = Registry(builtin={"host": "fake_wrong:NoMethods"}, core_version="0.1.0")

    with pytest.raises(PluginLoadError, match="has no method allocate"):
        registry.get("host")


# Allow and deny lists


def test_a_denied_plugin_is_listed_and_refused(site):
    registry = Registry(policy=lambda: PluginPolicy(deny=("good-one",)), core_version="0.1.0")

    assert record_of(registry, "good-one").status is PluginStatus.DISABLED
    with pytest.raises(PluginDisabledError, match="the deny list names it"):
        registry.get("good-one")
    assert "fake_good" not in sys.modules


def test_a_change_of_the_lists_takes_effect_at_once(site):
    policy = PluginPolicy()
    registry = Registry(policy=lambda: policy, core_version="0.1.0")
    registry.get("good-one")

    policy = PluginPolicy(allow=())
    with pytest.raises(PluginDisabledError, match="the allow list does not name it"):
        registry.get("good-one")
    policy = PluginPolicy()
    assert registry.get("good-one").record.status is PluginStatus.LOADED


# Availability


def test_availability_loads_the_plugin_and_asks_it(registry):
    record = record_of(registry, "good-one")

    assert registry.availability(record, "cuda:0").ok
    assert registry.availability(record, "cpu").reason == "cpu has no fake memory"


def test_a_plugin_that_cannot_be_loaded_is_unavailable_for_that_reason(registry):
    answer = registry.availability(record_of(registry, "runtime-error"), "cuda:0")

    assert not answer.ok
    assert answer.reason == "RuntimeError: no driver found"


def test_a_plugin_that_lacks_its_backend_says_what_to_install(registry):
    reason = registry.availability(record_of(registry, "needs-core-extra"), "cuda:0").reason

    assert reason == (
        "ModuleNotFoundError: No module named 'absent_toolkit'. Install it with: pip install 'fake-needy[cuda12]'."
    )


def test_availability_of_a_plugin_in_conflict_is_its_own(both_sites):
    registry = Registry(core_version="0.1.0")

    assert registry.availability(record_of(registry, "fake-pool-one:pool"), "cpu").ok
    assert not registry.availability(record_of(registry, "fake-pool-two:pool"), "cpu").ok


# Registering


def test_a_registered_factory_can_be_chosen(registry):
    record = registry.register("My_Pool", Mine)

    assert record.origin is PluginOrigin.RUNTIME
    assert record.status is PluginStatus.LOADED
    assert registry.get("my-pool").factory is Mine
    assert record in registry.records()


def test_registering_a_name_that_is_taken_is_refused(registry):
    with pytest.raises(PluginConflictError, match=r"\(fake-good 1.2.0\) is ambiguous: the name is taken"):
        registry.register("good-one", Mine)
    registry.register("mine", Mine)
    with pytest.raises(PluginConflictError, match="replace=True"):
        registry.register("mine", Mine)


def test_a_replaced_plugin_can_still_be_chosen_by_its_qualified_name(registry):
    registry.register("good-one", Mine, replace=True)

    assert registry.get("good-one").factory is Mine
    assert registry.get("fake-good:good-one").factory.__name__ == "GoodAllocator"


def test_unregistering_gives_the_name_back(registry):
    registry.register("good-one", Mine, replace=True)
    registry.unregister("good-one")

    assert registry.get("good-one").factory.__name__ == "GoodAllocator"


def test_only_what_was_registered_can_be_unregistered(registry):
    registry.register("mine", Mine)
    with pytest.raises(UnknownAllocatorError, match=r"not registered at run time. Usable here: mine"):
        registry.unregister("good-one")


@pytest.mark.parametrize("name", ["", "  ", "a:b", "two words", "-pool", "pool/", "péage"])
def test_a_name_that_could_not_be_typed_is_refused(registry, name):
    with pytest.raises(ValueError, match="cannot name an allocator"):
        registry.register(name, Mine)


def test_an_allocator_in_place_of_its_factory_is_refused(registry):
    with pytest.raises(TypeError, match="name its class, or a function that returns it"):
        registry.register("mine", Mine())
    with pytest.raises(UnknownAllocatorError):
        registry.get("mine")


def test_a_class_that_is_no_allocator_is_refused(registry):
    with pytest.raises(AllocatorContractError, match=r"has no method allocate\(size_in_bytes\)"):
        registry.register("mine", type("NoMethods", (), {}))


@pytest.mark.parametrize("name", [None, 3, Mine])
def test_a_name_that_is_not_text_is_a_type_error(registry, name):
    with pytest.raises(TypeError, match="the name of an allocator is text"):
        registry.get(name)
    with pytest.raises(TypeError, match="the name of an allocator is text"):
        registry.register(name, Mine)
