"""The faults planted in the example scripts are found, and named with the line that is to blame."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples"


def run(name, folder):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ALLOTMENT_")}
    clean |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "ALLOTMENT_PLATFORM": "sim:2xh200"}
    return subprocess.run(
        [sys.executable, str(FOLDER / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env=clean,
    )


def place(name, text, function, which=0):
    """Return where an example has a text, as call sites have it: of several lines the one that is meant."""
    lines = (FOLDER / name).read_text().splitlines()
    found = [number for number, line in enumerate(lines, start=1) if text in line]
    return f"{FOLDER / name}:{found[which]} in {function}"


def test_a_leak_is_named_with_its_label_and_the_line_that_allocates(tmp_path):
    done = run("leak.py", tmp_path)
    block = "2,097,152 bytes of 'mempool' on 'cuda:0' labelled 'activations' from "

    assert done.returncode == 0
    assert "LeakWarning: 3 blocks are live at the end of the scope that made them, 6,291,456 bytes:" in done.stderr
    assert done.stderr.count(block + place("leak.py", "return al.zeros", "forward")) == 3


def test_a_use_after_free_is_named_with_the_lines_that_allocate_and_free(tmp_path):
    name = "use_after_free.py"
    done = run(name, tmp_path)
    told = done.stderr.splitlines()[-1]

    assert done.returncode == 1
    assert "UseAfterFreeError: a block was written after it was freed: byte 0 of the block of 8,192 bytes" in told
    assert f"allocated at {place(name, 'weights = al.zeros', 'weights_elsewhere')} < " in told
    assert f"and freed at {place(name, 'del weights', 'weights_elsewhere')} < " in told


def test_a_double_free_is_named_with_the_lines_of_both_frees(tmp_path):
    name = "double_free.py"
    done = run(name, tmp_path)
    told = done.stderr.splitlines()[-1]
    second = place(name, "pool.deallocate(ptr, SIZE)", "produce", which=1)

    assert done.returncode == 1
    assert "InvalidPointerError: allocator 'mempool' cannot free 0x" in told
    assert f"allocated at {place(name, 'ptr = pool.allocate', 'produce')} < " in told
    assert f"and freed at {place(name, 'pool.deallocate(ptr, SIZE)', 'consume')} < " in told
    assert f'File "{second.rpartition(":")[0]}", line {second.rpartition(":")[2].replace(" in", ", in")}' in done.stderr


def test_a_fragmented_allocator_is_named_with_the_line_whose_blocks_are_in_the_way(tmp_path):
    name = "fragmentation.py"
    done = run(name, tmp_path)
    told = done.stderr.splitlines()[-1]

    assert done.returncode == 1
    assert "OutOfMemoryError: out of memory: 209,715,200 bytes (200 MiB) asked of allocator 'arena'" in told
    assert "reserved 536,870,912 bytes (512 MiB), largest idle block 15,728,640 bytes (15 MiB)" in told
    assert "What is idle would be enough, but it is fragmented." in told
    holder = "33,554,432 bytes in 32 blocks of 'arena' labelled 'statistics' from "
    assert holder + place(name, "return batch, al.empty", "batch_and_statistics") in told
