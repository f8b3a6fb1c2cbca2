"""The simulated machine as the recorded scripts spoke to theirs: calls that answer with the name of an error."""

from __future__ import annotations

import ctypes
import mmap
import re
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any

from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform import CaptureMode, PoolAccess, PoolAttribute
from allotment.platform.simulated import SimulatedPlatform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUCCESS = "cudaSuccess"
KiB, MiB, GiB = 2**10, 2**20, 2**30
MODES = {"Global": CaptureMode.GLOBAL, "ThreadLocal": CaptureMode.THREAD_LOCAL, "Relaxed": CaptureMode.RELAXED}
ON_HOST = (
    "managed", "pinned", "pinned-portable", "pinned-mapped", "pinned-write-combined", "registered", "pageable",
)  # fmt: skip
KINDS = ("malloc", "pool", "own-pool", *ON_HOST)
TYPES = {
    MemoryKind.CUDA_DEVICE: "Device",
    MemoryKind.CUDA_MEMPOOL: "Device",
    MemoryKind.CUDA_MANAGED: "Managed",
    MemoryKind.PINNED: "Host",
}
DRIVER_NAMES = {"cudaErrorInvalidResourceHandle": "CUDA_ERROR_INVALID_HANDLE", SUCCESS: "CUDA_SUCCESS"}
"""The driver's names that are not the runtime's in other letters."""


@dataclass(frozen=True)
class Answer:
    """The name of a call's error, and what it returned."""

    error: str
    value: Any = None


class Machine:
    """Two simulated H200, asked as a script of one process asks."""

    def __init__(self) -> None:
        self.sim = SimulatedPlatform.from_profile("2xh200")
        self._own_pools: dict[int, int] = {}
        self._ordinals: dict[int, int] = {}
        self._pages: list[mmap.mmap] = []
        self.start(0)

    def close(self) -> None:
        self.sim.close()

    # Calls

    def ask(self, function: Callable[..., Any], *args: Any, **options: Any) -> Answer:
        """Call, and return the name of the error and what came back."""
        try:
            return Answer(SUCCESS, function(*args, **options))
        except PlatformError as error:
            return Answer(error.code)

    def error(self, function: Callable[..., Any], *args: Any, **options: Any) -> str:
        return self.ask(function, *args, **options).error

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Answer:
        """Ask in a thread of its own."""
        answers: list[Answer] = []
        thread = Thread(target=lambda: answers.append(self.ask(function, *args)))
        thread.start()
        thread.join()
        return answers[0]

    def forget_error(self) -> str:
        return self.sim.get_last_error()

    # Devices and streams

    def start(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            self.sim.set_current_device(ordinal)

    @contextmanager
    def current(self, ordinal: int) -> Iterator[None]:
        before = self.sim.current_device()
        self.sim.set_current_device(ordinal)
        yield
        self.sim.set_current_device(before)

    def stream(self, *, blocking: bool = True) -> int:
        """Return a new stream of the current device."""
        ordinal = self.sim.current_device()
        stream = self.sim.create_stream(ordinal, non_blocking=not blocking, priority=0)
        self._ordinals[stream] = ordinal
        return stream

    def of(self, stream: int) -> int:
        """Return the device of a stream."""
        return self._ordinals.get(stream, self.sim.current_device())

    def sync(self, stream: int = 0) -> str:
        return self.error(self.sim.synchronize_stream, stream, self.of(stream))

    def sync_device(self) -> str:
        return self.error(self.sim.synchronize_device, self.sim.current_device())

    def query(self, stream: int) -> str:
        answer = self.ask(self.sim.stream_is_done, stream, self.of(stream))
        return "cudaErrorNotReady" if answer.value is False else answer.error

    def status(self, stream: int) -> str:
        answer = self.ask(self.sim.capture_status, stream, self.of(stream))
        return answer.value.name.title() if answer.error == SUCCESS else answer.error

    def keep_busy(self, stream: int) -> None:
        """Give a stream work that is not done before something waits for it."""
        self.sim.hold(stream, self.of(stream))
        self.sim.launch(lambda: None, stream, self.of(stream))

    # Memory

    def own_pool(self, ordinal: int) -> int:
        if ordinal not in self._own_pools:
            self._own_pools[ordinal] = self.sim.create_pool(ordinal)
        return self._own_pools[ordinal]

    def malloc_async(self, nbytes: int, stream: int) -> int:
        """Allocate as cudaMallocAsync does: from the current pool of the stream's device."""
        return self.sim.malloc_from_pool(nbytes, self.sim.current_pool(self.of(stream)), stream)

    def pages(self, nbytes: int) -> int:
        """Return the address of pageable host memory."""
        memory = mmap.mmap(-1, nbytes)
        self._pages.append(memory)
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def allocate(self, kind: str, ordinal: int = 0, nbytes: int = 4096) -> int:
        """Return the address of memory of a kind; the device is current afterwards."""
        self.start(ordinal)
        match kind:
            case "malloc":
                return self.sim.malloc(nbytes)
            case "pool":
                return self.malloc_async(nbytes, 0)
            case "own-pool":
                return self.sim.malloc_from_pool(nbytes, self.own_pool(ordinal), 0)
            case "managed":
                return self.sim.malloc_managed(nbytes)
            case "registered":
                ptr = self.pages(max(nbytes, 4096))
                self.sim.host_register(ptr, nbytes)
                return ptr
            case "pageable":
                return self.pages(max(nbytes, 4096))
            case _:
                return self.sim.host_alloc(nbytes)

    def copy(self, dst: int, src: int, nbytes: int) -> None:
        """Copy as cudaMemcpy does."""
        self.sim.copy(dst, src, nbytes, 0, self.sim.current_device())

    def set(self, ptr: int, byte: int, nbytes: int) -> None:
        """Fill as cudaMemset does."""
        self.sim.fill(ptr, byte, nbytes, 0, self.sim.current_device())

    def set_async(self, ptr: int, byte: int, nbytes: int, stream: int) -> None:
        self.sim.fill(ptr, byte, nbytes, stream, self.of(stream))

    def write(self, kind: str, ptr: int, data: bytes) -> None:
        """Put data there from the host; its device is current."""
        if kind in ON_HOST:
            ctypes.memmove(ptr, data, len(data))
        else:
            buffer = ctypes.create_string_buffer(data, len(data))
            self.copy(ptr, ctypes.addressof(buffer), len(data))

    def read(self, kind: str, ptr: int, nbytes: int = 4) -> bytes:
        if kind in ON_HOST:
            return ctypes.string_at(ptr, nbytes)
        buffer = ctypes.create_string_buffer(nbytes)
        self.copy(ctypes.addressof(buffer), ptr, nbytes)
        return buffer.raw

    def word_at(self, ptr: int) -> int:
        return int.from_bytes(self.read("malloc", ptr), "little")

    def is_live(self, ptr: int) -> bool:
        return self.sim.pointer_attributes(ptr).kind is not MemoryKind.UNKNOWN

    def describe(self, ptr: int) -> dict[str, Any]:
        found = self.sim.pointer_attributes(ptr)
        if found.kind is MemoryKind.UNKNOWN:
            return {"type": "Unregistered"}
        return {
            "type": TYPES[found.kind],
            "device": found.device,
            "accessible": found.accessible,
            "pool": "present" if found.pool else "null",
            "nbytes": found.nbytes,
            "offset": ptr - found.base,
        }

    # Pools and grants

    def pool_state(self, pool: int) -> dict[str, int]:
        names = {
            "reserved": PoolAttribute.RESERVED_CURRENT,
            "reserved_high": PoolAttribute.RESERVED_HIGH,
            "used": PoolAttribute.USED_CURRENT,
            "used_high": PoolAttribute.USED_HIGH,
        }
        return {name: self.sim.pool_attribute(pool, attribute) for name, attribute in names.items()}

    def set_threshold(self, pool: int, nbytes: int) -> None:
        self.sim.set_pool_attribute(pool, PoolAttribute.RELEASE_THRESHOLD, nbytes)

    def access(self, pool: int, place: int) -> str:
        answer = self.ask(self.sim.pool_access, pool, place)
        names = {
            PoolAccess.NONE: "cudaMemAccessFlagsProtNone",
            PoolAccess.READ_WRITE: "cudaMemAccessFlagsProtReadWrite",
        }
        return names[answer.value] if answer.error == SUCCESS else answer.error

    def grant(self, pool: int, ordinal: int) -> None:
        self.sim.set_pool_access(pool, ordinal, PoolAccess.READ_WRITE)

    def revoke(self, pool: int, ordinal: int) -> None:
        self.sim.set_pool_access(pool, ordinal, PoolAccess.NONE)

    def grant_both_ways(self, grants: str) -> None:
        """Let each device touch memory of the other, by the kinds of access named."""
        for owner, reader in ((0, 1), (1, 0)):
            if "peer" in grants:
                self.sim.enable_peer_access(reader, owner)
            if grants in ("pool", "peer pool") or grants == f"pool of device {owner}":
                self.grant(self.sim.default_pool(owner), reader)

    # Kernels

    def kernel(self, ordinal: int, ptr: int, stream: int, act: Callable[[], None]) -> str:
        """Launch a kernel that touches a word; return the driver's name of the error."""

        def work() -> None:
            self.sim.check_kernel_access(ordinal, ptr, 4)
            act()

        return driver_name(self.error(self.sim.launch, work, stream, ordinal))

    def poke_on(self, stream: int, ptr: int, value: int, ordinal: int = 0) -> str:
        """Launch a kernel that writes a word."""
        return self.kernel(ordinal, ptr, stream, lambda: _store(ptr, value))

    def peek(self, ordinal: int, ptr: int, value: int) -> dict[str, Any]:
        """Read a word in a kernel; the device is current afterwards."""
        self.start(ordinal)
        seen: list[bytes] = []
        launched = self.kernel(ordinal, ptr, 0, lambda: seen.append(ctypes.string_at(ptr, 4)))
        synced = self.sync_device()
        fine = synced == SUCCESS and seen == [value.to_bytes(4, "little")]
        return {"launch": launched, "sync": synced, "right_value": fine}

    def poke(self, ordinal: int, ptr: int, value: int, kind: str = "managed", owner: int = 0) -> dict[str, Any]:
        """Write a word in a kernel, and read it back as its owner would."""
        self.start(ordinal)
        launched, synced = self.poke_on(0, ptr, value, ordinal), self.sync_device()
        arrived = False
        if synced == SUCCESS:
            with self.current(owner):
                arrived = self.read(kind, ptr) == value.to_bytes(4, "little")
        return {"launch": launched, "sync": synced, "arrived": arrived}

    def host_reads(self, ptr: int) -> str:
        """Return the word that host code reads, or what the operating system says."""
        if self.error(self.sim.check_host_access, ptr, 4) == "SIGSEGV":
            return "Bad address"
        return str(int.from_bytes(ctypes.string_at(ptr, 4), "little"))

    # Health

    def health(self) -> dict[str, Any]:
        """Return the error that is remembered, whether it goes away, and whether simple calls still work."""
        found: dict[str, Any] = {
            "last_error": self.sim.peek_last_error(),
            "read_once": self.sim.get_last_error(),
            "read_again": self.sim.get_last_error(),
        }
        answer = self.ask(self.sim.malloc, 4096)
        found["malloc"] = answer.error
        if answer.error == SUCCESS:
            found["memset"] = self.error(self.set, answer.value, 0, 4096)
            found["sync"] = self.sync_device()
            found["free"] = self.error(self.sim.free, answer.value)
        found["sticky"] = any(found.get(call, SUCCESS) != SUCCESS for call in ("malloc", "memset", "sync", "free"))
        self.forget_error()
        return found


def driver_name(error: str) -> str:
    """Return the driver's name of an error of the runtime."""
    if error in DRIVER_NAMES:
        return DRIVER_NAMES[error]
    return "CUDA_ERROR" + re.sub(r"([A-Z])", r"_\1", error.removeprefix("cudaError")).upper()


def _store(ptr: int, value: int) -> None:
    ctypes.memmove(ptr, value.to_bytes(4, "little"), 4)
