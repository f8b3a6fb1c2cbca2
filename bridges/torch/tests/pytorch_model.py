# ruff: noqa: N802 - the names are PyTorch's
"""PyTorch's caching allocator and its pools, as far as the bridge meets them, over simulated memory.

The rules are those of c10/cuda/CUDACachingAllocator.cpp in PyTorch 2.11: the route that was begun last comes first, a
pool that nobody uses cannot be used again, a route counts as a capture, and a pluggable allocator is asked for
segments of the current stream and told of their end. A segment holds one block.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType, SimpleNamespace
from typing import Any

ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
RECORD_USE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
RESET = ctypes.CFUNCTYPE(None)

SMALL = 2**16
"""Below are segments of another kind, which serve no larger requests and are not split for smaller ones."""


class OutOfMemoryError(RuntimeError):
    """PyTorch's."""


class Pluggable:
    """A pluggable allocator."""

    def __init__(self, allocate, free):
        self.allocate, self.free = ALLOCATE(allocate), FREE(free)

    def set_record_stream_fn(self, address):
        self.record_use = RECORD_USE(address)

    def set_reset_fn(self, address):
        self.reset = RESET(address)


@dataclass(eq=False)
class Segment:
    """Memory from the driver or a pluggable allocator."""

    ptr: int
    size: int
    device: int
    pool: Any
    stream: int = 0
    is_live: bool = True
    is_waiting: bool = False
    uses: list = field(default_factory=list)

    @property
    def kind(self):
        return self.pool, self.device, self.stream, self.size < SMALL


@dataclass(eq=False)
class Pool:
    """A private pool."""

    allocator: Any
    device: int
    uses: int = 1


class Torch(ModuleType):
    """The module."""

    __version__ = "2.11.0"
    OutOfMemoryError = OutOfMemoryError

    def __init__(self, simulated):
        super().__init__("torch")
        self.__spec__ = ModuleSpec("torch", None)
        self.simulated, self.current, self.backend = simulated, 0, "native"
        self.segments, self.pools, self.routes, self.lock = [], {}, [], RLock()
        self.settings = {
            "expandable_segments": False,
            "release_lock_on_cudamalloc": False,
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:200",
        }
        self.current_allocator, self.is_initialized = None, False
        self.version = SimpleNamespace(cuda="13.0")
        model = self

        class MemPool:
            def __init__(self, allocator=None):
                self.id = (0, len(model.pools) + 1)
                model.pools[self.id] = Pool(allocator, model.current)

        class CUDAGraph:
            def capture_begin(self):
                model.routes.append((model.current, "graph"))

            def capture_end(self):
                model.routes.remove((model.current, "graph"))

        class graph:  # noqa: N801 - its name
            def __enter__(self):
                raise AssertionError("a stream was set")

            def __exit__(self, *_):
                pass

        graphs = SimpleNamespace(CUDAGraph=CUDAGraph, graph=graph)
        self._C = _Private(self)
        self.cuda = SimpleNamespace(
            MemPool=MemPool,
            graphs=graphs,
            device=self._on,
            init=lambda: setattr(model, "is_initialized", True),
            is_initialized=lambda: model.is_initialized,
            is_current_stream_capturing=lambda: any(pool == "graph" for _, pool in model.routes),
            device_count=lambda: 0,
            current_device=lambda: model.current,
            get_allocator_backend=lambda: model.backend,
            memory_reserved=lambda ordinal: model.reserved(ordinal),
            memory_snapshot=self._snapshot,
            empty_cache=lambda: model._C._cuda_emptyCache(),
            memory=SimpleNamespace(_snapshot=lambda: {"allocator_settings": dict(model.settings)}),
            _maybe_exchange_device=self._exchange,
        )

    def _exchange(self, ordinal):
        before, self.current = self.current, ordinal
        return before

    @contextmanager
    def _on(self, ordinal):
        before = self._exchange(ordinal)
        try:
            yield
        finally:
            self._exchange(before)

    def _snapshot(self, pool=None):
        return [
            {
                "address": each.ptr,
                "total_size": each.size,
                "active_size": each.size if each.is_live or each.is_waiting else 0,
                "device": each.device,
                "segment_pool_id": each.pool or (0, 0),
            }
            for each in self.segments
        ]

    # Memory

    def request(self, size, device=0, stream=0):
        """Make a tensor; return its segment."""
        with self._on(device):
            if not self.captures(device):
                self.process_events(device)
            pool = next((pool for ordinal, pool in reversed(self.routes) if ordinal == device), None)
            kind = pool, device, stream, size < SMALL
            for found in self.segments:
                if self._is_idle(found) and found.size >= size and found.kind == kind:
                    found.is_live = True
                    return found
            ptr = self._allocator_of(pool).allocate(size, device, stream)
            if not ptr:
                raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size}.")
            self.segments.append(Segment(ptr, size, device, pool, stream))
            return self.segments[-1]

    def free(self, segment):
        """Let a tensor go."""
        segment.is_live = False
        segment.is_waiting = bool(segment.uses)

    def captures(self, device):
        return [pool for ordinal, pool in self.routes if ordinal == device]

    def process_events(self, device):
        for segment in self.segments:
            if segment.device == device:
                segment.is_waiting, segment.uses = False, []

    @staticmethod
    def _is_idle(segment):
        return not (segment.is_live or segment.is_waiting)

    def _allocator_of(self, pool):
        allocator = self.pools[pool].allocator if pool in self.pools else None
        if allocator is not None:
            return allocator
        driver = self.simulated
        return SimpleNamespace(
            allocate=lambda size, device, stream: driver.malloc(size), free=lambda ptr, *_: driver.free(ptr)
        )

    def reserved(self, device):
        return sum(each.size for each in self.segments if each.device == device)

    def give_back(self, device):
        with self.lock:
            self._give_back(device)

    def _give_back(self, device):
        if not self.captures(device):
            self.process_events(device)
        for segment in list(self.segments):
            is_free = segment.pool is None and not self.captures(device)
            if segment.pool in self.pools and not self.pools[segment.pool].uses:
                is_free = True
            if segment.device == device and is_free and self._is_idle(segment):
                self.segments.remove(segment)
                self._allocator_of(segment.pool).free(segment.ptr, segment.size, device, 0)


class _Private:
    """``torch._C``."""

    _CUDAPluggableAllocator = Pluggable

    def __init__(self, model):
        self._model = model

    def _cuda_customAllocator(self, allocate, free):
        return Pluggable(allocate, free)

    def _cuda_changeCurrentAllocator(self, allocator):
        if self._model.is_initialized:
            raise RuntimeError("Can't swap an already initialized allocator")
        self._model.current_allocator, self._model.backend = allocator, "pluggable"

    def _cuda_getAllocator(self):
        return self._model.current_allocator

    def _accelerator_setAllocatorSettings(self, settings):
        self._model.settings["PYTORCH_CUDA_ALLOC_CONF"] = settings
        self._model.settings["release_lock_on_cudamalloc"] = "release_lock_on_cudamalloc:True" in settings

    def _cuda_beginAllocateToPool(self, ordinal, pool):
        assert pool not in self._model.captures(ordinal), "already recording to mempool_id"
        assert self._model.pools[pool].uses > 0
        self._model.pools[pool].uses += 1
        self._model.routes.append((ordinal, pool))

    def _cuda_endAllocateToPool(self, ordinal, pool):
        self._model.routes.remove((ordinal, pool))

    def _cuda_releasePool(self, ordinal, pool):
        self._model.pools[pool].uses -= 1
        assert self._model.pools[pool].uses >= 0

    def _cuda_cudaCachingAllocator_raw_alloc(self, size, stream):
        return self._model.request(size, self._model.current, stream).ptr

    def _cuda_cudaCachingAllocator_raw_delete(self, ptr):
        self._model.free(next(each for each in self._model.segments if each.ptr == ptr and each.is_live))

    def _cuda_emptyCache(self):
        for device in range(2):
            self._model.give_back(device)

    def _cuda_memoryStats(self, ordinal):
        own = [each for each in self._model.segments if each.device == ordinal]
        live, waiting = sum(each.is_live for each in own), sum(each.is_waiting for each in own)
        return {"allocation": {"all": {"current": live}}, "active": {"all": {"current": live + waiting}}}
