import json

import pytest

from allotment.trace import EventKind, TraceEvent, TraceSource

A, F = EventKind.ALLOCATE, EventKind.FREE
UMPIRE = TraceSource(allocator="Umpire")


def older(event, payload, result=None, timestamp=1_655_746_034_824_594_357):
    line = {"kind": "replay", "uid": 21498, "timestamp": timestamp, "event": event, "payload": payload}
    return line if result is None else {**line, "result": result}


def newer(name, numbers=None, texts=None, tags=None, timestamp=1_700_000_000_000_000_000):
    line = {"category": "operation", "name": name, "tags": {"replay": "true", **(tags or {})}, "timestamp": timestamp}
    return line | {"numeric_args": numbers or {}, "string_args": texts or {}}


def text_of(*lines):
    return "".join(line if isinstance(line, str) else f"{json.dumps(line)}\n" for line in lines)


@pytest.fixture
def events_of(events_and_problems):
    def read_log(*lines):
        events, problems = events_and_problems(text_of(*lines), "umpire.stats")
        assert problems == []
        return events

    return read_log


def test_an_older_log_tells_each_call_twice_and_it_is_one_event(events_of):
    asked = {"allocator_ref": "0x10", "size": 128}
    events = events_of(
        older("version", {"major": 2022, "minor": 3, "patch": 1, "rc": ""}, timestamp=1000),
        older("makeMemoryResource", {"name": "HOST"}, "0x10", timestamp=1000),
        older("allocate", asked, timestamp=1000),
        older("allocation_map_insert", {"ptr": "0xa0", "record_size": "128"}, timestamp=1000),
        older("allocate", asked, {"memory_ptr": "0xa0"}, timestamp=1000),
        older("deallocate", {"allocator_ref": "0x10", "memory_ptr": "0xa0"}, timestamp=1500),
    )
    host = TraceSource(allocator="HOST")

    assert events == [TraceEvent(A, 0, 128, 0, 0, host), TraceEvent(F, 0, 128, 0, 500, host)]


def test_a_newer_log_has_names_of_blocks_as_labels(events_of):
    events = events_of(
        newer("make_memory_resource", {"introspection": 1}, {"allocator_ref": "0x10"}, {"allocator_name": "DEVICE"}),
        newer("named_allocate", {"size": 64}, {"allocator_ref": "0x10", "pointer": "0xa0", "allocation_name": "mesh"}),
        newer("allocate_resource", {"size": 32}, {"allocator_ref": "0x99", "pointer": "0xb0", "resource": "Cuda"}),
        newer("deallocate", None, {"allocator_ref": "0x10", "pointer": "0xa0"}),
    )
    device = TraceSource(allocator="DEVICE")

    assert events == [
        TraceEvent(A, 0, 64, 0, 0, device, "mesh"),
        TraceEvent(A, 1, 32, 0, 0, UMPIRE),
        TraceEvent(F, 0, 64, 0, 0, device),
    ]


def test_an_allocator_made_of_another_has_its_own_name(events_of):
    asked = {"type": "umpire::strategy::QuickPool", "allocator_name": "pool", "args": ["DEVICE"]}
    events = events_of(
        older("makeAllocator", asked),
        older("makeAllocator", asked, {"allocator_ref": "0x20"}),
        older("allocate", {"allocator_ref": "0x20", "size": 1}, {"memory_ptr": "0xa0"}),
    )

    assert events[0].source == TraceSource(allocator="pool")


@pytest.mark.parametrize(("new", "number"), [("0xa0", 1), ("0xb0", 1)])
def test_a_block_that_is_resized_is_a_free_and_an_allocation(events_of, new, number):
    asked = {"ptr": "0xa0", "size": 12, "allocator_ref": "0x10"}
    events = events_of(
        older("allocate", {"allocator_ref": "0x10", "size": 4}, {"memory_ptr": "0xa0"}),
        older("reallocate", asked),
        older("reallocate", asked, {"memory_ptr": new}),
    )

    assert [(event.kind, event.id, event.size) for event in events] == [(A, 0, 4), (F, 0, 4), (A, number, 12)]


def test_a_resize_that_has_lines_for_its_parts_is_not_counted_twice(events_of):
    asked = {"ptr": "0xa0", "size": 12, "allocator_ref": "0x10"}
    events = events_of(
        older("allocate", {"allocator_ref": "0x10", "size": 4}, {"memory_ptr": "0xa0"}),
        older("reallocate", asked),
        older("allocate", {"allocator_ref": "0x10", "size": 12}, {"memory_ptr": "0xb0"}),
        older("deallocate", {"allocator_ref": "0x10", "memory_ptr": "0xa0"}),
        older("reallocate", asked, {"memory_ptr": "0xb0"}),
    )

    assert [(event.kind, event.id) for event in events] == [(A, 0), (A, 1), (F, 0)]


def test_a_resize_of_nothing_is_an_allocation_in_newer_logs_too(events_of):
    events = events_of(
        newer("reallocate", {"size": 7}, {"current_ptr": "0", "allocator_ref": "0x10"}),
        newer("reallocate", None, {"new_ptr": "0xa0", "allocator_ref": "0x10"}),
    )

    assert [(event.kind, event.size) for event in events] == [(A, 7)]


def test_what_the_program_printed_in_between_is_passed_over(events_of):
    allocation = newer("allocate", {"size": 8}, {"allocator_ref": "0x1", "pointer": "0xa0"})

    assert len(events_of(newer("version"), "step 1 of 10\n", "\n", allocation)) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"category":"operation","name":"alloc\n', "it is no line of Umpire"),
        ('{"kind":"replay","timestamp":"noon"}\n', "Expected `int`, got `str`"),
        (newer("allocate", None, {"pointer": "0xb0"}), "size is None"),
        (newer("allocate", {"size": 8}, {"pointer": "here"}), "the pointer is 'here'"),
        (newer("allocate", {"size": 2**63}, {"pointer": "0xb0"}), "2^63 - 1"),
        (newer("allocate", {"size": 8}, {"pointer": "0xa0"}), "one is live there"),
        (newer("deallocate"), "the pointer is None"),
        (older("allocate", {"allocator_ref": ["x"], "size": [1]}, {"memory_ptr": "0xb0"}), "size is [1]"),
        ('{"kind":"replay","payload":' + '{"a":' * 100_000 + "\n", "it is no line of Umpire"),
    ],
)
def test_a_malformed_line_is_told_with_its_number_and_the_rest_is_read(events_and_problems, line, problem):
    block = {"allocator_ref": "0x1", "pointer": "0xa0"}
    content = text_of(newer("allocate", {"size": 8}, block), line, newer("deallocate", None, block))
    events, problems = events_and_problems(content)

    assert [event.kind for event in events] == [A, F]
    assert [each.line for each in problems] == [2]
    assert problem in problems[0].problem


def test_frees_of_unknown_blocks_are_left_out_and_counted(events_and_problems):
    events, problems = events_and_problems(text_of(newer("deallocate", None, {"pointer": "0xa0"})))

    assert events == []
    assert "1 free is of a block that was allocated before the file begins" in problems[0].problem
