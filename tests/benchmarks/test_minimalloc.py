from __future__ import annotations

import pytest
from benchmarks.allocators import catalogue, minimalloc

from allotment.trace import EventKind, summarize


def shape(events):
    return [(event.kind.value, event.id, event.size) for event in events]


def test_buffers_come_and_go_in_the_order_of_time():
    events = minimalloc.requests([(7, 4, 9, 100), (8, 0, 6, 200)])

    assert shape(events) == [("a", 8, 200), ("a", 7, 100), ("f", 8, 200), ("f", 7, 100)]


def test_at_one_time_frees_come_before_allocations():
    events = minimalloc.requests([(1, 5, 9, 10), (0, 0, 5, 20)])

    assert shape(events) == [("a", 0, 20), ("f", 0, 20), ("a", 1, 10), ("f", 1, 10)]
    assert summarize(events).peak_requested == 20


@pytest.mark.parametrize("buffer", [(0, 5, 5, 10), (0, 6, 5, 10), (0, 1, 2, 0), (0, 1, 2, -4)])
def test_a_buffer_that_never_lives_or_holds_nothing_is_refused(buffer):
    with pytest.raises(ValueError, match="buffer 0"):
        minimalloc.requests([buffer])


def test_sizes_in_a_file_are_scaled(tmp_path):
    file = tmp_path / "A.1048576.csv"
    file.write_text("id,lower,upper,size\n0,10,20,3\n1,0,10,5\n")

    assert shape(minimalloc.read(file)) == [("a", 1, 320), ("f", 1, 320), ("a", 0, 192), ("f", 0, 192)]


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(minimalloc.VARIABLE, str(tmp_path))

    assert minimalloc.path_of("K") == tmp_path / "K.1048576.csv"


def test_a_problem_whose_file_is_not_there_says_where_it_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv(minimalloc.VARIABLE, str(tmp_path))
    entry = catalogue._problem("A")

    assert str(tmp_path / "A.1048576.csv") in entry.reason
    assert minimalloc.VARIABLE in entry.reason


@pytest.mark.parametrize("letter", minimalloc.PROBLEMS)
def test_a_real_problem_fits_into_its_capacity(letter):
    file = minimalloc.path_of(letter)
    if not file.exists():
        pytest.skip(f"{file} is not there")
    summary = summarize(minimalloc.read(file))

    assert summary.live_at_end == 0
    assert 0.9 < summary.peak_requested / (1_048_576 * minimalloc.SCALE) <= 1


def test_a_free_has_the_size_of_its_allocation():
    events = minimalloc.requests([(0, 0, 5, 10), (1, 1, 3, 20)])

    assert {event.size for event in events if event.kind is EventKind.FREE} == {10, 20}
