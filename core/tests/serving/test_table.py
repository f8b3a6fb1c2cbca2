"""A tick as people read it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from allotment.serving import AllocatorStatus, DeviceStatus, ProcessStatus, Tick, view_of


def told(status, rates=(), note=None, width=200):
    out = Console(file=StringIO(), width=width)
    out.print(view_of(Tick(status, rates), note))
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


def status(**facts):
    return ProcessStatus(pid=4711, program="train.py --epochs 3", time=0.0, clock=0.0, **facts)


POOL = AllocatorStatus(
    device="cuda:0",
    allocator="mempool",
    current=2**20,
    peak=2**21,
    reserved=2**25,
    peak_reserved=2**25,
    allocations=12345,
    frees=0,
    failed_allocations=1,
    failed_frees=1,
)


def test_each_allocator_is_a_row_below_the_process():
    devices = (DeviceStatus(device="cuda:0", name="NVIDIA H200", total=2**37, free=2**36),)
    lines = told(status(platform="cuda", allocators=(POOL,), devices=devices), (1234.4,))

    assert lines == [
        "process 4711  train.py --epochs 3  cuda",
        "device  allocator  in use   peak  reserved  allocs/s  allocations  failed",
        "cuda:0  mempool     1 MiB  2 MiB    32 MiB     1,234       12,345       2",
        "cuda:0: 64 GiB free of 128 GiB, NVIDIA H200",
    ]


def test_what_is_not_known_is_a_dash_and_what_failed_is_told_below():
    broken = AllocatorStatus(device="cuda:0", allocator="mine", problem="ValueError: lost count")
    lines = told(status(platform="cuda", allocators=(broken,)), (None,))

    assert lines[2].split() == ["cuda:0", "mine", "–", "–", "–", "–", "–", "–"]
    assert lines[3] == "mine on cuda:0: ValueError: lost count"


def test_a_device_whose_free_memory_is_not_known_is_left_out():
    devices = (DeviceStatus(device="cuda:1", name="NVIDIA H200", total=2**37),)

    assert told(status(platform="cuda", devices=devices))[1:] == ["No allocator was used."]


def test_a_process_that_used_no_device_is_told_as_such():
    assert told(status()) == ["process 4711  train.py --epochs 3  no device was used yet"]


def test_a_note_is_the_last_line():
    assert told(status(), note="It has ended.")[-1] == "It has ended."


def test_what_a_program_is_called_is_no_markup():
    found = ProcessStatus(pid=1, program="[red]x[/red].py", time=0.0, clock=0.0)

    assert told(found)[0].startswith("process 1  [red]x[/red].py")
