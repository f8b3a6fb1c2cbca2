"""What the tests of the bridge to CuPy begin with."""

from __future__ import annotations

import ctypes

import pytest

import allotment as al
from allotment.platform import CaptureStatus


@pytest.fixture
def surroundings(surroundings):
    return surroundings._replace(hidden=("ALLOTMENT_", "CUPY_"))


@pytest.fixture(autouse=True)
def isolated(isolation_of_bridges):
    """Keep the developer's environment and files out, and leave no bridge behind."""


@pytest.fixture(scope="session")
def cupy():
    """CuPy, which imports without a driver."""
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def sim(cupy, sim, monkeypatch):
    """Two simulated H200 in force, for CuPy too: what it would ask the driver, it asks the simulation."""
    from allotment_cupy_bridge import _library

    monkeypatch.setattr(_library, "sees_devices", lambda: False)
    monkeypatch.setattr(_library, "find_device_address", lambda: 0)
    monkeypatch.setattr(_library, "find_stream_address", lambda: 0)
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", sim.current_device)
    monkeypatch.setattr(cupy.cuda.runtime, "streamIsCapturing", lambda stream: is_captured(sim, stream))
    streams = Streams()
    monkeypatch.setattr(cupy.cuda, "get_current_stream", streams.current)
    sim.streams = streams
    return sim


def is_captured(simulated, stream):
    try:
        return simulated.capture_status(stream, simulated.current_device()) is not CaptureStatus.NONE
    except al.PlatformError as error:
        raise RuntimeError(error.code) from error


class Stream:
    """A stream as CuPy's are, which own theirs."""

    def __init__(self, stream=None):
        self.owned, self.ptr = stream, 0 if stream is None else stream.handle

    def __cuda_stream__(self):
        return 0, self.ptr


class Streams:
    """The stream that is current in CuPy, which asks the driver for the number of devices to know."""

    def __init__(self):
        self._null = self._current = Stream()

    def current(self):
        return self._current

    def use(self, stream=None):
        """Make a stream current, the null stream if none is given."""
        self._current = Stream(stream) if stream else self._null
        return self._current


@pytest.fixture
def drawn():
    """Return a function that says how many bytes each allocator of a device has handed out."""

    def ask(device="cuda:0"):
        return {name: stats.current for name, stats in al.memory_stats(device)[device].items() if stats.allocations}

    return ask


@pytest.fixture
def straight(cupy, sim, monkeypatch):
    """Let CuPy call functions in C for the stream that is current here, and return the sizes that it asked for."""
    calls, memory = [], cupy.cuda.memory.CFunctionAllocatorMemory

    def made(size, *given):
        calls.append(size)
        return memory(size, *given)

    find_stream = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: sim.streams.current().ptr)
    address = ctypes.cast(find_stream, ctypes.c_void_p).value
    monkeypatch.setattr("allotment_cupy_bridge._library.find_stream_address", lambda: address)
    monkeypatch.setattr("allotment_cupy_bridge._allocation.CFunctionAllocatorMemory", made)
    FOR_EVER.append(find_stream)
    return calls


FOR_EVER = []
"""Functions that a compiled engine may call as long as it lives."""
