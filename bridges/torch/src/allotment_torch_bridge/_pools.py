"""Drawing beneath PyTorch's caching allocator: its segments come from Allotment."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from functools import wraps
from threading import Event, Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from allotment import BridgeError, CaptureError, OutOfMemoryError, Stream, get_cuda_devices
from allotment.bridges import c_callbacks
from allotment_torch_bridge._conflicts import expandable_refusal, refuse_circle
from allotment_torch_bridge._library import keep_for_ever
from allotment_torch_bridge._neighbours import Neighbours
from allotment_torch_bridge._patches import Patches
from allotment_torch_bridge._pool_ends import PoolEnds
from allotment_torch_bridge._receiver import RECEIVER
from allotment_torch_bridge._route import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allotment import AccountedAllocator, Delivery, Device

REST: Final = 0.1
"""Seconds between two looks for blocks that other streams are done with."""

_RELEASE: Final = "release_lock_on_cudamalloc:True"

_allocators: list[Any] = []


class Pools:
    """The routes of all devices, and what keeps them going.

    Parameters
    ----------
    torch
        The library.
    delivery
        Where segments come from.
    """

    served: Mapping[int, AccountedAllocator] = MappingProxyType({})

    def __init__(self, torch: Any, delivery: Delivery) -> None:
        self._torch, self.delivery = torch, delivery
        self._patches = Patches()
        self._streams: dict[Device, Stream] = {}
        self._neighbours = Neighbours()
        self._is_installed, self._exits, self._process = True, Event(), os.getpid()
        self._thread = Thread(target=self._keep_going, name="allotment-torch", daemon=True)
        allocator = _pluggable_allocator(torch)
        self._routes = [Route(torch, ordinal, allocator) for ordinal in range(len(get_cuda_devices()))]

    @classmethod
    def install(cls, delivery: Delivery) -> Pools:
        """Route the requests of all devices.

        Raises
        ------
        BridgeError
            If PyTorch is set up for segments that expand.
        """
        import torch

        torch.cuda.init()
        _release_lock_in_requests(torch)
        pools = cls(torch, delivery)
        c_callbacks().throw_by(*[0] * 7)
        RECEIVER.draw_from(pools)
        try:
            for route in pools._routes:
                route.open()
        except BaseException:
            pools._close()
            raise
        pools._patch()
        pools._thread.start()
        atexit.register(pools._stop)
        return pools

    def uninstall(self) -> None:
        """End the routes. What PyTorch has of them returns to Allotment when it gives it back."""
        self._is_installed = False
        self._patches.restore()
        self._close()

    def _close(self) -> None:
        for route in self._routes:
            route.close()
        RECEIVER.settle()

    def describe(self) -> str | None:
        """Return what PyTorch draws from, if that is not Allotment."""
        backend = self._torch.cuda.get_allocator_backend()
        if backend == "native" and all(route.is_open for route in self._routes):
            return None
        return f"PyTorch's allocator {backend!r}"

    # Segments

    def allocate(self, size: int, ordinal: int, handle: int) -> tuple[AccountedAllocator, int, Stream]:  # noqa: ARG002
        """Return a segment that any stream may use from now on, as ``cudaMalloc`` does.

        PyTorch does not say which stream it is for: the handle is that of the stream which is current.
        """
        device, route = self.delivery.device(ordinal), self._routes[ordinal]
        route.is_used = True
        account = self.delivery.account(device)
        if getattr(account.allocator, "draws_from", None) == "torch":
            refuse_circle(self.delivery)
        stream = self._stream(device)
        try:
            ptr = account.allocate_on(size, stream)
        except OutOfMemoryError:
            if RECEIVER.captures or not route.renew():
                raise
            RECEIVER.settle()
            ptr = account.allocate_on(size, stream)
        _wait_for(stream)
        return account, ptr, stream

    def _stream(self, device: Device) -> Stream:
        found = self._streams.get(device)
        if found is None:
            self._neighbours.meet(device)
            found = self._streams[device] = Stream(device, non_blocking=True)
        return found

    # What PyTorch does otherwise while there is a route

    def trim(self) -> None:
        """Give PyTorch's idle segments back, and what is idle in the allocator is its own matter."""
        if not RECEIVER.captures:
            for route in self._routes:
                route.renew()
            RECEIVER.settle()

    def _patch(self) -> None:
        c, graph = self._torch._C, self._torch.cuda.graphs.CUDAGraph
        for name in ("_cuda_emptyCache", "_accelerator_emptyCache"):
            if hasattr(c, name):
                self._patches.put(c, name, self._before(self.trim, getattr(c, name)))
        PoolEnds(self._torch).watch(self._patches)
        self._patches.put(graph, "capture_begin", _counting(graph.capture_begin))
        self._patches.put(graph, "capture_end", _discounting(graph.capture_end))

    def _before(self, first: Callable[[], None], then: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            first()
            result = then(*arguments, **keywords)
            RECEIVER.settle()
            return result

        return call

    def _keep_going(self) -> None:
        while not self._exits.wait(REST):
            with RECEIVER.quiet:
                if RECEIVER.captures or any(device.captures.on_devices for device in self._streams):
                    continue
                try:
                    pins = [self._look_at(route) for route in self._routes if route.is_used]
                except RuntimeError:  # of a device that failed, of which its users are told
                    return
            if not self._is_installed and not any(pins):
                return

    def _look_at(self, route: Route) -> bool:
        if route.is_open:
            route.rest()
        return route.unpin()

    def _stop(self) -> None:
        if os.getpid() != self._process:
            return  # a forked child has neither the thread nor the device, and may find locks held for ever
        self._exits.set()
        self._thread.join(1)
        self._patches.restore()
        for route in self._routes:
            route.leave()


def _pluggable_allocator(torch: Any) -> Any:
    """Return the one pluggable allocator, which segments need as long as the process lives."""
    if not _allocators:
        at = c_callbacks().addresses()
        _allocators.append(torch._C._cuda_customAllocator(at["allocate"], at["free_later"]))
        keep_for_ever(_allocators[0])
    return _allocators[0]


def _wait_for(stream: Stream) -> None:
    """Wait until a new block of a stream may be used by any other one."""
    with suppress(CaptureError):  # while Allotment captures a graph
        stream.synchronize()


def _release_lock_in_requests(torch: Any) -> None:
    """Let PyTorch hold no lock while it asks for a segment: a thread with the interpreter lock may wait for it."""
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    if settings["expandable_segments"]:
        raise expandable_refusal("torch.cuda.memory._set_allocator_settings")
    if not settings["release_lock_on_cudamalloc"]:
        known = settings["PYTORCH_CUDA_ALLOC_CONF"]
        torch._C._accelerator_setAllocatorSettings(f"{known},{_RELEASE}" if known else _RELEASE)
    if not torch.cuda.memory._snapshot()["allocator_settings"]["release_lock_on_cudamalloc"]:
        raise BridgeError(bridge="torch", cause=f"PyTorch does not take the setting {_RELEASE}")


def _counting(begin: Callable[..., Any]) -> Callable[..., Any]:
    def capture_begin(*arguments: Any, **keywords: Any) -> Any:
        with RECEIVER.quiet:
            RECEIVER.captures += 1
        try:
            return begin(*arguments, **keywords)
        except BaseException:
            RECEIVER.captures -= 1
            raise

    return wraps(begin)(capture_begin)


def _discounting(end: Callable[..., Any]) -> Callable[..., Any]:
    def capture_end(*arguments: Any, **keywords: Any) -> Any:
        try:
            return end(*arguments, **keywords)
        finally:
            RECEIVER.captures -= 1
            RECEIVER.settle()

    return wraps(end)(capture_end)
