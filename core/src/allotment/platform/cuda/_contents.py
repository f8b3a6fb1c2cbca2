"""Copies, fills, and where managed memory is."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from math import gcd, prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allotment.platform._values import HOST_LOCATION, CaptureMode, MemoryAdvice, StridedMemory
from allotment.platform.cuda._calls import Calls
from allotment.platform.cuda._devices import DeviceAttribute
from allotment.platform.cuda._errors import platform_error, reports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_ANY_TO_ANY: Final = 4
"""``cudaMemcpyDefault``: the addresses say which kind of memory they are."""
_UNREGISTERED: Final = 0
_DEVICE: Final = 2
_WORD_SIZE: Final = 8
"""The largest word, in bytes, that elements are copied by."""


class Contents(Calls):
    """The calls that move and set what memory holds."""

    @cached_property
    def _assign(self) -> Any:
        return self._cupy.ElementwiseKernel("T value", "T element", "element = value", "allotment_assign")

    @reports("cudaMemcpyAsync")
    def copy(self, dst: int, src: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Copy bytes between any two kinds of memory in the order of a stream of device ``ordinal``.

        Host memory that is not page-locked is read before the call returns and written when the stream gets there.
        """
        if nbytes == 0:
            return
        with self._on(ordinal):
            self._runtime.memcpyAsync(dst, src, nbytes, _ANY_TO_ANY, stream)
            if self._may_read_later(src, ordinal) and not self._is_captured(stream):
                self._runtime.streamSynchronize(stream)

    @reports("cudaMemcpyPeerAsync")
    def copy_peer(self, dst: int, dst_ordinal: int, src: int, src_ordinal: int, nbytes: int, stream: int) -> None:
        """Copy bytes between two devices in the order of a stream, with or without access between them."""
        self._runtime.memcpyPeerAsync(dst, dst_ordinal, src, src_ordinal, nbytes, stream)

    def copy_elements(self, dst: StridedMemory, src: StridedMemory, stream: int, ordinal: int) -> None:
        """Copy elements of equal shape and type that device ``ordinal`` can reach, in the order of a stream.

        Elements are moved as words, so every type can be copied, aligned or not. They must not overlap.
        """
        nbytes = dst.dtype.itemsize * prod(dst.shape)
        if nbytes == 0:
            return
        if _is_contiguous(dst) and _is_contiguous(src):
            self.copy(dst.ptr, src.ptr, nbytes, stream, ordinal)
            return
        size = _word_size(dst, src)
        self._run_assign(self._words(src, size, ordinal), self._words(dst, size, ordinal), stream, ordinal)

    @reports("cudaMemsetAsync")
    def fill(self, ptr: int, byte: int, nbytes: int, stream: int, ordinal: int) -> None:
        """Set bytes of memory that device ``ordinal`` can reach, in the order of a stream."""
        if nbytes == 0:
            return
        if self._can_memset(ptr, ordinal):
            with self._on(ordinal):
                self._runtime.memsetAsync(ptr, byte, nbytes, stream)
        else:
            memory = StridedMemory(ptr, (nbytes,), (1,), np.dtype(np.uint8), ordinal, None)
            self._run_assign(np.uint8(byte), self._words(memory, 1, ordinal), stream, ordinal)

    def fill_elements(self, dst: StridedMemory, value: np.generic, stream: int, ordinal: int) -> None:
        """Set elements of memory that device ``ordinal`` can reach, in the order of a stream."""
        nbytes = dst.dtype.itemsize * prod(dst.shape)
        if nbytes == 0:
            return
        pattern = np.asarray(value, dtype=dst.dtype).tobytes()
        if _is_contiguous(dst) and len(set(pattern)) == 1:
            self.fill(dst.ptr, pattern[0], nbytes, stream, ordinal)
            return
        size = _word_size(dst)
        words = self._words(dst, size, ordinal)
        for position, word in enumerate(np.frombuffer(pattern, dtype=f"u{size}")):
            self._run_assign(word, words[..., position], stream, ordinal)

    @reports("cudaMemAdvise")
    def advise(self, ptr: int, nbytes: int, advice: MemoryAdvice, location: int) -> None:
        """Give advice about a range of managed memory and a place: an ordinal or `HOST_LOCATION`."""
        if location == HOST_LOCATION:
            self._bindings.advise_host(ptr, nbytes, int(advice))
        else:
            self._runtime.memAdvise(ptr, nbytes, int(advice), location)

    @reports("cudaMemPrefetchAsync")
    def prefetch(self, ptr: int, nbytes: int, location: int, stream: int, ordinal: int) -> None:
        """Move a range of managed memory to a place in the order of a stream of device ``ordinal``."""
        with self._on(ordinal):
            if location == HOST_LOCATION:
                self._bindings.prefetch_to_host(ptr, nbytes, stream)
            else:
                self._runtime.memPrefetchAsync(ptr, nbytes, location, stream)

    def _may_read_later(self, src: int, ordinal: int) -> bool:
        """Return whether a copy may read its source after the call.

        Pageable memory is staged before the call returns, except on devices that can read it themselves.
        """
        return self._reads_pageable_memory(ordinal) and self._runtime.pointerGetAttributes(src).type == _UNREGISTERED

    def _reads_pageable_memory(self, ordinal: int) -> bool:
        return bool(self._runtime.deviceGetAttribute(int(DeviceAttribute.PAGEABLE_MEMORY_ACCESS), ordinal))

    def _is_captured(self, stream: int) -> bool:
        """Return whether work on a stream goes into a graph, in which case it cannot be waited for."""
        try:
            return bool(self._runtime.streamIsCapturing(stream))
        except RuntimeError as error:
            failure = platform_error(error, "cudaStreamIsCapturing")
            if failure is not None and failure.code != "cudaErrorStreamCaptureImplicit":
                raise
            return True

    def _can_memset(self, ptr: int, ordinal: int) -> bool:
        """Return whether ``cudaMemsetAsync`` takes an address: device memory must be of the current device."""
        found = self._runtime.pointerGetAttributes(ptr)
        if found.type == _UNREGISTERED:  # pageable, or of a graph that has not run
            return not self._reads_pageable_memory(ordinal)
        return bool(found.type != _DEVICE or found.device == ordinal)

    def _words(self, memory: StridedMemory, size: int, ordinal: int) -> Any:
        """Return a CuPy array over memory, of words of ``size`` bytes; its last dimension is the words of an element.

        The array is said to be the device's own, because the caller knows that it can reach it: CuPy would otherwise
        grant peer access by itself.
        """
        count = memory.dtype.itemsize // size
        owned = self._cupy.cuda.UnownedMemory(memory.ptr, prod(memory.shape) * count * size, memory.owner, ordinal)
        return self._cupy.ndarray(
            (*memory.shape, count),
            dtype=f"u{size}",
            memptr=self._cupy.cuda.MemoryPointer(owned, 0),
            strides=(*memory.strides, size),
        )

    @reports("cuLaunchKernel")
    def _run_assign(self, value: Any, words: Any, stream: int, ordinal: int) -> None:
        with self._may_load(stream), self._on(ordinal), self._as_current_stream(stream):
            self._assign(value, words)

    @contextmanager
    def _may_load(self, stream: int) -> Iterator[None]:
        """Let a kernel be loaded at its first launch, which a strict capture of the stream would not survive."""
        if not self._is_captured(stream):
            yield
            return
        before = self._bindings.exchange_capture_mode(int(CaptureMode.RELAXED))
        try:
            yield
        finally:
            self._bindings.exchange_capture_mode(before)

    def _as_current_stream(self, stream: int) -> AbstractContextManager[Any]:
        """Return a context manager under which CuPy launches on a stream."""
        cuda = self._cupy.cuda
        if stream == 0:
            wrapped = cuda.Stream.null
        elif hasattr(cuda.Stream, "from_external"):  # since CuPy 14, where ExternalStream warns
            wrapped = cuda.Stream.from_external(_ForeignStream(stream))
        else:
            wrapped = cuda.ExternalStream(stream)
        return wrapped  # type: ignore[no-any-return]


class _ForeignStream:
    """A stream handle as the CUDA stream protocol has it."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _is_contiguous(memory: StridedMemory) -> bool:
    """Return whether elements lie one after another in C order."""
    expected = memory.dtype.itemsize
    for extent, stride in zip(reversed(memory.shape), reversed(memory.strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _word_size(*memories: StridedMemory) -> int:
    """Return the size of the largest word at whose multiples all elements begin and end."""
    return gcd(_WORD_SIZE, *(number for m in memories for number in (m.ptr, m.dtype.itemsize, *m.strides)))
