"""Fixtures and markers for tests of code that uses arrays."""

import pytest

import allotment as al
from allotment import configuration, registry

pytest_plugins = ["pytester"]


def test_the_markers_are_registered(pytestconfig):
    registered = [marker.partition(":")[0] for marker in pytestconfig.getini("markers")]

    assert {"gpu", "multi_gpu"} <= set(registered)


def test_the_simulated_machine_is_in_force(simulated):
    assert [device.alias for device in al.get_cuda_devices()] == ["cuda:0", "cuda:1"]
    assert al.zeros(3, device="cuda:1").device.platform is simulated


@pytest.mark.parametrize("simulated", ["wsl", "jetson-orin"], indirect=True)
def test_a_test_may_name_the_machine(simulated):
    assert not al.get_device("cuda:0").is_concurrent_managed_access_supported


def test_an_isolated_test_knows_no_setting_of_the_environment(monkeypatch, request):
    monkeypatch.setenv("ALLOTMENT_ALLOCATOR", "mine")
    request.getfixturevalue("isolated")

    assert configuration.current().values.allocator is None


def test_what_is_set_and_registered_in_an_isolated_test_is_gone_after_it(pytester):
    pytester.makepyfile(
        """
        import allotment as al

        def test_first(isolated):
            al.configure(platform="sim:h200", allocator="mine")
            al.register_allocator("mine", object_with_two_methods)
            assert al.get_device("cuda:0").name

        def object_with_two_methods():
            raise AssertionError

        def test_second(isolated):
            assert "mine" not in [record.name for record in al.list_allocators()]
            al.configure(platform="host")
            assert not al.is_cuda_available()
        """
    )

    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_a_block_that_a_test_leaves_live_fails_it(pytester):
    pytester.makepyfile(
        """
        import allotment as al

        kept = []

        def test_leaks(simulated, no_leaks):
            kept.append(al.zeros(10, device="cuda:0"))

        def test_does_not(simulated, no_leaks):
            al.zeros(10, device="cuda:0")

        def test_leaves_what_was_there(simulated, kept_before, no_leaks):
            al.zeros(10, device="cuda:0")

        import pytest

        @pytest.fixture
        def kept_before(simulated):
            kept.append(al.zeros(10, device="cuda:0"))
        """
    )

    outcome = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    outcome.assert_outcomes(passed=3, errors=1)
    outcome.stdout.fnmatch_lines("*blocks are still live, by device and allocator: {('cuda:0', *)*: 1}*")


def test_the_registry_is_a_fresh_one(isolated):
    assert registry.current().records() == al.list_allocators()
