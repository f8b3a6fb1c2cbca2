"""PyTorch as far as this plugin uses it, on the simulated platform, and a Python of its own for each script."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import pytest

import allotment as al
from allotment_torch_caching import TorchCachingAllocator


@pytest.fixture(autouse=True)
def isolated(isolation):
    """Keep the developer's environment and files out, and leave nothing behind."""


class Torch(ModuleType):
    """PyTorch's caching allocator, which keeps what is freed by stream and by pool, over simulated memory."""

    __version__ = "2.11.0"
    OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})

    def __init__(self, simulated):
        super().__init__("torch")
        self.simulated, self.current, self.stream_handle = simulated, 0, 0
        self.live, self.idle, self.capacity = {}, [], 2**40
        self.routes, self.uses, self.peak = [], {}, 0
        self.backend, self.expands = "native", False
        self._C = SimpleNamespace(
            _cuda_cudaCachingAllocator_raw_alloc=lambda size, handle: self.draw(size, self.current, handle),
            _cuda_beginAllocateCurrentThreadToPool=self.begin,
            _cuda_endAllocateToPool=lambda ordinal, pool: self.routes.remove((ordinal, pool)),
            _cuda_releasePool=self.release,
        )
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            init=list,
            get_allocator_backend=lambda: self.backend,
            current_device=lambda: self.current,
            caching_allocator_alloc=lambda size, ordinal, handle: self.draw(size, ordinal, handle),
            caching_allocator_delete=lambda ptr: self.idle.append(self.live.pop(ptr)),
            memory_reserved=self.reserved,
            max_memory_reserved=lambda ordinal: max(self.peak, self.reserved(ordinal)),
            reset_peak_memory_stats=self.reset_peak,
            memory_stats=lambda ordinal: {"reserved_bytes.all.current": self.reserved(ordinal)},
            empty_cache=self.empty_cache,
            graph_pool_handle=lambda: (1, len(self.uses)),
            ExternalStream=lambda handle, ordinal: handle,
            stream=self.on_stream,
            memory=SimpleNamespace(_snapshot=lambda: {"allocator_settings": {"expandable_segments": self.expands}}),
        )

    def draw(self, size, ordinal, handle):
        pool = next((pool for device, pool in reversed(self.routes) if device == ordinal), None)
        key = size, ordinal, handle, pool
        found = next((block for block in self.idle if block[1:] == key), None)
        if found is None:
            if self.reserved(ordinal) + size > self.capacity:
                raise self.OutOfMemoryError("CUDA out of memory. Tried to allocate it.")
            with al.ScopedDevice(f"cuda:{ordinal}"):
                found = (self.simulated.malloc(size), *key)
            self.peak = max(self.peak, self.reserved(ordinal) + size)
        else:
            self.idle.remove(found)
        self.live[found[0]] = found
        return found[0]

    def reserved(self, ordinal):
        return sum(block[1] for block in (*self.live.values(), *self.idle) if block[2] == ordinal)

    def reset_peak(self, ordinal):
        self.peak = self.reserved(ordinal)

    def empty_cache(self):
        for block in self.idle:
            self.simulated.free(block[0])
        self.idle.clear()

    def begin(self, ordinal, pool):
        self.routes.append((ordinal, pool))
        self.uses[pool] = self.uses.get(pool, 0) + 1

    def release(self, ordinal, pool):
        self.uses[pool] -= 1
        assert self.uses[pool] >= 0

    @contextmanager
    def on_stream(self, handle):
        before, self.stream_handle = self.stream_handle, handle
        yield
        self.stream_handle = before


@pytest.fixture
def torch(sim, monkeypatch):
    """PyTorch on the simulated platform, which then counts as real devices."""
    module = Torch(sim)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(
        TorchCachingAllocator, "availability", classmethod(lambda cls, device: al.Availability(ok=device.is_cuda))
    )
    return module
