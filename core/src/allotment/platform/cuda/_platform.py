"""The CUDA platform."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from allotment.platform.cuda._availability import version_text
from allotment.platform.cuda._contents import Contents
from allotment.platform.cuda._devices import Devices
from allotment.platform.cuda._errors import platform_error
from allotment.platform.cuda._graphs import Graphs
from allotment.platform.cuda._pointers import Pointers
from allotment.platform.cuda._pools import Pools
from allotment.platform.cuda._streams import Streams
from allotment.platform.cuda._virtual_memory import VirtualMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.errors import PlatformError

_PORTABLE: Final = 1
"""``cudaHostAllocPortable``: page-locked for every device."""


class CudaPlatform(Devices, Streams, Pools, VirtualMemory, Graphs, Pointers, Contents):
    """CUDA, through CuPy and cuda-bindings.

    The calls of the hot path are CuPy's own functions, bound to the instance, so that nothing stands between a caller
    and the runtime.

    Parameters
    ----------
    why
        Why this platform was chosen.

    Raises
    ------
    PlatformUnavailableError
        If CuPy, a driver or a device is missing.
    """

    name = "cuda"

    def __init__(self, why: str = "it was made directly") -> None:
        super().__init__()
        self.why = why
        self.description = self._describe()
        runtime = self._runtime
        self.set_current_device: Callable[[int], None] = runtime.setDevice
        self.malloc: Callable[[int], int] = runtime.malloc
        self.free: Callable[[int], None] = runtime.free
        self.malloc_managed: Callable[[int], int] = runtime.mallocManaged
        self.host_alloc: Callable[[int], int] = partial(runtime.hostAlloc, flags=_PORTABLE)
        self.host_free: Callable[[int], None] = runtime.freeHost
        self.malloc_from_pool: Callable[[int, int, int], int] = runtime.mallocFromPoolAsync
        self.free_async: Callable[[int, int], None] = runtime.freeAsync

    def error_from(self, exception: BaseException) -> PlatformError | None:
        """Return a raw call's exception as an error of ours; ``None`` if it is not from CUDA."""
        return platform_error(exception)

    def _describe(self) -> str:
        runtime, driver = map(version_text, self.versions())
        return f"CUDA {runtime} (driver {driver}) through CuPy {self._cupy.__version__}"
