"""Writing a report."""

import json
import re

import pytest

from allotment.errors import TraceError
from allotment.trace import EventKind, TraceEvent, read, write_report


def test_a_report_is_one_file_and_told_in_short(leak, tmp_path):
    report = write_report(leak, tmp_path / "report.html")

    assert report.path == tmp_path / "report.html"
    assert list(tmp_path.iterdir()) == [report.path]
    assert (report.events, report.blocks, report.unmet_requests) == (4, 2, 1)
    assert (report.peak, report.live_at_end) == (5120, 4096)


def test_an_empty_trace_has_a_report(tmp_path):
    report = write_report([], str(tmp_path / "report.html"))

    assert (report.events, report.peak, report.live_at_end) == (0, 0, 0)


def test_what_could_not_be_read_is_on_the_page_and_the_rest_is_shown(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("op,id,size,stream\na,0,10,0\nnonsense\na,1,20,0\n")
    problems = []
    report = write_report(read(trace, problems.append), tmp_path / "report.html", problems=problems)

    assert report.blocks == 2
    assert "trace.csv, line 3: " in report.path.read_text("utf-8")


def test_a_page_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    with pytest.raises(TraceError, match=re.escape(f"{tmp_path}: it cannot be written: ")):
        write_report([], tmp_path)


def test_a_name_that_is_no_text_is_written_all_the_same(tmp_path):
    label = "caf\udce9"
    event = TraceEvent(EventKind.ALLOCATE, 0, 1, label=label)
    report = write_report([event], tmp_path / "report.html", title=label)
    about = re.search(r'id="about">(.*?)</script>', report.path.read_text("utf-8"))[1]

    assert json.loads(about)["labels"] == [label]
