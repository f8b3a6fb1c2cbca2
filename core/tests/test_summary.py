"""The summary of memory: its figures by the field's definitions, as text and as a table of rich."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import allotment as al

MIB = 2**20


def row_of(summary, allocator):
    (row,) = (row for row in summary.rows if row.allocator == allocator)
    return row


def fragment(name):
    """Allocate with an allocator so that every other block of 2 MiB is idle; return what is live."""
    with al.ScopedAllocator("cuda:0", name):
        arrays = [al.empty(2 * MIB, "uint8", "cuda:0") for _ in range(6)]
    del arrays[::2]
    return arrays


def test_before_the_first_use_the_summary_says_so_and_opens_no_context(sim):
    assert str(al.memory_summary()) == "No allocator was used."
    assert al.memory_summary().rows == ()
    assert sim.contexts() == frozenset()


def test_the_figures_of_an_allocator_that_says_its_largest_free_block(sim):
    arrays = fragment("caching")
    row = row_of(al.memory_summary(), "caching")
    held, largest = row.statistics.reserved, al.get_allocator("caching", "cuda:0").allocator.largest_free()

    assert (row.device, row.statistics.current, row.statistics.peak) == ("cuda:0", 6 * MIB, 12 * MIB)
    assert (row.idle, row.largest_free) == (held - 6 * MIB, largest)
    assert row.utilisation == 6 * MIB / held
    assert row.peak_fragmentation == 1 - 12 * MIB / row.statistics.peak_reserved
    assert row.fragmentation == 1 - largest / row.idle
    del arrays


def test_scattered_idle_memory_is_fragmentation(sim):
    arrays = fragment("caching")
    scattered = row_of(al.memory_summary(), "caching").fragmentation
    arrays.clear()

    assert scattered > 0.5
    assert row_of(al.memory_summary(), "caching").fragmentation < scattered


def test_the_figures_of_a_pool_that_does_not_say_it(sim):
    arrays = fragment("mempool")
    row = row_of(al.memory_summary("cuda:0"), "mempool")
    statistics = row.statistics

    assert (row.largest_free, row.fragmentation) == (None, None)
    assert row.utilisation == 6 * MIB / statistics.reserved
    assert row.peak_fragmentation == 1 - 12 * MIB / statistics.peak_reserved
    del arrays


def test_an_allocator_that_holds_nothing_has_no_part_of_it(sim):
    al.get_allocator("default", "cuda:0")
    row = row_of(al.memory_summary(), "default")

    assert (row.utilisation, row.peak_fragmentation) == (None, None)
    assert str(al.memory_summary()).splitlines()[1].split()[-3:] == ["-", "-", "-"]


def test_failed_calls_are_counted(sim):
    with pytest.raises(al.OutOfMemoryError):
        al.empty(2**50, "uint8", "cuda:0")

    header, line = str(al.memory_summary("cuda:0")).splitlines()
    assert line[: header.index("failed") + len("failed")].split()[-3:] == ["0", "0", "1"]


def test_one_device_or_allocator_can_be_asked_about(sim):
    arrays = [al.empty(8, device=device) for device in ("cuda:0", "cuda:1", "cpu")]

    assert [row.device for row in al.memory_summary(1).rows] == ["cuda:1"]
    assert [row.device for row in al.memory_summary(allocator="MemPool").rows] == ["cuda:0", "cuda:1"]
    with pytest.raises(al.DeviceNotFoundError):
        al.memory_summary(9)
    del arrays


def test_the_columns_of_the_text_are_aligned(sim):
    arrays = [al.empty(300_000, device=device) for device in ("cuda:0", "cpu")]
    header, *lines = str(al.memory_summary()).splitlines()

    assert header.split("  ")[0] == "device"
    assert header.endswith("at peak")
    assert {len(line) for line in lines} == {len(header)}
    assert repr(al.memory_summary()) == str(al.memory_summary())
    del arrays


@pytest.mark.parametrize("width", [200, 80])
def test_rich_prints_every_cell(sim, width):
    array = al.empty(300_000, device="cuda:0")
    console = Console(file=io.StringIO(), width=width)
    console.print(al.memory_summary())
    console.print(al.memory_summary("cpu"))
    printed = console.file.getvalue()

    assert "…" not in printed
    assert "No allocator was used." in printed
    if width == 200:
        assert all(cell in printed for cell in ("device", "mempool", "2.29 MiB", "utilisation"))
    del array


def test_a_summary_can_be_made_while_a_graph_is_captured(sim):
    with al.ScopedAllocator("cuda:0", "caching"), al.ScopedCapture() as capture:
        array = al.full(8, 1.0)
        summary = al.memory_summary("cuda:0")
    capture.graph.launch()

    assert row_of(summary, "caching").statistics.current == array.nbytes
    del array, capture


def test_the_library_does_not_import_rich_for_it(output_of):
    script = """
    import sys
    import allotment as al
    with al.simulate("2xh200"):
        array = al.empty(8, device="cuda:0")
        text = str(al.memory_summary())
        del array
    print("rich" in sys.modules, "mempool" in text)
    """
    assert output_of(script) == ["False True"]
