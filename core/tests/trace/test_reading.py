import csv
import gzip

import pytest

from allotment.errors import TraceError
from allotment.trace import EventKind, TraceEvent, read, shipped_trace


def error_of(path):
    with pytest.raises(TraceError) as caught:
        list(read(path))
    return caught.value


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_events_come_in_the_order_of_the_file_plain_or_compressed(trace_file, name):
    path = trace_file("a,0,100,0\na,1,50,3\nf,0,100,0\n", name=name)

    assert list(read(path)) == [
        TraceEvent(EventKind.ALLOCATE, 0, 100, 0),
        TraceEvent(EventKind.ALLOCATE, 1, 50, 3),
        TraceEvent(EventKind.FREE, 0, 100, 0),
    ]


def test_a_path_may_be_text(trace_file):
    assert len(list(read(str(trace_file("a,0,1,0\n"))))) == 1


def test_compression_is_told_by_the_content_and_not_by_the_name(trace_file):
    compressed = trace_file("a,0,1,0\n", name="trace.csv.gz")

    assert len(list(read(compressed.rename(compressed.with_suffix(""))))) == 1


def test_windows_line_ends_a_byte_order_mark_and_empty_lines_are_accepted(trace_file):
    path = trace_file("a,0,1,0\r\n\r\nf,0,1,0\r\n\r\n", header="\ufeffop,id,size,stream\r\n")

    assert [event.kind for event in read(path)] == [EventKind.ALLOCATE, EventKind.FREE]


def test_nothing_is_read_before_it_is_taken(trace_file):
    events = read(trace_file("a,0,1,0\nnonsense\n"))

    assert next(events).id == 0
    with pytest.raises(TraceError):
        next(events)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("x,1,1,0", "op is 'x', and can be 'a' (allocate) or 'f' (free)"),
        ("a,1,1", "expected 4 columns, found 3"),
        ("a,1,1,0,0", "expected 4 columns, found 5"),
        ("a,one,1,0", "id is 'one'"),
        ("a,1,-1,0", "size is '-1'"),
        ("a,1,1.5,0", "size is '1.5'"),
        ("a,1,9223372036854775808,0", "2^63 - 1"),
        ("a,1,²,0", "size is '²'"),
        ("a,1,1,", "stream is ''"),
        ("a,0,1,0", "allocation 0 is live already"),
        ("f,7,1,0", "allocation 7 is freed, and is not live"),
        ("f,0,9,0", "allocation 0 has 8 bytes and is freed with 9"),
    ],
)
def test_a_wrong_line_is_reported_with_file_and_line(trace_file, line, problem):
    path = trace_file(f"a,0,8,0\n{line}\n")
    error = error_of(path)

    assert (error.origin, error.line) == (str(path), 3)
    assert problem in error.problem
    assert str(error).startswith(f"{path}, line 3: ")


@pytest.mark.parametrize("header", ["", "\n", "op,id,size\n", "id,lower,upper,size\n"])
def test_another_header_is_refused_and_the_right_one_named(trace_file, header):
    error = error_of(trace_file("", header=header))

    assert error.line == 1
    assert "expected the header 'op,id,size,stream'" in str(error)


def test_a_missing_file_is_reported_by_name(tmp_path):
    assert f"{tmp_path / 'none.csv'}: it cannot be read: No such file" in str(error_of(tmp_path / "none.csv"))


def test_a_folder_is_no_trace(tmp_path):
    assert "it cannot be read" in str(error_of(tmp_path))


def test_a_truncated_archive_is_reported(trace_file):
    path = trace_file("a,0,1,0\n" * 1, name="trace.csv.gz")
    path.write_bytes(path.read_bytes()[:-6])

    assert "it cannot be read" in str(error_of(path))


def test_a_damaged_archive_is_reported(tmp_path):
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"op,id,size,stream\n")[:-8] + bytes(8))

    assert "incorrect data check" in str(error_of(path))


def test_a_file_that_is_no_text_is_reported(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"op,id,size,stream\na,\xff\xfe,1,0\n")

    assert "it is not UTF-8" in str(error_of(path))


def test_a_cell_too_large_for_csv_is_reported_with_its_line(trace_file):
    error = error_of(trace_file(f"a,{'1' * (csv.field_size_limit() + 1)},1,0\n"))

    assert error.line is not None
    assert "it is not CSV" in str(error)


def test_the_shipped_trace_has_a_few_thousand_allocations():
    kinds = [event.kind for event in read(shipped_trace())]

    assert kinds.count(EventKind.ALLOCATE) == 5965
    assert kinds.count(EventKind.FREE) == 5962
