"""``allotment trace report``: a page from a trace."""

import pytest

TRACE = "op,id,size,stream\na,0,1048576,0\na,1,1024,0\nf,1,1024,0\n"


@pytest.fixture
def trace_file(empty_folder):
    path = empty_folder / "trace.csv"
    path.write_text(TRACE)
    return path


def test_the_page_is_written_and_told_in_short(run, trace_file, empty_folder):
    result = run("trace", "report", str(trace_file), "-o", "page.html")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "page.html: 3 events, peak 1 MiB, 1 MiB live at the end\n"
    assert "<h1>trace.csv</h1>" in (empty_folder / "page.html").read_text("utf-8")


def test_without_a_name_the_page_is_report_html(run, trace_file, empty_folder):
    assert run("trace", "report", str(trace_file), "--title", "my run").exit_code == 0
    assert "<h1>my run</h1>" in (empty_folder / "report.html").read_text("utf-8")


def test_what_is_malformed_is_told_with_file_and_line_and_the_rest_is_shown(run, trace_file):
    trace_file.write_text(f"{TRACE}nonsense\n")
    result = run("trace", "report", str(trace_file))

    assert result.exit_code == 0
    assert "trace.csv, line 5: " in result.stderr
    assert "3 events" in result.stdout


def test_an_empty_trace_is_said_to_be_empty(run, trace_file):
    trace_file.write_text("op,id,size,stream\n")

    assert run("trace", "report", str(trace_file)).stdout == "report.html: the trace is empty\n"


def test_as_json_the_page_is_told_with_its_figures(run_json, trace_file):
    answer = run_json("trace", "report", str(trace_file))

    assert answer["report"] == {
        "path": "report.html",
        "events": 3,
        "blocks": 2,
        "peak": 1049600,
        "live_at_end": 1048576,
        "unmet_requests": 0,
    }
    assert answer["problems"] == []


def test_a_page_that_cannot_be_written_is_an_error(run, trace_file):
    result = run("trace", "report", str(trace_file), "-o", "no/such/page.html")

    assert result.exit_code == 1
    assert "it cannot be written" in result.stderr


def test_the_page_is_opened_when_asked(run, trace_file, empty_folder, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run("trace", "report", str(trace_file), "--open")

    assert opened == [(empty_folder / "report.html").as_uri()]
