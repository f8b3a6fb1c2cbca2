import gzip

import pytest

from allotment.errors import TraceError
from allotment.trace import EventKind, TraceEvent, TraceSource, read

HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
RMM = TraceSource("cuda:0", "RMM resource")
A, F, OOM = EventKind.ALLOCATE, EventKind.FREE, EventKind.OUT_OF_MEMORY


@pytest.fixture
def events_of(events_and_problems):
    def read_log(body):
        events, problems = events_and_problems(HEADER + body, "log.dev0.csv")
        assert problems == []
        return events

    return read_log


def test_allocations_and_frees_become_events_with_numbers_instead_of_addresses(events_of):
    events = events_of(
        "2342727,15:47:02.841961,allocate,0x10012400000,1048576,0\n"
        "2342727,15:47:02.841977,allocate,0x10012500000,512,0\n"
        "2342727,15:47:02.842961,free,0x10012400000,1048576,0\n"
    )

    assert events == [
        TraceEvent(A, 0, 1048576, 0, 0, RMM),
        TraceEvent(A, 1, 512, 0, 16_000, RMM),
        TraceEvent(F, 0, 1048576, 0, 1_000_000, RMM),
    ]


def test_an_address_that_is_used_again_is_another_block(events_of):
    line = "1,00:00:01.000000,{},0x100,{},0\n"
    events = events_of(line.format("allocate", 8) + line.format("free", 8) + line.format("allocate", 99))

    assert [(event.kind, event.id, event.size) for event in events] == [(A, 0, 8), (F, 0, 8), (A, 1, 99)]


@pytest.mark.parametrize(
    ("name", "device"),
    [("log.dev1.csv", "cuda:1"), ("log.dev12", "cuda:12"), ("log.csv", ""), ("log.device1.csv", "")],
)
def test_the_device_is_told_by_the_name_of_the_file(events_and_problems, name, device):
    events, _ = events_and_problems(f"{HEADER}1,15:47:02.8,allocate,0x1,8,0\n", name)

    assert events[0].source == TraceSource(device, "RMM resource")


def test_a_failure_is_a_request_that_was_not_met(events_of):
    assert events_of("1,15:47:02.841961,allocate failure,(nil),4096,0x0\n") == [TraceEvent(OOM, -1, 4096, 0, 0, RMM)]


def test_streams_are_numbered_and_both_names_of_the_default_stream_are_stream_0(events_of):
    line = "1,00:00:01.000000,allocate,0x{},8,{}\n"
    handles = ["0x7f8a38001020", "0", "0x1", "0x2", "0x7f8a38001020"]
    events = events_of("".join(line.format(number + 1, handle) for number, handle in enumerate(handles)))

    assert [event.stream for event in events] == [1, 0, 0, 2, 1]


@pytest.mark.parametrize(
    ("first", "second", "elapsed"),
    [
        ("15:47:02.841961", "15:47:03.841961", 10**9),
        ("15:47:02:841961", "15:47:02:841962", 1000),
        ("1634567890.5", "1634567890.75", 250_000_000),
        ("23:59:59.900000", "00:00:00.100000", 200_000_000),
        ("15:47:02.000002", "15:47:02.000001", 0),
    ],
)
def test_times_count_from_the_first_one_over_midnight_and_never_backwards(events_of, first, second, elapsed):
    events = events_of(f"1,{first},allocate,0x1,8,0\n2,{second},allocate,0x2,8,0\n")

    assert [event.time for event in events] == [0, elapsed]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1,15:47:02.841961,allocate,0x1,8", "expected 6 columns, found 5"),
        ("1,15:47:02.841961,resize,0x1,8,0", "the action is 'resize'"),
        ("1,15:47:02.841961,allocate,somewhere,8,0", "pointer is 'somewhere'"),
        ("1,15:47:02.841961,allocate,0x1,-8,0", "size is '-8'"),
        ("1,15:47:02.841961,allocate,0x1,9223372036854775808,0", "2^63 - 1"),
        ("1,noon,allocate,0x1,8,0", "the time is 'noon'"),
        ("1,15:47:02.841961,allocate,0xff,8,0", "a block at 0xff is allocated, and one is live there"),
        ("1,15:47:02.841961,allo\udcff,0x1,8,0", "it is not UTF-8"),
    ],
)
def test_a_malformed_line_is_told_with_its_number_and_the_rest_is_read(events_and_problems, line, problem):
    log = f"{HEADER}1,15:47:00.0,allocate,0xff,8,0\n{line}\n1,15:47:03.0,free,0xff,8,0\n"
    events, problems = events_and_problems(log.encode(errors="surrogateescape"), "log.csv")

    assert [event.kind for event in events] == [A, F]
    assert [(each.line, each.origin.endswith("log.csv")) for each in problems] == [(3, True)]
    assert problem in problems[0].problem


def test_without_a_listener_the_first_malformed_line_is_raised(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(f"{HEADER}1,noon,allocate,0x1,8,0\n")

    with pytest.raises(TraceError, match=r"log\.csv, line 2: the time is 'noon'"):
        list(read(path))


def test_frees_of_unknown_blocks_are_left_out_and_counted(events_and_problems):
    log = f"{HEADER}1,15:47:02.8,free,0x1,8,0\n1,15:47:02.8,free,0x2,8,0\n"
    events, problems = events_and_problems(log)

    assert events == []
    assert [each.problem for each in problems] == [
        "2 frees are of blocks that were allocated before the file begins; left out"
    ]


def test_frees_of_unknown_blocks_are_no_reason_to_refuse_a_log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(f"{HEADER}1,15:47:02.8,free,0x1,8,0\n")

    assert list(read(path)) == []


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(events_and_problems):
    line = "1,15:47:02.8,{},0x1,8,0\n"
    log = HEADER + (line.format("allocate") + line.format("free")) * 50_000
    events, problems = events_and_problems(gzip.compress(log.encode(), compresslevel=0)[:-100_000])

    assert len(events) > 1000
    assert [each.problem for each in problems][-1].startswith("it cannot be read: it ends in the middle")


def test_headers_in_between_and_empty_lines_are_passed_over(events_of):
    assert len(events_of(f"\n{HEADER}1,15:47:02.8,allocate,0x1,8,0\r\n\n")) == 1
