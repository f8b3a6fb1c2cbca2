import pytest

from allotment.configuration import Configuration, OriginKind, current, settings, use
from allotment.errors import ConfigError, ConfigWarning


@pytest.fixture(autouse=True)
def isolated():
    with use(Configuration.isolated(devices={"cuda:1": "managed"})):
        yield


def test_reading_gives_the_effective_value():
    assert settings.enable_mempools_at_init is True
    assert settings.devices["cuda:1"].allocator == "managed"


def test_assigning_is_a_call():
    settings.enable_mempools_at_init = False
    setting = current().value("enable_mempools_at_init")
    assert setting.value is settings.enable_mempools_at_init is False
    assert setting.origin.kind is OriginKind.CALL
    assert setting.origin.place.startswith(f"config.enable_mempools_at_init at {__file__}:")


@pytest.mark.parametrize("value", [0, "false", "no"])
def test_a_value_of_the_wrong_type_is_refused(value):
    with pytest.raises(ConfigError, match="enable_mempools_at_init: expected true or false, got"):
        settings.enable_mempools_at_init = value
    assert settings.enable_mempools_at_init is True


def test_a_refused_value_is_a_value_error():
    with pytest.raises(ValueError, match="expected 'auto', 'cuda', 'host' or 'sim:<profile>', got 'gpu'"):
        settings.platform = "gpu"


def test_none_takes_back_what_was_assigned():
    settings.quiet = True
    settings.quiet = None
    assert settings.quiet is False


def test_an_unknown_setting_cannot_be_read_and_offers_the_nearest():
    with pytest.raises(AttributeError, match=r"there is no setting 'quite'\. Did you mean 'quiet'"):
        settings.quite  # noqa: B018


def test_an_unknown_setting_cannot_be_assigned():
    with pytest.raises(AttributeError, match="Did you mean 'enable_mempools_at_init'"):
        settings.enable_mempool_at_init = False


@pytest.mark.parametrize("table", ["devices", "allocators", "plugins"])
def test_a_table_cannot_be_assigned(table):
    with pytest.raises(AttributeError, match=rf"use configure\({table}="):
        setattr(settings, table, {})


def test_an_item_of_a_table_cannot_be_assigned():
    with pytest.raises(TypeError):
        settings.devices["cuda:0"] = "managed"


def test_a_change_after_initialisation_brings_a_warning_at_the_line_that_makes_it():
    current().seal("enable_mempools_at_init")
    with pytest.warns(ConfigWarning, match="has no effect") as caught:
        settings.enable_mempools_at_init = False
    assert caught[0].filename == __file__


def test_all_settings_are_listed():
    assert "enable_mempools_at_init" in dir(settings)
    assert "platform='auto'" in repr(settings)
