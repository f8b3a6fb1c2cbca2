"""``allotment trace record``: a program runs as on its own, and what it allocates is in a file."""

import subprocess
import sys
from pathlib import Path

import pytest

from allotment import trace

PROGRAM = """
import sys
import allotment as al

print(sys.argv[1:], __name__)
with al.simulate():
    array = al.empty(100, "uint8", device="cuda:0")
if "fail" in sys.argv:
    raise ValueError("no good")
sys.exit(3 if "three" in sys.argv else 0)
"""


@pytest.fixture
def record(empty_folder):
    """Return what runs the command in a process of its own."""
    (empty_folder / "program.py").write_text(PROGRAM)

    def run(*arguments):
        command = [sys.executable, "-m", "allotment", "trace", "record", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.mark.parametrize(
    "program",
    [
        ["program.py", "--flag", "-o", "x"],
        ["--", "program.py", "--flag", "-o", "x"],
        ["-m", "program", "--flag", "-o", "x"],
    ],
)
def test_the_program_gets_its_own_arguments(record, program):
    result = record(*program)

    assert result.returncode == 0
    assert result.stdout == "['--flag', '-o', 'x'] __main__\n"
    assert [event.size for event in trace.read(Path("run.jsonl.gz"))] == [100]


def test_the_call_sites_are_the_program_s_alone(record):
    record("-o", "a.jsonl", "program.py")
    (event,) = trace.read("a.jsonl")

    assert [(Path(frame.file).name, frame.function) for frame in event.site.frames] == [("program.py", "<module>")]


def test_the_exit_code_is_the_program_s(record):
    assert record("program.py", "three").returncode == 3


def test_a_program_that_fails_prints_its_traceback_and_leaves_a_complete_file(record):
    result = record("program.py", "fail")

    assert result.returncode == 1
    assert "ValueError: no good" in result.stderr
    assert "_record.py" not in result.stderr
    assert "_program.py" not in result.stderr
    assert "recorded: 1 event. Look at them: allotment trace report run.jsonl.gz" in result.stderr
    assert len(list(trace.read("run.jsonl.gz"))) == 1


def test_a_program_that_allocates_nothing_is_told(record):
    Path("idle.py").write_text("import allotment")

    assert "drew no memory from Allotment" in record("idle.py").stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        (["-m"], "-m needs the name of a module"),
        (["-o", "none/x", "program.py"], "error: none/x: it cannot be written"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_done_is_said(record, arguments, problem):
    result = record(*arguments)

    assert result.returncode in (1, 2)
    assert problem in result.stderr
