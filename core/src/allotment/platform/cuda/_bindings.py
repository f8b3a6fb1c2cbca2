"""What CuPy lacks, through cuda-bindings: the one place that knows how its versions differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from allotment.errors import PlatformError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

POOL_HANDLE: Final = "CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE"
RANGE_START: Final = "CU_POINTER_ATTRIBUTE_RANGE_START_ADDR"
RANGE_SIZE: Final = "CU_POINTER_ATTRIBUTE_RANGE_SIZE"
GRAPH_MEMORY: Final = (
    "cudaGraphMemAttrUsedMemCurrent",
    "cudaGraphMemAttrUsedMemHigh",
    "cudaGraphMemAttrReservedMemCurrent",
    "cudaGraphMemAttrReservedMemHigh",
)
_HOST_BEFORE_13: Final = -1
"""``cudaCpuDeviceId``, which stood for the host before places had a type."""


_ENTRY_POINT_VERSION: Final = 12_000
"""The version of CUDA whose functions are looked up by name: the oldest that Allotment runs on."""


class Bindings:
    """Calls of cuda-bindings that raise `PlatformError` where those return a code.

    Raises
    ------
    UnsupportedError
        If cuda-bindings cannot be imported.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import __version__, driver, runtime
        except ImportError as error:
            raise UnsupportedError(
                f"cuda-bindings is needed for this call and cannot be imported ({error}). "
                "Install allotment[cuda13], or allotment[cuda12] for a driver of CUDA 12."
            ) from error
        self._driver: Any = driver
        self._runtime: Any = runtime
        has_typed_places = int(__version__.partition(".")[0]) >= 13
        self._advise_host = self._advise_place if has_typed_places else self._advise_ordinal
        self._prefetch_to_host = self._prefetch_to_place if has_typed_places else self._prefetch_to_ordinal
        self._call(driver.cuInit, 0)

    def context_is_open(self, ordinal: int) -> bool:
        """Return whether a device's primary context is open."""
        _, is_active = self._call(self._driver.cuDevicePrimaryCtxGetState, ordinal)
        return bool(is_active)

    def primary_context(self, ordinal: int) -> int:
        """Return a device's primary context, which is opened and kept open."""
        return int(self._call(self._driver.cuDevicePrimaryCtxRetain, ordinal))

    def uuid(self, ordinal: int) -> bytes:
        """Return a device's 16-byte identifier."""
        properties = self._call(self._runtime.cudaGetDeviceProperties, ordinal)
        return bytes(properties.uuid.bytes)

    def create_stream(self, flags: int, priority: int) -> int:
        """Return a new stream of the current device with a priority."""
        return int(self._call(self._runtime.cudaStreamCreateWithPriority, flags, priority))

    def pool_access(self, pool: int, ordinal: int) -> int:
        """Return the flags of a device's access to a pool's memory."""
        return int(self._call(self._runtime.cudaMemPoolGetAccess, self._pool(pool), self._device(ordinal)))

    def set_pool_access(self, pool: int, ordinal: int, flags: int) -> None:
        """Set the flags of a device's access to a pool's memory."""
        access = self._runtime.cudaMemAccessDesc()
        access.location = self._device(ordinal)
        access.flags = self._runtime.cudaMemAccessFlags(flags)
        self._call(self._runtime.cudaMemPoolSetAccess, self._pool(pool), [access], 1)

    def pointer_attribute(self, name: str, ptr: int) -> int:
        """Return an attribute of the address of memory that CUDA knows.

        Not ``DEVICE_ORDINAL``: cuda-bindings 13.3 answers 0 whatever the device.
        """
        attribute = getattr(self._driver.CUpointer_attribute, name)
        value = self._call(self._driver.cuPointerGetAttribute, attribute, self._driver.CUdeviceptr(ptr))
        return int(value or 0)

    def advise_host(self, ptr: int, nbytes: int, advice: int) -> None:
        """Give advice about managed memory and the host."""
        self._advise_host(ptr, nbytes, self._runtime.cudaMemoryAdvise(advice))

    def prefetch_to_host(self, ptr: int, nbytes: int, stream: int) -> None:
        """Move managed memory to the host in the order of a stream."""
        self._prefetch_to_host(ptr, nbytes, stream)

    def capture_status(self, stream: int) -> int:
        """Return whether a stream is captured; CuPy raises where a capture was invalidated."""
        return int(self._call(self._runtime.cudaStreamIsCapturing, stream))

    def exchange_capture_mode(self, mode: int) -> int:
        """Set the calling thread's capture mode, and return the one before."""
        modes = self._runtime.cudaStreamCaptureMode
        return int(self._call(self._runtime.cudaThreadExchangeStreamCaptureMode, modes(mode)))

    def instantiate_graph(self, graph: int) -> int:
        """Return an executable graph whose launches free what earlier ones left allocated."""
        flag = self._runtime.cudaGraphInstantiateFlags.cudaGraphInstantiateFlagAutoFreeOnLaunch
        handle = self._runtime.cudaGraph_t(graph)
        return int(self._call(self._runtime.cudaGraphInstantiateWithFlags, handle, int(flag)))

    def graph_memory(self, ordinal: int) -> tuple[int, ...]:
        """Return a device's graph memory in bytes: used, its high mark, reserved, its high mark."""
        attributes = self._runtime.cudaGraphMemAttributeType
        return tuple(
            int(self._call(self._runtime.cudaDeviceGetGraphMemAttribute, ordinal, getattr(attributes, name)))
            for name in GRAPH_MEMORY
        )

    def trim_graph_memory(self, ordinal: int) -> None:
        """Give back what is mapped for graphs and not in use."""
        self._call(self._runtime.cudaDeviceGraphMemTrim, ordinal)

    # Virtual memory

    def reserve_addresses(self, nbytes: int) -> int:
        """Return the first of reserved device addresses, aligned as the driver likes."""
        return int(self._drive(self._driver.cuMemAddressReserve, nbytes, 0, 0, 0))

    def free_addresses(self, ptr: int, nbytes: int) -> None:
        """Give a reservation back."""
        self._drive(self._driver.cuMemAddressFree, ptr, nbytes)

    def create_physical(self, ordinal: int, nbytes: int) -> int:
        """Return a handle of physical memory of a device, which stays there."""
        return int(self._drive(self._driver.cuMemCreate, nbytes, self._physical_of(ordinal), 0))

    def release_physical(self, handle: int) -> None:
        """Release a handle of physical memory."""
        self._drive(self._driver.cuMemRelease, handle)

    def map_physical(self, ptr: int, nbytes: int, handle: int) -> None:
        """Map physical memory from its beginning; the driver supports no other offset."""
        self._drive(self._driver.cuMemMap, ptr, nbytes, 0, handle, 0)

    def unmap_physical(self, ptr: int, nbytes: int) -> None:
        """Unmap a range."""
        self._drive(self._driver.cuMemUnmap, ptr, nbytes)

    def set_mapping_access(self, ptr: int, nbytes: int, ordinal: int, flags: int) -> None:
        """Set the flags of a device's access to a mapped range."""
        access = self._driver.CUmemAccessDesc()
        access.location = self._driver_place(ordinal)
        access.flags = self._driver.CUmemAccess_flags(flags)
        self._drive(self._driver.cuMemSetAccess, ptr, nbytes, [access], 1)

    def mapping_granularity(self, ordinal: int) -> int:
        """Return the least multiple in which a device's memory is mapped."""
        least = self._driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        return int(self._drive(self._driver.cuMemGetAllocationGranularity, self._physical_of(ordinal), least))

    def entry_point(self, name: str) -> int:
        """Return the address of a function of the driver, 0 if it does not say."""
        error, address, *_ = self._driver.cuGetProcAddress(name.encode(), _ENTRY_POINT_VERSION, 0)
        return 0 if int(error) else int(address or 0)

    def _physical_of(self, ordinal: int) -> Any:
        properties = self._driver.CUmemAllocationProp()
        properties.type = self._driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location = self._driver_place(ordinal)
        return properties

    def _driver_place(self, ordinal: int) -> Any:
        place = self._driver.CUmemLocation()
        place.type = self._driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        place.id = ordinal
        return place

    def _drive(self, function: Callable[..., tuple[Any, ...]], *args: object) -> Any:
        """Call the driver, and raise its error by the name that the runtime has for the same number."""
        error, *values = function(*args)
        if int(error) != 0:
            raise PlatformError(call=function.__name__, code=self.name_of(int(error)))
        return values[0] if values else None

    def name_of(self, result: int) -> str:
        """Return the name that the runtime has for the number of a driver's result, or else the driver's own."""
        for names in (self._runtime.cudaError_t, self._driver.CUresult):
            try:
                return str(names(result).name)
            except ValueError:
                continue
        return f"CUresult {result}"

    # Places: an ordinal up to version 12, a location with a type since 13.

    def _advise_place(self, ptr: int, nbytes: int, advice: Any) -> None:
        self._call(self._runtime.cudaMemAdvise, ptr, nbytes, advice, self._host())

    def _advise_ordinal(self, ptr: int, nbytes: int, advice: Any) -> None:
        self._call(self._runtime.cudaMemAdvise, ptr, nbytes, advice, _HOST_BEFORE_13)

    def _prefetch_to_place(self, ptr: int, nbytes: int, stream: int) -> None:
        self._call(self._runtime.cudaMemPrefetchAsync, ptr, nbytes, self._host(), 0, stream)

    def _prefetch_to_ordinal(self, ptr: int, nbytes: int, stream: int) -> None:
        self._call(self._runtime.cudaMemPrefetchAsync, ptr, nbytes, _HOST_BEFORE_13, stream)

    def _host(self) -> Any:
        place = self._runtime.cudaMemLocation()
        place.type = self._runtime.cudaMemLocationType.cudaMemLocationTypeHost
        place.id = 0
        return place

    def _device(self, ordinal: int) -> Any:
        place = self._runtime.cudaMemLocation()
        place.type = self._runtime.cudaMemLocationType.cudaMemLocationTypeDevice
        place.id = ordinal
        return place

    def _pool(self, pool: int) -> Any:
        return self._runtime.cudaMemPool_t(pool)

    def _call(self, function: Callable[..., tuple[Any, ...]], *args: object) -> Any:
        """Call; raise the error, which is the first item of what comes back, or return the rest."""
        error, *values = function(*args)
        if int(error) != 0:
            if isinstance(error, self._runtime.cudaError_t):
                self._runtime.cudaGetLastError()  # else the next caller to ask would take it for its own
            code = getattr(error, "name", None) or str(error)
            raise PlatformError(call=function.__name__, code=code)
        return values[0] if len(values) == 1 else values
