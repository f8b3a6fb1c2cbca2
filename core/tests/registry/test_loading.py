"""Importing one plugin, whatever its import does."""

import pytest

from allotment.registry import PluginStatus
from allotment.registry._discovery import discover
from allotment.registry._loading import describe_exception, how_to_install, load_object


def load(name):
    (record,) = (record for record in discover("allotment.allocators", "0.1.0") if record.name == name)
    return load_object(record)


def test_the_object_that_the_record_names_is_returned(site):
    import fake_good

    record, factory = load("good-one")

    assert factory is fake_good.GoodAllocator
    assert record.status is PluginStatus.AVAILABLE


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("import-error", ImportError),
        ("attribute-error", AttributeError),
        ("syntax-error", SyntaxError),
        ("runtime-error", RuntimeError),
        ("system-exit", SystemExit),
        ("key-error", KeyError),
        ("recursion-error", RecursionError),
        ("lacks-attribute", AttributeError),
    ],
)
def test_an_import_that_raises_makes_a_broken_record(site, name, error):
    record, factory = load(name)

    assert factory is None
    assert record.status is PluginStatus.BROKEN
    assert type(record.exception) is error
    assert record.error.startswith(f"{error.__name__}: ")


def test_an_interrupt_by_the_user_is_not_taken_for_a_broken_plugin(site):
    with pytest.raises(KeyboardInterrupt):
        load("interrupt")


def test_a_reference_that_cannot_be_one_is_broken(site):
    record, _ = load("malformed")

    assert record.status is PluginStatus.BROKEN
    assert record.error == "'fake broken::Allocator' is not a reference such as 'module:attribute'"


def test_metadata_that_outlived_its_module_is_unavailable(site):
    record, _ = load("stale")

    assert record.status is PluginStatus.UNAVAILABLE
    assert record.error == "ModuleNotFoundError: No module named 'fake_removed'"
    assert record.remedy == "Its installation is out of date: reinstall or uninstall fake-stale."


def test_a_missing_backend_names_the_extras_that_bring_it(site):
    record, _ = load("needy")

    assert record.status is PluginStatus.UNAVAILABLE
    assert "'absent_backend'" in record.error
    assert record.remedy == "Install it with: pip install 'fake-needy[cuda12]' or pip install 'fake-needy[cuda13]'."


def test_an_extra_is_followed_into_the_extras_that_it_asks_for(site):
    record, _ = load("needs-core-extra")

    assert record.remedy == "Install it with: pip install 'fake-needy[cuda12]'."


def test_a_missing_hard_requirement_is_named_with_its_range(site):
    record, _ = load("needs-required")

    assert record.remedy == "fake-needy requires it. Install it with: pip install 'absent-required>=2'."


def test_of_a_dependency_that_lacks_its_own_the_inner_one_is_named(site):
    record, _ = load("deeply-needy")

    assert record.status is PluginStatus.UNAVAILABLE
    assert record.error == "ModuleNotFoundError: No module named 'absent_inner'"


def test_a_module_that_the_metadata_does_not_mention_is_named_without_a_guess(site):
    record, _ = load("needs-undeclared")

    assert record.remedy == "Install the package that provides the module 'absent_and_undeclared'."


def test_a_plugin_without_requirements_can_be_told_what_is_missing(site):
    (record,) = (each for each in discover("allotment.allocators", "0.1.0") if each.name == "good-one")

    assert how_to_install("torch.cuda", record) == "Install the package that provides the module 'torch.cuda'."


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("one line."), "RuntimeError: one line"),
        (RuntimeError("two\n  lines"), "RuntimeError: two lines"),
        (RuntimeError(), "RuntimeError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_an_exception_is_described_on_one_line(error, text):
    assert describe_exception(error) == text
