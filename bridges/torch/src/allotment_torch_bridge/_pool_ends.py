"""Pools that the program made for itself, and lets go while requests are routed."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from allotment_torch_bridge._library import keep_for_ever
from allotment_torch_bridge._receiver import RECEIVER

if TYPE_CHECKING:
    from allotment_torch_bridge._patches import Patches

_DEVICE: Final = "_allotment_device"


class PoolEnds:
    """Ends pools of the program in the place of their destructors, which end the process while a route is there.

    Parameters
    ----------
    torch
        The library.
    """

    def __init__(self, torch: Any) -> None:
        self._torch, self._give_back_idle = torch, torch._C._cuda_emptyCache

    def watch(self, patches: Patches) -> None:
        """Do so from now on, until the patches are taken out again."""
        kind = self._torch.cuda.MemPool
        begin, end = kind.__init__, self.end

        def noting_device(pool: Any, *arguments: Any, **keywords: Any) -> None:
            begin(pool, *arguments, **keywords)
            setattr(pool, _DEVICE, self._torch.cuda.current_device())

        def ending(pool: Any) -> None:
            end(pool)

        patches.put(kind, "__init__", wraps(begin)(noting_device))
        patches.put(kind, "__del__", ending)

    def end(self, pool: Any) -> None:
        """Let nobody use a pool any more, whose object lives on. What is idle of it is given back."""
        keep_for_ever(pool)
        device = getattr(pool, _DEVICE, None)
        if device is None:
            device = self._device_of(pool)
        if device is not None:
            self._torch._C._cuda_releasePool(device, pool.id)
            if not RECEIVER.captures:
                self._give_back_idle()

    def _device_of(self, pool: Any) -> int | None:
        """Return the device of a pool that was made before; ``None`` if it holds nothing."""
        segments = self._torch.cuda.memory_snapshot()
        return next((each["device"] for each in segments if each["segment_pool_id"] == pool.id), None)
