"""The tables ``[plugins.NAME]``: each is read by one plugin, and what none reads is an error when memory is used."""

import sys
from dataclasses import dataclass
from textwrap import dedent

import pytest

import allotment as al
from allotment import registry
from allotment.errors import ConfigError, ObserverError
from allotment.registry import check_plugin_tables, configured_options, owner_of_table

MAILER = """
from dataclasses import dataclass
import allotment as al

@dataclass(frozen=True, slots=True, kw_only=True)
class MailerOptions:
    recipient: str = "nobody"
    above: al.MemoryAmount = al.MemoryAmount(nbytes=1024)

    def __post_init__(self):
        if "@" not in self.recipient:
            raise ValueError(f"{self.recipient!r} is no address")

class Mailer:
    Options = MailerOptions

    def allotment_after_allocate(self, ptr):
        pass
"""
ASKING = """
class Asking(Mailer):
    def __init__(self):
        self.options = al.plugin_options("asking", MailerOptions)
"""
PLAIN = """
class Plain:
    def allotment_after_allocate(self, ptr):
        pass
"""
UNTYPED = """
class Untyped(Plain):
    Options = {"recipient": str}
"""
UNREADABLE = """
class Unreadable(Plain):
    @dataclass
    class Options:
        recipient: "Nobody" = None
"""


@pytest.fixture(autouse=True)
def surroundings_of_each(isolation):
    """Begin each test with nothing configured and nothing loaded."""


@pytest.fixture(autouse=True)
def forget_modules():
    yield
    for name in ("fake_mail", "fake_post"):
        sys.modules.pop(name, None)


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Return what installs a distribution with observers, by name and class."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(distribution="fake-mail", **observers):
        module = distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(dedent(MAILER + ASKING + PLAIN + UNTYPED + UNREADABLE))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: 1.0\n")
        points = "".join(f"{name.replace('_', '-')} = {module}:{cls}\n" for name, cls in observers.items())
        (info / "entry_points.txt").write_text(f"[allotment.observers]\n{points}")
        registry.refresh_plugins()

    return add


def refusal():
    with pytest.raises(ConfigError) as caught:
        check_plugin_tables()
    return str(caught.value)


def configured(name):
    return configured_options(owner_of_table(name))


def test_a_table_is_read_as_the_options_that_the_plugin_declares(install):
    install(leak_mailer="Mailer")
    al.configure(plugins={"Leak_Mailer": {"recipient": "a@b", "above": "2 KiB"}})
    check_plugin_tables()

    assert configured("leak-mailer").recipient == "a@b"
    assert configured("leak-mailer").above == al.MemoryAmount(nbytes=2048)


def test_an_unknown_key_names_place_key_accepted_keys_and_the_nearest(install):
    install(leak_mailer="Mailer")
    al.configure(plugins={"leak-mailer": {"recipent": "a@b"}})

    assert refusal().startswith("configure() at ")
    assert refusal().endswith(
        "plugins.leak-mailer.recipent: unknown key. Accepted here: recipient, above. Did you mean 'recipient'?"
    )


def test_a_value_that_the_options_themselves_refuse_is_an_error(install):
    install(leak_mailer="Mailer")
    al.configure(plugins={"leak-mailer": {"recipient": "a"}})

    assert refusal().endswith("plugins.leak-mailer.recipient: 'a' is no address.")


def test_a_plugin_that_declares_no_options_takes_none(install):
    install(plain="Plain")
    al.configure(plugins={"plain": {"recipient": "a@b"}})

    assert refusal().endswith("plugins.plain.recipient: unknown key. Accepted here: none.")


def test_the_table_of_a_plugin_that_is_not_installed_is_named_with_the_nearest(install):
    install(leak_mailer="Mailer", plain="Plain")
    al.configure(plugins={"leak-mailr": {"recipient": "a@b"}})

    assert refusal().endswith(
        "plugins.leak-mailr: no plugin of this name can be configured here; options of an allocator belong to "
        "allocators.NAME. Accepted here: leak-mailer. Did you mean 'leak-mailer'?"
    )


def test_a_mistake_is_found_when_memory_is_first_used(install, sim):
    al.configure(plugins={"leak-mailer": {"recipient": "a@b"}})

    with pytest.raises(ConfigError, match=r"plugins\.leak-mailer: no plugin of this name"):
        al.empty(4, device="cuda:0")
    al.configure(plugins={"leak-mailer": None})
    assert al.empty(4, device="cuda:0").ptr


def test_no_plugin_is_imported_before(install):
    install(leak_mailer="Mailer")
    al.configure(plugins={"leak-mailer": {"recipient": "a@b"}})
    al.list_plugins()

    assert "fake_mail" not in sys.modules


def test_what_is_said_to_a_plugin_that_is_switched_off_waits(install):
    install(leak_mailer="Mailer")
    al.configure(plugins={"deny": ["leak-mailer"], "leak-mailer": {"nonsense": 1}})
    check_plugin_tables()

    assert "fake_mail" not in sys.modules


def test_what_is_said_to_a_plugin_that_cannot_be_loaded_waits(install):
    install(leak_mailer="Nowhere")
    al.configure(plugins={"leak-mailer": {"nonsense": 1}})
    check_plugin_tables()

    assert "AttributeError" in owner_of_table("leak-mailer").record.error


def test_a_plugin_that_fails_for_what_is_configured_is_a_record_and_the_mistake_is_named(install):
    install(asking="Asking")
    al.configure(plugins={"asking": {"recipient": 5}})

    assert refusal().endswith("plugins.asking.recipient: expected text, got 5.")
    assert "expected text, got 5" in owner_of_table("asking").record.error


def test_two_plugins_of_one_name_are_both_named(install):
    install("fake-mail", leak_mailer="Mailer")
    install("fake-post", leak_mailer="Mailer")
    al.configure(plugins={"leak-mailer": {"recipient": "a@b"}})

    assert "plugins.leak-mailer: fake-mail 1.0 and fake-post 1.0 have a plugin of this name." in refusal()


def test_of_two_plugins_of_one_name_the_one_that_is_not_denied_is_configured(install):
    install("fake-mail", leak_mailer="Mailer")
    install("fake-post", leak_mailer="Mailer")
    al.configure(plugins={"deny": ["fake-post:leak-mailer"], "leak-mailer": {"recipient": "a@b"}})

    assert owner_of_table("leak-mailer").record.distribution == "fake-mail"
    assert configured("leak-mailer").recipient == "a@b"


def test_an_observer_that_the_program_registers_is_configured_by_the_name_that_it_gets():
    @dataclass(frozen=True)
    class CountOptions:
        start: int = 0

    class Counting:
        Options = CountOptions

        def allotment_after_allocate(self, ptr):
            pass

    counting = Counting()
    registry.current().hooks.register(counting, "counting")
    al.configure(plugins={"counting": {"start": 3}})
    check_plugin_tables()
    assert configured("counting") == CountOptions(start=3)

    registry.current().hooks.unregister(counting)
    assert "plugins.counting: no plugin of this name" in refusal()


def test_options_that_are_no_dataclass_are_refused(install):
    install(untyped="Untyped")
    (record,) = registry.current().hooks.load_observers()

    assert "its Options are {'recipient': <class 'str'>}, not a dataclass" in record.error
    with pytest.raises(ObserverError, match="not a dataclass"):
        registry.current().hooks.register(sys.modules["fake_mail"].Untyped())


def test_options_whose_annotations_cannot_be_read_are_a_record(install):
    install(unreadable="Unreadable")
    al.configure(plugins={"unreadable": {"recipient": "a@b"}})
    check_plugin_tables()

    assert "the annotations of its Options cannot be read" in owner_of_table("unreadable").record.error
