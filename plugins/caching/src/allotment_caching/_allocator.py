"""The allocator: an engine over the memory of one device."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from allotment import (
    API_VERSION,
    AllocatorTraits,
    Availability,
    CClient,
    CFunctions,
    MemoryKind,
    Reservation,
    UnsupportedError,
    get_stream,
)
from allotment_caching._options import CachingOptions, Policy
from allotment_caching._supply import PlatformSupply
from allotment_caching._twins import compiled_module, make_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment import AccountAnswers, Device, OwnAccounts, Stream
    from allotment_caching.engine.mlx_cache import MlxCache
    from allotment_caching.engine.policy import Figures


class CachingAllocator:
    """Device memory that is kept when it is freed, and serves again without a call to the driver.

    Parameters
    ----------
    device
        The device it serves.
    options
        See `CachingOptions`.
    """

    api_version: ClassVar = API_VERSION
    traits = AllocatorTraits(
        memory_kind=MemoryKind.CUDA_DEVICE, alignment=512, stream_ordered=True, capturable=True, mapped=True
    )
    Options: ClassVar = CachingOptions

    def __init__(self, *, device: Device, options: CachingOptions | None = None) -> None:
        self.device, self.options = device, options or CachingOptions()
        self.traits = self.traits_for(self.options)
        self._supply = PlatformSupply(device, maps_memory=self.options.map_memory)
        self._engine, self._cache = make_engine(self._supply, self.options, device)
        self._pools = count(1)

    @classmethod
    def traits_for(cls, options: CachingOptions) -> AllocatorTraits:
        """Return what holds with these options: buffers of the policy "mlx" come from the device's default pool."""
        if options.policy is Policy.ELASTIC:
            return cls.traits
        return AllocatorTraits(
            # Scalars are managed memory, so that the kind is that of each block, unless all are.
            memory_kind=MemoryKind.CUDA_MANAGED if options.mlx_managed else MemoryKind.UNKNOWN,
            alignment=min(options.mlx_scalar_alignment, 256),
            stream_ordered=not options.mlx_ignores_streams,
            capturable=True,
        )

    @classmethod
    def diagnosis(cls) -> str | None:
        """Tell if the compiled engine is missing."""
        if compiled_module() is not None:
            return None
        return "its engine in Python serves, since this wheel was built without the compiled one: every call is slower"

    @property
    def mlx_cache(self) -> MlxCache | None:
        """The cache behind the policy "mlx", with the interface of MLX and its figures, which count capacities."""
        return self._cache

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled engine is used."""
        return self._engine.is_compiled

    # The contract

    def open_accounts(self, answers: AccountAnswers) -> OwnAccounts:
        """Return the accounts that the engine keeps."""
        self._engine.attach(answers)
        return self._engine

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a block that work queued on ``stream`` from now on may use."""
        return self._engine.allocate_on(size_in_bytes, stream)

    def deallocate_on(self, ptr: int, size_in_bytes: int, stream: Stream) -> None:
        """Take a block back in the order of the stream it was allocated on, and of ``stream`` if that is another."""
        self._engine.deallocate_on(ptr, size_in_bytes, stream)

    def allocate(self, size_in_bytes: int) -> int:
        """Return a block that work on the stream in force may use."""
        return self.allocate_on(size_in_bytes, get_stream(self.device))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Take a block back in the order of its stream, and of the one in force."""
        self.deallocate_on(ptr, size_in_bytes, get_stream(self.device))

    def record_use(self, ptr: int, stream: Stream) -> None:
        """Note that work on ``stream`` uses a live block: it is not reused before that work is done."""
        self._engine.record_use(ptr, stream)

    def open_private_pool(self) -> PrivatePool:
        """Return memory that is set apart for a graph."""
        return PrivatePool(self, next(self._pools))

    # What it holds

    def reservation(self) -> Reservation:
        """Return what is held of the device."""
        figures = self.figures()
        return Reservation(current=figures.reserved, peak=figures.peak_reserved)

    def reset_peak_reservation(self) -> None:
        """Set the high-water mark to what is held now."""
        self._engine.reset_peak_reserved()

    def trim(self, keep_bytes: int = 0) -> int:
        """Wait for the work in flight and give idle memory back until at most ``keep_bytes`` are held."""
        before = self.figures().reserved
        self._engine.trim(keep_bytes)
        return before - self.figures().reserved

    def figures(self) -> Figures:
        """Return what is held, handed out and idle, and how fragmented that is."""
        return self._engine.figures()

    def largest_free(self) -> int:
        """Return the bytes of the largest request that needs no memory to be moved or made."""
        return self.figures().largest_free

    def get_memory_limit(self) -> int:
        """Return the most bytes to hold of the device."""
        return self._engine.limit

    def set_memory_limit(self, limit: int) -> int:
        """Set the most bytes to hold of the device; return what it was."""
        before, self._engine.limit = self._engine.limit, limit
        return before

    def get_cache_limit(self) -> int:
        """Return the most bytes to hold idle."""
        return self._engine.cache_limit

    def set_cache_limit(self, limit: int) -> int:
        """Set the most bytes to hold idle, in the course of calls; return what it was."""
        before, self._engine.cache_limit = self._engine.cache_limit, limit
        return before

    def set_peer_access(self, peer: Device, /, *, enable: bool) -> None:
        """Let a device touch all memory of this allocator, present and future, or not; managed memory is everyone's."""
        if not self.options.mlx_managed:
            self._engine.share(peer.ordinal, enable)

    def c_functions(self) -> CFunctions:
        """Return functions in C for PyTorch's pluggable allocator, whose engine is never freed then.

        Raises
        ------
        UnsupportedError
            If the engine in Python is used, or another allocator serves the device already.
        """
        return CFunctions(**self._compiled_engine().serve(self.device.ordinal))

    def c_client(self, find_stream: int, find_owner: Callable[[int], object] | None = None) -> CClient:
        """Return functions in C for CuPy's ``CFunctionAllocator``, whose engine is never freed then.

        Raises
        ------
        UnsupportedError
            If the engine in Python is used.
        """
        made = CClient(**self._compiled_engine().client(find_stream))
        if find_owner is not None:
            self._supply.stream_owners.append(find_owner)
        return made

    def _compiled_engine(self) -> Any:
        if not self.is_compiled:
            raise UnsupportedError("the caching engine in Python has no functions in C: its compiled twin has them")
        return self._engine

    def close(self) -> None:
        """Give everything back."""
        self._engine.close()

    @classmethod
    def availability(cls, device: Device) -> Availability:
        """Every CUDA device will do."""
        if device.is_cpu:
            return Availability(ok=False, reason="it caches memory of CUDA devices")
        return Availability(ok=True)


class PrivatePool:
    """Memory that is set apart for a graph.

    Parameters
    ----------
    allocator
        Whose memory it is.
    number
        The pool's number.
    """

    def __init__(self, allocator: CachingAllocator, number: int) -> None:
        self._engine, self._number = allocator._engine, number

    def allocate_on(self, size_in_bytes: int, stream: Stream) -> int:
        """Return a block of the pool."""
        return self._engine.allocate_on(size_in_bytes, stream, self._number)

    def close(self) -> None:
        """Let what is idle of it serve others again, and the rest when it is freed."""
        self._engine.release_pool(self._number)
