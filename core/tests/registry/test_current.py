"""The registry in force."""

import pytest

from allotment import registry as registries
from allotment.registry import Registry


class Mine:
    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass


@pytest.fixture(autouse=True)
def leave_no_registry():
    registries.reset()
    yield
    registries.reset()


def test_there_is_one_registry_until_it_is_reset():
    first = registries.current()

    assert registries.current() is first
    registries.reset()
    assert registries.current() is not first


def test_another_registry_can_be_used_for_a_while():
    usual, other = registries.current(), Registry()

    with registries.use(other) as used:
        assert used is other
        assert registries.current() is other
    assert registries.current() is usual


def test_the_usual_registry_comes_back_after_an_exception():
    usual = registries.current()

    with pytest.raises(KeyError), registries.use(Registry()):
        raise KeyError
    assert registries.current() is usual


def test_the_public_functions_act_on_the_registry_in_force():
    with registries.use(Registry()) as registry:
        record = registries.register_allocator("mine", Mine)

        assert record in registries.list_allocators()
        assert registry.get("mine").factory is Mine
    assert record not in Registry().records()


def test_the_built_in_allocator_of_the_host_is_listed():
    with registries.use(Registry()):
        assert "host" in {record.name for record in registries.list_allocators()}


def test_the_built_in_allocator_of_the_host_can_be_loaded():
    plugin = Registry().get("host")

    assert plugin.traits.host_accessible


def test_the_configured_lists_are_in_force(site):
    from allotment import configuration

    with configuration.use(configuration.Configuration()):
        configuration.configure(plugins={"deny": ["good-one"]})
        record = next(record for record in registries.list_allocators() if record.name == "good-one")
    assert record.status is registries.PluginStatus.DISABLED
