from types import SimpleNamespace

import pytest

import allotment as al
from allotment.launching._adapter import adapters
from allotment.launching._cupy import CupyAdapter
from allotment.launching._numba import NumbaCudaAdapter
from allotment.launching._python import FunctionAdapter
from allotment.launching._warp import WarpAdapter


class Kernel:
    """A kernel of a library of the user's own."""

    name = "mine"


class Adapter:
    kernels = "kernels of mine"

    def __init__(self):
        self.requests = []

    def accepts(self, kernel):
        return isinstance(kernel, Kernel)

    def launch(self, request):
        self.requests.append((request, al.get_stream(request.device) if request.device.is_cuda else None))


@pytest.fixture
def adapter(sim):
    adapter = Adapter()
    remove = al.register_kernel_adapter(adapter)
    yield adapter
    remove()


def test_an_adapter_gets_what_is_to_be_launched(adapter):
    array, stream = al.zeros(3, device="cuda:1"), al.Stream("cuda:1")
    al.launch(Kernel(), (3, 4), [array, 1], [array], stream=stream)
    ((request, in_force),) = adapter.requests

    assert (request.dim, request.shape, request.size, request.name) == ((3, 4), (3, 4), 12, "mine")
    assert (request.inputs, request.outputs, request.arguments) == ((array, 1), (array,), (array, 1, array))
    assert (request.device.alias, request.stream) == ("cuda:1", stream)
    assert in_force is stream
    assert [path for path, _ in request.named_arguments] == ["inputs[0]", "inputs[1]", "outputs[0]"]


@pytest.mark.parametrize(
    ("dim", "grid"),
    [
        (1, ((1,), (256,))),
        (257, ((2,), (256,))),
        ((17, 16), ((2, 1), (16, 16))),
        ((8, 9, 4), ((1, 2, 1), (8, 8, 4))),
        ((2, 2, 2, 64), ((2,), (256,))),
    ],
)
def test_blocks_of_256_threads_cover_the_dimensions(adapter, dim, grid):
    al.launch(Kernel(), dim, device="cuda:0")

    assert adapter.requests[0][0].grid == grid


def test_an_adapter_that_was_taken_back_is_asked_no_more(sim):
    remove = al.register_kernel_adapter(Adapter())
    al.launch(Kernel(), 1, device="cpu")
    remove()
    with pytest.raises(TypeError, match=r"does not know how to launch a .*Kernel"):
        al.launch(Kernel(), 1, device="cpu")


def test_the_one_registered_last_comes_first(adapter):
    later = Adapter()
    remove = al.register_kernel_adapter(later)
    al.launch(Kernel(), 1, device="cpu")
    remove()

    assert (len(adapter.requests), len(later.requests)) == (0, 1)


def test_its_kernels_are_named_in_the_error_about_others(adapter):
    with pytest.raises(TypeError, match="kernels of mine"):
        al.launch(object(), 1)


@pytest.mark.parametrize("missing", ["kernels", "accepts", "launch"])
def test_an_adapter_that_lacks_something_is_refused(missing):
    parts = {"kernels": "mine", "accepts": lambda kernel: True, "launch": lambda request: None}
    del parts[missing]
    with pytest.raises(TypeError, match="kernel adapter"):
        al.register_kernel_adapter(SimpleNamespace(**parts))


def test_its_arrays_are_checked_as_those_of_all(adapter):
    al.config.launch_array_access_mode = al.config.LaunchArrayAccessMode.CHECKED
    with pytest.raises(al.AccessError) as caught:
        al.launch(Kernel(), 1, [al.zeros(2, device="cuda:0")], device="cuda:1")

    assert (caught.value.kernel, adapter.requests) == ("mine", [])


def of_module(module, name="Kernel"):
    kind = type(name, (), {"__call__": lambda self: None, "__module__": module})
    return kind()


@pytest.mark.parametrize(
    ("kernel", "adapter"),
    [
        (of_module("cupy._core.raw", "RawKernel"), CupyAdapter),
        (of_module("cupy._core._kernel", "ElementwiseKernel"), CupyAdapter),
        (of_module("cupy._core.fusion", "Fusion"), CupyAdapter),
        (of_module("cupyx.jit._interface", "_JitRawKernel"), CupyAdapter),
        (of_module("numba.cuda.dispatcher", "CUDADispatcher"), NumbaCudaAdapter),
        (of_module("numba_cuda.numba.cuda.dispatcher", "CUDADispatcher"), NumbaCudaAdapter),
        (of_module("numba.core.registry", "CPUDispatcher"), FunctionAdapter),
        (of_module("numba.np.ufunc.dufunc", "DUFunc"), FunctionAdapter),
        (of_module("warp._src.context", "Kernel"), WarpAdapter),
        (of_module("warp.context", "Kernel"), WarpAdapter),
        (print, FunctionAdapter),
    ],
)
def test_a_kernel_is_known_by_the_module_of_its_type(kernel, adapter):
    assert type(adapters.find(kernel)) is adapter


@pytest.mark.parametrize("module", ["cupyish.raw", "numbat.core", "warped.context"])
def test_a_package_with_a_similar_name_is_not_meant(module):
    with pytest.raises(TypeError):
        adapters.find(of_module(module))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("module", ["cupy._core.raw", "numba.cuda.dispatcher"])
def test_a_kernel_for_cuda_needs_a_real_device(sim, module, device):
    with pytest.raises(
        al.UnsupportedError, match=f"'Kernel' cannot be launched on '{device}' of platform 'sim:2xh200'"
    ):
        al.launch(of_module(module), 1, device=device)


def test_knowing_a_kernel_imports_no_library(output_of):
    script = """
        import sys
        import allotment as al
        with al.simulate("2xh200"):
            al.launch(lambda: None, 1, device="cuda:0")
        print([name for name in ("cupy", "numba", "warp", "torch") if name in sys.modules])
    """
    assert output_of(script) == ["[]"]


def test_the_function_is_not_hidden_by_a_module_of_its_name(output_of):
    script = """
        import allotment as al
        al.launch_dim, al.register_kernel_adapter
        import allotment.launching
        print(callable(al.launch))
    """
    assert output_of(script) == ["True"]
