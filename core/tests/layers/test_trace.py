"""The layer that records one allocator, as config asks for it."""

import subprocess
import sys

import pytest

import allotment as al
from allotment import trace
from allotment.errors import ConfigError
from allotment.layers.trace import shared_recorders


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "run.jsonl"
    shared_recorders.close()


def kinds(path):
    return "".join(event.kind.value for event in trace.read(path))


@pytest.mark.parametrize("name", ["default", "mempool", "managed", "caching"])
def test_what_an_allocator_with_it_gives_is_in_the_file(sim, path, name):
    account = al.get_allocator(name, "cuda:0", layers=[{"trace": str(path)}])
    account.deallocate(account.allocate(100), 100)
    shared_recorders.close()

    assert [(event.size, event.source.allocator) for event in trace.read(path)] == [(100, name), (100, name)]


def test_other_allocators_are_not_in_the_file(sim, path):
    traced = al.get_allocator("default", "cuda:0", layers=[{"trace": str(path)}])
    other = al.get_allocator("managed", "cuda:0")
    for account in (traced, other):
        account.deallocate(account.allocate(8), 8)
    shared_recorders.close()

    assert kinds(path) == "af"


def test_all_allocators_that_name_a_file_write_to_it_together(sim, path):
    al.configure(layers=[{"trace": str(path)}])
    kept = [al.empty(8, device=device) for device in ("cuda:0", "cuda:1")]
    shared_recorders.close()

    assert {event.source.device for event in trace.read(path)} == {"cuda:0", "cuda:1"}
    del kept


def test_only_the_last_events_may_be_kept(sim, path):
    account = al.get_allocator("default", "cuda:0", layers=[{"trace": {"path": str(path), "last": 2}}])
    for size in range(1, 10):
        account.deallocate(account.allocate(size), size)
    shared_recorders.close()

    assert [event.size for event in trace.read(path)] == [9, 9]


def test_a_request_beyond_the_device_is_in_the_file(sim, path):
    account = al.get_allocator("default", "cuda:0", layers=[{"trace": str(path)}])
    with pytest.raises(al.OutOfMemoryError):
        account.allocate(2**50)

    assert kinds(path) == "o"


def test_it_sees_the_sizes_of_the_program_and_not_those_of_the_guard(sim, path):
    account = al.get_allocator("default", "cuda:0", layers=[{"trace": str(path)}, "guard"])
    account.deallocate(account.allocate(100), 100)
    shared_recorders.close()

    assert {event.size for event in trace.read(path)} == {100}


@pytest.mark.parametrize(
    ("options", "problem"),
    [({}, "path.*must be said"), ({"path": "x", "last": 0}, "from 1"), ({"path": "x", "depth": -1}, "from 0")],
)
def test_impossible_options_are_refused(sim, options, problem):
    with pytest.raises(ConfigError, match=problem):
        al.get_allocator("default", "cuda:0", layers=[{"trace": options}])


def test_the_file_is_complete_when_the_interpreter_exits(path, tmp_path):
    (tmp_path / "allotment.toml").write_text(f'platform = "sim:2xh200"\nlayers = [{{ trace = "{path}" }}]\n')
    program = "import allotment as al; kept = al.empty(8, device='cuda:0'); al.empty(9, device='cuda:0')"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)

    assert kinds(path) == "aaf"
