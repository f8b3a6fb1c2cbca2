"""ipc: which memory can be named to another process."""

from __future__ import annotations

from .machine import KINDS, MiB
from .registry import replays


@replays("ipc/handles")
def handles(gpu):
    handle = gpu.sim.ipc_handle
    for kind in KINDS:
        ptr = gpu.allocate(kind, nbytes=4 * MiB)
        yield kind, gpu.error(handle, ptr)
        yield f"{kind}, interior", gpu.error(handle, ptr + 4096)
        gpu.forget_error()
    first, second = gpu.allocate("malloc"), gpu.allocate("malloc")
    answers = [gpu.ask(handle, ptr) for ptr in (first, second)]
    yield "small neighbours", [answer.error for answer in answers]
    yield "small neighbours share one handle", answers[0].value == answers[1].value
    gpu.sim.free(first)
    yield "freed", gpu.error(handle, first)
    gpu.forget_error()
    yield "opening one's own handle", gpu.error(gpu.sim.open_ipc_handle, handle(second))
    gpu.forget_error()
    yield "afterwards", gpu.health()
