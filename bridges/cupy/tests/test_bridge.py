"""The bridge to CuPy: installed by one call, undone by another, and refused where CuPy could not use the memory."""

import threading

import pytest

import allotment as al
from allotment_cupy_bridge import using_allocator


def status():
    (found,) = (each for each in al.status() if each.library == "cupy")
    return found


def test_nothing_is_installed_by_an_import(cupy, sim):
    assert "Pool" in type(cupy.cuda.get_allocator().__self__).__name__
    assert status().state is al.BridgeState.AVAILABLE


def test_cupy_draws_from_the_allocator_in_force(cupy, sim, drawn):
    al.install("cupy")
    arrays = [cupy.ndarray(100, "u1")]
    with al.ScopedAllocator("cuda:0", "managed"):
        arrays.append(cupy.ndarray(200, "u1"))
    al.set_device_allocator("cuda:0", "default")
    arrays.append(cupy.ndarray(300, "u1"))

    assert drawn() == {"mempool": 100, "managed": 200, "default": 300}
    assert status().allocator == "the allocator in force"
    arrays.clear()
    assert set(drawn().values()) == {0}


def test_cupy_may_draw_from_one_allocator_whatever_is_in_force(cupy, sim, drawn):
    al.install("cupy", allocator="managed")
    with al.ScopedAllocator("cuda:0", "default"):
        array = cupy.ndarray(100, "u1")

    assert drawn() == {"managed": array.nbytes}


def test_every_thread_draws_from_it(cupy, sim, drawn):
    al.install("cupy")
    arrays = []
    thread = threading.Thread(target=lambda: arrays.append(cupy.ndarray(100, "u1")))
    thread.start()
    thread.join()

    assert drawn() == {"mempool": 100}


def test_cupy_has_its_own_allocator_back_afterwards(cupy, sim):
    before = cupy.cuda.get_allocator()
    al.install("cupy")
    al.uninstall("cupy")

    assert cupy.cuda.get_allocator() is before


def test_an_array_outlives_the_bridge_and_returns_to_its_allocator(cupy, sim, drawn):
    al.install("cupy", allocator="managed")
    array = cupy.ndarray(100, "u1")
    al.uninstall("cupy")
    al.set_device_allocator("cuda:0", "default")

    assert drawn() == {"managed": array.nbytes}
    del array
    assert drawn() == {"managed": 0}


def test_an_allocator_that_somebody_sets_later_is_told_and_left_alone(cupy, sim):
    before = cupy.cuda.get_allocator()
    al.install("cupy")
    cupy.cuda.set_allocator(cupy.cuda.malloc_managed)

    assert (status().state, status().allocator) == (al.BridgeState.DISPLACED, "cupy.cuda.memory.malloc_managed")
    al.uninstall("cupy")
    assert cupy.cuda.get_allocator() is cupy.cuda.malloc_managed
    cupy.cuda.set_allocator(before)


def test_a_pool_that_somebody_sets_later_is_told_by_name(cupy, sim):
    before = cupy.cuda.get_allocator()
    al.install("cupy")
    cupy.cuda.set_allocator(before)

    assert status().allocator == "cupy.cuda.memory.MemoryPool.malloc"


def test_a_block_of_using_allocator_is_stronger_in_its_thread(cupy, sim, drawn):
    al.install("cupy")
    made = []
    with cupy.cuda.using_allocator(lambda size: made.append(size) or sized_nothing(cupy)):
        cupy.ndarray(100, "u1")
        assert status().state is al.BridgeState.INSTALLED

    assert (made, drawn()) == ([100], {})


@pytest.mark.parametrize("call", [lambda: al.install("cupy"), lambda: al.uninstall("cupy")])
def test_in_a_block_of_using_allocator_nothing_is_changed(cupy, sim, call):
    if call.__code__.co_names[1] == "uninstall":
        al.install("cupy")
    before = status().state
    with (
        cupy.cuda.using_allocator(lambda size: sized_nothing(cupy)),
        pytest.raises(al.BridgeError, match=r"using_allocator.*Leave the block"),
    ):
        call()

    assert status().state is before


def sized_nothing(cupy):
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, 0), 0)


# The scoped form


def test_a_thread_can_draw_from_an_allocator_without_the_bridge(cupy, sim, drawn):
    before = cupy.cuda.get_allocator()
    with using_allocator("managed"):
        array = cupy.ndarray(100, "u1")
        with using_allocator():
            inner = cupy.ndarray(200, "u1")

    assert drawn() == {"managed": array.nbytes, "mempool": inner.nbytes}
    assert cupy.cuda.get_allocator() is before
    del array, inner
    assert set(drawn().values()) == {0}


def test_a_name_that_is_unknown_is_refused_before_the_block(cupy, sim):
    with pytest.raises(al.UnknownAllocatorError), using_allocator("nothing"):
        pass


# What CuPy cannot use


@pytest.mark.parametrize(
    ("variable", "cause"),
    [("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", "per-thread default streams"), ("CUPY_ENABLE_UMP", "the host's")],
)
@pytest.mark.parametrize("use", [lambda: al.install("cupy"), lambda: using_allocator().__enter__()])
def test_what_cupy_is_set_up_for_may_be_in_the_way(cupy, sim, monkeypatch, variable, cause, use):
    monkeypatch.setenv(variable, "1")

    with pytest.raises(al.BridgeError, match=f"'cupy'.*{cause}.*Unset {variable}"):
        use()


def test_simulated_memory_is_refused_where_cupy_has_real_devices(cupy, sim, monkeypatch):
    monkeypatch.setattr("allotment_cupy_bridge._library.sees_devices", lambda: True)

    with pytest.raises(al.BridgeError, match="real devices, and the platform in force is 'sim:2xh200'"):
        al.install("cupy")


def test_without_a_device_there_is_nothing_to_draw_from(cupy):
    al.init(platform="host", quiet=True)

    with pytest.raises(al.BridgeError, match="Allotment sees no CUDA device"):
        al.install("cupy")


def test_cupy_offers_the_functions_in_c_that_save_asking_it_from_python(cupy):
    from allotment_cupy_bridge import _library

    assert _library.find_stream_address() > 0
    assert _library.find_device_address() > 0
