"""Graphs when a process ends or forks, each case in a Python of its own, with either twins of the hot paths."""

from __future__ import annotations

import os

import pytest

PRELUDE = """
import atexit, gc, os, sys
TWIN = os.environ["TWIN"]
if TWIN == "python":
    sys.modules["allotment.layers._ledger_native"] = sys.modules["allotment._array_memory_native"] = None
late = []
import allotment as al
from allotment.layers.ledger import IS_COMPILED
assert TWIN == "python" or IS_COMPILED
al.init("sim:2xh200", quiet=True)
from allotment import platform
sim = platform.current()
sys.witness = None
class Witness:
    def __init__(self, sim): self.sim, self.write = sim, sys.__stdout__.write
    def __del__(self):
        self.write("late calls: %d\\n" % sum(entry[-1] for entry in self.sim.calls.entries))
sys.witness = Witness(sim)
with al.ScopedCapture() as capture:
    array = al.full(4, 1.0)
graph = capture.graph
with al.ScopedCapture("cpu") as on_host:
    host = al.full(4, 1.0, device="cpu")
"""


def compiled():
    from allotment.layers.ledger import IS_COMPILED

    return IS_COMPILED


@pytest.fixture(
    params=[
        "python",
        pytest.param("compiled", marks=pytest.mark.skipif(not compiled(), reason="the ledger was not compiled")),
    ]
)
def lines(request, output_of):
    """Return a function that runs a script after the captures, and returns its lines."""
    return lambda script: output_of(PRELUDE + script, TWIN=request.param)


MARK = "\natexit.register(sim.mark_shutdown)\n"


@pytest.mark.parametrize("launches", [0, 1])
def test_a_graph_in_a_global_is_let_go_quietly(lines, launches):
    assert lines(f"for _ in range({launches}): graph.launch(); on_host.graph.launch()" + MARK) == ["late calls: 0"]


def test_graphs_and_arrays_in_cycles_are_let_go_quietly(lines):
    assert lines(
        "graph.launch(); a = [graph]; a.append(a); b = [array]; b.append(b); del a, b; gc.disable()" + MARK
    ) == ["late calls: 0"]


def test_a_process_may_end_inside_a_capture(lines):
    script = (
        """
graph.launch()
outside = al.zeros(100)
al.capture_begin(); al.capture_begin("cpu")
inside = al.zeros(4)
del outside, graph
"""
        + MARK
    )
    assert lines(script) == ["late calls: 0"]


def test_a_graph_cannot_be_launched_once_the_end_has_begun(lines):
    script = (
        """
def late():
    try:
        graph.launch()
    except al.ShuttingDownError:
        print("refused")
    graph.close()
atexit.register(late)
al.get_device()
import allotment._process as process
process._lifecycle.shut_down()
"""
        + MARK
    )
    assert lines(script) == ["refused", "late calls: 0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_leaves_graphs_of_devices_alone_and_launches_those_of_the_host(lines):
    script = (
        """
graph.launch()
outside = al.zeros(100)
al.capture_begin()
sys.stdout.flush()
child = os.fork()
if child == 0:
    sim.calls.clear()
    try:
        graph.launch()
    except al.ForkedProcessError:
        print("refused")
    on_host.graph.launch()
    print(host.numpy().tolist())
    print(al.full(2, 3.0, device="cpu").numpy().tolist())
    del graph, array, outside, capture
    gc.collect()
    print(len([call for call in sim.calls]), flush=True)
    os._exit(0)
os.waitpid(child, 0)
al.capture_end()
graph.launch()
print(array.numpy().tolist())
"""
        + MARK
    )
    assert lines(script) == [
        "refused",
        "[1.0, 1.0, 1.0, 1.0]",
        "[3.0, 3.0]",
        "0",
        "[1.0, 1.0, 1.0, 1.0]",
        "late calls: 0",
    ]


def test_both_twins_of_the_ledger_behave_alike_in_and_after_captures(lines):
    script = """
account = al.get_allocator("mempool", device="cuda:0")
del array, graph, capture
gc.collect()
before = account._allocate, account._deallocate
sim.calls.clear()
def show(): print(account.statistics().current, account.statistics().live, bool(account.graph_blocks))
outside = al.zeros(100)
with al.ScopedCapture() as capture:
    inside, gone = al.full(10, 1.0), al.zeros(50)
    show()
    del outside, gone
    show()
capture.graph.launch()
print(inside.numpy()[0], capture.graph.owned_bytes)
other = al.zeros(7)
show()
del inside
show()
capture.graph.close()
show()
del other
show()
names = [call.name for call in sim.calls if call.name in ("malloc_from_pool", "free_async")]
print(names.count("malloc_from_pool"), names.count("free_async"), [call.error for call in sim.calls if call.error])
"""
    assert lines(script)[:-1] == [
        "1280 3 True",
        "80 1 True",
        "1.0 80",
        "136 2 True",
        "56 1 True",
        "56 1 False",
        "0 0 False",
        "4 4 []",
    ]
