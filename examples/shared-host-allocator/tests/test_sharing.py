"""Two processes share arrays by name, and names go when nobody owns them any more."""

import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from acme_shared_host import SharedArray, remove_stale, share

import allotment as al


@pytest.fixture
def folder(tmp_path, isolated):
    """Let arrays on ``cpu`` be shared by names in an empty folder."""
    al.init(platform="host", quiet=True)
    al.configure(devices={"cpu": "shared-host"}, allocators={"shared-host": {"folder": str(tmp_path)}})
    yield tmp_path
    al.get_allocator("shared-host", "cpu").close()


def names(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "owner")
    return sorted(str(path.relative_to(folder)) for path in files)


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", dedent(code), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_another_process_sees_what_this_one_wrote_and_the_other_way_round(folder):
    array = al.array(np.arange(6, dtype="f4").reshape(2, 3), device="cpu")

    ended = run(
        """
        import json, sys
        from acme_shared_host import SharedArray
        facts = json.loads(sys.argv[1])
        view = SharedArray(**facts | {"shape": tuple(facts["shape"])}).open()
        print(view.tolist())
        view[1] = -1
        """,
        json.dumps(asdict(share(array))),
    )

    assert (ended.stdout, ended.stderr) == ("[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]\n", "")
    assert array.numpy().tolist() == [[0, 1, 2], [-1, -1, -1]]


def test_what_is_shared_can_be_pickled_and_read_only(folder):
    array = al.full(5, 3, "i8", device="cpu")

    view = pickle.loads(pickle.dumps(share(array))).open("r")

    assert view.tolist() == [3] * 5
    with pytest.raises(ValueError, match="read-only"):
        view[:] = 1


def test_a_part_of_an_array_is_shared_from_where_it_begins(folder):
    array = al.array(np.arange(10, dtype="u1"), device="cpu")

    assert share(array[4:]).offset == 4
    assert share(array[4:]).open().tolist() == [4, 5, 6, 7, 8, 9]


def test_what_has_gaps_is_not_shared(folder):
    array = al.zeros(10, device="cpu")

    with pytest.raises(ValueError, match="not contiguous"):
        share(array[::2])


def test_memory_of_another_allocator_is_not_shared(folder):
    with al.ScopedAllocator("cpu", "host"):
        array = al.zeros(10, device="cpu")

    with pytest.raises(ValueError, match="'shared-host'"):
        share(array)


def test_the_name_goes_with_the_array_and_the_memory_with_the_last_view(folder):
    array = al.full(5, 3, "i8", device="cpu")
    shared = share(array)
    view = shared.open()

    del array

    assert names(folder) == []
    assert view.tolist() == [3] * 5
    with pytest.raises(FileNotFoundError):
        shared.open()


def test_closing_leaves_nothing_behind(folder):
    allocator = al.get_allocator("shared-host", "cpu")
    allocator.deallocate(allocator.allocate(10), 10)

    allocator.close()

    assert list(next(folder.iterdir()).iterdir()) == []


LIVES = """
    import sys, allotment as al
    al.init(platform="host", quiet=True)
    al.configure(devices={"cpu": "shared-host"}, allocators={"shared-host": {"folder": sys.argv[1]}})
    array = al.zeros(1000, device="cpu")
    globals()["again"] = [array]
"""


def test_a_process_that_ends_with_live_arrays_leaves_nothing_behind(tmp_path):
    ended = run(LIVES, str(tmp_path))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert names(tmp_path) == []


def test_names_of_a_process_that_was_killed_are_removed_and_those_of_a_living_one_are_not(folder):
    array = al.zeros(10, device="cpu")
    ended = run(LIVES + f"\n    import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", str(folder))
    assert ended.returncode == -signal.SIGKILL
    assert len(names(folder)) == 2

    removed = remove_stale(str(folder))

    assert len(removed) == 1
    assert names(folder) == [str(Path(share(array).name).relative_to(folder))]
    assert remove_stale(str(folder)) == []


def test_a_new_allocator_removes_what_a_killed_process_left(tmp_path):
    for _ in range(2):
        run(LIVES + f"\n    import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", str(tmp_path))

    assert len(names(tmp_path)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_shares_the_memory_and_takes_no_name_away(folder):
    array = al.zeros(10, device="cpu")
    child = os.fork()
    if child == 0:
        array.numpy()[:] = 5
        own = al.zeros(3, device="cpu")
        del array, own
        al.get_allocator("shared-host", "cpu").allocator.close()
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert share(array).open().tolist() == [5] * 10
    assert len(names(folder)) == 1


@pytest.mark.parametrize("reserve", [True, False])
def test_what_the_folder_has_no_room_for_is_out_of_memory(folder, reserve):
    allocator = al.get_allocator("shared-host", "cpu", reserve=reserve)

    with pytest.raises(al.OutOfMemoryError):
        allocator.allocate(2**60)

    assert names(folder) == []
    allocator.close()


SETTING = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
GIVES_HUGE_PAGES = SETTING.exists() and not {"[never]", "[deny]"} & set(SETTING.read_text().split())


@pytest.mark.skipif(GIVES_HUGE_PAGES, reason="this system gives shared memory huge pages")
def test_huge_pages_that_the_system_does_not_give_are_refused_with_what_is_in_the_way(folder):
    with pytest.raises(al.UnsupportedError, match="shmem_enabled"):
        al.get_allocator("shared-host", "cpu", huge_pages=True)


@pytest.mark.skipif(not GIVES_HUGE_PAGES, reason="this system gives shared memory no huge pages")
def test_blocks_are_rounded_up_to_huge_pages(folder):
    allocator = al.get_allocator("shared-host", "cpu", huge_pages=True)
    ptr = allocator.allocate(10)

    assert Path(folder, names(folder)[0]).stat().st_size == 2 << 20
    allocator.deallocate(ptr, 10)
    allocator.close()


def test_what_is_shared_is_a_value():
    shared = SharedArray("/dev/shm/x", 0, (3,), "<f4")

    assert replace(shared) == shared
    assert hash(replace(shared)) == hash(shared)
