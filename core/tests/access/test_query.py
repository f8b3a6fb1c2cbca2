import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import allotment as al
from allotment.access import case_of

WITHOUT_GRANT = "pool-not-granted"


class TestCanAccess:
    def test_it_is_about_an_array_alone(self, sim):
        for other in (np.zeros(3), al.get_device("cpu"), None, [al.zeros(3)]):
            with pytest.raises(TypeError, match="asarray"):
                al.can_access("cuda:0", other)

    def test_an_unknown_device_is_an_error(self, sim):
        with pytest.raises(al.DeviceNotFoundError):
            al.can_access("cuda:7", al.zeros(3))

    def test_a_device_names_itself_by_alias_ordinal_or_object(self, sim):
        array = al.zeros(3, device="cuda:1")

        assert all(al.can_access(device, array) for device in ("cuda:1", 1, al.get_device("cuda:1")))

    def test_a_verdict_follows_each_change_of_a_grant(self, sim):
        array = al.zeros(3, device="cuda:0")
        answers = [al.can_access("cuda:1", array)]
        for enable in (True, False, True):
            al.set_mempool_access_enabled("cuda:0", "cuda:1", enable)
            answers.append(al.can_access("cuda:1", array))

        assert answers == [False, True, False, True]

    def test_asking_again_asks_no_driver(self, sim):
        array = al.zeros(3, device="cuda:0")
        al.set_mempool_access_enabled("cuda:0", "cuda:1", True)
        al.can_access("cuda:1", array)
        sim.calls.clear()

        assert al.can_access("cuda:1", array)
        assert list(sim.calls) == []

    def test_an_answer_about_one_array_says_nothing_of_another_kind(self, sim, access):
        pooled, plain = (
            access.make("cuda:0", al.MemoryKind.CUDA_MEMPOOL),
            access.make("cuda:0", al.MemoryKind.CUDA_DEVICE),
        )
        al.set_mempool_access_enabled("cuda:0", "cuda:1", True)

        assert (al.can_access("cuda:1", pooled), al.can_access("cuda:1", plain)) == (True, False)

    @pytest.mark.parametrize("profile", ["2xh200", "wsl", "host"])
    def test_the_host_can_access_its_own(self, profile):
        if profile == "host":
            al.init("host", quiet=True)
            assert al.can_access("cpu", al.zeros(3))
            return
        with al.simulate(profile):
            assert al.can_access("cpu", al.zeros(3, device="cpu"))


class TestExplainAccess:
    def test_a_view_is_judged_as_its_owner(self, sim):
        array = al.zeros((4, 4), device="cuda:0")

        assert al.explain_access("cuda:1", array[1:, ::2]).rule == WITHOUT_GRANT
        assert al.explain_access("cuda:1", array[1:1]).rule == "empty"

    def test_the_array_stays_judged_by_its_own_allocator_after_another_was_chosen(self, sim):
        array = al.zeros(4, device="cuda:0")
        al.set_mempool_enabled("cuda:0", False)
        al.set_peer_access_enabled("cuda:0", "cuda:1", True)

        assert al.explain_access("cuda:1", array).rule == WITHOUT_GRANT
        assert al.get_device("cuda:1").can_access("cuda:0")

    @pytest.mark.parametrize(
        ("data", "indices", "rule"),
        [
            ("pinned", "pageable", "pageable-not"),
            ("pinned", "pinned", "pinned-uva"),
            ("unknown", "pageable", "pageable-not"),
            ("unknown", "pinned", "kind-unknown"),
        ],
    )
    def test_data_and_indices_have_the_worse_of_two_verdicts(self, sim, data, indices, rule):
        host = np.zeros(4)
        arrays = {
            "pinned": al.zeros(4, device="cpu", pinned=True),
            "pageable": al.zeros(4, device="cpu"),
            "unknown": al.from_pointer(host.ctypes.data, 4, device="cuda:1", owner=host),
        }
        for order in ((data, indices), (indices, data)):
            assert al.explain_access("cuda:0", tuple(arrays[name] for name in order)).rule == rule

    def test_members_of_objects_are_found(self, sim):
        @dataclasses.dataclass
        class State:
            positions: object
            step: int = 0

        array = al.zeros(4, device="cuda:0")
        for holder in (State(array), SimpleNamespace(state=State(array)), {"a": [1, (array,)]}):
            assert al.explain_access("cuda:1", holder).rule == WITHOUT_GRANT

    def test_an_object_without_arrays_is_an_error(self, sim):
        with pytest.raises(TypeError, match="no array in a dict"):
            al.explain_access("cuda:0", {"a": 1})

    def test_numpy_memory_is_host_memory(self, sim):
        assert al.explain_access("cuda:0", np.zeros(3)).rule == "pageable-not"

    def test_a_numpy_view_of_managed_memory_is_managed_memory(self, sim, access):
        managed = access.make("cuda:0", al.MemoryKind.CUDA_MANAGED)
        view = np.asarray(Borrowed(managed))

        assert al.explain_access("cuda:1", view).rule == "managed-by-device"
        assert al.explain_access("cuda:0", view).rule == "home"
        assert al.explain_access("cpu", view).rule == "home"


class TestForeignMemory:
    def test_an_allocator_that_says_nothing_is_judged_by_what_the_driver_says(self, sim, recording):
        with al.ScopedAllocator("cuda:0", recording()):
            array = al.zeros(4, device="cuda:0")
        assert al.explain_access("cuda:1", array).rule == "foreign-plain"
        sim.enable_peer_access(1, 0)
        assert al.explain_access("cuda:1", array).rule == "foreign-mapped"

    def test_an_allocator_that_declares_its_kind_is_taken_at_its_word(self, sim, recording):
        allocator = recording()
        allocator.memory_kind = al.MemoryKind.CUDA_DEVICE
        with al.ScopedAllocator("cuda:0", allocator):
            array = al.zeros(4, device="cuda:0")

        assert al.explain_access("cuda:1", array).rule == "peer-not-enabled"

    def test_an_allocator_that_declares_pool_memory_without_a_pool_is_judged_by_the_driver(self, sim, recording):
        allocator = recording()
        allocator.memory_kind = al.MemoryKind.CUDA_MEMPOOL
        with al.ScopedAllocator("cuda:0", allocator):
            array = al.zeros(4, device="cuda:0")

        assert not case_of(al.get_device("cuda:1"), array).is_ours
        assert al.explain_access("cuda:1", array).rule == "foreign-pool"

    @pytest.mark.parametrize(("granted", "rule"), [(False, "foreign-pool"), (True, "foreign-mapped")])
    def test_memory_of_the_pool_that_libraries_share_follows_its_own_grant(self, sim, access, granted, rule):
        pool = sim.default_pool(0)
        array = al.from_pointer(sim.malloc_from_pool(64, pool, 0), 8, device="cuda:0")
        al.set_mempool_access_enabled("cuda:0", "cuda:1", True)  # of the pools that Allotment draws from
        if granted:
            access.grant_directly(sim, None, al.get_device("cuda:1"), pool=pool)
        contexts = sim.contexts()

        assert al.explain_access("cuda:1", array).rule == rule
        assert sim.contexts() == contexts

    def test_mapped_memory_is_judged_by_what_the_driver_says(self, sim, mapping):
        with al.ScopedAllocator("cuda:0", mapping(al.get_device("cuda:0"))):
            array = al.zeros(4, device="cuda:0")
        rules = [al.explain_access("cuda:1", array).rule]
        sim.enable_peer_access(1, 0)
        rules.append(al.explain_access("cuda:1", array).rule)
        al.set_peer_access_enabled("cuda:0", "cuda:1", True)
        rules.append(al.explain_access("cuda:1", array).rule)

        assert rules == ["foreign-plain", "foreign-plain", "foreign-mapped"]

    def test_the_remedy_for_mapped_memory_helps(self, sim, access, mapping):
        with al.ScopedAllocator("cuda:0", mapping(al.get_device("cuda:0"))):
            array = al.zeros(4, device="cuda:0")
        remedy = al.explain_access("cuda:1", array).remedy
        assert remedy.startswith('Call set_peer_access_enabled("cuda:0", "cuda:1", True)')
        al.set_peer_access_enabled("cuda:0", "cuda:1", True)

        assert al.can_access("cuda:1", array)
        assert access.runs("cuda:1", array)

    def test_mapped_memory_is_judged_anew_each_time(self, sim, mapping):
        with al.ScopedAllocator("cuda:0", mapping(al.get_device("cuda:0"))):
            array = al.zeros(4, device="cuda:0")
        al.set_peer_access_enabled("cuda:0", "cuda:1", True)
        assert al.can_access("cuda:1", array)
        sim.set_mapping_access(array.ptr, sim.mapping_granularity(0), 1, al.PoolAccess.NONE)

        assert not al.can_access("cuda:1", array)

    def test_mapped_memory_is_judged_in_a_capture_too(self, sim, mapping):
        with al.ScopedAllocator("cuda:0", mapping(al.get_device("cuda:0"))):
            array = al.zeros(4, device="cuda:0")
        al.zeros(1, device="cuda:1")
        with al.ScopedCapture("cuda:1"):
            assert al.explain_access("cuda:1", array).rule == "foreign-plain"

    def test_memory_that_was_freed_is_unknown(self, sim):
        ptr = sim.malloc(64)
        array = al.from_pointer(ptr, 8, device="cuda:0")
        assert al.explain_access("cuda:1", array).rule == "foreign-plain"
        sim.free(ptr)
        assert al.explain_access("cuda:1", array).rule == "kind-unknown"


class Borrowed:
    """Memory of an array as NumPy sees it, where the host may touch it."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = {
            "data": (array.ptr, False),
            "shape": array.shape,
            "typestr": array.dtype.str,
            "version": 3,
        }
