"""Observers."""

import subprocess
import sys

import pytest

from allotment.errors import ObserverError, ObserverWarning, OutOfMemoryError
from allotment.registry import HookBus, PluginPolicy, PluginStatus

FACTS = {"allocator": "a", "device": "cuda:0", "ptr": 4096, "nbytes": 7}


class Watching:
    def __init__(self):
        self.seen = []

    def allotment_after_allocate(self, allocator, device, ptr, nbytes):
        self.seen.append((allocator, device, ptr, nbytes))


@pytest.fixture
def bus():
    return HookBus(core_version="0.1.0")


def test_an_observer_sees_what_happened(bus):
    observer = Watching()
    bus.register(observer)

    bus.notify("allotment_after_allocate", **FACTS)

    assert observer.seen == [("a", "cuda:0", 4096, 7)]


def test_an_observer_may_take_fewer_arguments(bus):
    class Counting:
        total = 0

        def allotment_after_allocate(self, nbytes):
            self.total += nbytes

    observer = Counting()
    bus.register(observer)
    bus.notify("allotment_after_allocate", **FACTS)

    assert observer.total == 7


def test_every_hook_can_be_observed(bus):
    class Everything:
        def __init__(self):
            self.seen = []

        def allotment_after_allocate(self, ptr):
            self.seen.append("allocated")

        def allotment_after_deallocate(self, ptr):
            self.seen.append("freed")

        def allotment_on_out_of_memory(self, error):
            self.seen.append(error.requested)

        def allotment_register_commands(self, app):
            self.seen.append(app)

    observer = Everything()
    bus.register(observer)
    bus.notify("allotment_after_allocate", **FACTS)
    bus.notify("allotment_after_deallocate", **FACTS)
    bus.notify("allotment_on_out_of_memory", error=OutOfMemoryError(requested=9))
    bus.notify("allotment_register_commands", app="the app")

    assert observer.seen == ["allocated", "freed", 9, "the app"]


def test_many_observers_are_told_the_latest_first(bus):
    order = []

    def observer(name):
        return type("Named", (), {"allotment_after_allocate": lambda self, ptr: order.append(name)})()

    bus.register(observer("first"))
    bus.register(observer("second"))
    bus.notify("allotment_after_allocate", **FACTS)

    assert order == ["second", "first"]


def test_a_hook_is_observed_only_while_somebody_does(bus):
    observer = Watching()
    assert not bus.has_observers("allotment_after_allocate")

    bus.register(observer)
    assert bus.has_observers("allotment_after_allocate")
    assert bus.observed == {"allotment_after_allocate"}

    bus.unregister(observer)
    assert bus.observed == frozenset()
    bus.notify("allotment_after_allocate", **FACTS)
    assert observer.seen == []


def test_a_misspelt_hook_is_named_with_the_nearest_and_nothing_is_registered(bus):
    class Misspelt(Watching):
        def allotment_after_dealocate(self, ptr):
            pass

    with pytest.raises(ObserverError) as caught:
        bus.register(Misspelt())

    assert "Misspelt' was refused: there is no hook 'allotment_after_dealocate'." in str(caught.value)
    assert "Did you mean 'allotment_after_deallocate'?" in str(caught.value)
    assert bus.observed == frozenset()


def test_an_argument_that_the_hook_does_not_give_is_refused_and_nothing_is_registered(bus):
    class Asking(Watching):
        def allotment_after_deallocate(self, ptr, stream):
            pass

    kept = Watching()
    bus.register(kept)
    with pytest.raises(ObserverError, match="stream"):
        bus.register(Asking())

    assert bus.observed == {"allotment_after_allocate"}
    bus.notify("allotment_after_allocate", **FACTS)
    assert len(kept.seen) == 1


def test_an_observer_without_hooks_is_refused(bus):
    with pytest.raises(ObserverError, match=r"it has no hook. Hooks: allotment_after_allocate, "):
        bus.register(object())


def test_a_class_in_place_of_an_observer_is_refused(bus):
    with pytest.raises(ObserverError, match="it is a class"):
        bus.register(Watching)


def test_an_observer_is_registered_once(bus):
    observer = Watching()
    bus.register(observer)
    with pytest.raises(ObserverError, match="it is registered already"):
        bus.register(observer)
    bus.notify("allotment_after_allocate", **FACTS)

    assert len(observer.seen) == 1


def test_two_observers_cannot_have_one_name(bus):
    bus.register(Watching(), "watcher")
    with pytest.raises(ObserverError, match="watcher"):
        bus.register(Watching(), "watcher")


def test_what_is_not_registered_cannot_be_taken_away(bus):
    with pytest.raises(ObserverError, match="it is not registered"):
        bus.unregister(Watching())


def test_an_observer_that_raises_is_a_warning(bus):
    class Failing:
        def allotment_after_allocate(self, ptr):
            raise RuntimeError("disk full")

    bus.register(Failing())
    with pytest.warns(ObserverWarning, match="an observer of allotment_after_allocate failed: RuntimeError: disk full"):
        bus.notify("allotment_after_allocate", **FACTS)


def test_installed_observers_are_loaded_when_asked_and_broken_ones_are_records(bus, site):
    assert bus.observed == frozenset()

    records = {record.name: record for record in bus.load_observers()}

    assert records["counting"].status is PluginStatus.LOADED
    assert records["ready-made"].status is PluginStatus.LOADED
    assert records["misspelt"].status is PluginStatus.BROKEN
    assert "allotment_after_alocate" in records["misspelt"].error
    assert records["failing"].error == "RuntimeError: cannot be made"
    assert records["absent"].status is PluginStatus.UNAVAILABLE
    assert bus.observed == {"allotment_after_allocate"}


def test_installed_observers_are_loaded_once(bus, site):
    first = bus.load_observers()
    bus.notify("allotment_after_allocate", **FACTS)

    assert bus.load_observers() is first
    assert sys.modules["fake_observers"].ready_made.seen == [(4096, 7)]


def test_a_denied_observer_is_not_imported(site):
    bus = HookBus(lambda: PluginPolicy(allow=()), "0.1.0")

    assert {record.status for record in bus.load_observers()} == {PluginStatus.DISABLED}
    assert "fake_observers" not in sys.modules


def test_pluggy_is_imported_with_the_first_observer():
    program = """
import sys
from allotment.registry import HookBus
bus = HookBus()
bus.notify("allotment_after_allocate", ptr=1)
assert "pluggy" not in sys.modules
class Watching:
    def allotment_after_allocate(self, ptr): pass
bus.register(Watching())
assert "pluggy" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
