"""How suites of others are run and compared, tried on a suite made here."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.suites import page
from tests.suites.comparison import compare
from tests.suites.shard import Result, Results, Shard
from tests.suites.suite import Known, Suite, Way

BEFORE = {"test_a.py::test_one": "passed", "test_a.py::test_two": "passed", "test_a.py::test_three[x]": "failed"}


def results(**outcomes):
    return Results(tests={test: Result(outcome, why="it says so") for test, outcome in outcomes.items()})


@pytest.fixture
def suite(tmp_path):
    """Return a function that makes a suite of one file."""

    def make(source="", **facts):
        (tmp_path / "suite").mkdir(exist_ok=True)
        (tmp_path / "suite" / "test_a.py").write_text(dedent(source))
        facts = {"ways": (Way(allocator="mempool"),), **facts}
        return Suite(
            library="warp", distribution="numpy", folder=lambda _: tmp_path / "suite", files=("test_*.py",), **facts
        )

    return make


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a suite without a bridge and returns what became of each test."""

    def run(suite, limit=60.0, only=(), turn=(0, 1)):
        folder = suite.folder(tmp_path)
        shard = Shard(
            suite=suite,
            way=Way(),
            files=tuple(suite.select(folder, Way())),
            folder=folder,
            scratch=tmp_path / f"scratch-{turn[0]}",
            shared=tmp_path,
            only=only,
            turn=turn,
        )
        found = shard.run(limit)
        return {test: result.outcome for test, result in found.tests.items()}, found.problems

    return run


def test_a_file_is_divided_test_by_test(suite, run):
    made = suite("".join(f"def test_{name}(): pass\n" for name in "abcde"))

    halves = [run(made, turn=(turn, 2))[0].keys() for turn in range(2)]

    assert [[name[-1] for name in half] for half in halves] == [["a", "c", "e"], ["b", "d"]]


def test_what_takes_longest_has_processes_of_its_own(suite, tmp_path):
    made = suite(shards=2, divided={"test_b.py": 2, "test_absent.py": 3})
    for name in "bcd":
        (tmp_path / "suite" / f"test_{name}.py").write_text("")

    parts = [([file.name for file in files], turn) for files, turn in made.parts(tmp_path / "suite", Way())]

    assert parts == [
        (["test_b.py"], (0, 2)),
        (["test_b.py"], (1, 2)),
        (["test_a.py", "test_d.py"], (0, 1)),
        (["test_c.py"], (0, 1)),
    ]


def test_each_test_ends_as_it_does(suite, run):
    made = suite(
        """
        import pytest
        def test_passes(): pass
        def test_fails(): assert 1 == 2
        def test_is_skipped(): pytest.skip("why")
        @pytest.mark.xfail
        def test_fails_as_expected(): assert False
        def test_has_no_fixture(nothing): pass
        def test_is_left_out_cpu(): pass
        """,
        left_out=("*_cpu",),
    )
    assert run(made) == (
        {
            "test_a.py::test_passes": "passed",
            "test_a.py::test_fails": "failed",
            "test_a.py::test_is_skipped": "skipped",
            "test_a.py::test_fails_as_expected": "xfailed",
            "test_a.py::test_has_no_fixture": "error",
        },
        [],
    )


def test_a_test_that_takes_the_process_down_is_told_and_the_others_are_run(suite, run):
    made = suite(
        """
        import os, signal
        def test_before(): pass
        def test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)
        def test_between(): pass
        def test_exits(): os._exit(3)
        def test_after(): pass
        """
    )
    outcomes, problems = run(made)
    assert list(outcomes.values()).count("passed") == 3
    assert {outcomes["test_a.py::test_crashes"], outcomes["test_a.py::test_exits"]} == {"crashed"}
    assert problems == []


def test_a_test_that_does_not_end_is_killed(suite, run):
    made = suite("import time\ndef test_waits(): time.sleep(60)\n")
    outcomes, problems = run(made, limit=5.0)
    assert outcomes == {"test_a.py::test_waits": "killed"}
    assert "out of time" in problems[0]


def test_some_tests_alone_may_be_run(suite, run):
    made = suite("def test_one(): pass\ndef test_two(): pass\n")
    assert run(made, only=("test_a.py::test_two",)) == ({"test_a.py::test_two": "passed"}, [])


def test_a_file_that_cannot_be_imported_is_an_error(suite, run):
    assert run(suite("import nothing_of_this_name")) == ({"test_a.py": "error"}, [])


def test_a_difference_is_explained_by_what_is_known(suite):
    known = Known(tests="*::test_three[x]", becomes="passed", why="it is known")
    made = suite(known=(known,))
    after = BEFORE | {"test_a.py::test_two": "failed", "test_a.py::test_three[x]": "passed"}
    found = compare(made, made.ways[0], results(**BEFORE), results(**after))

    assert [(each.test, each.reason) for each in found.differences] == [
        ("test_a.py::test_three[x]", "it is known"),
        ("test_a.py::test_two", None),
    ]
    assert [each.test for each in found.unexplained] == ["test_a.py::test_two"]


def test_a_reason_is_for_its_outcome_and_allocators_only(suite):
    made = suite(known=(Known(tests="*", becomes="failed", why="why", allocators=("mempool",)),))

    assert made.reason("test_a.py::test_one", "failed", "mempool") == "why"
    assert made.reason("test_a.py::test_one", "error", "mempool") is None
    assert made.reason("test_a.py::test_one", "failed", "caching") is None


def test_tests_that_were_run_in_one_way_only_are_told(suite):
    made = suite()
    found = compare(made, made.ways[0], results(**BEFORE), results())

    assert found.differences == []
    assert found.problems == ["3 tests were run in one way only"]


def test_of_several_results_of_a_test_the_worst_counts():
    found = Results()
    for outcome in ("passed", "failed", "skipped"):
        found.add("test", Result(outcome))

    assert found.tests["test"].outcome == "failed"


def test_the_page_names_what_is_not_explained(suite):
    made = suite(known=(Known(tests="*::test_two", becomes="skipped", why="It is known."),))
    after = BEFORE | {"test_a.py::test_one": "failed", "test_a.py::test_two": "skipped"}
    text = page.page_of([compare(made, made.ways[0], results(**BEFORE), results(**after))], "here")

    assert "| | `mempool` | 3 | 0 | 2 | 1 | 0 | 2 | 1 | 0 | 1 |" in text
    assert "It is known.\n\n- `test_a.py::test_two`: passed → skipped" in text
    assert "**Not explained:**\n\n- `test_a.py::test_one`: passed → failed: it says so" in text
