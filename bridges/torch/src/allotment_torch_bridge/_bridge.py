"""The bridge: it makes PyTorch draw from Allotment, beneath its cache or in its place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from allotment import Availability
from allotment_torch_bridge._conflicts import refuse_conflicts

if TYPE_CHECKING:
    from allotment import Delivery
    from allotment_torch_bridge._pools import Pools
    from allotment_torch_bridge._replacement import Replacement


class Mode(Enum):
    """Where PyTorch draws from Allotment."""

    POOL = "pool"
    """Beneath PyTorch's caching allocator, which keeps its cache, its figures and its errors: segment by segment."""
    REPLACE = "replace"
    """In the place of PyTorch's caching allocator: tensor by tensor, for the rest of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBridgeOptions:
    """Options of the bridge to PyTorch.

    Parameters
    ----------
    mode
        ``"pool"``: PyTorch caches what it draws. It can be installed at any time, and uninstalled. ``"replace"``: every
        tensor is an allocation of Allotment. It must be installed before the first use of a CUDA device and stays,
        and PyTorch has no figures of its own then.
    """

    mode: Mode = Mode.POOL


class TorchBridge:
    """Makes PyTorch draw from Allotment, on all devices and in all threads.

    Parameters
    ----------
    options
        See `TorchBridgeOptions`.
    """

    name: ClassVar = "torch"
    Options: ClassVar = TorchBridgeOptions

    def __init__(self, options: TorchBridgeOptions | None = None) -> None:
        self.options = options or TorchBridgeOptions()
        self._installed: Pools | Replacement | None = None

    @classmethod
    def availability(cls) -> Availability:
        """Return whether PyTorch is installed."""
        if find_spec("torch") is not None:
            return Availability(ok=True)
        return Availability(ok=False, reason="PyTorch is not installed: see https://pytorch.org/get-started/locally/")

    def install(self, delivery: Delivery) -> None:
        """Make PyTorch draw from the delivery.

        Raises
        ------
        BridgeError
            If PyTorch is set up for another allocator, or lacks what the mode needs.
        """
        replaces = self.options.mode is Mode.REPLACE
        refuse_conflicts(delivery, replaces=replaces)
        if replaces:
            from allotment_torch_bridge._replacement import Replacement

            self._installed = Replacement.install(delivery)
        else:
            from allotment_torch_bridge._pools import Pools

            self._installed = Pools.install(delivery)

    def uninstall(self) -> None:
        """Let PyTorch allocate for itself again. Tensors keep their memory, which returns to where it came from.

        Raises
        ------
        BridgeError
            In mode "replace": PyTorch changes its allocator once.
        """
        if self._installed is not None:
            self._installed.uninstall()

    def describe(self) -> str | None:
        """Return what PyTorch draws from by now; ``None`` if that is the delivery."""
        return None if self._installed is None else self._installed.describe()
