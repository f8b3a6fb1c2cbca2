"""Resources of RMM, made or taken, and streams as RMM has them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from allotment import MemoryAmount, MemoryKind, ScopedDevice, UnsupportedError
from allotment_rmm._options import Resource, Upstream

if TYPE_CHECKING:
    from allotment import Device
    from allotment_rmm._options import RmmOptions

HOW_TO_GET: Final = "RMM is not installed: pip install allotment-rmm[cuda13], or [cuda12] (Linux only)"
ALIGNMENT: Final = 256
"""RMM's pools take sizes that are multiples of it."""
BINS: Final = (MemoryAmount.parse("64 KiB"), MemoryAmount.parse("1 MiB"))


def is_installed() -> bool:
    """Return whether RMM can be imported, without importing it."""
    return find_spec("rmm") is not None


def memory_resources() -> Any:
    """Return ``rmm.mr``.

    Raises
    ------
    ImportError
        If RMM is not installed, with what to do.
    """
    try:
        from rmm import mr
    except ModuleNotFoundError as error:
        if is_installed():
            raise
        raise ImportError(HOW_TO_GET, name="rmm") from error
    return mr


def current_resource(ordinal: int) -> Any:
    """Return the resource that is current for a device in RMM.

    Raises
    ------
    UnsupportedError
        If it draws from Allotment itself.
    """
    found = memory_resources().get_per_device_resource(ordinal)
    if _draws_from_allotment(found):
        raise UnsupportedError(
            f"allocator 'rmm' cannot draw from RMM's current resource on device {ordinal}: by the bridge to 'rmm' that "
            "one draws from Allotment, so that each would ask the other for memory. Let the allocator make a resource "
            "of its own, with resource='pool' for one, or uninstall the bridge."
        )
    return found


def _draws_from_allotment(resource: Any) -> bool:
    while resource is not None:
        if getattr(resource, "draws_from_allotment", False):
            return True
        upstream = getattr(resource, "get_upstream", None)
        resource = upstream() if upstream is not None else None
    return False


_KINDS: Final = {
    "CudaMemoryResource": MemoryKind.CUDA_DEVICE,
    "CudaAsyncMemoryResource": MemoryKind.CUDA_MEMPOOL,
    "CudaAsyncViewMemoryResource": MemoryKind.CUDA_MEMPOOL,
    "ManagedMemoryResource": MemoryKind.CUDA_MANAGED,
}
"""The kind of memory by the class of what all adaptors and pools draw from in the end."""


def kind_of(resource: Any) -> MemoryKind:
    """Return the kind of memory that a resource hands out, as far as its class says."""
    while (upstream := getattr(resource, "get_upstream", None)) is not None:
        resource = upstream()
    return _KINDS.get(type(resource).__name__, MemoryKind.UNKNOWN)


def make_resource(options: RmmOptions, device: Device) -> Any:
    """Return the resource that options speak of, made while the device is current, as RMM asks."""
    if options.resource is Resource.CURRENT:
        return current_resource(device.ordinal)
    mr, total = memory_resources(), device.total_memory
    with ScopedDevice(device):
        match options.resource:
            case Resource.CUDA:
                return mr.CudaMemoryResource()
            case Resource.MANAGED:
                return mr.ManagedMemoryResource()
            case Resource.ASYNC:
                sizes = _bytes(options.initial_size, total), _bytes(options.release_threshold, total)
                return mr.CudaAsyncMemoryResource(*sizes)
            case Resource.POOL:
                return _pool(mr, options, total)
            case Resource.ARENA:
                return mr.ArenaMemoryResource(_upstream(mr, options), _bytes(options.initial_size, total))
            case Resource.BINNING:
                bins = [_exponent(size, total) for size in _bins(options)]
                return mr.BinningMemoryResource(_pool(mr, options, total), *bins)


def _upstream(mr: Any, options: RmmOptions) -> Any:
    return mr.ManagedMemoryResource() if options.upstream is Upstream.MANAGED else mr.CudaMemoryResource()


def _pool(mr: Any, options: RmmOptions, total: int) -> Any:
    sizes = _bytes(options.initial_size, total), _bytes(options.maximum_size, total)
    return mr.PoolMemoryResource(_upstream(mr, options), *sizes)


def _bins(options: RmmOptions) -> tuple[MemoryAmount, MemoryAmount]:
    smallest, largest = BINS
    return options.smallest_bin or smallest, options.largest_bin or largest


def _exponent(size: MemoryAmount, total: int) -> int:
    """Return the power of two that holds a size."""
    return max(size.resolve(total) - 1, 0).bit_length()


def _bytes(amount: MemoryAmount | None, total: int) -> int | None:
    """Return an amount in bytes, as a size that RMM takes; ``None`` for its own default."""
    return None if amount is None else -(-amount.resolve(total) // ALIGNMENT) * ALIGNMENT


class _Handle:
    """A stream that is a handle alone."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class RmmStreams(dict[int, Any]):
    """Streams as RMM has them, made once for each handle. They own nothing: whoever allocates keeps the stream."""

    def __init__(self) -> None:
        super().__init__()
        from rmm.pylibrmm.stream import Stream

        self._kind = Stream

    def __missing__(self, handle: int) -> Any:
        made = self[handle] = self._kind(_Handle(handle))
        return made
