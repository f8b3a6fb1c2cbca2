"""Drawing in the place of PyTorch's caching allocator: every tensor is an allocation of Allotment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from allotment import BridgeError, CaptureError, SupportsCFunctions, UnsupportedError, get_cuda_devices
from allotment.bridges import c_callbacks
from allotment_torch_bridge._conflicts import refuse_circle
from allotment_torch_bridge._library import exception_addresses, keep_for_ever
from allotment_torch_bridge._neighbours import Neighbours
from allotment_torch_bridge._patches import Patches
from allotment_torch_bridge._receiver import RECEIVER

if TYPE_CHECKING:
    from allotment import AccountedAllocator, Delivery, Stream


class Replacement:
    """PyTorch's allocator, for the rest of the process.

    Parameters
    ----------
    torch
        The library.
    delivery
        Where tensors come from.
    """

    def __init__(self, torch: Any, delivery: Delivery) -> None:
        self._torch, self.delivery = torch, delivery
        self._patches = Patches()
        self._neighbours = Neighbours()
        self._known: set[int] = set()
        self.served: dict[int, AccountedAllocator] = {}
        self._allocator: Any = None

    @classmethod
    def install(cls, delivery: Delivery) -> Replacement:
        """Give PyTorch the functions in C.

        Raises
        ------
        BridgeError
            If PyTorch does not take them, or could not be told that memory is short.
        """
        import torch

        replacement = cls(torch, delivery)
        callbacks, exception = c_callbacks(), exception_addresses(torch)
        at = callbacks.addresses()
        allocator = torch._C._cuda_customAllocator(at["allocate"], at["free"])
        allocator.set_record_stream_fn(at["record_use"])
        allocator.set_reset_fn(at["trim"])
        try:
            torch._C._cuda_changeCurrentAllocator(allocator)
        except RuntimeError as error:
            raise BridgeError(bridge="torch", cause=f"PyTorch does not swap its allocator: {error}") from error
        keep_for_ever(allocator)
        replacement._allocator = allocator
        callbacks.throw_by(*exception)
        RECEIVER.draw_from(replacement)
        replacement._patches.put(torch.cuda.graphs.graph, "__enter__", _refuse_capture)  # which sets a stream first
        replacement._patches.put(torch.cuda.graphs.CUDAGraph, "capture_begin", _refuse_capture)
        return replacement

    def _serve_in_c(self, account: AccountedAllocator, ordinal: int) -> None:
        """Let an allocator in C serve a device for which it is the only one, with nothing before it."""
        if self.delivery.is_fixed and account.is_direct and isinstance(account.allocator, SupportsCFunctions):
            with suppress(UnsupportedError):
                functions = account.allocator.c_functions()
                c_callbacks().serve(ordinal, functions.allocate, functions.free)
                self.served[ordinal] = account

    def uninstall(self) -> NoReturn:
        """Raise `BridgeError`."""
        raise BridgeError(
            bridge="torch",
            cause="PyTorch's allocator was replaced, which it allows once in a process",
            remedy="Start the process without it, or use mode 'pool'.",
        )

    def describe(self) -> str | None:
        """Return what PyTorch draws from, if that is not Allotment."""
        if self._torch._C._cuda_getAllocator() is self._allocator:
            return None
        return f"PyTorch's allocator {self._torch.cuda.get_allocator_backend()!r}"

    def allocate(self, size: int, ordinal: int, handle: int) -> tuple[AccountedAllocator, int, Stream]:
        """Return a block for the stream that PyTorch names."""
        device = self.delivery.device(ordinal)
        account = self.delivery.account(device)
        if getattr(account.allocator, "draws_from", None) == "torch":
            refuse_circle(self.delivery)
        if ordinal not in self._known:
            self._known.add(ordinal)
            self._neighbours.meet(device)
            self._serve_in_c(account, ordinal)
        stream = self.delivery.stream(device, handle)
        return account, account.allocate_on(size, stream), stream

    def trim(self) -> None:
        """Give back what the allocators of all devices hold idle, for ``torch.cuda.empty_cache``."""
        for device in get_cuda_devices():
            with suppress(CaptureError):
                self.delivery.account(device).trim()


def _refuse_capture(*_: Any, **__: Any) -> NoReturn:
    raise BridgeError(
        bridge="torch",
        cause="PyTorch captures no CUDA graph with its allocator replaced: it would hand the graph's memory to others",
        remedy="Use mode 'pool'.",
    )
