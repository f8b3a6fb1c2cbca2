import threading

import pytest

import allotment as al
from allotment import grants
from allotment.platform import PoolAccess, simulated

PAIR = ("cuda:0", "cuda:1")


class Peer:
    """The functions about peer access, under common names."""

    is_supported = staticmethod(al.is_peer_access_supported)
    is_enabled = staticmethod(al.is_peer_access_enabled)
    enable = staticmethod(al.set_peer_access_enabled)
    scope = al.ScopedPeerAccess


class Pool:
    """The functions about pool access."""

    is_supported = staticmethod(al.is_mempool_access_supported)
    is_enabled = staticmethod(al.is_mempool_access_enabled)
    enable = staticmethod(al.set_mempool_access_enabled)
    scope = al.ScopedMempoolAccess


@pytest.fixture(params=[Peer, Pool])
def access(request):
    return request.param


@pytest.fixture
def apart(tmp_path):
    """Two H200 that no link connects."""
    text = (simulated_profiles() / "2xh200.toml").read_text()
    path = tmp_path / "apart.toml"
    path.write_text(text.replace("[[false, true], [true, false]]", "[[false, false], [false, false]]"))
    with al.simulate(path) as platform:
        yield platform


def simulated_profiles():
    from pathlib import Path

    return Path(simulated.__file__).with_name("profiles")


def pool_of(device):
    return al.zeros(1, device=device).allocator.allocator.pool_handle


class TestAskingAndGranting:
    def test_nothing_is_granted_unasked(self, sim, access):
        assert access.is_supported(*PAIR)
        assert not access.is_enabled(*PAIR)

    def test_a_grant_is_directional(self, sim, access):
        access.enable(*PAIR, True)

        assert access.is_enabled("cuda:0", "cuda:1")
        assert not access.is_enabled("cuda:1", "cuda:0")

    def test_a_grant_is_taken_back(self, sim, access):
        access.enable(*PAIR, True)
        access.enable(*PAIR, False)

        assert not access.is_enabled(*PAIR)

    def test_granting_twice_and_taking_back_twice_changes_nothing(self, sim, access):
        for enable in (True, True, False, False):
            access.enable(*PAIR, enable)
            assert access.is_enabled(*PAIR) is enable

    def test_peer_access_is_no_pool_access_nor_the_other_way_round(self, sim):
        al.set_peer_access_enabled(*PAIR, True)
        assert not al.is_mempool_access_enabled(*PAIR)
        al.set_peer_access_enabled(*PAIR, False)
        al.set_mempool_access_enabled(*PAIR, True)
        assert not al.is_peer_access_enabled(*PAIR)

    def test_a_device_has_access_to_itself_and_keeps_it(self, sim, access):
        access.enable("cuda:0", "cuda:0", False)

        assert access.is_supported("cuda:0", "cuda:0")
        assert access.is_enabled("cuda:0", "cuda:0")
        access.enable("cuda:0", "cuda:0", True)

    def test_devices_are_named_in_every_way(self, sim, access):
        access.enable(0, al.get_device("cuda:1"), True)

        assert access.is_enabled(al.get_device("cuda:0"), 1)

    def test_pool_access_reaches_memory_allocated_before_and_pools_made_later(self, sim):
        early = al.zeros(4, device="cuda:0")
        al.set_mempool_access_enabled(*PAIR, True)
        late = al.get_allocator("mempool", device="cuda:0", release_threshold=0)

        assert sim.pool_access(early.allocator.allocator.pool_handle, 1) is PoolAccess.READ_WRITE
        assert sim.pool_access(late.allocator.pool_handle, 1) is PoolAccess.READ_WRITE

    def test_pool_access_granted_before_there_is_a_pool_holds_for_it(self, sim):
        al.set_mempool_access_enabled(*PAIR, True)
        assert al.is_mempool_access_enabled(*PAIR)

        assert sim.pool_access(pool_of("cuda:0"), 1) is PoolAccess.READ_WRITE
        assert al.is_mempool_access_enabled(*PAIR)

    def test_the_pool_that_all_libraries_share_is_left_alone(self, sim):
        al.set_mempool_access_enabled(*PAIR, True)
        pool_of("cuda:0")

        assert sim.pool_access(sim.default_pool(0), 1) is PoolAccess.NONE


@pytest.fixture
def mapped(sim, mapping):
    """An allocator of device 0 that maps its memory, made before any grant."""
    allocator = mapping(al.get_device("cuda:0"))
    al.set_device_allocator("cuda:0", allocator)
    return allocator


class TestMemoryThatFollowsPeerAccess:
    def reached(self, ptr):
        before = al.get_device("cuda:1").platform.switch_device(1)
        try:
            return al.get_device("cuda:1").platform.pointer_attributes(ptr).accessible
        finally:
            al.get_device("cuda:1").platform.restore_context(before)

    def test_peer_access_reaches_memory_allocated_before_and_after(self, mapped):
        early = al.zeros(4, device="cuda:0")
        al.set_peer_access_enabled(*PAIR, True)
        late = al.zeros(4, device="cuda:0")
        assert (self.reached(early.ptr), self.reached(late.ptr)) == (True, True)

        al.set_peer_access_enabled(*PAIR, False)
        assert (self.reached(early.ptr), self.reached(late.ptr)) == (False, False)

    def test_an_allocator_made_later_is_told_what_was_enabled_on_its_device(self, sim, mapping):
        al.set_peer_access_enabled(*PAIR, True)
        allocators = {alias: mapping(al.get_device(alias)) for alias in PAIR}
        for alias, allocator in allocators.items():
            al.set_device_allocator(alias, allocator)

        assert {alias: allocator.told for alias, allocator in allocators.items()} == {
            "cuda:0": [("cuda:1", True)],
            "cuda:1": [],
        }

    def test_so_is_one_that_is_chosen_by_name(self, sim, mapping):
        made = []

        def factory(device):
            made.append(mapping(device))
            return made[-1]

        factory.traits = mapping.traits
        al.register_allocator("mapped", factory)
        al.set_peer_access_enabled(*PAIR, True)
        al.get_allocator("mapped", device="cuda:0")
        al.set_peer_access_enabled(*PAIR, False)

        assert [allocator.told for allocator in made] == [[("cuda:1", True), ("cuda:1", False)]]

    def test_it_is_told_of_changes_alone(self, mapped):
        for enable in (True, True, False, False):
            al.set_peer_access_enabled(*PAIR, enable)

        assert mapped.told == [("cuda:1", True), ("cuda:1", False)]

    def test_it_is_told_once_where_it_was_chosen_twice(self, sim, mapped):
        with al.ScopedAllocator("cuda:0", mapped):
            al.set_peer_access_enabled(*PAIR, True)

        assert mapped.told == [("cuda:1", True)]

    def test_it_is_told_where_another_library_had_enabled_peer_access(self, sim, mapped):
        sim.enable_peer_access(1, 0)
        al.set_peer_access_enabled(*PAIR, True)

        assert mapped.told == [("cuda:1", True)]

    def test_its_device_is_current_when_it_is_told(self, sim, mapped, monkeypatch):
        current = []
        monkeypatch.setattr(mapped, "set_peer_access", lambda peer, *, enable: current.append(sim.current_device()))
        with al.ScopedDevice("cuda:1"):
            al.set_peer_access_enabled(*PAIR, True)

        assert current == [0]

    def test_a_scope_ends_it(self, mapped):
        with al.ScopedPeerAccess(*PAIR, True):
            array = al.zeros(4, device="cuda:0")
            assert self.reached(array.ptr)
        assert not self.reached(array.ptr)

    @pytest.mark.parametrize("enable", [True, False])
    def test_if_one_refuses_all_is_as_it_was(self, sim, mapped, mapping, enable):
        other = mapping(al.get_device("cuda:0"))
        with al.ScopedAllocator("cuda:0", other):
            blocks = [al.zeros(4, device="cuda:0")]
        blocks.append(al.zeros(4, device="cuda:0"))
        al.set_peer_access_enabled(*PAIR, not enable)
        sim.fail("set_mapping_access", nth=2)

        with pytest.raises(al.PlatformError, match="cuMemSetAccess"):
            al.set_peer_access_enabled(*PAIR, enable)
        assert [self.reached(array.ptr) for array in blocks] == [not enable] * 2
        assert al.is_peer_access_enabled(*PAIR) is not enable

        al.set_peer_access_enabled(*PAIR, enable)
        assert [self.reached(array.ptr) for array in blocks] == [enable] * 2

    def test_if_the_driver_refuses_nobody_is_told(self, sim, mapped):
        sim.fail("enable_peer_access", code="cudaErrorUnknown")

        with pytest.raises(al.PlatformError, match="cudaErrorUnknown"):
            al.set_peer_access_enabled(*PAIR, True)
        assert mapped.told == []

    def test_peer_access_that_another_library_enabled_stays_if_one_refuses(self, sim, mapped):
        array = al.zeros(4, device="cuda:0")
        sim.enable_peer_access(1, 0)
        sim.fail("set_mapping_access")

        with pytest.raises(al.PlatformError):
            al.set_peer_access_enabled(*PAIR, True)
        assert al.is_peer_access_enabled(*PAIR)
        assert not self.reached(array.ptr)

    def test_an_allocator_that_refuses_what_was_enabled_is_not_taken(self, sim, mapping):
        al.set_peer_access_enabled(*PAIR, True)
        allocator = mapping(al.get_device("cuda:0"))
        block = allocator.allocate(4)
        sim.fail("set_mapping_access")

        with pytest.raises(al.PlatformError):
            al.set_device_allocator("cuda:0", allocator)
        al.set_device_allocator("cuda:0", allocator)
        assert self.reached(block)


class TestRefusals:
    @pytest.mark.parametrize("pair", [("cpu", "cuda:0"), ("cuda:0", "cpu"), ("cpu", "cpu")])
    def test_the_host_neither_grants_nor_gets_access(self, sim, access, pair):
        assert (access.is_supported(*pair), access.is_enabled(*pair)) == (False, False)
        access.enable(*pair, False)
        with pytest.raises(ValueError, match="between CUDA devices"):
            access.enable(*pair, True)

    def test_devices_that_are_not_connected(self, apart, access):
        assert (access.is_supported(*PAIR), access.is_enabled(*PAIR)) == (False, False)
        access.enable(*PAIR, False)
        with pytest.raises(al.UnsupportedError, match="'cuda:1' cannot access memory of device 'cuda:0'"):
            access.enable(*PAIR, True)

    def test_a_device_without_pools_grants_no_pool_access(self):
        with al.simulate("no-pools"):
            assert not al.is_mempool_access_supported("cuda:0", "cuda:0")
            assert not al.is_mempool_access_enabled("cuda:0", "cuda:0")
            al.set_mempool_access_enabled("cuda:0", "cuda:0", False)
            with pytest.raises(al.UnsupportedError, match="'cuda:0' does not support memory pools"):
                al.set_mempool_access_enabled("cuda:0", "cuda:0", True)

    def test_an_unknown_device(self, sim, access):
        with pytest.raises(al.DeviceNotFoundError):
            access.enable("cuda:0", "cuda:9", True)

    @pytest.mark.parametrize(
        ("access", "call"), [(Peer, "enable_peer_access"), (Pool, "set_pool_access")], ids=["peer", "pool"]
    )
    def test_a_refusal_of_the_driver_is_an_error_and_nothing_is_recorded(self, sim, access, call):
        pool_of("cuda:0")
        sim.fail(call, code="cudaErrorInvalidDevice")
        with pytest.raises(al.PlatformError, match="cudaErrorInvalidDevice"):
            access.enable(*PAIR, True)

        assert not access.is_enabled(*PAIR)

    def test_a_pool_made_after_a_refused_grant_is_not_granted(self, sim):
        pool_of("cuda:0")
        sim.fail("set_pool_access", code="cudaErrorInvalidDevice")
        with pytest.raises(al.PlatformError):
            al.set_mempool_access_enabled(*PAIR, True)
        late = al.get_allocator("mempool", device="cuda:0", release_threshold=0)

        assert sim.pool_access(late.allocator.pool_handle, 1) is PoolAccess.NONE


class TestSideEffects:
    def test_asking_opens_no_context(self, sim, access):
        access.is_supported(*PAIR)
        access.is_enabled(*PAIR)
        al.get_device("cuda:1").can_access("cuda:0")

        assert sim.contexts() == frozenset()

    def test_asking_changes_no_grant(self, sim, access):
        for device in PAIR:
            al.zeros(1, device=device)
        sim.calls.clear()
        access.is_enabled(*PAIR)

        assert sim.calls.named("enable_peer_access", "disable_peer_access", "set_pool_access") == []

    def test_asking_leaves_the_current_device(self, sim, access):
        for device in PAIR:
            al.zeros(1, device=device)
        before = sim.current_device()
        access.is_enabled(*PAIR)
        access.enable(*PAIR, True)

        assert sim.current_device() == before

    def test_granting_pool_access_opens_no_context_of_the_peer(self, sim):
        pool_of("cuda:0")
        al.set_mempool_access_enabled(*PAIR, True)

        assert 1 not in sim.contexts()


class TestWhatOthersDo:
    def test_a_grant_of_another_library_is_seen(self, sim):
        for device in PAIR:
            al.zeros(1, device=device)
        assert not al.is_peer_access_enabled(*PAIR)
        sim.enable_peer_access(1, 0)
        assert al.is_peer_access_enabled(*PAIR)
        sim.disable_peer_access(1, 0)
        assert not al.is_peer_access_enabled(*PAIR)

    def test_a_change_to_our_pool_by_another_library_is_seen(self, sim):
        pool = pool_of("cuda:0")
        sim.set_pool_access(pool, 1, PoolAccess.READ_WRITE)
        assert al.is_mempool_access_enabled(*PAIR)
        sim.set_pool_access(pool, 1, PoolAccess.NONE)
        assert not al.is_mempool_access_enabled(*PAIR)

    def test_a_grant_that_another_library_made_before_is_no_error(self, sim):
        sim.enable_peer_access(1, 0)
        al.set_peer_access_enabled(*PAIR, True)

        assert al.is_peer_access_enabled(*PAIR)

    def test_seeing_a_change_makes_verdicts_about_arrays_new(self, sim):
        array, pool = al.zeros(1, device="cuda:0"), pool_of("cuda:0")
        al.set_mempool_access_enabled(*PAIR, True)
        assert al.can_access("cuda:1", array)
        sim.set_pool_access(pool, 1, PoolAccess.NONE)
        al.is_mempool_access_enabled(*PAIR)

        assert not al.can_access("cuda:1", array)

    def test_in_a_capture_what_was_recorded_counts(self, sim, access):
        pool = pool_of("cuda:0")
        al.zeros(1, device="cuda:1")
        access.enable(*PAIR, True)
        with al.ScopedCapture("cuda:1", capture_mode=al.CaptureMode.RELAXED):
            sim.disable_peer_access(1, 0) if access is Peer else sim.set_pool_access(pool, 1, PoolAccess.NONE)
            assert access.is_enabled(*PAIR)
        assert not access.is_enabled(*PAIR)

    @pytest.mark.parametrize("mode", [al.CaptureMode.GLOBAL, al.CaptureMode.THREAD_LOCAL])
    def test_a_strict_capture_survives_asking_and_an_attempt_to_grant(self, sim, access, mode):
        for device in PAIR:
            al.zeros(1, device=device)
        with al.ScopedCapture("cuda:0", capture_mode=mode) as capture:
            assert not access.is_enabled(*PAIR)
            with pytest.raises(al.CaptureError, match="grant"):
                access.enable(*PAIR, True)

        assert capture.graph is not None
        assert not access.is_enabled(*PAIR)


class TestScopes:
    def test_the_grant_lasts_as_long_as_the_block(self, sim, access):
        with access.scope(*PAIR, True):
            assert access.is_enabled(*PAIR)
        assert not access.is_enabled(*PAIR)

    def test_a_grant_is_taken_away_for_a_block(self, sim, access):
        access.enable(*PAIR, True)
        with access.scope(*PAIR, False):
            assert not access.is_enabled(*PAIR)
        assert access.is_enabled(*PAIR)

    def test_after_an_exception_it_is_as_before(self, sim, access):
        with pytest.raises(KeyError), access.scope(*PAIR, True):
            raise KeyError

        assert not access.is_enabled(*PAIR)

    def test_scopes_are_nested(self, sim, access):
        seen = []
        with access.scope(*PAIR, True):
            with access.scope(*PAIR, False):
                seen.append(access.is_enabled(*PAIR))
                with access.scope(*PAIR, True):
                    seen.append(access.is_enabled(*PAIR))
                seen.append(access.is_enabled(*PAIR))
            seen.append(access.is_enabled(*PAIR))

        assert seen == [False, True, False, True]
        assert not access.is_enabled(*PAIR)

    def test_a_scope_is_entered_again(self, sim, access):
        scope = access.scope(*PAIR, True)
        with scope:
            with scope:
                pass
            assert access.is_enabled(*PAIR)
        assert not access.is_enabled(*PAIR)

    def test_scopes_left_out_of_order_leave_what_was_before_them(self, sim, access):
        outer, inner = access.scope(*PAIR, True), access.scope(*PAIR, True)
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        assert access.is_enabled(*PAIR)
        inner.__exit__(None, None, None)
        assert not access.is_enabled(*PAIR)

    def test_errors_come_on_entry_and_change_nothing(self, sim, access):
        scope = access.scope("cpu", "cuda:1", True)
        with pytest.raises(ValueError, match="CUDA devices"), scope:
            pass

    def test_scopes_of_different_pairs_do_not_meet(self, sim, access):
        with access.scope("cuda:0", "cuda:1", True), access.scope("cuda:1", "cuda:0", True):
            pass

        assert not access.is_enabled(*PAIR)
        assert not access.is_enabled("cuda:1", "cuda:0")


class TestProof:
    def test_a_grant_that_works_is_proved(self, sim, access):
        pool_of("cuda:0")
        sim.calls.clear()
        access.enable(*PAIR, True, verify=True)

        assert len(sim.calls.named("copy")) == 2
        assert access.is_enabled(*PAIR)

    def test_a_platform_that_loses_data_is_caught(self, sim, access, monkeypatch):
        pool_of("cuda:0")
        whole = sim.copy

        def lose(dst, src, nbytes, stream, ordinal):
            if ordinal != 1:
                whole(dst, src, nbytes, stream, ordinal)

        monkeypatch.setattr(sim, "copy", lose)
        with pytest.raises(al.PlatformError, match="data lost"):
            access.enable(*PAIR, True, verify=True)

        assert not access.is_enabled(*PAIR)

    def test_the_proof_leaves_no_memory_behind(self, sim, access):
        pool_of("cuda:0")
        al.zeros(1, device="cuda:1")
        access.is_enabled(*PAIR)
        free = sim.memory_info(0).free
        access.enable(*PAIR, True, verify=True)

        assert sim.memory_info(0).free == free

    def test_taking_back_proves_nothing(self, sim, access):
        access.enable(*PAIR, True)
        sim.calls.clear()
        access.enable(*PAIR, False, verify=True)

        assert sim.calls.named("copy") == []


class TestCoarseDeviceAccess:
    def test_it_follows_the_pool_while_pools_are_enabled_and_peers_otherwise(self, sim):
        reader = al.get_device("cuda:1")
        al.zeros(1, device="cuda:0")
        with al.ScopedMempoolAccess(*PAIR, True):
            assert reader.can_access("cuda:0")
            with al.ScopedMempool("cuda:0", False):
                assert not reader.can_access("cuda:0")
        with al.ScopedPeerAccess(*PAIR, True):
            assert not reader.can_access("cuda:0")
            with al.ScopedMempool("cuda:0", False):
                assert reader.can_access("cuda:0")

    @pytest.mark.parametrize(
        ("profile", "reaches"), [("2xh200", False), ("gh200", True), ("hmm", True), ("wsl", False)]
    )
    def test_a_gpu_reaches_the_host_where_it_reaches_pageable_memory(self, profile, reaches):
        with al.simulate(profile):
            assert al.get_device("cuda:0").can_access("cpu") is reaches
            assert not al.get_device("cpu").can_access("cuda:0")
            assert al.get_device("cpu").can_access("cpu")


def test_many_threads_that_grant_and_ask_leave_the_record_as_the_driver_has_it(sim):
    pool_of("cuda:0")
    al.zeros(1, device="cuda:1")
    start = threading.Barrier(6)

    def work(number):
        start.wait()
        for step in range(50):
            al.set_mempool_access_enabled(*PAIR, (number + step) % 2 == 0)
            al.set_peer_access_enabled(*PAIR, (number + step) % 2 == 0)
            al.is_mempool_access_enabled(*PAIR)
            al.is_peer_access_enabled(*PAIR)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    pair = grants.Pair(*map(al.get_device, PAIR))
    recorded = grants.grants_of(pair.target)
    assert recorded._pool_access[pool_of("cuda:0"), pair.peer] is al.is_mempool_access_enabled(*PAIR)
    assert recorded._peer_access[pair] is al.is_peer_access_enabled(*PAIR)


def test_each_simulation_has_grants_of_its_own(access):
    with al.simulate("2xh200"):
        access.enable(*PAIR, True)
        with al.simulate("2xh200"):
            assert not access.is_enabled(*PAIR)
        assert access.is_enabled(*PAIR)
