"""Finding the memory resource that options name. ``cuda.core`` is imported here, when it is needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from acme_cuda_core_memory._options import DEVICE_POOL, OWN_POOL

if TYPE_CHECKING:
    from cuda.core import MemoryResource

    from acme_cuda_core_memory._options import CudaCoreOptions


def is_installed() -> bool:
    """Return whether ``cuda.core`` is, without importing it."""
    try:
        return find_spec("cuda.core") is not None
    except ModuleNotFoundError:
        return False


def make_resource(options: CudaCoreOptions, ordinal: int) -> MemoryResource:
    """Return the memory resource that options name, for a device by its ordinal.

    Raises
    ------
    TypeError
        If what they name makes none.
    """
    from cuda.core import DeviceMemoryResource, DeviceMemoryResourceOptions, MemoryResource

    if options.resource == DEVICE_POOL:
        return DeviceMemoryResource(ordinal)
    if options.resource == OWN_POOL:
        return DeviceMemoryResource(ordinal, DeviceMemoryResourceOptions())
    made = _function_of(options.resource)(ordinal)
    if not isinstance(made, MemoryResource):
        raise TypeError(f"{options.resource} returned {made!r}, which is no cuda.core.MemoryResource")
    return made


def _function_of(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
