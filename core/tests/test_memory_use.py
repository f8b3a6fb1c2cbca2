"""What an allocator uses and may use, by the names that MLX gives these questions and limits."""

from __future__ import annotations

import numpy as np
import pytest

import allotment as al

MIB, GIB = 2**20, 2**30

FIGURES = [al.get_active_memory, al.get_peak_memory, al.get_cache_memory]
GETTERS = [al.get_memory_limit, al.get_cache_limit]
SETTERS = [al.set_memory_limit, al.set_cache_limit]
LIMITS = list(zip(GETTERS, SETTERS, strict=True))


class Limited:
    """Plain memory of one device, up to a limit; what is freed is kept, up to another."""

    traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE)
    name = "limited"

    def __init__(self, *, device):
        self._platform = device.platform
        self._held = 0
        self._idle = []
        self._limits = {"memory": device.total_memory, "cache": device.total_memory}

    def allocate(self, size_in_bytes):
        if (ptr := next((ptr for ptr, size in self._idle if size == size_in_bytes), None)) is not None:
            self._idle.remove((ptr, size_in_bytes))
            return ptr
        if self._held + size_in_bytes > self._limits["memory"]:
            self.trim()
        if self._held + size_in_bytes > self._limits["memory"]:
            raise MemoryError
        ptr = self._platform.malloc(size_in_bytes)
        self._held += size_in_bytes
        return ptr

    def deallocate(self, ptr, size_in_bytes):
        self._idle.append((ptr, size_in_bytes))
        if sum(size for _, size in self._idle) > self._limits["cache"]:
            self.trim()

    def trim(self, keep_bytes=0):
        before = self._held
        while self._idle and self._held > keep_bytes:
            ptr, size = self._idle.pop()
            self._platform.free(ptr)
            self._held -= size
        return before - self._held

    def reservation(self):
        return al.Reservation(self._held, self._held)

    def reset_peak_reservation(self):
        pass

    def get_memory_limit(self):
        return self._limits["memory"]

    def set_memory_limit(self, limit):
        return self._set("memory", limit)

    def get_cache_limit(self):
        return self._limits["cache"]

    def set_cache_limit(self, limit):
        return self._set("cache", limit)

    def _set(self, which, limit):
        before, self._limits[which] = self._limits[which], limit
        return before

    @classmethod
    def availability(cls, device):
        return al.Availability(device.is_cuda, "" if device.is_cuda else "it is memory of a CUDA device")


@pytest.fixture
def device(sim):
    return al.get_device("cuda:0")


@pytest.fixture
def limited(sim):
    """Make an allocator with limits known by name, and the one in force on all devices."""
    al.register_allocator("limited", Limited)
    al.set_cuda_allocator("limited")
    return al.get_allocator("limited", "cuda:0")


def mebibytes(count, device="cuda:0"):
    return al.empty(count * MIB, dtype=np.uint8, device=device)


# ---------------------------------------------------------------------------------------------------------------------
# What is used


def test_active_memory_is_what_is_handed_out_as_it_was_asked_for(device):
    array = al.empty(1000, dtype=np.uint8)
    assert al.get_active_memory() == 1000
    del array

    assert al.get_active_memory() == 0


def test_the_peak_stays_until_it_is_reset_and_is_then_never_below_what_is_active(device):
    kept, dropped = mebibytes(1), mebibytes(2)
    del dropped
    assert al.get_peak_memory() == 3 * MIB

    al.reset_peak_memory()

    assert al.get_peak_memory() == al.get_active_memory() == kept.nbytes


def test_resetting_the_peak_resets_that_of_what_is_held(device):
    mebibytes(64)
    al.synchronize()
    al.clear_cache()

    al.reset_peak_memory()

    assert al.get_device_allocator().statistics().peak_reserved == 0


def test_the_cache_is_what_is_held_and_not_handed_out(device):
    array = mebibytes(64)
    held = al.get_device_allocator().statistics().reserved
    assert al.get_cache_memory() == held - 64 * MIB >= 0
    del array

    assert al.get_cache_memory() == held


def test_clearing_the_cache_gives_idle_memory_back_and_says_how_much(device):
    kept = al.zeros(4)
    mebibytes(64)
    al.synchronize()
    free, cached = device.free_memory, al.get_cache_memory()

    given_back = al.clear_cache()

    assert given_back == device.free_memory - free == cached - al.get_cache_memory() >= 64 * MIB
    assert al.clear_cache() == 0
    assert kept.numpy().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["default", "managed"])
def test_an_allocator_that_keeps_nothing_has_no_cache_to_clear(device, name):
    al.set_device_allocator(device, name)
    array = mebibytes(1)

    assert (al.get_active_memory(), al.get_cache_memory(), al.clear_cache()) == (MIB, 0, 0)
    del array


def test_the_host_answers_too(sim):
    array = mebibytes(1, "cpu")

    assert [ask("cpu") for ask in FIGURES] == [MIB, MIB, 0]
    assert al.clear_cache("cpu") == 0
    del array


def test_figures_are_of_one_device(sim):
    array = mebibytes(1, "cuda:1")

    assert [al.get_active_memory(each) for each in (None, "cuda:0", 1, array.device)] == [0, 0, MIB, MIB]


def test_an_object_that_a_user_brought_answers(device, recording):
    al.set_device_allocator(device, mine := recording())
    array = mebibytes(1)

    assert [ask() for ask in FIGURES] == [ask(allocator=mine) for ask in FIGURES] == [MIB, MIB, 0]
    del array


# ---------------------------------------------------------------------------------------------------------------------
# Which allocator


def test_the_allocator_in_force_answers_also_that_of_a_scope(limited):
    array = mebibytes(1)
    with al.ScopedAllocator("cuda:0", "mempool"):
        inside = al.get_active_memory()

    assert (inside, al.get_active_memory()) == (0, MIB)
    del array


def test_another_allocator_answers_by_its_name_however_it_is_written(limited):
    array = mebibytes(1)

    assert [al.get_active_memory(allocator=name) for name in ("Limited", "mempool")] == [MIB, 0]
    del array


def test_an_allocator_that_was_got_answers_for_its_own_device(limited):
    second = al.get_allocator("limited", "cuda:1")
    al.set_memory_limit(GIB, allocator=second)

    assert al.get_memory_limit("cuda:1") == al.get_memory_limit(allocator=second) == GIB
    assert al.get_memory_limit("cuda:1", second) == GIB
    assert al.get_memory_limit("cuda:0") != GIB


def test_an_allocator_of_another_device_than_the_one_named_is_refused(limited):
    with pytest.raises(ValueError, match="'limited' is of 'cuda:0', not of 'cuda:1'"):
        al.get_memory_limit("cuda:1", limited)


@pytest.mark.parametrize("ask", [*FIGURES, *GETTERS, al.reset_peak_memory, al.clear_cache])
def test_a_device_or_a_name_that_does_not_exist_is_refused(sim, ask):
    with pytest.raises(al.DeviceNotFoundError):
        ask(5)
    with pytest.raises(al.UnknownAllocatorError):
        ask(allocator="nonsense")


# ---------------------------------------------------------------------------------------------------------------------
# What may be used


@pytest.mark.parametrize(("get", "set_"), LIMITS)
def test_a_setter_returns_what_the_limit_was(limited, device, get, set_):
    assert set_(4 * GIB) == device.total_memory
    assert get() == 4 * GIB
    assert set_(device.total_memory) == 4 * GIB


@pytest.mark.parametrize(("get", "set_"), LIMITS)
@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (42000, 42000),
        ("2 GiB", 2 * GIB),
        (0, 0),
        ("0", 0),
        (1e9, 10**9),
        (np.int64(4096), 4096),
        (al.MemoryAmount(nbytes=7), 7),
    ],
)
def test_a_limit_is_set_in_bytes(limited, get, set_, limit, expected):
    set_(limit)

    assert get() == expected


@pytest.mark.parametrize(("get", "set_"), LIMITS)
@pytest.mark.parametrize(("limit", "part"), [(0.5, 0.5), (1, 1), (1.0, 1), ("50%", 0.5), (np.float32(0.25), 0.25)])
def test_up_to_one_a_limit_is_a_part_of_the_devices_memory(limited, device, get, set_, limit, part):
    set_(limit)

    assert get() == int(part * device.total_memory)


@pytest.mark.parametrize(("get", "set_"), LIMITS)
@pytest.mark.parametrize("limit", [-1, -0.5, "-1", " -2 GiB", "-50%", np.int64(-1), float("-inf")])
def test_a_negative_limit_is_refused_and_changes_nothing(limited, get, set_, limit):
    before = get()
    with pytest.raises(ValueError, match="cannot be negative"):
        set_(limit)

    assert get() == before


@pytest.mark.parametrize("set_", SETTERS)
@pytest.mark.parametrize("limit", [1.5, float("nan"), float("inf"), 2**63, "lots", "2 QiB", "200%"])
def test_a_limit_that_is_no_amount_is_a_value_error(limited, set_, limit):
    with pytest.raises(ValueError, match=r"finite|neither a fraction|above the largest|not a size|more than 100"):
        set_(limit)


@pytest.mark.parametrize("set_", SETTERS)
@pytest.mark.parametrize("limit", [None, True, [1], object()])
def test_a_limit_that_is_no_number_is_a_type_error(limited, set_, limit):
    with pytest.raises(TypeError, match="an amount of memory"):
        set_(limit)


@pytest.mark.parametrize("set_", SETTERS)
def test_a_part_of_the_hosts_memory_is_refused(sim, set_):
    class OnHost(Limited):
        traits = al.AllocatorTraits(memory_kind=al.MemoryKind.HOST)

    mine = OnHost(device=al.get_device("cpu"))
    set_("1 GiB", "cpu", mine)

    with pytest.raises(ValueError, match="50 % of the device cannot be told in bytes for 'cpu'"):
        set_(0.5, "cpu", mine)


def test_a_request_above_the_limit_is_out_of_memory_and_says_the_limit_until_it_is_raised(limited):
    al.set_memory_limit("100 MiB")
    kept = mebibytes(60)
    with pytest.raises(al.OutOfMemoryError, match=r"limit 104,857,600 bytes .* Raise the limit") as refusal:
        mebibytes(60)
    assert (refusal.value.limit, refusal.value.in_use) == (100 * MIB, kept.nbytes)

    al.set_memory_limit("200 MiB")

    assert mebibytes(60).nbytes == 60 * MIB


def test_a_lack_of_memory_that_is_not_the_limits_does_not_speak_of_raising_it(limited):
    al.set_memory_limit("100 GiB")
    al.get_device("cuda:0").platform.fail("malloc", code="cudaErrorMemoryAllocation")
    with pytest.raises(al.OutOfMemoryError) as refusal:
        mebibytes(1)

    assert refusal.value.limit == 100 * GIB
    assert "Raise the limit" not in str(refusal.value)


def test_without_limits_the_error_says_that_there_is_none(device):
    with pytest.raises(al.OutOfMemoryError, match="limit none") as refusal:
        mebibytes(2**20)

    assert refusal.value.limit is None


def test_a_limit_below_what_is_handed_out_leaves_that_alone(limited):
    array = al.full(4, 7)
    al.set_memory_limit(0)

    assert array.numpy().tolist() == [7, 7, 7, 7]
    with pytest.raises(al.OutOfMemoryError):
        mebibytes(1)


def test_a_cache_limit_of_zero_keeps_nothing(limited):
    al.set_cache_limit(0)
    mebibytes(1)

    assert al.get_cache_memory() == 0


# ---------------------------------------------------------------------------------------------------------------------
# Allocators without limits


ASK_FOR_LIMITS = [*GETTERS, *(lambda device=None, set_=set_: set_(GIB, device) for set_ in SETTERS)]


@pytest.mark.parametrize("ask", ASK_FOR_LIMITS)
def test_an_allocator_without_limits_is_refused_with_those_that_have_them_and_what_to_do(sim, ask):
    al.register_allocator("limited", Limited)
    with pytest.raises(al.UnsupportedError) as refusal:
        ask("cuda:1")

    text = str(refusal.value)
    assert text.startswith("allocator 'mempool' on 'cuda:1' has no limits")
    assert "limited" in text.partition("Installed allocators that have, and can be used there: ")[2]
    assert "Choose one of them, for example with set_device_allocator('cuda:1', " in text
    assert "default" not in text


@pytest.mark.parametrize("ask", ASK_FOR_LIMITS)
def test_where_no_installed_allocator_has_limits_the_error_says_so(sim, ask):
    with pytest.raises(al.UnsupportedError, match=r"there: none\. Install a plugin with an allocator that has them"):
        ask("cpu")


def test_an_ability_of_which_half_is_missing_is_none(device):
    class Half(Limited):
        set_cache_limit = None

    half = Half(device=device)
    with pytest.raises(al.UnsupportedError, match="has no limits"):
        al.get_memory_limit(device, half)


# ---------------------------------------------------------------------------------------------------------------------
# While a graph is captured


class Capturable(Limited):
    traits = al.AllocatorTraits(memory_kind=al.MemoryKind.CUDA_DEVICE, capturable=True)


@pytest.mark.parametrize("name", ["mempool", "limited"])
def test_while_a_graph_is_captured_figures_and_limits_can_be_asked_for(device, name):
    al.register_allocator("limited", Capturable)
    al.set_device_allocator(device, name)
    array = mebibytes(1)
    stream = al.Stream(device)
    with al.ScopedCapture(stream=stream) as capture:
        figures = [ask() for ask in FIGURES]
        limits = [ask() for ask in GETTERS] if name == "limited" else []

    assert figures[:2] == [MIB, MIB]
    assert set(limits) <= {device.total_memory}
    al.capture_launch(capture.graph, stream)
    del array


@pytest.mark.parametrize(
    "change", [al.clear_cache, al.reset_peak_memory, *(lambda set_=set_: set_(GIB) for set_ in SETTERS)]
)
def test_while_a_graph_is_captured_what_could_end_that_is_refused(device, change):
    al.register_allocator("limited", Capturable)
    al.set_device_allocator(device, "limited")
    mebibytes(1)
    with al.ScopedCapture(stream=al.Stream(device)) as capture, pytest.raises(al.CaptureError, match="'limited' would"):
        change()

    assert capture.graph is not None
    assert al.get_memory_limit() == al.get_cache_limit() == device.total_memory
