"""Which allocator is in force: every way to choose one, what is stronger, and that all is as before afterwards."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

import allotment as al
from allotment import configuration
from allotment.configuration import Configuration, read_sources

KINDS = {
    "default": al.MemoryKind.CUDA_DEVICE,
    "mempool": al.MemoryKind.CUDA_MEMPOOL,
    "managed": al.MemoryKind.CUDA_MANAGED,
}


@pytest.fixture
def device(sim):
    return al.get_device("cuda:0")


def chosen(device="cuda:0"):
    """Return what an array says of its memory: the allocator's name and the kind."""
    array = al.empty(4, device=device)
    return array.allocator.name, array.memory_kind


# ---------------------------------------------------------------------------------------------------------------------
# The ways to choose, from the weakest to the strongest


class Machine:
    """A process's surroundings: a user's folder, a project, an environment; and what a program then says."""

    def __init__(self, root):
        self.environment, self.root = {}, root
        for folder in ("user", "project"):
            (root / folder).mkdir()

    def start(self):
        return configuration.use(
            Configuration(partial(read_sources, self.environment, self.root / "project", self.root / "user"))
        )

    def write(self, path, text):
        (self.root / path).write_text(text, encoding="utf-8")


def user_file(machine, name):
    machine.write("user/allotment.toml", f'allocator = "{name}"')
    return nullcontext()


def project_file(machine, name):
    machine.write("project/allotment.toml", f'allocator = "{name}"')
    return nullcontext()


def pyproject(machine, name):
    machine.write("project/pyproject.toml", f'[tool.allotment]\nallocator = "{name}"')
    return nullcontext()


def environment(machine, name):
    machine.environment["ALLOTMENT_ALLOCATOR"] = name
    return nullcontext()


@contextmanager
def configured(machine, name):
    al.configure(allocator=name)
    yield


@contextmanager
def set_for_the_device(machine, name):
    al.set_device_allocator("cuda:0", name)
    yield


@contextmanager
def set_for_all_devices(machine, name):
    al.set_cuda_allocator(name)
    yield


def scope(machine, name):
    return al.ScopedAllocator("cuda:0", name)


SOURCES = [user_file, pyproject, environment, configured, set_for_the_device, scope]
"""Each stronger than those before it."""
ALTERNATIVES = {pyproject: project_file, set_for_the_device: set_for_all_devices}


@contextmanager
def in_force(tmp_path, *choices):
    """Start a process in which each source of ``choices`` says its name, those that are read at the start first."""
    machine = Machine(tmp_path)
    at_start = [choice for choice in choices if choice[0] in (user_file, pyproject, project_file, environment)]
    for source, name in at_start:
        source(machine, name)
    with machine.start(), al.simulate("2xh200"):
        scopes = [source(machine, name) for source, name in choices if (source, name) not in at_start]
        for entered in scopes:
            entered.__enter__()
        yield
        for entered in reversed(scopes):
            entered.__exit__(None, None, None)


def test_nothing_said_gives_the_memory_pool(tmp_path):
    with in_force(tmp_path):
        assert chosen() == ("mempool", KINDS["mempool"])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("source", [*SOURCES, *ALTERNATIVES.values()], ids=lambda source: source.__name__)
def test_each_way_to_choose_changes_what_an_array_says(tmp_path, source, name):
    with in_force(tmp_path, (source, name)):
        assert chosen() == (name, KINDS[name])


@pytest.mark.parametrize(
    ("weaker", "stronger"), list(itertools.combinations(SOURCES, 2)), ids=lambda source: source.__name__
)
@pytest.mark.parametrize("order", [1, -1], ids=["weaker first", "stronger first"])
def test_the_stronger_of_two_ways_counts(tmp_path, weaker, stronger, order):
    with in_force(tmp_path, *[(weaker, "default"), (stronger, "managed")][::order]):
        assert chosen() == ("managed", KINDS["managed"])


def test_allotment_toml_comes_before_pyproject_in_one_folder(tmp_path):
    with in_force(tmp_path, (pyproject, "default"), (project_file, "managed")):
        assert chosen() == ("managed", KINDS["managed"])


def test_a_choice_for_one_device_in_config_leaves_the_others(sim):
    al.configure(devices={"cuda:1": "managed"})

    assert (chosen("cuda:0")[0], chosen("cuda:1")[0]) == ("mempool", "managed")


def test_a_general_choice_in_config_is_about_cuda_devices_only(sim):
    al.configure(allocator="managed")

    assert chosen("cpu") == ("host", al.MemoryKind.HOST)


def test_changing_config_takes_effect_at_once(device):
    seen = [chosen()[0]]
    for name in ("managed", "default", None):
        al.configure(allocator=name)
        seen.append(chosen()[0])

    assert seen == ["mempool", "managed", "default", "mempool"]


def test_another_configuration_in_force_takes_effect_at_once(device):
    with configuration.use(Configuration.isolated(allocator="managed")):
        assert chosen()[0] == "managed"
    assert chosen()[0] == "mempool"


def test_a_choice_that_cannot_take_effect_is_an_error_at_the_first_allocation_and_heals(device):
    al.configure(allocator="mempol")
    with pytest.raises(al.UnknownAllocatorError, match="Did you mean 'mempool'"):
        al.empty(4)
    al.configure(allocator="mempool")

    assert chosen()[0] == "mempool"


# ---------------------------------------------------------------------------------------------------------------------
# The guides' setters and getter


def test_get_returns_the_very_object_that_was_set(device, recording):
    mine = recording()
    al.set_device_allocator(device, mine)

    assert al.get_device_allocator(device) is mine
    assert al.get_device_allocator() is mine
    assert al.empty(4).allocator is mine


def test_get_after_set_none_is_the_identical_built_in_object(device, recording):
    built_in = al.get_device_allocator(device)
    al.set_device_allocator(device, recording())
    al.set_device_allocator(device, None)

    assert al.get_device_allocator(device) is built_in


def test_the_built_in_object_can_be_set_and_is_the_one_that_get_returns(device):
    built_in = al.get_device_allocator(device)
    al.set_device_allocator(device, "managed")
    al.set_device_allocator(device, built_in)

    assert al.get_device_allocator(device) is built_in


def test_a_built_in_object_that_was_set_is_a_choice_that_the_pool_switch_does_not_touch(device):
    al.set_device_allocator(device, al.get_device_allocator(device))
    al.set_mempool_enabled(device, False)

    assert chosen()[0] == "mempool"


def test_a_name_gives_the_same_object_as_get_allocator(device):
    al.set_device_allocator(device, "managed")

    assert al.get_device_allocator(device) is al.get_allocator("managed", device) is al.get_allocator(device=device)


def test_the_same_name_and_options_are_the_same_object_and_other_options_another(device):
    plain = al.get_allocator("mempool", device)

    assert al.get_allocator("mempool", device) is plain
    assert al.get_allocator("mempool", device, release_threshold="1 GiB") is not plain
    assert al.get_allocator("mempool", "cuda:1") is not plain


def test_setting_one_device_leaves_the_others(sim, recording):
    mine = recording()
    al.set_device_allocator("cuda:1", mine)

    assert al.get_device_allocator("cuda:1") is mine
    assert al.get_device_allocator("cuda:0").name == "mempool"


def test_setting_all_devices_sets_each_and_none_takes_it_back_from_each(sim, recording):
    first, mine = recording(), recording()
    al.set_device_allocator("cuda:1", first)
    al.set_cuda_allocator(mine)
    assert [al.get_device_allocator(each) for each in al.get_cuda_devices()] == [mine, mine]
    al.set_cuda_allocator(None)

    assert [al.get_device_allocator(each).name for each in al.get_cuda_devices()] == ["mempool", "mempool"]


def test_one_object_may_serve_several_devices_with_accounts_for_each(sim, recording):
    mine = recording()
    al.set_cuda_allocator(mine)
    arrays = [al.empty(100, device=each) for each in al.get_cuda_devices()]

    assert [call.device for call in sim.calls.named("malloc")] == [0, 1]
    stats = al.memory_stats(allocator="RecordingAllocator")
    assert [stats[alias]["RecordingAllocator"].current for alias in ("cuda:0", "cuda:1")] == [800, 800]
    del arrays


def test_setting_is_about_the_whole_process(device, recording):
    mine, seen = recording(), []
    al.set_device_allocator(device, mine)
    in_thread(lambda: seen.append(al.get_device_allocator(device)))

    assert seen == [mine]


def test_three_allocations_are_three_deallocations_through_the_custom_allocator(device, recording):
    mine = recording()
    al.set_device_allocator(device, mine)
    arrays = [al.empty(100), al.zeros((10, 10)), al.full(5, 1.0)]
    del arrays

    assert [size for _, size in mine.allocated] == [800, 800, 40]
    assert sorted(mine.freed) == sorted(mine.allocated)


def test_an_empty_array_asks_no_allocator(device, recording):
    mine = recording()
    al.set_device_allocator(device, mine)
    for shape in (0, (3, 0), (0, 0)):
        al.empty(shape)

    assert (mine.allocated, mine.freed) == ([], [])


def test_the_host_takes_an_allocator_of_host_memory_and_refuses_one_of_a_device(sim):
    host = al.get_allocator("host", "cpu").allocator
    al.set_device_allocator("cpu", host)
    assert al.get_device_allocator("cpu") is host

    class OfDevice:
        memory_kind = al.MemoryKind.CUDA_DEVICE

        def allocate(self, size_in_bytes):
            return 256

        def deallocate(self, ptr, size_in_bytes):
            pass

    with pytest.raises(al.UnsupportedError, match="cannot serve 'cpu'"):
        al.set_device_allocator("cpu", OfDevice())
    with pytest.raises(al.PluginUnavailableError, match="not on device 'cpu'"):
        al.set_device_allocator("cpu", "mempool")
    assert al.get_device_allocator("cpu") is host


@pytest.mark.parametrize(
    "wrong",
    [object(), 3, dict, type("Half", (), {"allocate": None})(), type("Null", (), {"allocate": 1, "deallocate": 2})()],
)
def test_an_object_without_the_two_methods_is_refused_and_changes_nothing(device, wrong):
    before = al.get_device_allocator(device)
    for choose in (
        lambda: al.set_device_allocator(device, wrong),
        lambda: al.set_cuda_allocator(wrong),
        lambda: al.ScopedAllocator(device, wrong),
    ):
        with pytest.raises(al.AllocatorContractError):
            choose()

    assert al.get_device_allocator(device) is before


def test_an_unknown_name_is_refused_and_changes_nothing(sim):
    al.set_device_allocator("cuda:0", "managed")
    for choose in (
        lambda: al.set_device_allocator("cuda:0", "mangaed"),
        lambda: al.set_cuda_allocator("mangaed"),
        lambda: al.ScopedAllocator("cuda:0", "mangaed"),
        lambda: al.get_allocator("mangaed"),
    ):
        with pytest.raises(al.UnknownAllocatorError, match="Did you mean 'managed'"):
            choose()

    assert chosen()[0] == "managed"


def test_a_setting_for_all_devices_that_one_cannot_take_changes_none():
    with al.simulate("no-pools"):
        with pytest.raises(al.PluginUnavailableError, match="does not support memory pools"):
            al.set_cuda_allocator("mempool")
        assert chosen()[0] == "default"


def test_without_cuda_devices_a_setting_for_all_is_refused_with_the_reason():
    al.init("host", quiet=True)
    with pytest.raises(al.UnsupportedError, match=r"no CUDA device to choose an allocator for: asked for by init\(\)"):
        al.set_cuda_allocator(None)


def test_a_device_that_does_not_exist_is_refused(sim):
    with pytest.raises(al.DeviceNotFoundError):
        al.set_device_allocator("cuda:2", "managed")
    with pytest.raises(al.DeviceNotFoundError):
        al.ScopedAllocator("cuda:2", "managed")


# ---------------------------------------------------------------------------------------------------------------------
# Arrays that live through a change


CHANGES = {
    "a setting": lambda mine: al.set_device_allocator("cuda:0", "managed"),
    "a setting for all": lambda mine: al.set_cuda_allocator("default"),
    "none": lambda mine: al.set_device_allocator("cuda:0", None),
    "config": lambda mine: al.configure(allocator="managed"),
    "the pool switch": lambda mine: al.set_mempool_enabled("cuda:0", False),
    "another device": lambda mine: al.set_device("cuda:1"),
    "another stream": lambda mine: al.set_stream(al.Stream("cuda:0")),
    "another configuration": lambda mine: configuration.reset(),
}


@pytest.mark.parametrize("maker", ["mine", "default", "mempool", "managed"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_array_is_freed_by_the_allocator_that_made_it(device, recording, change, maker, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    mine = recording()
    al.set_device_allocator(device, mine if maker == "mine" else maker)
    account = al.get_allocator(device=device)
    array = al.empty(100)
    view, made_by = array[10:], array.allocator
    change(mine)
    assert array.allocator is view.allocator is made_by
    del array
    assert account.statistics().frees == 0
    del view

    assert account.statistics().frees == 1
    assert account.statistics().current == 0


def test_a_copy_belongs_to_the_allocator_in_force_when_it_is_made(device, recording):
    first, second = recording(), recording()
    al.set_device_allocator(device, first)
    array = al.zeros(8)
    al.set_device_allocator(device, second)
    copy, part = array.copy(), array[1:3].copy()

    assert [each.allocator for each in (array, array[1:3], copy, part)] == [first, first, second, second]
    del copy, array, part
    assert (first.freed, sorted(second.freed)) == (first.allocated, sorted(second.allocated))


def test_an_allocator_that_nobody_else_holds_lives_until_its_last_array_is_gone(device, recording):
    with al.ScopedAllocator(device, recording()):
        array = al.zeros(8)
    mine = array.allocator
    assert mine.freed == []
    del array

    assert mine.freed == mine.allocated


# ---------------------------------------------------------------------------------------------------------------------
# Scopes


def test_a_scope_is_left_to_what_was_in_force_before(device, recording):
    mine, inner = recording(), recording()
    al.set_device_allocator(device, mine)
    with al.ScopedAllocator(device, inner) as entered:
        assert isinstance(entered, al.ScopedAllocator)
        assert al.get_device_allocator(device) is inner
    assert al.get_device_allocator(device) is mine


def test_a_scope_is_left_to_what_was_in_force_before_after_an_exception(device, recording):
    with pytest.raises(ZeroDivisionError), al.ScopedAllocator(device, recording()):
        _ = 1 / 0

    assert chosen()[0] == "mempool"


def test_a_scope_is_about_one_device(sim, recording):
    with al.ScopedAllocator("cuda:1", recording()):
        assert chosen("cuda:0")[0] == "mempool"


def test_scopes_nest_and_the_innermost_counts(device, recording):
    outer, inner = recording(), recording()
    with al.ScopedAllocator(device, outer):
        before = al.empty(4)
        with al.ScopedAllocator(device, inner):
            within = al.empty(4)
        after = al.empty(4)

    assert [each.allocator for each in (before, within, after)] == [outer, inner, outer]


def test_none_in_a_scope_is_the_built_in_allocator_even_inside_a_scope_and_under_config(device, recording):
    al.configure(allocator="managed")
    al.set_device_allocator(device, recording())
    with al.ScopedAllocator(device, recording()), al.ScopedAllocator(device, None):
        assert chosen()[0] == "mempool"


def test_a_scope_object_may_be_entered_while_it_is_active_and_again_later(device, recording):
    mine, other = recording(), recording()
    scope = al.ScopedAllocator(device, mine)
    with scope, scope:
        assert al.get_device_allocator() is mine
    with scope:
        with al.ScopedAllocator(device, other), scope:
            assert al.get_device_allocator() is mine
        assert al.get_device_allocator() is mine
    with scope:
        assert al.get_device_allocator() is mine

    assert chosen()[0] == "mempool"


def test_scopes_left_out_of_order_leave_exactly_what_is_still_in_force(device, recording):
    allocators = [recording() for _ in range(3)]
    scopes = [al.ScopedAllocator(device, each) for each in allocators]
    for scope in scopes:
        scope.__enter__()
    scopes[0].__exit__(None, None, None)
    assert al.get_device_allocator() is allocators[2]
    scopes[2].__exit__(None, None, None)
    assert al.get_device_allocator() is allocators[1]
    scopes[1].__exit__(None, None, None)

    assert chosen()[0] == "mempool"


def test_leaving_a_scope_that_was_not_entered_changes_nothing(device, recording):
    mine = recording()
    with al.ScopedAllocator(device, mine):
        al.ScopedAllocator(device, recording()).__exit__(None, None, None)
        assert al.get_device_allocator() is mine


def test_a_setting_made_in_a_scope_counts_after_it(device, recording):
    inner, setting = recording(), recording()
    with al.ScopedAllocator(device, inner):
        al.set_device_allocator(device, setting)
        assert al.get_device_allocator() is inner
    assert al.get_device_allocator() is setting


def test_config_changed_in_a_scope_counts_after_it(device, recording):
    inner = recording()
    with al.ScopedAllocator(device, inner):
        al.configure(allocator="managed")
        assert al.get_device_allocator() is inner
    assert chosen()[0] == "managed"


def test_a_scope_of_a_name_keeps_the_object_it_was_made_with(device):
    scope = al.ScopedAllocator(device, "managed")
    al.configure(allocators={"managed": {"read_mostly": True}})
    with scope:
        assert al.get_device_allocator() is not al.get_allocator("managed", device)


# Threads, tasks, generators


def in_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_scope_does_not_reach_other_threads_also_not_new_ones(device, recording):
    seen = []
    with al.ScopedAllocator(device, recording()):
        in_thread(lambda: seen.append(chosen()[0]))

    assert seen == ["mempool"]


def test_threads_in_scopes_of_their_own_do_not_see_each_other(device, recording):
    allocators, together, seen = [recording() for _ in range(4)], threading.Barrier(4, timeout=30), {}

    def work(mine):
        with al.ScopedAllocator(device, mine):
            together.wait()
            seen[mine] = al.get_device_allocator()
            together.wait()

    threads = [threading.Thread(target=work, args=(each,)) for each in allocators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {each: each for each in allocators}


def test_tasks_that_interleave_and_leave_first_in_first_out_keep_their_own(device, recording):
    first, second = recording(), recording()
    seen = {first: [], second: []}

    async def work(mine, has_entered, other_entered, may_leave, has_left):
        with al.ScopedAllocator(device, mine):
            has_entered.set()
            await other_entered.wait()
            seen[mine].append(al.get_device_allocator())
            await may_leave.wait()
            seen[mine].append(al.get_device_allocator())
        seen[mine].append(chosen()[0])
        has_left.set()

    async def main():
        one, two, one_left, two_left, now = (asyncio.Event() for _ in range(5))
        now.set()
        await asyncio.gather(work(first, one, two, now, one_left), work(second, two, one, one_left, two_left))
        return chosen()[0]

    assert asyncio.run(main()) == "mempool"
    assert seen == {mine: [mine, mine, "mempool"] for mine in (first, second)}


def test_a_task_begins_with_a_copy_of_the_scopes_of_its_maker(device, recording):
    outer, inner = recording(), recording()

    async def child(leave):
        await leave.wait()
        with al.ScopedAllocator(device, inner):
            pass
        return al.get_device_allocator()

    async def main():
        leave = asyncio.Event()
        with al.ScopedAllocator(device, outer):
            task = asyncio.create_task(child(leave))
        leave.set()
        return await task, chosen()[0]

    assert asyncio.run(main()) == (outer, "mempool")


def test_to_thread_takes_the_scopes_along(device, recording):
    mine = recording()

    async def main():
        with al.ScopedAllocator(device, mine):
            return await asyncio.to_thread(al.get_device_allocator, device)

    assert asyncio.run(main()) is mine


def test_a_generator_suspended_in_a_scope_leaves_it_in_force_until_it_goes_on(device, recording):
    """As with every context variable of Python: a generator runs in the context of whoever calls it."""
    mine = recording()

    def generator():
        with al.ScopedAllocator(device, mine):
            yield

    suspended = generator()
    next(suspended)
    assert al.get_device_allocator() is mine
    suspended.close()

    assert chosen()[0] == "mempool"


def test_a_generator_that_is_closed_in_another_thread_disturbs_nothing_there(device, recording):
    mine, other, seen = recording(), recording(), []

    def generator():
        with al.ScopedAllocator(device, mine):
            yield

    def close():
        with al.ScopedAllocator(device, other):
            suspended.close()
            seen.append(al.get_device_allocator())

    suspended = generator()
    next(suspended)
    in_thread(close)

    assert seen == [other]


# ---------------------------------------------------------------------------------------------------------------------
# Objects that wrap or are shared


def test_an_object_of_get_allocator_serves_another_device_with_accounts_of_its_own(sim):
    managed = al.get_allocator("managed", "cuda:0")
    al.set_device_allocator("cuda:1", managed)
    array = al.empty(100, device="cuda:1")

    assert array.memory_kind is al.MemoryKind.CUDA_MANAGED
    assert managed.statistics().current == 0
    assert al.get_allocator(device="cuda:1").statistics().current == 800


def test_an_allocator_without_a_kind_is_asked_of_the_platform(device, recording):
    al.set_device_allocator(device, recording())

    assert al.empty(4).memory_kind is al.MemoryKind.CUDA_DEVICE


def test_a_registered_allocator_can_be_chosen_by_its_name(device, recording):
    al.register_allocator("mine", recording)
    al.configure(allocator="mine")

    assert chosen() == ("mine", al.MemoryKind.CUDA_DEVICE)


def test_pinned_arrays_come_from_the_pinned_allocator_whatever_is_chosen(sim, recording):
    al.set_cuda_allocator(recording())
    array = al.empty(4, device="cpu", pinned=True)

    assert (array.allocator.name, array.memory_kind) == ("pinned", al.MemoryKind.PINNED)
