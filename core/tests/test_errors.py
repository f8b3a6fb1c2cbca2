import copy
import inspect
import pickle

import pytest

from allotment import errors
from allotment.errors import (
    AccessError,
    AllocatorContractError,
    AllotmentError,
    BridgeError,
    CaptureError,
    ClosedError,
    ConfigError,
    DeviceNotFoundError,
    ForkedProcessError,
    GuardError,
    InvalidPointerError,
    ObserverError,
    OutOfBoundsError,
    OutOfMemoryError,
    PlatformError,
    PlatformUnavailableError,
    PluginConflictError,
    PluginDisabledError,
    PluginError,
    PluginIncompatibleError,
    PluginLoadError,
    PluginUnavailableError,
    ServingError,
    ShuttingDownError,
    SizeMismatchError,
    TraceError,
    UnknownAllocatorError,
    UnsupportedError,
    UseAfterFreeError,
    listed,
    nearest,
)

MESSAGES = [
    (AllotmentError("something happened"), "something happened"),
    (CaptureError("it is captured"), "it is captured"),
    (
        AccessError(
            kernel="advance",
            argument="inputs[0].positions",
            device="cuda:1",
            array_device="cuda:0",
            memory_kind="CUDA_MEMPOOL",
            rule="pool-not-granted",
            reason="the pool of cuda:0 grants no access to cuda:1",
            remedy="Grant it.",
        ),
        (
            "kernel 'advance' cannot be launched on 'cuda:1': argument 'inputs[0].positions' is on 'cuda:0' "
            "(memory_kind=CUDA_MEMPOOL), and the pool of cuda:0 grants no access to cuda:1 (rule pool-not-granted). "
            "Grant it."
        ),
    ),
    (
        OutOfMemoryError(
            requested=2**30,
            in_use=1536,
            reserved=2**21,
            free=2**29,
            total=150_109_880_320,
            limit=None,
            device="cuda:0",
            allocator="mempool",
        ),
        (
            "out of memory: 1,073,741,824 bytes (1 GiB) asked of allocator 'mempool' on 'cuda:0'. "
            "In use 1,536 bytes (1.5 KiB), reserved 2,097,152 bytes (2 MiB), "
            "device free 536,870,912 bytes (512 MiB) of 150,109,880,320 bytes (140 GiB), limit none. "
            "Free arrays that are no longer needed, trim the allocators, or ask for less."
        ),
    ),
    (
        OutOfMemoryError(
            requested=1, in_use=0, reserved=0, limit=8, device="cpu", allocator="a", hint="Raise the limit."
        ),
        (
            "out of memory: 1 bytes asked of allocator 'a' on 'cpu'. In use 0 bytes, reserved 0 bytes, "
            "device free unknown of unknown, limit 8 bytes. Raise the limit."
        ),
    ),
    (
        OutOfMemoryError(
            requested=600, in_use=100, reserved=1000, largest_free=500, device="cpu", allocator="a", hint="Trim it."
        ),
        (
            "out of memory: 600 bytes asked of allocator 'a' on 'cpu'. In use 100 bytes, reserved 1000 bytes, "
            "largest idle block 500 bytes, device free unknown of unknown, limit none. "
            "What is idle would be enough, but it is fragmented. Trim it."
        ),
    ),
    (
        InvalidPointerError(pointer=0x7F00, allocator="mempool"),
        (
            "allocator 'mempool' cannot free 0x7f00: it is not live here. It was freed before, is inside a block, "
            "or came from somewhere else."
        ),
    ),
    (
        OutOfMemoryError(
            requested=1,
            in_use=7,
            limit=8,
            device="cpu",
            allocator="a",
            tried=("trim", "garbage"),
            holders=("4 bytes from x.py:1", "3 bytes from x.py:2"),
        ),
        (
            "out of memory: 1 bytes asked of allocator 'a' on 'cpu'. In use 7 bytes, reserved unknown, "
            "device free unknown of unknown, limit 8 bytes. Tried in vain: trim, garbage. "
            "Largest holders: 4 bytes from x.py:1; 3 bytes from x.py:2. "
            "Free arrays that are no longer needed, trim the allocators, or ask for less."
        ),
    ),
    (
        InvalidPointerError(pointer=0x7F00, allocator="mempool", history="It was freed at x.py:1."),
        (
            "allocator 'mempool' cannot free 0x7f00: it is not live here. It was freed before, is inside a block, "
            "or came from somewhere else. It was freed at x.py:1."
        ),
    ),
    *(
        (
            kind(
                problem="something was done",
                pointer=0x7F00,
                nbytes=4096,
                device="cuda:0",
                allocator="mempool",
                offset=4099,
                sites="It was allocated at x.py:1.",
            ),
            (
                "something was done: byte 4,099 of the block of 4,096 bytes at 0x7f00, of allocator 'mempool' on "
                "'cuda:0'. It was allocated at x.py:1."
            ),
        )
        for kind in (GuardError, OutOfBoundsError, UseAfterFreeError)
    ),
    (
        InvalidPointerError(pointer=0x7F00, allocator="mempool", owner="managed"),
        "allocator 'mempool' cannot free 0x7f00: the block is live in allocator 'managed'. Free it there.",
    ),
    (
        TraceError(origin="run.csv", line=7, problem="expected 4 columns, found 3"),
        "run.csv, line 7: expected 4 columns, found 3.",
    ),
    (TraceError(origin="run.csv", problem="it cannot be read"), "run.csv: it cannot be read."),
    (
        SizeMismatchError(pointer=0x7F00, allocator="mempool", allocated=4096, given=2048),
        (
            "allocator 'mempool' cannot free 0x7f00 with size 2,048: it was allocated with 4,096 bytes. "
            "It stays live; free it with that size."
        ),
    ),
    (
        AllocatorContractError(allocator="mine", rule="A3", problem="allocate returned None"),
        "allocator 'mine' broke rule A3 of the allocator contract: allocate returned None.",
    ),
    (ClosedError("the pool is closed"), "the pool is closed"),
    (PlatformError(call="cudaMalloc", code="cudaErrorInvalidValue"), "cudaMalloc failed: cudaErrorInvalidValue"),
    (
        PlatformError(call="cudaMalloc", code="cudaErrorInvalidValue", detail="invalid argument"),
        "cudaMalloc failed: cudaErrorInvalidValue. invalid argument",
    ),
    (
        PlatformUnavailableError(platform="cuda", reason="no driver was found", remedy="Use 'sim:2xh200'."),
        "platform 'cuda' is not available: no driver was found. Use 'sim:2xh200'.",
    ),
    (
        PlatformUnavailableError(platform="cuda", reason="no driver was found."),
        "platform 'cuda' is not available: no driver was found.",
    ),
    (
        DeviceNotFoundError(device="cuda:2", existing=("cpu", "cuda:0"), platform="simulated (asked for)"),
        "no device 'cuda:2' on platform simulated (asked for). Devices here: cpu, cuda:0. Did you mean 'cuda:0'?",
    ),
    (
        DeviceNotFoundError(device="x", existing=("cpu",), platform="host", remedy="Use the simulator."),
        "no device 'x' on platform host. Devices here: cpu. Use the simulator.",
    ),
    (UnsupportedError("device 'cpu' has no memory pools"), "device 'cpu' has no memory pools"),
    (ShuttingDownError(), "the interpreter is shutting down: no memory can be allocated any more"),
    (
        ForkedProcessError(),
        (
            "this process was forked after its parent had initialised the GPU platform, and CUDA cannot be used in "
            "such a child. Start workers with multiprocessing.get_context('spawn'), or fork before the first use."
        ),
    ),
    (PluginError(allocator="rmm"), "allocator 'rmm' cannot be used."),
    (
        UnknownAllocatorError(allocator="mempol", usable=("managed", "mempool")),
        "allocator 'mempol' is not installed. Usable here: managed, mempool. Did you mean 'mempool'?",
    ),
    (UnknownAllocatorError(allocator="x", usable=()), "allocator 'x' is not installed. Usable here: none."),
    (
        PluginConflictError(allocator="pool", cause="a-one and a-two provide it", remedy="Write 'a-one:pool'."),
        "allocator 'pool' is ambiguous: a-one and a-two provide it. Write 'a-one:pool'.",
    ),
    (
        PluginLoadError(
            allocator="rmm",
            distribution="allotment-rmm 0.1",
            cause="No module named 'rmm'.",
            remedy="Install it.",
            usable=("managed",),
        ),
        "allocator 'rmm' (allotment-rmm 0.1) failed to load: No module named 'rmm'. Install it. Usable here: managed.",
    ),
    (
        PluginIncompatibleError(allocator="rmm", cause="it needs allotment<0.1"),
        "allocator 'rmm' is not compatible: it needs allotment<0.1.",
    ),
    (
        PluginDisabledError(allocator="rmm", cause="it is on the deny list"),
        "allocator 'rmm' is disabled: it is on the deny list.",
    ),
    (
        PluginUnavailableError(allocator="rmm", cause="no GPU"),
        "allocator 'rmm' is not available: no GPU.",
    ),
    (
        ConfigError(origin="allotment.toml", key="plugins.alow", problem="unknown key", accepted=("allow", "deny")),
        "allotment.toml: plugins.alow: unknown key. Accepted here: allow, deny. Did you mean 'allow'?",
    ),
    (
        ObserverError(
            observer="my_observer",
            problem="it has a hook that does not exist",
            hook="allotment_after_alocate",
            accepted=("allotment_after_allocate",),
        ),
        (
            "observer 'my_observer' was refused: it has a hook that does not exist. Hooks: allotment_after_allocate. "
            "Did you mean 'allotment_after_allocate'?"
        ),
    ),
    (
        BridgeError(bridge="torch", cause="its allocator is in use", remedy="Install the bridge first."),
        "the bridge to 'torch' cannot be used so: its allocator is in use. Install the bridge first.",
    ),
    (
        BridgeError(bridge="torch", cause="its allocator is in use"),
        "the bridge to 'torch' cannot be used so: its allocator is in use.",
    ),
    (ServingError("the port is taken"), "the port is taken"),
    (
        ObserverError(observer="my_observer", problem="it is not registered"),
        "observer 'my_observer' was refused: it is not registered.",
    ),
    (ConfigError(origin="allotment.toml", problem="it cannot be read"), "allotment.toml: it cannot be read."),
    (
        ConfigError(origin="allotment.toml", key="x", problem="unknown key", accepted=()),
        "allotment.toml: x: unknown key. Accepted here: none.",
    ),
]
ERRORS = [error for error, _ in MESSAGES]
CLASSES = [item for _, item in inspect.getmembers(errors, inspect.isclass) if item.__module__ == errors.__name__]


@pytest.mark.parametrize(("error", "message"), MESSAGES, ids=[type(error).__name__ for error in ERRORS])
def test_an_error_says_what_failed_on_what_why_and_what_to_do(error, message):
    assert str(error) == message


def test_every_error_is_read_here():
    assert {type(error) for error in ERRORS} == {item for item in CLASSES if issubclass(item, AllotmentError)}


@pytest.mark.parametrize("duplicate", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error, duplicate):
    again = duplicate(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {name: getattr(again, name) for name in again.fields} == {
        name: getattr(error, name) for name in error.fields
    }


def test_notes_survive_pickling():
    error = UnsupportedError("no")
    error.add_note("while allocating step 3")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while allocating step 3"]


@pytest.mark.parametrize("error", [item for item in CLASSES if issubclass(item, AllotmentError)])
def test_every_error_but_the_roots_is_also_a_standard_one(error):
    standard = [base for base in error.__mro__ if base.__module__ == "builtins"]
    assert (error in (AllotmentError, PluginError)) == (standard == [Exception, BaseException, object])


@pytest.mark.parametrize(
    ("error", "standard"),
    [
        (OutOfMemoryError, MemoryError),
        (ConfigError, ValueError),
        (UnknownAllocatorError, LookupError),
        (PluginLoadError, ImportError),
        (DeviceNotFoundError, ValueError),
    ],
)
def test_an_error_is_caught_as_the_standard_one(error, standard):
    assert issubclass(error, standard)


def test_every_warning_is_one_of_ours():
    warnings = [item for item in CLASSES if issubclass(item, Warning)]
    assert all(issubclass(item, errors.AllotmentWarning) for item in warnings)
    assert issubclass(errors.FreeFailedWarning, ResourceWarning)


def test_the_facts_of_an_error_stay_readable():
    error = SizeMismatchError(pointer=1, allocator="a", allocated=2, given=3)
    assert (error.pointer, error.allocator, error.allocated, error.given) == (1, "a", 2, 3)


def test_a_fact_that_is_not_given_is_none():
    assert ConfigError(origin="x", problem="y").key is None


def test_a_fact_that_an_error_does_not_have_is_refused():
    with pytest.raises(TypeError, match="ConfigError has no field colour"):
        ConfigError(origin="x", problem="y", colour="red")


@pytest.mark.parametrize("code", ["cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"])
def test_a_platform_says_in_two_ways_that_memory_ran_out(code):
    assert PlatformError(call="cudaMalloc", code=code).is_out_of_memory
    assert not PlatformError(call="cudaMalloc", code="cudaErrorInvalidValue").is_out_of_memory


@pytest.mark.parametrize("name", ["mempol", "MEMPOOL", "MemPools"])
def test_the_nearest_name_is_offered_whatever_its_case(name):
    assert nearest(name, ["managed", "mempool"]) == " Did you mean 'mempool'?"


@pytest.mark.parametrize("name", ["zzz", "", 5, None])
def test_nothing_near_offers_nothing(name):
    assert nearest(name, ["managed", "mempool"]) == ""


def test_names_are_listed_to_read():
    assert listed(["a", "b"]) == "a, b"
    assert listed([]) == "none"
