import pytest

import allotment as al

warp = pytest.importorskip("warp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@warp.kernel
def scale(source: warp.array(dtype=float), target: warp.array(dtype=float), factor: float):
    i = warp.tid()
    target[i] = source[i] * factor


@warp.kernel
def add_components(source: warp.array(dtype=warp.vec3), target: warp.array(dtype=float)):
    i = warp.tid()
    target[i] = source[i][0] + source[i][1] + source[i][2]


@warp.struct
class State:
    source: warp.array(dtype=float)
    factor: float


@warp.kernel
def scale_state(state: State, target: warp.array(dtype=float)):
    i = warp.tid()
    target[i] = state.source[i] * state.factor


@pytest.fixture(autouse=True)
def host_alone(isolated):
    al.init("host", quiet=True)


def zeros(size):
    return al.zeros(size, dtype="float32")


def test_a_kernel_works_on_the_memory_of_our_arrays():
    target = zeros(4)
    al.launch(scale, 4, [al.full(4, 2.0, dtype="float32")], [target, 3.0])

    assert target.numpy().tolist() == [6.0] * 4


def test_a_view_is_passed_as_the_same_view():
    source, target = al.array([1, 2, 3, 4], dtype="float32"), zeros(4)
    al.launch(scale, 2, [source[::2], target[2:], 10.0])

    assert target.numpy().tolist() == [0, 0, 10, 30]


def test_an_array_becomes_what_the_kernel_declares():
    target = zeros(2)
    al.launch(add_components, 2, [al.ones((2, 3), dtype="float32")], [target])

    assert target.numpy().tolist() == [3, 3]


def test_a_structure_of_warp_is_passed_as_it_is():
    source, target = al.ones(3, dtype="float32"), zeros(3)
    state = State()
    state.source, state.factor = warp.array(source.numpy(), dtype=float, device="cpu"), 5.0
    al.launch(scale_state, 3, [state], [target])

    assert target.numpy().tolist() == [5, 5, 5]


def test_a_simulated_device_runs_no_warp_kernel():
    with al.simulate("2xh200"), pytest.raises(al.UnsupportedError, match="Warp runs on the host and on real CUDA"):
        al.launch(scale, 4, [al.zeros(4, dtype="float32")], device="cuda:0")


@pytest.mark.gpu
def test_a_kernel_runs_on_the_stream_that_is_given():
    al.init("cuda", quiet=True)
    for stream in (al.Stream("cuda:0", non_blocking=True), None):
        source = al.full(1000, 2.0, dtype="float32", device="cuda:0")
        target = al.zeros(1000, dtype="float32", device="cuda:0")
        al.synchronize_device("cuda:0")
        al.launch(scale, 1000, [source, target, 3.0], device="cuda:0", stream=stream)
        al.synchronize_device("cuda:0")
        assert (target.numpy() == 6).all()
