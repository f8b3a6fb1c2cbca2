"""``allotment trace replay``: one trace through several allocators, and what is told of it."""

import gzip
import json
import pickle

import pytest
from typer.testing import CliRunner

from allotment.cli import build_app
from allotment.trace import shipped_trace

TRACE = "op,id,size,stream\na,0,1048576,0\na,1,4194304,1\nf,0,1048576,0\na,2,1048576,0\n"


@pytest.fixture
def run(empty_folder):
    """Return what runs the command on simulated GPUs; the folder has a trace."""
    (empty_folder / "run.csv").write_text(TRACE)

    def replay(*arguments, platform="sim:2xh200"):
        return CliRunner().invoke(build_app(), ["trace", "replay", *arguments, "--platform", platform])

    return replay


def row_of(result, allocator):
    document = json.loads(result.stdout)
    return next(row for row in document["allocators"] if row["allocator"] == allocator)


def test_each_allocator_has_a_line_in_the_order_of_the_options(run):
    result = run("run.csv", "--allocator", "mempool", "-a", "default")
    lines = result.stdout.splitlines()

    assert result.exit_code == 0
    assert lines[0] == "run.csv on cuda:0 of sim:2xh200"
    assert lines[1] == "3 allocations, at most 5 MiB at once; 2 blocks are live at the end."
    assert [line.split()[0] for line in lines[-2:]] == ["mempool", "default"]


def test_without_an_allocator_it_is_the_one_in_force(run):
    assert row_of(run("run.csv", "--json"), "mempool")["allocations"] == 3


def test_an_allocator_that_is_named_twice_is_tried_once(run):
    result = run("run.csv", "-a", "default", "-a", "Default", "--json")

    assert len(json.loads(result.stdout)["allocators"]) == 1


def test_json_has_all_figures(run):
    result = run("run.csv", "-a", "default", "--device", "cuda:1", "--json")
    document, row = json.loads(result.stdout), row_of(result, "default")

    assert document | {"allocators": []} == {
        "file": "run.csv",
        "trace": {"events": 4, "allocations": 3, "peak_requested": 5242880, "live_at_end": 2, "streams": [0, 1]},
        "problems": [],
        "platform": "sim:2xh200",
        "device": "cuda:1",
        "limit": None,
        "allocators": [],
    }
    assert row.keys() == {
        *("allocator", "seconds", "allocations_per_second", "allocations", "failures", "peak_requested"),
        *("peak_reserved", "overhead", "fragmentation", "driver_calls"),
    }
    assert (row["overhead"], row["fragmentation"], row["driver_calls"], row["failures"]) == (1.0, 0.0, 4, 0)


def test_each_allocator_finds_the_device_empty(run):
    result = run(str(shipped_trace()), "-a", "mempool", "-a", "caching", "--limit", "12 GiB", "--json")

    assert [row["failures"] for row in json.loads(result.stdout)["allocators"]] == [0, 0]


def test_a_limit_makes_allocations_fail_that_do_not_fit(run):
    result = run("run.csv", "-a", "default", "--limit", "3 MiB", "--json")

    assert result.exit_code == 0
    assert row_of(result, "default")["failures"] == 1
    assert 3 * 2**20 <= json.loads(result.stdout)["limit"] < 5 * 2**20


def test_driver_calls_are_left_out_with_a_note_where_they_are_not_counted(run):
    result = run("run.csv", platform="host")

    assert "driver\n" not in result.stdout
    assert "Driver calls are counted on a simulated GPU only" in result.stdout


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.csv", b"Thread,Time,Action,Pointer,Size,Stream\n1,15:47:02.8,allocate,0x1,4096,0\n"),
        ("snapshot.pickle", pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 1, "size": 4096}]]})),
        ("run.csv.gz", gzip.compress(b"op,id,size,stream\na,0,4096,0\n", mtime=0)),
        ("umpire.stats", b'{"kind":"replay","event":"allocate","payload":{"size":4096},"result":{"memory_ptr":"0x1"}}'),
    ],
)
def test_traces_of_others_are_replayed_too(run, empty_folder, name, content):
    (empty_folder / name).write_bytes(content)

    assert row_of(run(name, "-a", "default", "--json"), "default")["peak_requested"] == 4096


def test_lines_that_cannot_be_read_are_told_and_the_rest_is_replayed(run, empty_folder):
    (empty_folder / "run.csv").write_text(TRACE + "nonsense\n" * 7)
    result = run("run.csv", "-a", "default", "--json")

    assert result.exit_code == 0
    assert row_of(result, "default")["allocations"] == 3
    assert "warning: run.csv, line 6: expected 4 columns, found 1." in result.stderr
    assert "warning: run.csv: 2 more such lines" in result.stderr
    assert len(json.loads(result.stdout)["problems"]) == 7


def test_an_empty_trace_says_so(run, empty_folder):
    (empty_folder / "run.csv").write_text("op,id,size,stream\n")
    result = run("run.csv")

    assert result.exit_code == 0
    assert "The trace is empty: nothing was replayed." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.csv"], 2, "does not exist"),
        (["."], 2, "is a directory"),
        (["other.txt"], 1, "other.txt, line 1: expected the header"),
        (["run.csv", "-a", "mempol"], 1, "mempol"),
        (["run.csv", "--device", "cuda:7"], 1, "cuda:7"),
        (["run.csv", "--limit", "much"], 2, "--limit"),
        (["run.csv", "--limit", "1 TiB"], 2, "cannot be left free"),
        (["run.csv", "--limit", "1 GiB", "--device", "cpu"], 1, "only that of a CUDA device"),
    ],
)
def test_what_cannot_be_replayed_says_why(run, empty_folder, arguments, code, message):
    (empty_folder / "other.txt").write_text("hello\n")
    result = run(*arguments)

    assert result.exit_code == code
    assert message in result.stderr


def test_without_the_package_that_draws_the_error_says_how_to_get_it(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    result = run("run.csv", "--plot", "out.svg")

    assert result.exit_code == 1
    assert "pip install 'allotment[plot]'" in result.stderr


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_a_plot_is_drawn(run, empty_folder, suffix):
    pytest.importorskip("matplotlib")
    result = run("run.csv", "-a", "default", "-a", "mempool", "--plot", f"out.{suffix}")

    assert result.exit_code == 0
    assert (empty_folder / f"out.{suffix}").stat().st_size > 1000


def test_a_plot_names_the_allocators_and_what_was_requested(run, empty_folder):
    mpl = pytest.importorskip("matplotlib")
    with mpl.rc_context({"svg.fonttype": "none"}):
        run("run.csv", "-a", "default", "-a", "mempool", "--plot", "out.svg")
    picture = (empty_folder / "out.svg").read_text()

    for text in (
        "requested, at most 5 MiB",
        "default, at most 5 MiB",
        "mempool, at most",
        "reserved, MiB",
        "run.csv on",
    ):
        assert text in picture


@pytest.mark.parametrize(
    ("path", "message"),
    [("out.doc", "must end in one of"), ("out", "must end in"), ("no/out.svg", "there is no folder")],
)
def test_a_plot_that_cannot_be_is_refused_before_the_replay(run, path, message):
    pytest.importorskip("matplotlib")
    result = run("run.csv", "--plot", path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.replace("│", " ").split())
