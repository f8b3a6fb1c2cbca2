import threading

import numpy as np
import pytest

import allotment as al


def add(source, target):
    target[...] = source + 1


def test_a_launch_goes_to_the_default_device(sim):
    where = []
    with al.ScopedDevice("cuda:1"):
        source, target = al.ones(4), al.zeros(4)
        al.launch(lambda a, b: where.append(1) or add(a, b), 4, [source], [target])

    assert target.device.alias == "cuda:1"
    assert target.numpy().tolist() == [2, 2, 2, 2]
    assert where == [1]


def test_the_stream_says_the_device(sim):
    stream = al.Stream("cuda:1")
    array = al.zeros(4, device="cuda:1")
    with sim.delayed(stream.handle, 1):
        al.launch(lambda values: values.fill(3), 4, [array], stream=stream)
        assert not stream.is_done
    assert array.numpy().tolist() == [3, 3, 3, 3]


def test_a_stream_of_another_device_is_refused(sim):
    with pytest.raises(ValueError, match="a stream of 'cuda:1' cannot order a launch on 'cuda:0'"):
        al.launch(add, 4, device="cuda:0", stream=al.Stream("cuda:1"))


def test_the_host_has_no_streams(sim):
    with pytest.raises(ValueError, match="'cpu'"):
        al.launch(add, 4, device="cpu", stream=al.Stream("cuda:0"))


def test_work_follows_what_is_queued_on_the_stream_in_force(sim):
    stream, array = al.Stream("cuda:0", non_blocking=True), al.zeros(4, device="cuda:0")
    with al.ScopedStream(stream), sim.delayed(stream.handle, 0):
        array.fill_(5)
        al.launch(lambda values: np.multiply(values, 2, out=values), 4, [array], device="cuda:0")
        assert not stream.is_done
    assert array.numpy().tolist() == [10, 10, 10, 10]


@pytest.mark.parametrize("dim", [0, (0,), (3, 0)])
def test_over_no_elements_nothing_is_launched(sim, dim):
    al.launch(lambda: pytest.fail("it was called"), dim, device="cuda:0")


@pytest.mark.parametrize("dim", [-1, (2, -1), ()])
def test_a_dim_that_cannot_be_is_refused(sim, dim):
    with pytest.raises(ValueError, match="dim"):
        al.launch(add, dim, device="cpu")


@pytest.mark.parametrize("dim", [1.5, "4", None])
def test_a_dim_that_is_no_number_is_refused(sim, dim):
    with pytest.raises(TypeError):
        al.launch(add, dim, device="cpu")


def test_an_unknown_kernel_is_an_error_that_says_what_is_taken(sim):
    with pytest.raises(TypeError, match=r"builtins\.int.*Python functions.*CuPy.*Numba|CuPy.*numba.*Warp.*Python"):
        al.launch(7, 4)


def test_launches_of_several_threads_each_have_their_own_dim(sim):
    seen = {}

    def launch(number):
        al.launch(lambda: seen.__setitem__(number, al.launch_dim()), number, device="cpu")

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {number: number for number in range(1, 9)}


class TestRecordedUse:
    def test_page_locked_memory_is_not_reused_before_the_kernel_ran(self, sim):
        stream = al.Stream("cuda:0")
        target = al.zeros(4, device="cuda:0")
        with sim.delayed(stream.handle, 0):
            source = al.ones(4, device="cpu", pinned=True)
            ptr = source.ptr
            al.launch(add, 4, [source], [target], stream=stream)
            del source
            reused = al.zeros(4, device="cpu", pinned=True)
            assert reused.ptr != ptr
        assert target.numpy().tolist() == [2, 2, 2, 2]

    def test_so_is_such_memory_inside_an_argument(self, sim):
        stream = al.Stream("cuda:0")
        with sim.delayed(stream.handle, 0):
            source = al.ones(4, device="cpu", pinned=True)
            ptr = source.ptr
            al.launch(lambda pair: None, 4, [(source, 1)], stream=stream)
            del source
            assert al.zeros(4, device="cpu", pinned=True).ptr != ptr

    def test_a_graph_keeps_it_alive(self, sim):
        source, target = al.ones(4, device="cpu", pinned=True), al.zeros(4, device="cuda:0")
        with al.ScopedCapture("cuda:0") as capture:
            al.launch(add, 4, [source], [target], device="cuda:0")
        ptr = source.ptr
        del source

        assert al.zeros(4, device="cpu", pinned=True).ptr != ptr
        capture.graph.launch()
        assert target.numpy().tolist() == [2, 2, 2, 2]


def test_in_the_mode_relaxed_a_launch_is_the_launch_itself(sim):
    from allotment.launching import _launch as steps

    al.config.launch_array_access_mode = al.config.LaunchArrayAccessMode.CHECKED
    al.launch(lambda: None, 1)
    assert steps._mode.perform is not steps._perform
    al.config.launch_array_access_mode = al.config.LaunchArrayAccessMode.RELAXED
    al.launch(lambda: None, 1)

    assert steps._mode.perform is steps._perform


def test_the_mode_is_that_of_the_configuration_in_force(sim):
    from allotment import configuration

    array = al.zeros(4, device="cpu", pinned=True)
    strict = configuration.Configuration.isolated(
        launch_array_access_mode=configuration.LaunchArrayAccessMode.STRICT, quiet=True
    )
    with configuration.use(strict), pytest.raises(al.AccessError):
        al.launch(lambda values: None, 1, [array], device="cuda:0")
    al.launch(lambda values: None, 1, [array], device="cuda:0")
