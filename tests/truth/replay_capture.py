"""capture: what is allowed while a stream is captured, by capture mode."""

from __future__ import annotations

from allotment.memory_kind import MemoryKind
from allotment.platform import CaptureMode, MemoryAdvice, PoolAttribute

from .machine import MODES, SUCCESS, Answer, MiB
from .registry import replays

USED, THRESHOLD = PoolAttribute.USED_CURRENT, PoolAttribute.RELEASE_THRESHOLD


class Scene:
    """What an operation in a capture may need, made before the capture begins."""

    def __init__(self, gpu, *, blocking: bool) -> None:
        self.gpu, self.sim = gpu, gpu.sim
        gpu.start(1, 0)
        self.stream, self.other = gpu.stream(blocking=blocking), gpu.stream(blocking=blocking)
        self.malloc, self.target, self.pool, self.managed, self.pinned, self.pageable = (
            gpu.allocate(kind, nbytes=MiB) for kind in ("malloc", "malloc", "pool", "managed", "pinned", "pageable")
        )
        self.registered = gpu.allocate("registered")
        self.event, self.recorded = self.sim.create_event(0), self.sim.create_event(0)
        self.sim.record_event(self.recorded, self.other, 0)
        self.default_pool, self.own_pool = self.sim.default_pool(0), gpu.own_pool(0)
        self.managed_pool = self.sim.create_pool_of(MemoryKind.CUDA_MANAGED)
        self.host_pool = self.sim.create_pool_of(MemoryKind.PINNED)
        gpu.grant(self.host_pool, 0)
        self.executable = self._other_graph(gpu.stream(blocking=blocking))
        gpu.sync_device()

    def _other_graph(self, stream):
        self.sim.begin_capture(stream, 0, CaptureMode.RELAXED)
        self.gpu.set_async(self.target, 1, 64, stream)
        return self.sim.instantiate_graph(self.sim.end_capture(stream, 0))

    def ask(self, function, *args) -> Answer:
        return self.gpu.ask(function, *args)

    def new_inside(self) -> int:
        """Allocate in the capture."""
        return self.gpu.malloc_async(MiB, self.stream)

    def join(self) -> None:
        """Let the other stream join the capture."""
        self.sim.record_event(self.event, self.stream, 0)
        self.sim.wait_for_event(self.event, self.other, 0)

    def joined(self, function, *args) -> Answer:
        """Ask while the other stream is joined, and join it back."""
        self.join()
        answer = self.ask(function, *args)
        self.sim.wait_for_stream(self.stream, self.other, 0, 0)
        return answer

    def in_mode(self, mode: CaptureMode, function, *args):
        """Call with another mode of this thread."""
        before = self.sim.exchange_capture_mode(mode)
        value = function(*args)
        self.sim.exchange_capture_mode(before)
        return value

    def on_other_device(self, function, *args) -> Answer:
        with self.gpu.current(1):
            return self.ask(function, *args)

    def free_twice(self) -> Answer:
        ptr = self.new_inside()
        self.sim.free_async(ptr, self.stream)
        return self.ask(self.sim.free_async, ptr, self.stream)

    def query_captured_event(self) -> Answer:
        self.sim.record_event(self.event, self.stream, 0)
        return self.ask(self.sim.event_is_done, self.event)

    def use_joined(self) -> Answer:
        self.join()
        return self.ask(self.gpu.set_async, self.target, 1, 64, self.other)


RELAXED, LOCAL = CaptureMode.RELAXED, CaptureMode.THREAD_LOCAL
OPERATIONS = {
    "nothing": lambda s: Answer(SUCCESS),
    # memory outside pools
    "cudaMalloc": lambda s: s.ask(s.sim.malloc, MiB),
    "cudaFree of earlier memory": lambda s: s.ask(s.sim.free, s.malloc),
    "cudaMallocManaged": lambda s: s.ask(s.sim.malloc_managed, MiB),
    "cudaHostAlloc": lambda s: s.ask(s.sim.host_alloc, MiB),
    "cudaFreeHost": lambda s: s.ask(s.sim.host_free, s.pinned),
    "cudaHostRegister": lambda s: s.ask(s.sim.host_register, s.pageable, 4096),
    "cudaHostUnregister": lambda s: s.ask(s.sim.host_unregister, s.registered),
    # memory of pools and of the graph
    "mallocAsync on the captured stream": lambda s: s.ask(s.gpu.malloc_async, MiB, s.stream),
    "mallocAsync of 0 bytes on the captured stream": lambda s: s.ask(s.gpu.malloc_async, 0, s.stream),
    "mallocFromPoolAsync on the captured stream": lambda s: s.ask(s.sim.malloc_from_pool, MiB, s.own_pool, s.stream),
    "mallocFromPoolAsync of a managed pool on the captured stream": lambda s: s.ask(
        s.sim.malloc_from_pool, MiB, s.managed_pool, s.stream
    ),
    "mallocFromPoolAsync of a host pool on the captured stream": lambda s: s.ask(
        s.sim.malloc_from_pool, MiB, s.host_pool, s.stream
    ),
    "mallocAsync on another stream": lambda s: s.ask(s.gpu.malloc_async, MiB, s.other),
    "mallocAsync on the null stream": lambda s: s.ask(s.gpu.malloc_async, MiB, 0),
    "freeAsync of outside pool memory on the captured stream": lambda s: s.ask(s.sim.free_async, s.pool, s.stream),
    "freeAsync of outside pool memory on another stream": lambda s: s.ask(s.sim.free_async, s.pool, s.other),
    "freeAsync of outside pool memory on the null stream": lambda s: s.ask(s.sim.free_async, s.pool, 0),
    "freeAsync of cudaMalloc memory on the captured stream": lambda s: s.ask(s.sim.free_async, s.malloc, s.stream),
    "cudaFree of outside pool memory": lambda s: s.ask(s.sim.free, s.pool),
    "freeAsync of memory of this graph on the captured stream": lambda s: s.ask(
        s.sim.free_async, s.new_inside(), s.stream
    ),
    "freeAsync of memory of this graph on another stream": lambda s: s.ask(s.sim.free_async, s.new_inside(), s.other),
    "cudaFree of memory of this graph": lambda s: s.ask(s.sim.free, s.new_inside()),
    "freeAsync twice of memory of this graph": lambda s: s.free_twice(),
    "mallocAsync on a stream that joined": lambda s: s.joined(s.gpu.malloc_async, MiB, s.other),
    "freeAsync of memory of this graph on a stream that joined": lambda s: s.joined(
        s.sim.free_async, s.new_inside(), s.other
    ),
    "another stream joins, gets work and is not joined back": lambda s: s.use_joined(),
    # pools
    "memPoolGetAttribute": lambda s: s.ask(s.sim.pool_attribute, s.default_pool, USED),
    "memPoolSetAttribute": lambda s: s.ask(s.sim.set_pool_attribute, s.default_pool, THRESHOLD, MiB),
    "memPoolCreate": lambda s: s.ask(s.sim.create_pool, 0),
    "memPoolDestroy": lambda s: s.ask(s.sim.destroy_pool, s.own_pool),
    "memPoolTrimTo": lambda s: s.ask(s.sim.trim_pool, s.default_pool, 0),
    "deviceGetDefaultMemPool": lambda s: s.ask(s.sim.default_pool, 0),
    "deviceGetMemPool": lambda s: s.ask(s.sim.current_pool, 0),
    "deviceSetMemPool": lambda s: s.ask(s.sim.set_current_pool, 0, s.own_pool),
    "memPoolGetAccess": lambda s: s.ask(s.sim.pool_access, s.default_pool, 0),
    "memPoolSetAccess": lambda s: s.ask(s.gpu.grant, s.default_pool, 1),
    # devices, and what is asked of them
    "deviceEnablePeerAccess": lambda s: s.ask(s.sim.enable_peer_access, 0, 1),
    "deviceCanAccessPeer": lambda s: s.ask(s.sim.can_access_peer, 0, 1),
    "memGetInfo": lambda s: s.ask(s.sim.memory_info, 0),
    "deviceGetAttribute": lambda s: s.ask(s.sim.device_properties, 0),
    "pointerGetAttributes of outside memory": lambda s: s.ask(s.sim.pointer_attributes, s.pool),
    "pointerGetAttributes of memory of this graph": lambda s: s.ask(s.sim.pointer_attributes, s.new_inside()),
    "cuPointerGetAttribute MEMPOOL_HANDLE of outside memory": lambda s: Answer(
        "CUDA_SUCCESS" if s.sim.pointer_attributes(s.pool).pool == s.default_pool else "another pool"
    ),
    "setDevice": lambda s: s.ask(s.sim.set_current_device, 0),
    "ipcGetMemHandle": lambda s: s.ask(s.sim.ipc_handle, s.malloc),
    "cudaMalloc on the other device": lambda s: s.on_other_device(s.sim.malloc, MiB),
    "mallocAsync on the other device": lambda s: s.on_other_device(s.gpu.malloc_async, MiB, 0),
    # waiting
    "streamSynchronize of the captured stream": lambda s: Answer(s.gpu.sync(s.stream)),
    "streamSynchronize of another stream": lambda s: Answer(s.gpu.sync(s.other)),
    "streamSynchronize of the null stream": lambda s: Answer(s.gpu.sync(0)),
    "streamQuery of the captured stream": lambda s: Answer(s.gpu.query(s.stream)),
    "streamQuery of another stream": lambda s: Answer(s.gpu.query(s.other)),
    "deviceSynchronize": lambda s: Answer(s.gpu.sync_device()),
    "eventSynchronize of an event recorded before": lambda s: s.ask(s.sim.synchronize_event, s.recorded),
    "eventQuery of an event recorded before": lambda s: s.ask(s.sim.event_is_done, s.recorded),
    "eventQuery of an event recorded in the capture": lambda s: s.query_captured_event(),
    "eventRecord on the captured stream": lambda s: s.ask(s.sim.record_event, s.event, s.stream, 0),
    "eventRecord on another stream": lambda s: s.ask(s.sim.record_event, s.event, s.other, 0),
    "captured stream waits for an event recorded before": lambda s: s.ask(
        s.sim.wait_for_event, s.recorded, s.stream, 0
    ),
    # streams, events and graphs
    "streamCreate": lambda s: s.ask(s.gpu.stream),
    "streamDestroy of another stream": lambda s: s.ask(s.sim.destroy_stream, s.other),
    "eventCreate": lambda s: s.ask(s.sim.create_event, 0),
    "eventDestroy": lambda s: s.ask(s.sim.destroy_event, s.recorded),
    "graphLaunch of another graph, another stream": lambda s: s.ask(s.sim.launch_graph, s.executable, s.other, 0),
    "graphExecDestroy of another graph": lambda s: s.ask(s.sim.destroy_graph_executable, s.executable),
    "deviceGraphMemTrim": lambda s: s.ask(s.sim.trim_graph_memory, 0),
    "deviceGetGraphMemAttribute": lambda s: s.ask(s.sim.graph_memory, 0),
    # work
    "cudaMemcpy from pageable memory": lambda s: s.ask(s.gpu.copy, s.target, s.pageable, 4096),
    "cudaMemcpy from pinned memory": lambda s: s.ask(s.gpu.copy, s.target, s.pinned, 4096),
    "cudaMemcpy to the host": lambda s: s.ask(s.gpu.copy, s.pageable, s.target, 4096),
    "memcpyAsync from pageable memory, captured stream": lambda s: s.ask(
        s.sim.copy, s.target, s.pageable, 4096, s.stream, 0
    ),
    "memcpyAsync from pinned memory, captured stream": lambda s: s.ask(
        s.sim.copy, s.target, s.pinned, 4096, s.stream, 0
    ),
    "memcpyAsync to pageable memory, captured stream": lambda s: s.ask(
        s.sim.copy, s.pageable, s.target, 4096, s.stream, 0
    ),
    "memcpyAsync between devices' memory, captured stream": lambda s: s.ask(
        s.sim.copy, s.target, s.malloc, 4096, s.stream, 0
    ),
    "memcpyAsync from pinned memory, another stream": lambda s: s.ask(s.sim.copy, s.target, s.pinned, 4096, s.other, 0),
    "memcpyAsync from pinned memory, null stream": lambda s: s.ask(s.sim.copy, s.target, s.pinned, 4096, 0, 0),
    "memsetAsync, captured stream": lambda s: s.ask(s.gpu.set_async, s.target, 1, 4096, s.stream),
    "memset": lambda s: s.ask(s.gpu.set, s.target, 1, 4096),
    "kernel, captured stream": lambda s: Answer(s.gpu.poke_on(s.stream, s.target, 9)),
    "kernel, another stream": lambda s: Answer(s.gpu.poke_on(s.other, s.target, 9)),
    "kernel, null stream": lambda s: Answer(s.gpu.poke_on(0, s.target, 9)),
    "memAdvise": lambda s: s.ask(s.sim.advise, s.managed, MiB, MemoryAdvice.SET_PREFERRED_LOCATION, 0),
    "memPrefetchAsync, captured stream": lambda s: s.ask(s.sim.prefetch, s.managed, MiB, 0, s.stream, 0),
    # threads and their modes
    "cudaMalloc in another thread": lambda s: s.gpu.in_thread(s.sim.malloc, MiB),
    "cudaMalloc in another thread whose mode is relaxed": lambda s: s.gpu.in_thread(
        s.in_mode, RELAXED, s.sim.malloc, MiB
    ),
    "cudaMalloc in another thread whose mode is thread-local": lambda s: s.gpu.in_thread(
        s.in_mode, LOCAL, s.sim.malloc, MiB
    ),
    "cudaFree in another thread": lambda s: s.gpu.in_thread(s.sim.free, s.malloc),
    "cudaHostAlloc in another thread": lambda s: s.gpu.in_thread(s.sim.host_alloc, MiB),
    "mallocAsync in another thread on another stream": lambda s: s.gpu.in_thread(s.gpu.malloc_async, MiB, s.other),
    "memPoolGetAttribute in another thread": lambda s: s.gpu.in_thread(s.sim.pool_attribute, s.default_pool, USED),
    "cudaMemcpy in another thread": lambda s: s.gpu.in_thread(s.gpu.copy, s.target, s.pinned, 4096),
    "deviceSynchronize in another thread": lambda s: s.gpu.in_thread(s.sim.synchronize_device, 0),
    "cudaMalloc with the thread's mode relaxed for a moment": lambda s: s.ask(s.in_mode, RELAXED, s.sim.malloc, MiB),
    "cudaFree with the thread's mode relaxed for a moment": lambda s: s.ask(s.in_mode, RELAXED, s.sim.free, s.malloc),
    "memPoolGetAttribute with the thread's mode relaxed for a moment": lambda s: s.ask(
        s.in_mode, RELAXED, s.sim.pool_attribute, s.default_pool, USED
    ),
}
RETURNS_AN_ADDRESS = ("alloc", "Alloc", "Malloc")


@replays("capture/(?P<operation>.+)/(?P<mode>Global|ThreadLocal|Relaxed)/(?P<kind>blocking|non-blocking)")
def operation(gpu, operation, mode, kind):
    scene = Scene(gpu, blocking=kind == "blocking")
    sim, stream = gpu.sim, scene.stream
    sim.begin_capture(stream, 0, MODES[mode])
    gpu.set_async(scene.target, 3, 64, stream)
    answer = OPERATIONS[operation](scene)
    yield "operation", answer.error
    if type(answer.value) is int and any(part in operation for part in RETURNS_AN_ADDRESS):
        yield "value", "nonzero" if answer.value else "zero"
    yield "status", gpu.status(stream)
    yield "status_of_other_stream", None if "streamDestroy" in operation else gpu.status(scene.other)
    yield "last_error", gpu.forget_error()
    yield "next_captured_call", gpu.error(gpu.set_async, scene.target, 4, 64, stream)
    ended = gpu.ask(sim.end_capture, stream, 0)
    yield "end", ended.error
    yield "graph", bool(ended.value)
    yield "status_after_end", gpu.status(stream)
    if ended.error == SUCCESS:
        yield "nodes", sim.graph_node_count(ended.value)
        executable = gpu.ask(sim.instantiate_graph, ended.value, auto_free=False)
        yield "instantiate", executable.error
        yield "launch", gpu.error(sim.launch_graph, executable.value, stream, 0)
        yield "sync", gpu.sync(stream)
    yield "malloc_memory_still_live", gpu.is_live(scene.malloc)
    yield "pool_memory_still_live", gpu.is_live(scene.pool)
    yield "afterwards", gpu.health()


@replays("capture/begin-mistakes")
def begin_mistakes(gpu):
    sim, stream = gpu.sim, gpu.stream()
    begin, end = sim.begin_capture, sim.end_capture
    yield "end, never begun", gpu.error(end, stream, 0)
    yield "begin on the null stream", gpu.error(begin, 0, 0, CaptureMode.GLOBAL)
    yield "begin", gpu.error(begin, stream, 0, CaptureMode.GLOBAL)
    yield "begin again", gpu.error(begin, stream, 0, CaptureMode.GLOBAL)
    yield "status", gpu.status(stream)
    yield "null stream's status", gpu.status(0)
    yield "end in another thread", gpu.in_thread(end, stream, 0).error
    yield "status then", gpu.status(stream)
    yield "end", gpu.error(end, stream, 0)
    yield "begin relaxed", gpu.error(begin, stream, 0, CaptureMode.RELAXED)
    yield "end relaxed in another thread", gpu.in_thread(end, stream, 0).error
    gpu.keep_busy(stream)
    yield "begin with work pending", gpu.error(begin, stream, 0, CaptureMode.GLOBAL)
    yield "destroy the stream while capturing", gpu.error(sim.destroy_stream, stream)
    yield "afterwards", gpu.health()
