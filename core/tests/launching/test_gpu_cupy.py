"""CuPy's kernels on our arrays, on a GPU."""

import numpy as np
import pytest

import allotment as al

pytestmark = pytest.mark.gpu

SOURCE = """
extern "C" __global__ void add(const double* source, double* target, int count, double value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) target[i] = source[i] + value;
}
extern "C" __global__ void mark(int* target, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) target[row * columns + column] = row * 1000 + column;
}
"""
N = 1000


@pytest.fixture(autouse=True)
def real_device(isolated):
    al.init("cuda", quiet=True)


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def add(cupy):
    return cupy.RawKernel(SOURCE, "add")


@pytest.fixture(params=["null stream", "own stream"])
def stream(request):
    return None if request.param == "null stream" else al.Stream("cuda:0", non_blocking=True)


@pytest.fixture
def on_stream(stream):
    """Make the arrays of a test on the stream that it launches on."""
    if stream is None:
        yield
    else:
        with al.ScopedStream(stream):
            yield


def test_a_raw_kernel_works_on_the_memory_in_the_order_of_the_stream(add, stream, on_stream):
    source, target = al.full(N, 2.0, device="cuda:0"), al.zeros(N, device="cuda:0")
    for _ in range(3):
        al.launch(add, N, [source], [source, np.int32(N), 1.0], device="cuda:0", stream=stream)
    al.launch(add, N, [source], [target, np.int32(N), 10.0], device="cuda:0", stream=stream)

    assert (target.numpy() == 15).all()


def test_the_grid_covers_two_dimensions(cupy):
    target = al.zeros((37, 19), dtype="int32", device="cuda:0")
    al.launch(cupy.RawKernel(SOURCE, "mark"), (37, 19), outputs=[target, np.int32(37), np.int32(19)], device="cuda:0")

    assert (target.numpy() == np.arange(37)[:, None] * 1000 + np.arange(19)).all()


def test_page_locked_memory_is_used_in_place(add):
    source, target = al.full(N, 2.0, device="cpu", pinned=True), al.zeros(N, device="cpu", pinned=True)
    al.launch(add, N, [source], [target, np.int32(N), 1.0], device="cuda:0")
    al.synchronize_device("cuda:0")

    assert (target.numpy() == 3).all()


def test_arrays_of_cupy_are_passed_as_they_are(cupy, add):
    source, target = cupy.full(N, 2.0), al.zeros(N, device="cuda:0")
    cupy.cuda.get_current_stream().synchronize()
    al.launch(add, N, [source], [target, np.int32(N), 1.0], device="cuda:0")

    assert (target.numpy() == 3).all()


def test_an_elementwise_kernel_follows_strides(cupy, stream, on_stream):
    kernel = cupy.ElementwiseKernel("T a, T b", "T c", "c = a * b", "allotment_test_multiply")
    source = al.array(np.arange(20.0).reshape(4, 5), device="cuda:0")
    target = al.zeros((5, 4), device="cuda:0")
    al.launch(kernel, target.size, [source.T, source.T], [target], device="cuda:0", stream=stream)

    assert (target.numpy() == (np.arange(20.0).reshape(4, 5) ** 2).T).all()


def test_an_elementwise_kernel_over_raw_arrays_is_told_the_size(cupy):
    kernel = cupy.ElementwiseKernel("raw T a", "raw T c", "c[i] = a[i] + 1", "allotment_test_raw")
    source, target = al.zeros(8, device="cuda:0"), al.zeros(8, device="cuda:0")
    al.launch(kernel, 5, [source], [target], device="cuda:0")

    assert target.numpy().tolist() == [1] * 5 + [0] * 3


def test_a_reduction_and_a_universal_function(cupy):
    kernel = cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "allotment_test_sum")
    source, total, doubled = al.ones(N, device="cuda:0"), al.zeros((), device="cuda:0"), al.zeros(N, device="cuda:0")
    al.launch(kernel, N, [source], [total], device="cuda:0")
    al.launch(cupy.add, N, [source, source], [doubled], device="cuda:0")

    assert total.numpy() == N
    assert (doubled.numpy() == 2).all()


def test_what_a_fused_function_returns_goes_to_the_outputs(cupy):
    @cupy.fuse()
    def square_and_add(a, b):
        return a * a + b

    source, target = al.full(N, 3.0, device="cuda:0"), al.zeros(N, device="cuda:0")
    al.launch(square_and_add, N, [source, source], [target], device="cuda:0")

    assert (target.numpy() == 12).all()


def test_a_launch_is_captured(add):
    source = al.zeros(N, device="cuda:0")
    al.launch(add, N, [source], [source, np.int32(N), 0.0], device="cuda:0")  # compiled before the capture
    with al.ScopedCapture("cuda:0") as capture:
        al.launch(add, N, [source], [source, np.int32(N), 1.0], device="cuda:0")
    for _ in range(3):
        capture.graph.launch()

    assert (source.numpy() == 3).all()


def test_a_python_function_is_refused_with_what_to_use():
    with pytest.raises(al.UnsupportedError, match="RawKernel"):
        al.launch(lambda: None, 1, device="cuda:0")


def test_the_current_device_stays(cupy, add):
    before = cupy.cuda.runtime.getDevice()
    array = al.zeros(N, device="cuda:0")
    al.launch(add, N, [array], [array, np.int32(N), 1.0], device="cuda:0")

    assert cupy.cuda.runtime.getDevice() == before


@pytest.mark.multi_gpu
def test_a_launch_grants_no_access_by_itself(run_script):
    """CuPy grants peer access when its arrays meet; ours are said to be the launch device's own."""
    script = """
        import numpy as np
        import allotment as al
        import cupy
        al.init("cuda", quiet=True)
        kernel = cupy.ElementwiseKernel("T a", "T b", "b = a", "allotment_test_copy")
        with al.ScopedAllocator("cuda:0", "default"):
            source = al.ones(8, device="cuda:0")
        target = al.zeros(8, device="cuda:1")
        al.synchronize()
        try:
            al.launch(kernel, 8, [source], [target], device="cuda:1")
            al.synchronize_device("cuda:1")
        except al.PlatformError as error:
            print(error.code, flush=True)
        import os
        os._exit(0)  # after a fault nothing can be freed
    """
    assert run_script(script, timeout=120).stdout.splitlines() == ["cudaErrorIllegalAddress"]
