"""PyTorch on real devices, with the bridge, in a process of its own each time."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
    pytest.mark.skipif(find_spec("cupy") is None, reason="CuPy is not installed"),
]

WORK = """
import os
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import threading
import torch

def work(ordinals):
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    results, streams = {}, {}
    def train(name, ordinal):
        device = torch.device("cuda", ordinal)
        with torch.cuda.stream(streams.setdefault(name, torch.cuda.Stream(device))):
            generator = torch.Generator(device).manual_seed(name)
            weights = torch.randn(512, 512, device=device, generator=generator, requires_grad=True)
            for size in (64, 300, 1000, 37):
                data = torch.randn(size, 512, device=device, generator=generator)
                loss = (data @ weights).relu().square().mean()
                loss.backward()
                with torch.no_grad():
                    weights -= weights.grad
                    weights.grad = None
        streams[name].synchronize()
        results[name] = loss.item().hex(), weights.double().sum().item().hex()
    threads = [threading.Thread(target=train, args=(n, o)) for n, o in enumerate(ordinals * 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = torch.cuda.Stream()
    a = torch.ones(1 << 20, device="cuda")
    with torch.cuda.stream(other):
        other.wait_stream(torch.cuda.current_stream())
        a.record_stream(other)
        b = a * 3
    del a
    c = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    results["streams"] = b.sum().item(), c.sum().item()
    return sorted(results.items(), key=str)
"""

INSTALL = """
import allotment as al
al.install({{"torch": {{"mode": "{mode}"}}}}, allocator={allocator!r})
"""


@pytest.mark.parametrize(
    ("mode", "allocator"),
    [("pool", "mempool"), ("pool", "caching"), ("pool", "managed"), ("replace", "caching"), ("replace", "mempool")],
)
def test_results_are_the_same_on_streams_and_in_threads(output_of, mode, allocator):
    own = output_of(WORK + "print(work([0]))")
    bridged = output_of(
        INSTALL.format(mode=mode, allocator=allocator)
        + WORK
        + f"""
print(work([0]))
account = al.get_allocator({allocator!r}, "cuda:0")
print(account.statistics().allocations > 0, al.status())
"""
    )

    assert bridged[0] == own[0]
    assert bridged[1].startswith("True")


@pytest.mark.multi_gpu
@pytest.mark.parametrize("mode", ["pool", "replace"])
@pytest.mark.parametrize("allocator", ["mempool", "caching"])
def test_results_are_the_same_on_several_devices(output_of, mode, allocator):
    script = """
print(work([0, 1]))
a = torch.arange(1 << 20, device="cuda:0")
print(a.to("cuda:1").sum().item(), a[::3].to("cuda:1").sum().item(), a.to("cuda:1").to("cuda:0").equal(a))
"""

    assert output_of(INSTALL.format(mode=mode, allocator=allocator) + WORK + script) == output_of(WORK + script)


@pytest.mark.parametrize(("mode", "allocator"), [("pool", "mempool"), ("replace", "mempool"), ("replace", "caching")])
def test_a_shortage_is_pytorch_s_error_and_leaves_all_in_order(output_of, mode, allocator):
    lines = output_of(
        INSTALL.format(mode=mode, allocator=allocator)
        + """
import torch
from allotment_torch_bridge import last_refusal
total = torch.cuda.get_device_properties(0).total_memory
kept = torch.ones(1000, device="cuda")
for size in (2 * total, total * 12 // 10):
    try:
        held = [torch.empty(size // 2, dtype=torch.uint8, device="cuda") for _ in range(2)]
    except torch.OutOfMemoryError as error:
        held = None
        print("CUDA out of memory." in str(error), last_refusal().allocator)
half = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
del half
more = torch.empty(total * 6 // 10, dtype=torch.uint8, device="cuda")
print(kept.sum().item())
"""
    )

    assert lines[0] == f"True {allocator}"
    assert lines[-1] == "1000.0"


def test_figures_answer_and_the_cache_can_be_emptied(output_of):
    lines = output_of(
        INSTALL.format(mode="pool", allocator="mempool")
        + """
import time, torch
account = al.get_allocator("mempool", "cuda:0")
kept = torch.ones(1 << 20, device="cuda")
torch.empty(1 << 28, device="cuda")
print(torch.cuda.memory_allocated() == 4 << 20, torch.cuda.memory_reserved() == account.statistics().current)
print(torch.cuda.max_memory_allocated() >= 1 << 30, "Allocated memory" in torch.cuda.memory_summary())
torch.cuda.empty_cache()
print(account.statistics().current < 32 << 20, torch.cuda.memory_reserved() < 32 << 20)
del kept
end = time.monotonic() + 10
while account.statistics().current and time.monotonic() < end:
    torch.cuda.empty_cache()
    time.sleep(0.2)
print(account.statistics().current)
"""
    )

    assert lines == ["True True", "True True", "True True", "0"]


def test_memory_that_other_streams_use_comes_back(output_of):
    lines = output_of(
        INSTALL.format(mode="pool", allocator="mempool")
        + """
import time, torch
other = torch.cuda.Stream()
for _ in range(200):
    batch = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    batch.record_stream(other)
    del batch
    time.sleep(0.01)
print(torch.cuda.memory_reserved() < 800 << 20)
"""
    )

    assert lines == ["True"]


@pytest.mark.parametrize("allocator", ["mempool", "caching"])
def test_a_graph_is_captured_and_replayed_while_others_allocate(output_of, allocator):
    lines = output_of(
        INSTALL.format(mode="pool", allocator=allocator)
        + """
import gc, torch
static = torch.ones(1 << 20, device="cuda")
def step():
    return (static * 2 + torch.ones_like(static)).sum()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    step()
torch.cuda.current_stream().wait_stream(side)
waiting = torch.ones(1 << 22, device="cuda")
waiting.record_stream(side)
cycle = [torch.ones(1 << 22, device="cuda")]
cycle.append(cycle)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    del waiting, cycle
    gc.collect()
    result = step()
for value in (1, 5, 2):
    static.fill_(value)
    noise = [torch.full((1 << 20,), -7.0, device="cuda") for _ in range(10)]
    graph.replay()
    print(result.item() == (2 * value + 1) * (1 << 20))
print(all(each.sum().item() == -7.0 * (1 << 20) for each in noise))
del graph, result
torch.cuda.empty_cache()
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    own = torch.ones(1 << 20, device="cuda")
del own, pool
print(torch.ones(10, device="cuda").sum().item())
"""
    )

    assert lines == ["True"] * 4 + ["10.0"]


def test_a_graph_is_refused_where_the_allocator_is_replaced(output_of):
    lines = output_of(
        INSTALL.format(mode="replace", allocator="mempool")
        + """
import torch
torch.ones(10, device="cuda")
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass
except al.BridgeError as error:
    print("captures no CUDA graph" in str(error))
print(torch.ones(10, device="cuda").sum().item())
"""
    )

    assert lines == ["True", "10.0"]


@pytest.mark.parametrize("first", ["torch", "allotment"])
@pytest.mark.parametrize(
    ("end", "status"),
    [("pass", 0), ("al.uninstall()", 0), ("raise SystemExit(3)", 3), ("cycle = [tensor]; cycle.append(cycle)", 0)],
)
def test_the_process_ends_well_in_pool_mode(output_of, first, end, status):
    output_of(
        f"import {first}\n"
        + INSTALL.format(mode="pool", allocator="mempool")
        + f"""
import torch
tensor = torch.ones(1000, 1000, device="cuda", requires_grad=True)
(tensor @ tensor).sum().backward()
pool = torch.cuda.MemPool()
{end}
""",
        status=status,
    )


@pytest.mark.parametrize("allocator", ["mempool", "caching"])
@pytest.mark.parametrize(("end", "status"), [("pass", 0), ("raise SystemExit(3)", 3)])
def test_the_process_ends_well_in_replace_mode(output_of, allocator, end, status):
    output_of(
        INSTALL.format(mode="replace", allocator=allocator)
        + f"""
import torch
tensor = torch.ones(1000, 1000, device="cuda", requires_grad=True)
(tensor @ tensor).sum().backward()
{end}
""",
        status=status,
    )


def test_tensors_outlive_the_bridge(output_of):
    lines = output_of(
        INSTALL.format(mode="pool", allocator="mempool")
        + """
import time, torch
account = al.get_allocator("mempool", "cuda:0")
tensor = torch.full((1 << 24,), 3.0, device="cuda")
al.uninstall("torch")
other = torch.full((1 << 24,), 5.0, device="cuda")
print(tensor.mean().item(), other.mean().item(), account.statistics().current >= 64 << 20)
del tensor
end = time.monotonic() + 10
while account.statistics().current and time.monotonic() < end:
    torch.cuda.empty_cache()
    time.sleep(0.2)
print(account.statistics().current, other.mean().item())
"""
    )

    assert lines == ["3.0 5.0 True", "0 5.0"]


def test_conflicts_are_refused_by_both_names(run_script):
    script = "import allotment as al\nal.install({bridge})\n"
    expandable = run_script(script.format(bridge="'torch'"), PYTORCH_ALLOC_CONF="expandable_segments:True")
    in_use = run_script(
        "import torch\ntorch.ones(1, device='cuda')\n" + script.format(bridge="{'torch': {'mode': 'replace'}}")
    )

    assert "bridge to 'torch'" in expandable.stderr
    assert "expandable_segments" in expandable.stderr
    assert "caching allocator is in use already" in in_use.stderr
