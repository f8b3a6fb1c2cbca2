"""Four libraries that share one pool hold less of the device than four with a pool each."""

import json

import pytest

pytestmark = pytest.mark.gpu

GIB = 2**30
BLOCKS = 4
"""How many blocks of 1 GiB each library has at a time."""

SCRIPT = """
import json, sys
import allotment as al
from tests.integration.libraries import CLASSES, NAMES, let_go

BRIDGES = {bridges}
if BRIDGES:
    al.install(*BRIDGES, allocator={allocator!r})
libraries = [CLASSES[name]() for name in NAMES]
runtime = libraries[0].module.cuda.runtime

def taken():
    for library in libraries:
        library.synchronize()
    free, total = runtime.memGetInfo()
    return total - free

for library in libraries:  # contexts, kernels and workspaces, which are no array's
    library.numpy(library.full(256, 1.0))
begin, marks = taken(), {{}}
for _ in range(2):
    for library in libraries:
        arrays = [library.empty({gib} // 4) for _ in range({blocks})]
        marks["peak"] = max(marks.get("peak", 0), taken() - begin)
        del arrays
        marks[library.name] = taken() - begin
marks["end"] = taken() - begin
print(json.dumps(marks))
"""


@pytest.fixture(scope="module")
def measured(result_of):
    """Return a function that runs the workload, once for each way, and returns bytes of the device that are taken."""
    known = {}

    def measure(bridges, allocator=None):
        key = (json.dumps(bridges), allocator)
        if key not in known:
            script = SCRIPT.format(bridges=bridges, allocator=allocator, gib=GIB, blocks=BLOCKS)
            known[key] = json.loads(result_of(script))
        return known[key]

    return measure


def told(capsys, record_property, **figures):
    """Print figures in GiB and keep them with the test's result."""
    text = "; ".join(
        f"{name}: " + ", ".join(f"{mark} {nbytes / GIB:.2f} GiB" for mark, nbytes in marks.items())
        for name, marks in figures.items()
    )
    record_property("memory", text)
    with capsys.disabled():
        print(f"\n    taken of the device, {text}")


@pytest.mark.parametrize("allocator", ["caching", "mempool"])
@pytest.mark.parametrize("torch", ["torch", {"torch": {"mode": "replace"}}], ids=["torch", "torch-replaced"])
def test_one_pool_takes_less_of_the_device_than_four(measured, capsys, record_property, allocator, torch):
    own, shared = measured([]), measured(["cupy", torch, "numba", "warp"], allocator)
    told(capsys, record_property, own=own, shared=shared)

    assert shared["end"] < own["end"]
    assert shared["peak"] < own["peak"]


@pytest.mark.parametrize(("allocator", "times"), [("mempool", 1), ("caching", 2)])
def test_one_pool_takes_what_one_library_needs(measured, allocator, times):
    """With `caching` what one stream needs, for each of two streams: memory moves between them only so often."""
    shared = measured(["cupy", {"torch": {"mode": "replace"}}, "numba", "warp"], allocator)

    assert shared["peak"] < (times * BLOCKS + 0.5) * GIB
