"""The bridge: it makes Numba use our memory manager."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from allotment import Availability, BridgeError
from allotment.bridges import require_devices

if TYPE_CHECKING:
    from allotment import Delivery

_EARLIER = (
    "Install it before the first use of numba.cuda, or set NUMBA_CUDA_MEMORY_MANAGER=allotment_numba_bridge for the "
    "process."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbaBridgeOptions:
    """There is nothing to say about it."""


class NumbaBridge:
    """Makes Numba's CUDA target draw its device memory from Allotment.

    Parameters
    ----------
    options
        See `NumbaBridgeOptions`.

    Notes
    -----
    Numba asks for its memory manager when it first uses a device, and a context keeps the one that it began with. After
    `uninstall` such a context is served by ``cuMemAlloc``, as by Numba itself.
    """

    name: ClassVar[str] = "numba"
    Options: ClassVar[type] = NumbaBridgeOptions

    def __init__(self, options: NumbaBridgeOptions | None = None) -> None:
        self.options = options or NumbaBridgeOptions()
        self._delivery: Delivery | None = None
        self._before: Any = None

    @classmethod
    def availability(cls) -> Availability:
        """Return whether Numba and its CUDA target are installed."""
        lacking = next((package for package in ("numba", "numba_cuda") if find_spec(package) is None), None)
        if lacking is None:
            return Availability(ok=True)
        return Availability(
            ok=False, reason=f"{lacking} is not installed: pip install 'allotment-numba-bridge[cuda13]' (or [cuda12])"
        )

    def install(self, delivery: Delivery) -> None:
        """Make Numba use our memory manager.

        Raises
        ------
        BridgeError
            If Numba uses a device already, with another memory manager, was told to use another one, or Allotment has
            no memory of the devices that it works on.
        """
        from numba.cuda.core import config

        if config.ENABLE_CUDASIM:
            raise BridgeError(bridge=self.name, cause="Numba simulates CUDA in this process (NUMBA_ENABLE_CUDASIM)")
        from numba import cuda
        from numba.cuda.cudadrv import driver

        from allotment_numba_bridge._emm import AllotmentNumbaManager

        require_devices(self.name, "Numba", cuda.is_available)
        _refuse_contexts(AllotmentNumbaManager)
        _refuse_other_plugin(AllotmentNumbaManager)
        self._before = driver._memory_manager
        if self._before is not AllotmentNumbaManager:
            driver.set_memory_manager(AllotmentNumbaManager)
        AllotmentNumbaManager.draw_from(delivery)
        self._delivery = delivery

    def uninstall(self) -> None:
        """Let Numba allocate for itself again."""
        from numba.cuda.cudadrv import driver

        from allotment_numba_bridge._emm import AllotmentNumbaManager

        if AllotmentNumbaManager.delivery is self._delivery:
            AllotmentNumbaManager.delivery = None
        if driver._memory_manager is AllotmentNumbaManager:
            driver.set_memory_manager(self._before or driver.NumbaCUDAMemoryManager)

    def describe(self) -> str | None:
        """Return what Numba draws from by now; ``None`` if that is the delivery."""
        from numba.cuda.cudadrv import driver

        from allotment_numba_bridge._emm import AllotmentNumbaManager

        managers = [type(manager) for _, manager in _managers_in_use()] or [driver._memory_manager]
        other = next((manager for manager in managers if manager is not AllotmentNumbaManager), None)
        return None if other is None else _name(other)


def _managers_in_use() -> list[tuple[int, Any]]:
    """Return the number of each device that Numba has a context on, with the context's memory manager. Opens none."""
    from numba.cuda.cudadrv import driver

    contexts = [(device.id, device.primary_context) for device in list(driver.driver.devices.values())]
    return [(int(number), context.memory_manager) for number, context in contexts if context is not None]


def _refuse_contexts(ours: type[Any]) -> None:
    for number, manager in _managers_in_use():
        if type(manager) is not ours:
            raise BridgeError(
                bridge=NumbaBridge.name,
                cause=f"Numba has a context on device {number} already, which keeps the memory manager that it began "
                f"with, {_name(type(manager))}",
                remedy=_EARLIER,
            )


def _refuse_other_plugin(ours: type[Any]) -> None:
    """Refuse to take the place of a memory manager that somebody else chose."""
    from numba.cuda.core import config
    from numba.cuda.cudadrv import driver

    chosen = driver._memory_manager
    if chosen is None and config.CUDA_MEMORY_MANAGER not in ("default", __package__):
        raise BridgeError(
            bridge=NumbaBridge.name,
            cause=f"NUMBA_CUDA_MEMORY_MANAGER says that Numba is to use the memory manager of "
            f"{config.CUDA_MEMORY_MANAGER!r}",
            remedy="Unset it, or leave the bridge away.",
        )
    if chosen not in (None, ours, driver.NumbaCUDAMemoryManager):
        raise BridgeError(
            bridge=NumbaBridge.name,
            cause=f"numba.cuda.set_memory_manager was called with {_name(chosen)}",
            remedy="Call one of the two, not both.",
        )


def _name(manager: type[Any] | None) -> str:
    return "its own memory manager" if manager is None else f"{manager.__module__}.{manager.__qualname__}"
