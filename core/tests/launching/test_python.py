import functools
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

import allotment as al

pytestmark = pytest.mark.filterwarnings("ignore::allotment.FreeFailedWarning")


@pytest.fixture(params=["cpu", "cuda:0", "cuda:1"])
def device(request, sim):
    return al.get_device(request.param)


def add_one(array):
    array += 1


def test_a_function_gets_numpy_arrays_over_the_memory(device):
    array = al.zeros((2, 3), dtype="float32", device=device)
    seen = []

    def kernel(values, number):
        seen.append((type(values), values.shape, values.dtype, number))
        values[1, 2] = 7

    al.launch(kernel, 6, [array, 3], device=device)

    assert seen == [(np.ndarray, (2, 3), np.dtype("float32"), 3)]
    assert array.numpy()[1, 2] == 7


@pytest.mark.parametrize("take", [np.s_[::2], np.s_[::-1], np.s_[1:1], np.s_[2]])
def test_a_view_is_passed_as_the_same_view(device, take):
    array = al.array(np.arange(8.0), device=device)
    expected = np.arange(8.0)
    expected[take] += 1
    al.launch(lambda values: np.add(values, 1, out=values), 8, [array[take]], device=device)

    assert array.numpy().tolist() == expected.tolist()


def test_structures_are_passed_as_structures(device):
    array = al.zeros(3, dtype=[("a", "u1"), ("b", "f8")], device=device)
    al.launch(lambda values: values["b"].fill(2.5), 3, [array], device=device)

    assert array.numpy()["b"].tolist() == [2.5] * 3


@dataclass(frozen=True)
class State:
    positions: object
    extra: dict = field(default_factory=dict)


@pytest.mark.parametrize(
    ("wrap", "unwrap"),
    [
        (lambda array: (1, array), lambda held: held[1]),
        (lambda array: [[array]], lambda held: held[0][0]),
        (lambda array: {"a": array}, lambda held: held["a"]),
        (lambda array: State(array), lambda held: held.positions),
        (lambda array: SimpleNamespace(a=State(1, {"k": array})), lambda held: held.a.extra["k"]),
    ],
)
def test_arrays_inside_an_argument_are_passed_so_too(device, wrap, unwrap):
    array = al.zeros(4, device=device)
    held = wrap(array)
    al.launch(lambda argument: unwrap(argument).fill(4), 4, [held], device=device)

    assert array.numpy().tolist() == [4] * 4
    assert unwrap(held) is array


def test_an_object_that_refers_to_itself_is_passed_so(device):
    holder = SimpleNamespace(array=al.zeros(2, device=device))
    holder.me = holder
    al.launch(lambda given: given.me.me.array.fill(1), 2, [holder], device=device)

    assert holder.array.numpy().tolist() == [1, 1]


class TestDim:
    @pytest.mark.parametrize("dim", [5, (2, 3)])
    def test_it_can_be_asked_for(self, device, dim):
        seen = []
        al.launch(lambda: seen.append(al.launch_dim()), dim, device=device)

        assert seen == [dim]

    def test_it_is_passed_to_a_parameter_of_that_name(self, device):
        seen = []

        def by_keyword(array, *, dim):
            seen.append(dim)

        def by_position(array, dim):
            seen.append(dim)

        for kernel in (by_keyword, by_position, functools.partial(by_keyword)):
            al.launch(kernel, 5, [1], device=device)
        assert seen == [5, 5, 5]

    def test_an_argument_that_takes_the_parameter_stays(self, device):
        seen = []

        def kernel(array, dim):
            seen.append(dim)

        al.launch(kernel, 5, [1, "mine"], device=device)
        assert seen == ["mine"]

    def test_outside_a_kernel_there_is_none(self, sim):
        with pytest.raises(al.UnsupportedError, match="launch_dim"):
            al.launch_dim()


class TestOnASimulatedDevice:
    def test_a_kernel_waits_for_its_stream(self, sim):
        stream, array = al.Stream("cuda:0", non_blocking=True), al.zeros(2, device="cuda:0")
        with sim.delayed(stream.handle, 0):
            al.launch(add_one, 2, [array], stream=stream)
            assert array.numpy().tolist() == [0, 0]
        assert array.numpy().tolist() == [1, 1]

    def test_a_kernel_is_captured_like_any_other(self, sim):
        array = al.zeros(2, device="cuda:0")
        with al.ScopedCapture("cuda:0") as capture:
            al.launch(add_one, 2, [array], device="cuda:0")
        assert array.numpy().tolist() == [0, 0]
        for _ in range(3):
            capture.graph.launch()
        assert array.numpy().tolist() == [3, 3]

    def test_a_kernel_in_a_graph_may_use_memory_that_the_graph_allocates(self, sim):
        target = al.zeros(2, device="cuda:0")
        with al.ScopedCapture("cuda:0") as capture:
            between = al.full(2, 20.0, device="cuda:0")
            al.launch(lambda a, b: np.add(a, 1, out=b), 2, [between], [target], device="cuda:0")
            del between
        capture.graph.launch()

        assert target.numpy().tolist() == [21, 21]

    def test_memory_dropped_behind_a_waiting_kernel_is_there_until_it_ran(self, sim):
        stream, target = al.Stream("cuda:0"), al.zeros(2, device="cuda:0")
        with sim.delayed(stream.handle, 0), al.ScopedStream(stream):
            source = al.full(2, 5.0, device="cuda:0")
            al.launch(lambda a, b: np.copyto(b, a), 2, [source], [target], device="cuda:0")
            del source
        assert target.numpy().tolist() == [5, 5]

    def test_a_fault_shows_at_the_next_synchronise_and_stays(self, sim):
        ran = []
        array = al.zeros(2, device="cuda:0")
        al.launch(ran.append, 2, [array], device="cuda:1")

        for _ in range(2):
            with pytest.raises(al.PlatformError, match="cudaErrorIllegalAddress"):
                al.synchronize_device("cuda:1")
        assert ran == []

    def test_a_graph_faults_over_memory_that_is_gone(self, sim):
        array = al.zeros(2, device="cuda:0")
        with al.ScopedCapture("cuda:0") as capture:
            al.launch(add_one, 2, [array], device="cuda:0")
        del array
        capture.graph.launch()

        with pytest.raises(al.PlatformError, match="cudaErrorIllegalAddress"):
            al.synchronize_device("cuda:0")

    def test_an_exception_of_the_function_leaves_the_call_that_does_the_work(self, sim):
        def fail():
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            al.launch(fail, 1, device="cuda:0")
        al.synchronize_device("cuda:0")

    def test_numpy_memory_faults_where_the_device_does_not_reach_it(self, sim):
        al.launch(add_one, 2, [np.zeros(2)], device="cuda:0")
        with pytest.raises(al.PlatformError, match="cudaErrorIllegalAddress"):
            al.synchronize_device("cuda:0")

    def test_numpy_memory_is_used_where_it_does(self):
        with al.simulate("gh200"):
            values = np.zeros(2)
            al.launch(add_one, 2, [values], device="cuda:0")
            assert values.tolist() == [1, 1]

    def test_memory_of_another_library_is_used_in_place(self, sim):
        array = al.zeros(2, device="cuda:0")
        other = SimpleNamespace(__cuda_array_interface__=array.__cuda_array_interface__)
        al.launch(add_one, 2, [other], device="cuda:0")

        assert array.numpy().tolist() == [1, 1]


class TestOnTheHost:
    def test_device_memory_ends_there_as_it_would_end_a_process(self, sim):
        with pytest.raises(al.PlatformError, match="SIGSEGV"):
            al.launch(add_one, 2, [al.zeros(2, device="cuda:0")], device="cpu")

    def test_managed_memory_is_reached(self, sim):
        with al.ScopedAllocator("cuda:0", "managed"):
            array = al.zeros(2, device="cuda:0")
        al.launch(add_one, 2, [array], device="cpu")

        assert array.numpy().tolist() == [1, 1]

    def test_a_launch_is_part_of_a_graph_of_the_host(self, sim):
        array = al.zeros(2, device="cpu")
        with al.ScopedCapture("cpu") as capture:
            al.launch(add_one, 2, [array], device="cpu")
        assert array.numpy().tolist() == [0, 0]
        capture.graph.launch()
        capture.graph.launch()
        assert array.numpy().tolist() == [2, 2]

    def test_it_works_without_any_gpu(self):
        al.init("host", quiet=True)
        array = al.zeros(2)
        al.launch(add_one, 2, [array])

        assert array.numpy().tolist() == [1, 1]

    def test_a_read_only_array_is_read_only_in_the_function(self, sim):
        values = np.zeros(2)
        values.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            al.launch(add_one, 2, [al.asarray(values)], device="cpu")


def test_a_real_device_runs_no_python_function(sim, monkeypatch):
    monkeypatch.delattr(type(sim).__mro__[-2], "launch")
    with pytest.raises(al.UnsupportedError, match="Real CUDA devices run compiled kernels"):
        al.launch(add_one, 2, [al.zeros(2)], device="cuda:0")


@pytest.mark.parametrize("kernel", [add_one, functools.partial(add_one), np.zeros(1).fill, len])
def test_what_can_be_called_is_taken_for_a_function(kernel):
    from allotment.launching._python import FunctionAdapter

    assert FunctionAdapter().accepts(kernel)


def test_an_object_is_not_taken_for_a_function():
    from allotment.launching._python import FunctionAdapter

    assert not FunctionAdapter().accepts(SimpleNamespace(__call__=add_one))
