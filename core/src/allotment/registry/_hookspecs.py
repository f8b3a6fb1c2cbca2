"""What observers can observe. This module imports pluggy, so it is imported when the first observer is registered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, cast

import pluggy

if TYPE_CHECKING:
    import typer

    from allotment.allocator import Allocator
    from allotment.device import Device
    from allotment.errors import OutOfMemoryError

PREFIX: Final = "allotment_"
"""How the name of every hook begins."""

_hookspec: Final = pluggy.HookspecMarker("allotment")


@_hookspec
def allotment_after_allocate(allocator: Allocator, device: Device, ptr: int, nbytes: int) -> None:
    """See a block that was allocated.

    Parameters
    ----------
    allocator
        What allocated it.
    device
        The device it was allocated for.
    ptr
        Its address.
    nbytes
        The size that was asked for, in bytes.
    """


@_hookspec
def allotment_after_deallocate(allocator: Allocator, device: Device, ptr: int, nbytes: int) -> None:
    """See a block that was given back; the arguments are those of ``allotment_after_allocate``."""


@_hookspec
def allotment_on_out_of_memory(error: OutOfMemoryError) -> None:
    """See a request that could not be met, before its error is raised."""


@_hookspec
def allotment_register_commands(app: typer.Typer) -> None:
    """Add commands to the command line ``allotment``."""


class ObserverManager(pluggy.PluginManager):
    """A pluggy manager to which every method named as a hook is one, marked or not.

    Attributes
    ----------
    hooks : tuple of str
        The hooks that exist.
    """

    def __init__(self) -> None:
        super().__init__("allotment")
        self.add_hookspecs(sys.modules[__name__])
        self.hooks = tuple(name for name in vars(self.hook) if name.startswith(PREFIX))

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        """Return the options of a hook's implementation; the defaults where it is not marked."""
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None and name.startswith(PREFIX) and callable(getattr(plugin, name)):
            return cast("pluggy.HookimplOpts", {})
        return options
