import os
import subprocess
import sys


def test_without_arguments_the_help_lists_the_commands(run):
    result = run()

    assert all(command in result.output for command in ("devices", "allocators", "config", "doctor", "demo"))


def test_the_version_is_printed(run):
    result = run("--version")

    assert result.exit_code == 0
    assert result.stdout.startswith("allotment ")


def test_wrong_usage_has_exit_code_2(run):
    assert run("devices", "--nonsense").exit_code == 2
    assert run("nonsense").exit_code == 2
    assert run("config", "nonsense").exit_code == 2


def test_an_error_is_one_message_on_standard_error_without_a_traceback(process):
    done = process("devices", "--platform", "sim:2xh201")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: platform 'sim:2xh201' is not available: there is no such profile.")
    assert "Did you mean '2xh200'?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_debug_adds_the_traceback(process):
    done = process("--debug", "devices", "--platform", "sim:2xh201")

    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_what_is_piped_has_no_colour_and_no_spaces_at_the_ends(process):
    done = process("devices", "--platform", "sim:2xh200")

    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())


def test_what_is_piped_keeps_each_row_on_one_line_however_narrow_the_terminal(process):
    done = process("allocators", "--platform", "sim:2xh200", "--check", COLUMNS="40")
    (host,) = (line for line in done.stdout.splitlines() if line.startswith("host "))

    assert host.endswith("cuda:0, cuda:1: host memory serves device 'cpu' only")


def test_a_terminal_without_unicode_gets_something_readable(process):
    done = process("config", "show", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert "platform" in done.stdout


def test_a_reader_that_stops_reading_causes_no_traceback(environment):
    command = f"{sys.executable} -m allotment devices --platform sim:2xh200 | true"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env=environment(), check=False)

    assert "Traceback" not in done.stderr


def test_using_allotment_imports_neither_typer_nor_rich(output_of):
    script = "import sys, allotment as al; al.empty(3, device='cpu'); print({'typer', 'rich'} & sys.modules.keys())"

    assert output_of(script, PYTHONPATH=os.pathsep.join(sys.path)) == ["set()"]
