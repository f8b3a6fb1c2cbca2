import pytest

from allotment import configuration


@pytest.fixture
def project(empty_folder):
    def write(text):
        path = empty_folder / "allotment.toml"
        path.write_text(text)
        return path

    return write


def setting(document, key):
    (found,) = (each for each in document["settings"] if each["key"] == key)
    return found


def outcome(document, name):
    (found,) = (each for each in document["outcomes"] if each["setting"] == name)
    return found


def test_each_setting_has_its_value_and_origin(run_json, project):
    path = project("quiet = true\n")
    document = run_json("config", "show")

    assert setting(document, "quiet") == {
        "key": "quiet",
        "value": True,
        "origin": {"kind": "project file", "place": str(path)},
        "shadowed": [],
    }
    assert setting(document, "platform")["origin"]["kind"] == "default"


def test_what_a_stronger_place_overrules_is_shown(run, run_json, project, plain):
    path = project('allocator = "weaker"\n')
    environment = {"ALLOTMENT_ALLOCATOR": plain, "ALLOTMENT_PLATFORM": "sim:h200"}
    found = setting(run_json("config", "show", **environment), "allocator")

    assert (found["value"], found["origin"]["place"]) == (plain, "ALLOTMENT_ALLOCATOR")
    assert found["shadowed"] == [{"value": "weaker", "origin": {"kind": "project file", "place": str(path)}}]
    assert f"project file: {path}, overruled" in run("config", "show", **environment).stdout


def test_what_was_asked_for_and_what_came_of_it_are_told(run_json, plain):
    document = run_json("config", "show", ALLOTMENT_ALLOCATOR=plain, ALLOTMENT_PLATFORM="sim:h200")

    assert outcome(document, "platform")["got"] == "sim:h200 (asked for by ALLOTMENT_PLATFORM)"
    assert outcome(document, "allocator of cuda:0") == {
        "setting": "allocator of cuda:0",
        "asked": plain,
        "got": plain,
        "error": None,
    }


def test_an_allocator_that_cannot_be_had_has_exit_code_1(run_json):
    environment = {"ALLOTMENT_ALLOCATOR": "rmmm", "ALLOTMENT_PLATFORM": "sim:h200"}
    found = outcome(run_json("config", "show", exit_code=1, **environment), "allocator of cuda:0")

    assert found["got"] is None
    assert "allocator 'rmmm' is not installed" in found["error"]


def test_a_platform_that_cannot_be_had_has_exit_code_1(run_json):
    document = run_json("config", "show", exit_code=1, ALLOTMENT_PLATFORM="cuda")

    assert "platform 'cuda' is not available" in outcome(document, "platform")["error"]


def test_an_option_that_the_allocator_does_not_have_is_told(run_json, project, plain):
    project(f"[allocators.{plain}]\nsize = 3\n")
    document = run_json("config", "show", exit_code=1)

    assert "size" in outcome(document, f"allocators.{plain}")["error"]


MAILER = """
from dataclasses import dataclass
import allotment as al

@dataclass(frozen=True)
class MailerOptions:
    recipient: str = "nobody"

class Mailer:
    Options = MailerOptions

    def allotment_register_commands(self, app):
        @app.command()
        def recipient():
            print(al.plugin_options("leak-mailer", MailerOptions).recipient)
"""


@pytest.fixture
def mailer(install):
    install("leak-mailer", MAILER, "Mailer", group="allotment.observers")


def test_an_option_of_a_plugin_has_its_value_and_origin_and_what_came_of_it(run_json, project, mailer):
    path = project('[plugins.leak-mailer]\nrecipient = "a@b"\n')
    document = run_json("config", "show")
    found = setting(document, "plugins.leak-mailer.recipient")

    assert (found["value"], found["origin"]) == ("a@b", {"kind": "project file", "place": str(path)})
    assert outcome(document, "plugins.leak-mailer")["got"] == "recipient = a@b"


def test_an_option_of_a_plugin_can_be_a_variable(run, run_json, project, mailer):
    project('[plugins.leak-mailer]\nrecipient = "a@b"\n')
    environment = {"ALLOTMENT_PLUGINS__LEAK_MAILER__RECIPIENT": "c@d"}

    assert outcome(run_json("config", "show", **environment), "plugins.leak-mailer")["got"] == "recipient = c@d"


def test_a_plugin_s_command_reads_the_plugin_s_options(run, project, mailer):
    path = project('[plugins.leak-mailer]\nrecipient = "a@b"\n')
    assert run("recipient").stdout == "a@b\n"

    project("[plugins.leak-mailer]\nrecipent = 1\n")
    configuration.reset()
    assert run("recipient").stderr.startswith(f"error: {path}: plugins.leak-mailer.recipent: unknown key.")


def test_an_option_that_a_plugin_does_not_have_is_told(run_json, project, mailer):
    project("[plugins.leak-mailer]\nrecipent = 1\n")
    document = run_json("config", "show", exit_code=1)

    assert "Did you mean 'recipient'?" in outcome(document, "plugins.leak-mailer")["error"]


def test_the_table_of_a_plugin_that_is_not_there_is_told(run_json, project, mailer):
    path = project("[plugins.leek-mailer]\nrecipient = 1\n")
    document = run_json("config", "show", exit_code=1)

    assert outcome(document, "plugins.leek-mailer")["error"].startswith(f"{path}: plugins.leek-mailer: no plugin")


def test_the_table_of_a_plugin_that_is_switched_off_is_no_error(run_json, project, mailer):
    project('[plugins]\ndeny = ["leak-mailer"]\n[plugins.leak-mailer]\nrecipient = "a@b"\n')

    assert outcome(run_json("config", "show"), "plugins.leak-mailer")["got"] == "nothing: the deny list names it"


def test_the_table_of_a_plugin_that_cannot_be_loaded_has_exit_code_1(run_json, project, install):
    install("leak-mailer", "raise RuntimeError('no mail')", "Mailer", group="allotment.observers")
    project('[plugins.leak-mailer]\nrecipient = "a@b"\n')
    document = run_json("config", "show", exit_code=1)

    assert outcome(document, "plugins.leak-mailer")["error"] == "RuntimeError: no mail"


def test_a_device_that_is_not_here_is_told(run_json, project):
    project('[devices."cuda:5"]\nallocator = "host"\n')

    assert "no such device" in outcome(run_json("config", "show"), "devices.cuda:5")["got"]


def test_notes_are_shown(run, run_json, project, empty_folder):
    project("quiet = true\n")
    (empty_folder / "pyproject.toml").write_text("[tool.allotment]\nquiet = false\n")

    assert "is not used" in run_json("config", "show")["notes"][0]
    assert "note: " in run("config", "show").stdout


@pytest.mark.parametrize(("text", "told"), [("alocator = 1\n", "Did you mean 'allocator'?"), ("=\n", "not valid TOML")])
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(run, project, text, told):
    path = project(text)
    result = run("config", "show", "--json")

    assert (result.exit_code, result.stdout) == (1, "")
    assert str(path) in result.stderr
    assert told in result.stderr


def test_the_precedence_is_in_the_document(run_json):
    assert run_json("config", "show")["precedence"] == [
        "scope",
        "call",
        "environment",
        "project file",
        "user file",
        "default",
    ]


def test_layers_are_told_as_they_were_said_and_as_they_were_understood(run, run_json, project):
    project('layers = ["ladder", { limit = "2 GiB" }]\n[devices."cuda:1"]\nlayers = []\n')
    environment = {"ALLOTMENT_PLATFORM": "sim:2xh200"}
    document = run_json("config", "show", **environment)

    assert setting(document, "layers")["value"] == ["ladder", {"limit": "2 GiB"}]
    assert outcome(document, "layers of cuda:0") == {
        "setting": "layers of cuda:0",
        "asked": '["ladder", {"limit": "2 GiB"}]',
        "got": "ladder, limit (amount = 2 GiB)",
        "error": None,
    }
    assert not [each for each in document["outcomes"] if each["setting"] in ("layers of cuda:1", "layers of cpu")]
    assert '["ladder", {"limit": "2 GiB"}]' in run("config", "show", **environment).stdout


def test_layers_that_cannot_be_had_have_exit_code_1(run_json):
    environment = {"ALLOTMENT_LAYERS": "limit=2 GiB,ladder", "ALLOTMENT_PLATFORM": "sim:h200"}
    document = run_json("config", "show", exit_code=1, **environment)

    assert (
        "ALLOTMENT_LAYERS: layers: the layer 'limit' is in the wrong place"
        in (outcome(document, "layers of cuda:0")["error"])
    )
