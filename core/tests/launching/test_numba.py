import pytest

import allotment as al

numba = pytest.importorskip("numba")


@numba.njit
def scale(source, target, factor):
    for i in range(source.shape[0]):
        target[i] = source[i] * factor


@numba.njit
def count(target, dim):
    target[0] = dim


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_compiled_function_runs_on_the_host_and_on_simulated_devices(sim, device):
    source, target = al.full(4, 2.0, device=device), al.zeros(4, device=device)
    al.launch(scale, 4, [source, target, 3.0], device=device)

    assert target.numpy().tolist() == [6.0] * 4


def test_it_is_passed_dim(sim):
    target = al.zeros(1, dtype="int64", device="cpu")
    al.launch(count, 7, [target], device="cpu")

    assert target.numpy().tolist() == [7]


def test_tuples_of_arrays_are_passed(sim):
    @numba.njit
    def first(pair):
        pair[0][0] = pair[1][0]

    pair = (al.zeros(1, device="cpu"), al.full(1, 9.0, device="cpu"))
    al.launch(first, 1, [pair], device="cpu")

    assert pair[0].numpy().tolist() == [9.0]


@pytest.mark.filterwarnings("ignore:.*under-utilization")
@pytest.mark.gpu
def test_a_cuda_kernel_runs_on_the_stream_that_is_given():
    cuda = pytest.importorskip("numba.cuda")
    if not cuda.is_available():
        pytest.skip("Numba finds no CUDA")
    try:
        from numba.cuda.np import arrayobj  # noqa: F401 - Numba imports it when it first compiles a kernel
    except AttributeError as error:
        pytest.skip(f"this Numba does not work with this NumPy: {error}")

    @cuda.jit
    def kernel(source, target):
        i = cuda.grid(1)
        if i < target.size:
            target[i] = source[i] + 1

    al.init("cuda", quiet=True)
    stream = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedStream(stream):
        source, target = al.ones(1000, device="cuda:0"), al.zeros(1000, device="cuda:0")
        pinned = al.zeros(1000, device="cpu", pinned=True)
        al.launch(kernel, 1000, [source], [target], stream=stream)
        al.launch(kernel, 1000, [target], [pinned], stream=stream)
        stream.synchronize()

    assert (target.numpy() == 2).all()
    assert (pinned.numpy() == 3).all()
