"""Numba's External Memory Management interface, version 1, on top of Allotment. Importing it imports Numba."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer
from numba.cuda.cudadrv import driver

from allotment import CaptureError, Delivery, IpcKind, OutOfMemoryError, UnsupportedError
from allotment_numba_bridge._blocks import NULL_STREAM, Block, Blocks

if TYPE_CHECKING:
    from collections.abc import Iterator


class AllotmentNumbaManager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """What Numba asks for memory. Numba makes one for each context, and one without to read its version.

    Page-locked, mapped and managed memory stays Numba's own.

    Attributes
    ----------
    delivery
        What all of them draw from; ``None`` for ``cuMemAlloc``, as Numba itself does. A context keeps the manager that
        it began with, so this is what changes when the bridge is uninstalled.
    """

    delivery: ClassVar[Delivery | None] = None

    @classmethod
    def draw_from(cls, delivery: Delivery) -> None:
        """Let all managers draw from a delivery."""
        delivery.tells_streams = False  # Numba's own frees wait for the device
        cls.delivery = delivery

    @classmethod
    def draw_from_configured(cls) -> None:
        """Draw from the allocator in force, unless something else was installed."""
        if cls.delivery is None:
            cls.draw_from(Delivery("numba"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._blocks = Blocks()

    @property
    def interface_version(self) -> int:
        """The version of the interface that this is."""
        return 1

    @property
    def _ordinal(self) -> int:
        device = self.context.device  # a context of somebody else may have the driver's own, which is its number
        return int(getattr(device, "id", device))

    def initialize(self) -> None:
        """Prepare the context for use; may be called often, and after `reset`."""
        if not self.deallocations.memory_capacity:
            self.deallocations.memory_capacity = self.get_memory_info().total

    def memalloc(self, size: int) -> Any:
        """Return a pointer to new memory, which goes back to the allocator in force now when the pointer is gone.

        Raises
        ------
        CudaAPIError
            With the code ``CUDA_ERROR_OUT_OF_MEMORY`` if the memory is not to be had; its cause is Allotment's error.
        """
        delivery = self.delivery
        if delivery is None:
            return driver.NumbaCUDAMemoryManager.memalloc(self, size)
        if not self.deallocations.is_disabled:
            self._blocks.settle()  # what another thread's finaliser deferred just as the last scope ended
        block = self._allocate(delivery, size)
        pointer = driver.binding.CUdeviceptr(block.ptr)
        if not block.ptr:
            return MemoryPointer(weakref.proxy(self.context), pointer, 0)
        self._blocks.add(block)
        return MemoryPointer(weakref.proxy(self.context), pointer, size, finalizer=self._finaliser(block))

    def _allocate(self, delivery: Delivery, size: int) -> Block:
        device = delivery.device(self._ordinal)
        account, stream = delivery.account(device), delivery.stream(device, NULL_STREAM)
        try:
            return Block(delivery, account, account.allocate_on(size, stream), size, stream)
        except OutOfMemoryError as error:
            if self.deallocations.is_disabled or not len(self.deallocations):
                _raise_out_of_memory(error)
        self.deallocations.clear()  # managed memory that Numba has dropped, but not freed yet
        try:
            return Block(delivery, account, account.allocate_on(size, stream), size, stream)
        except OutOfMemoryError as error:
            _raise_out_of_memory(error)

    def _finaliser(self, block: Block) -> Any:
        blocks, deallocations = self._blocks, self.deallocations  # not the manager: its context would live on

        def finalise() -> None:
            blocks.take_back(block, later=deallocations.is_disabled)

        return finalise

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Free nothing inside the block; at the end of the outermost one, what was dropped meanwhile."""
        try:
            with super().defer_cleanup():
                yield
        finally:
            if not self.deallocations.is_disabled:
                self._blocks.settle()

    def reset(self) -> None:
        """Take back all memory of the context, and let the allocators give back what they keep idle of it."""
        super().reset()
        for account in self._blocks.clear():
            with contextlib.suppress(CaptureError):
                account.trim()

    def get_memory_info(self) -> Any:
        """Return the device's free and total memory in bytes, as the driver counts them."""
        delivery = self.delivery
        if delivery is None:
            return driver.NumbaCUDAMemoryManager.get_memory_info(self)
        info = delivery.device(self._ordinal).memory_info
        return MemoryInfo(free=info.free, total=info.total)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Return a handle for another process, with the offset of the array in its allocation.

        Raises
        ------
        UnsupportedError
            If the memory is of an allocator whose memory CUDA has no handles for.
        """
        block = self._blocks.find(memory.device_pointer_value or 0)
        if block is not None and block.account.traits.ipc is not IpcKind.LEGACY:
            raise UnsupportedError(
                f"memory of allocator {block.account.name!r} cannot be shared with another process: CUDA has no "
                "handles for it. Let the bridge draw from one whose memory has: install('numba', allocator='default')."
            )
        return super().get_ipc_handle(memory)


def _raise_out_of_memory(error: OutOfMemoryError) -> NoReturn:
    """Raise what Numba raises when memory runs out."""
    raise driver.CudaAPIError(driver.binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY, str(error)) from error
