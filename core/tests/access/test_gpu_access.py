"""The table on real GPUs: a kernel of CuPy does what the verdict says. Each case has a process of its own.

A fault ends the use of every GPU in the process that it happened in (``access/after-a-fault`` of the recording in
tests/truth), so each case is a script that prints the rule, what `can_access` says, and whether the kernel ran and
wrote every byte. The scripts leave with ``os._exit``, because after a fault nothing can be freed.
"""

import inspect
import json

import pytest

pytestmark = pytest.mark.gpu

PROLOGUE = """
import json, os
import numpy as np
import allotment as al
import cupy

al.init("cuda", quiet=True)
N = 4096
KERNEL = cupy.RawKernel(
    'extern "C" __global__ void add(unsigned char* v, int n)'
    '{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] += i % 7; }',
    "add",
)


def made(device, allocator):
    with al.ScopedAllocator(device, allocator):
        return filled(al.empty(N, dtype="uint8", device=device))


def filled(array):
    array.fill_(3)
    return array


def tell(device, array):
    if array.device.is_cuda:
        al.synchronize_device(array.device)
    report = al.explain_access(device, array)
    found = {"rule": report.rule, "verdict": report.verdict.value, "can_access": al.can_access(device, array)}
    try:
        if device == "cpu":
            array_seen = np.asarray(Borrowed(array))
            array_seen += (np.arange(N) % 7).astype("uint8")
        else:
            al.launch(KERNEL, N, [array, np.int32(N)], device=device)
            al.synchronize_device(device)
        expected = (3 + np.arange(N) % 7).astype("uint8")
        found["ran"] = bool((array.numpy() == expected).all())
    except al.PlatformError as error:
        found["ran"] = error.code
    print(json.dumps(found), flush=True)
    os._exit(0)


class Borrowed:
    def __init__(self, array):
        self.__array_interface__ = {"data": (array.ptr, False), "shape": (N,), "typestr": "|u1", "version": 3}
"""

FAULT = "cudaErrorIllegalAddress"


@pytest.fixture
def lines_of(run_script):
    """Return what runs a script that must end well, and returns the lines that it prints; CuPy may warn beside them."""

    def run(body):
        done = run_script(PROLOGUE + body, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture
def outcome(lines_of):
    """Return what runs the body of a case, and returns what it told."""
    return lambda body: json.loads(lines_of(body)[-1])


ONE_DEVICE = {
    "home": ("tell('cuda:0', made('cuda:0', 'mempool'))", True),
    "pinned-uva": ("tell('cuda:0', filled(al.empty(N, dtype='uint8', device='cpu', pinned=True)))", True),
    "managed-by-host": ("tell('cpu', made('cuda:0', 'managed'))", True),
    "empty": (
        """
found = al.explain_access('cpu', al.empty(0, device='cuda:0'))
print(json.dumps({'rule': found.rule, 'verdict': found.verdict.value, 'can_access': True, 'ran': True}))
""",
        True,
    ),
    "host-by-host": (
        """
owner = al.empty(N, dtype='uint8', device='cpu', pinned=True)
tell('cpu', filled(al.from_pointer(owner.ptr, N, 'uint8', 'cuda:0', owner=owner)))
""",
        True,
    ),
}


@pytest.mark.parametrize("rule", ONE_DEVICE)
def test_what_is_accessible_is_reached(outcome, rule):
    body, ran = ONE_DEVICE[rule]
    found = outcome(body)
    if found["rule"] == "managed-limited":
        pytest.skip("this device has limited managed memory")

    assert found == {"rule": rule, "verdict": "accessible", "can_access": True, "ran": ran}


def test_pageable_memory_is_reached_where_the_device_says_so_and_faults_elsewhere(outcome):
    found = outcome("tell('cuda:0', filled(al.empty(N, dtype='uint8', device='cpu')))")

    assert found in (
        {"rule": "pageable", "verdict": "accessible", "can_access": True, "ran": True},
        {"rule": "pageable-not", "verdict": "inaccessible", "can_access": False, "ran": FAULT},
    )


@pytest.mark.parametrize("allocator", ["default", "mempool"])
def test_device_memory_ends_a_process_whose_host_code_touches_it(run_script, allocator):
    done = run_script(
        PROLOGUE
        + f"""
array = made("cuda:0", "{allocator}")
print(al.explain_access("cpu", array).rule, array.device.is_cpu_memory_access_from_gpu_supported, flush=True)
np.asarray(Borrowed(array))[0] += 1
print("still here")
""",
        timeout=120,
    )

    rule, shares_page_tables = done.stdout.split()[:2]
    if shares_page_tables == "True":
        pytest.skip("where GPU and host share page tables the host may reach it, which the table does not count on")

    assert (rule, done.returncode < 0, "still here" in done.stdout) == ("device-by-host", True, False)


@pytest.mark.parametrize("allocator", ["default", "mempool"])
def test_a_python_function_on_the_host_is_refused_device_memory_before_it_ends_the_process(lines_of, allocator):
    lines = lines_of(
        f"""
try:
    al.launch(lambda array: array.fill(1), 1, [made("cuda:0", "{allocator}")], device="cpu")
except al.AccessError as error:
    print(error.rule)
"""
    )

    assert lines == ["device-by-host"]


GRANTS = {
    "neither": "",
    "peer only": "al.set_peer_access_enabled('cuda:0', 'cuda:1', True)",
    "pool only": "al.set_mempool_access_enabled('cuda:0', 'cuda:1', True)",
    "both": "al.set_peer_access_enabled('cuda:0', 'cuda:1', True)\n"
    "al.set_mempool_access_enabled('cuda:0', 'cuda:1', True)",
    "peer, the other way": "al.set_peer_access_enabled('cuda:1', 'cuda:0', True)",
    "pool, the other way": "al.set_mempool_access_enabled('cuda:1', 'cuda:0', True)",
}
REACHED = {"default": ("peer only", "both"), "mempool": ("pool only", "both"), "managed": tuple(GRANTS)}
RULES = {
    ("default", True): "peer-enabled",
    ("default", False): "peer-not-enabled",
    ("mempool", True): "pool-granted",
    ("mempool", False): "pool-not-granted",
    ("managed", True): "managed-by-device",
}


@pytest.mark.multi_gpu
@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.parametrize("allocator", REACHED)
def test_memory_of_another_device_is_reached_under_its_own_grant_alone(outcome, allocator, grant):
    found = outcome(f"array = made('cuda:0', '{allocator}')\n{GRANTS[grant]}\ntell('cuda:1', array)")
    reached = grant in REACHED[allocator]

    assert found["rule"] == RULES[allocator, reached]
    assert (found["verdict"], found["can_access"]) == ("accessible" if reached else "inaccessible", reached)
    assert found["ran"] == (reached or FAULT)


@pytest.mark.multi_gpu
def test_page_locked_memory_is_reached_by_the_other_device(outcome):
    found = outcome("tell('cuda:1', filled(al.empty(N, dtype='uint8', device='cpu', pinned=True)))")

    assert found == {"rule": "pinned-uva", "verdict": "accessible", "can_access": True, "ran": True}


FOREIGN = {
    "cupy, plain": "memory = cupy.cuda.Memory(N)",
    "the pool that libraries share": "memory = cupy.cuda.malloc_async(N)",
}
GRANTED_BY_OTHERS = {
    "cupy, plain": "with cupy.cuda.Device(1): cupy.cuda.runtime.deviceEnablePeerAccess(0)",
    "the pool that libraries share": "from allotment.platform import PoolAccess\n"
    "platform = al.get_device('cuda:0').platform\n"
    "platform.set_pool_access(platform.default_pool(0), 1, PoolAccess.READ_WRITE)",
}


@pytest.mark.multi_gpu
@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("granted", [False, True], ids=["not granted", "granted"])
def test_memory_of_other_libraries_is_reached_where_the_driver_maps_it(outcome, origin, granted):
    grant = GRANTED_BY_OTHERS[origin] if granted else ""
    found = outcome(
        f"""
al.zeros(1, device="cuda:1")
with cupy.cuda.Device(0):
    {FOREIGN[origin]}
    array = filled(al.from_pointer(memory.ptr, N, "uint8", "cuda:0", owner=memory))
{grant}
tell("cuda:1", array)
"""
    )
    refused = "foreign-plain" if origin == "cupy, plain" else "foreign-pool"

    assert found["rule"] == ("foreign-mapped" if granted else refused)
    assert (found["can_access"], found["ran"]) == (granted, granted or FAULT)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("granted", [False, True], ids=["not granted", "granted"])
def test_mapped_memory_follows_peer_access(outcome, mapping, granted):
    found = outcome(
        f"""
{inspect.getsource(mapping)}
al.zeros(1, device="cuda:1")
allocator = MappingAllocator(al.get_device("cuda:0"))
early = made("cuda:0", allocator)
if {granted}:
    al.set_peer_access_enabled("cuda:0", "cuda:1", True)
else:
    al.get_device("cuda:0").platform.enable_peer_access(1, 0)
assert al.can_access("cuda:1", early) is {granted}
tell("cuda:1", made("cuda:0", allocator))
"""
    )

    assert found["rule"] == ("foreign-mapped" if granted else "foreign-plain")
    assert (found["can_access"], found["ran"]) == (granted, granted or FAULT)


@pytest.mark.multi_gpu
def test_arrays_of_a_cupy_pool_are_judged_by_peer_access(outcome):
    found = outcome(
        """
al.zeros(1, device="cuda:1")
with cupy.cuda.Device(0):
    theirs = cupy.full(N, 3, dtype="uint8")
    cupy.cuda.Device(0).synchronize()
tell("cuda:1", al.asarray(theirs))
"""
    )

    assert (found["rule"], found["can_access"], found["ran"]) == ("foreign-plain", False, FAULT)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("kind", ["peer", "mempool"])
def test_a_grant_is_proved_by_moving_bytes(lines_of, kind):
    lines = lines_of(
        f"""
made("cuda:0", "mempool")
al.set_{kind}_access_enabled("cuda:0", "cuda:1", True, verify=True)
print(al.is_{kind}_access_enabled("cuda:0", "cuda:1"), al.is_{kind}_access_enabled("cuda:1", "cuda:0"))
al.set_{kind}_access_enabled("cuda:0", "cuda:1", False)
print(al.is_{kind}_access_enabled("cuda:0", "cuda:1"))
"""
    )

    assert lines == ["True False", "False"]


@pytest.mark.multi_gpu
def test_asking_opens_no_context(lines_of):
    lines = lines_of(
        """
al.is_peer_access_enabled(0, 1), al.is_mempool_access_enabled(0, 1), al.get_device(1).can_access(0)
al.is_peer_access_supported(0, 1), al.is_mempool_access_supported(0, 1)
print([device.has_context for device in al.get_cuda_devices()[:2]])
"""
    )

    assert lines == ["[False, False]"]


@pytest.mark.multi_gpu
def test_checked_mode_refuses_what_relaxed_mode_lets_fault(lines_of):
    lines = lines_of(
        """
array = made("cuda:0", "mempool")
al.config.launch_array_access_mode = al.config.LaunchArrayAccessMode.CHECKED
try:
    al.launch(KERNEL, N, [array, np.int32(N)], device="cuda:1")
except al.AccessError as error:
    print(error.kernel, error.argument, error.rule)
al.synchronize()
print("alive")
"""
    )

    assert lines == ["add inputs[0] pool-not-granted", "alive"]
