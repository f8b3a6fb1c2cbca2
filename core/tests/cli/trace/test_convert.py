"""``allotment trace convert``: any trace as a file that PyTorch's memory viewer opens."""

import pytest
from typer.testing import CliRunner

from allotment.cli import build_app
from allotment.trace import EventKind, read


@pytest.fixture
def run(empty_folder):
    """Return what runs the command; the folder has a trace."""
    (empty_folder / "run.csv").write_text("op,id,size,stream\na,0,100,0\nnonsense\nf,0,100,0\n")
    return lambda *arguments: CliRunner().invoke(build_app(), ["trace", "convert", *arguments])


@pytest.mark.parametrize("name", ["snapshot.pickle", "snapshot.PKL"])
def test_the_trace_is_written_and_what_to_do_with_it_is_said(run, name):
    result = run("run.csv", "-o", name)

    assert result.exit_code == 0
    assert [event.kind for event in read(name)] == [EventKind.ALLOCATE, EventKind.FREE]
    assert f"written: {name}, 2 events. Open it at https://pytorch.org/memory_viz" in result.stderr
    assert "warning: run.csv, line 3" in result.stderr


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [("snapshot.json", 2, "must end in .pickle"), ("none/snapshot.pickle", 1, "it cannot be written")],
)
def test_what_cannot_be_written_says_why(run, output, code, message):
    result = run("run.csv", "--output", output)

    assert result.exit_code == code
    assert message in result.stderr
