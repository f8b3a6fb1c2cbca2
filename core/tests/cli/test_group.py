import pytest

GREETING = """
class Observer:
    def allotment_register_commands(self, app):
        @app.command()
        def greet(name: str = "you"):
            \"\"\"Greet somebody.\"\"\"
            print(f"hello {name}")
"""
FAILING = """
class Observer:
    def allotment_register_commands(self, app):
        raise ValueError("no commands today")
"""
LEAVING = """
class Observer:
    def allotment_register_commands(self, app):
        raise SystemExit(3)
"""
NONSENSICAL = """
class Observer:
    def allotment_register_commands(self, app):
        app.command("odd")(3)
"""
REFUSING = """
from allotment import UnsupportedError

class Observer:
    def allotment_register_commands(self, app):
        @app.command()
        def refuse():
            raise UnsupportedError("this cannot be")
"""
USURPING = """
class Observer:
    def allotment_register_commands(self, app):
        @app.command()
        def devices():
            print("mine")
"""


@pytest.fixture
def observer(install):
    def add(name, source):
        install(name, source, "Observer", group="allotment.observers")

    return add


def test_a_plugin_s_command_is_listed_and_run(run, observer):
    observer("greeting", GREETING)

    assert "Greet somebody." in run("--help").output
    assert run("greet", "--name", "Ada").stdout == "hello Ada\n"


def test_an_error_in_a_plugin_s_command_is_a_message_too(run, observer):
    observer("refusing", REFUSING)
    result = run("refuse")

    assert result.exit_code == 1
    assert result.stderr == "error: this cannot be\n"


def test_a_plugin_that_fails_to_add_commands_is_a_warning(run, observer):
    observer("failing", FAILING)
    result = run("--help")

    assert result.exit_code == 0
    assert "devices" in result.stdout
    assert "warning: commands of trial-failing:failing are left out: ValueError: no commands today" in result.stderr


def test_a_plugin_that_fails_to_add_commands_hinders_no_other(run, observer):
    observer("failing", FAILING)
    observer("leaving", LEAVING)
    observer("nonsensical", NONSENSICAL)
    observer("greeting", GREETING)
    result = run("greet")

    assert (result.exit_code, result.stdout) == (0, "hello you\n")
    for name in ("failing", "leaving", "nonsensical"):
        assert f"warning: commands of trial-{name}:{name} are left out" in result.stderr


def test_of_two_plugins_with_one_command_the_first_keeps_it_and_both_are_named(run, observer):
    observer("greeting", GREETING)
    observer("greeting-too", GREETING.replace("hello", "good day"))
    result = run("greet")

    assert result.stdout == "hello you\n"
    assert "'greet' of trial-greeting-too:greeting-too is left out: trial-greeting:greeting has one" in result.stderr


def test_a_plugin_that_cannot_be_imported_is_a_warning_and_hinders_no_other(run, observer):
    observer("absent", "import nothing_of_this_name")
    observer("greeting", GREETING)
    result = run("greet")

    assert (result.exit_code, result.stdout) == (0, "hello you\n")
    assert "warning: observer 'trial-absent:absent' cannot be loaded" in result.stderr


def test_a_command_of_core_is_not_replaced(run, observer):
    observer("usurping", USURPING)
    result = run("--help")

    assert "a plugin's command 'devices' is left out" in result.stderr
    assert "mine" not in run("devices").output


def test_no_plugin_is_imported_for_a_command_of_core(run, observer):
    observer("failing", "raise RuntimeError('imported')")
    result = run("devices")

    assert (result.exit_code, result.stderr) == (0, "")


def test_a_configuration_that_cannot_be_read_still_leaves_the_help(run, empty_folder):
    (empty_folder / "allotment.toml").write_text("nonsense = 1\n")
    result = run("--help")

    assert result.exit_code == 0
    assert "warning: commands of plugins are left out" in result.stderr


def test_a_warning_of_allotment_is_a_message(run):
    result = run("devices", ALLOTMENT_ALOCATOR="managed")

    assert result.exit_code == 0
    assert result.stderr.startswith("warning: ALLOTMENT_ALOCATOR is ignored")
