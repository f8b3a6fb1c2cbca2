from dataclasses import dataclass

import pytest

from allotment.configuration import Configuration, configure, current, plugin_options, reset, subscribe, use
from allotment.errors import ConfigError


@pytest.fixture(autouse=True)
def isolated():
    with use(Configuration.isolated()):
        yield


def test_configure_changes_the_configuration_in_force():
    configure(allocator="managed", devices={"cuda:1": "mempool"})
    assert current().allocator_for("cuda:0").value == "managed"
    assert current().allocator_for("cuda:1").value == "mempool"


def test_configure_names_the_caller():
    configure(quiet=True)
    assert f"configure() at {__file__}:" in current().value("quiet").origin.place


def test_a_plugin_reads_its_options_as_they_are_at_that_moment():
    @dataclass(frozen=True)
    class MailerOptions:
        recipient: str = "nobody"

    assert plugin_options("leak-mailer", MailerOptions) == MailerOptions()
    configure(plugins={"leak-mailer": {"recipient": "a@b"}})
    assert plugin_options("leak_mailer", MailerOptions) == MailerOptions("a@b")


def test_a_misspelt_key_of_configure_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'allocator'"):
        configure(alocator="x")


def test_another_configuration_is_in_force_until_the_block_is_left():
    before = current()
    with use(Configuration.isolated(quiet=True)) as other:
        assert current() is other
    assert current() is before


def test_the_one_before_comes_back_also_after_an_exception():
    before = current()
    with pytest.raises(KeyError), use(Configuration.isolated()):
        raise KeyError
    assert current() is before


def test_reset_forgets_everything():
    with use(Configuration.isolated(quiet=True)):
        version = current().version
        reset()
        assert current().version != version


def test_a_subscriber_hears_of_changes_whichever_configuration_is_in_force():
    heard = []
    leave = subscribe(heard.append)
    configure(quiet=True)
    with use(Configuration.isolated()):
        configure(platform="host")
    leave()
    configure(quiet=False)
    assert heard == [{"quiet"}, frozenset(), {"platform"}, frozenset()]


def test_a_subscriber_hears_nothing_of_a_configuration_that_is_not_in_force():
    heard = []
    other = Configuration.isolated()
    with use(other):
        pass
    leave = subscribe(heard.append)
    other.configure(quiet=True)
    leave()
    assert heard == []
