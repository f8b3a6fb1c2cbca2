"""Functions in C that a library allocates by, and who receives the calls."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import Any


class CallbackReceiver(Protocol):
    """Who receives the calls of a library that allocates by functions in C, from any thread."""

    def allocate(self, size: int, device: int, stream: int, /) -> int:
        """Return the address of a new block. A `MemoryError` is a refusal; what else is raised is reported as well."""
        ...

    def free(self, ptr: int, /) -> None:
        """Take a block back. What it raises is reported."""
        ...

    def settle(self) -> None:
        """Take the blocks back that were freed without the interpreter lock, which ``take_freed()`` returns."""
        ...

    def record_use(self, ptr: int, stream: int, /) -> None:
        """Note that the present work of a stream uses a block."""
        ...

    def trim(self) -> None:
        """Give idle memory back."""
        ...


class CCallbacks(Protocol):
    """Functions in C for a library that names device and stream. There is one receiver in a process.

    ``allocate`` is ``void *(ssize_t size, int device, cudaStream_t)``, ``free`` and ``free_later`` are
    ``void (void *, ssize_t, int device, cudaStream_t)``, ``record_use`` is ``void (void *, cudaStream_t)`` and ``trim``
    ``void (void)``. ``free_later`` calls nobody: it may be called with any lock held, and the receiver is asked to
    ``settle`` in the main thread soon. None of them lets an exception out; after the interpreter began to exit
    they do nothing, and ``allocate`` refuses.
    """

    def connect(self, receiver: CallbackReceiver | None, /) -> None:
        """Let an object receive the calls; ``None`` for nobody."""
        ...

    def addresses(self) -> dict[str, int]:
        """Return the address of each function by its name."""
        ...

    def serve(self, device: int, allocate: int, free: int, /) -> None:
        """Let two functions in C serve a device; the receiver is asked where they return null. 0 for none."""
        ...

    def throw_by(self, *addresses: int) -> None:
        """Tell of a refusal by an exception of C++, made with what is at these addresses; see the compiled twin."""
        ...

    def take_freed(self) -> list[int]:
        """Return the addresses that ``free_later`` was given, and forget them."""
        ...


@cache
def c_callbacks() -> CCallbacks:
    """Return the functions of this process."""
    from allotment._process import on_shutdown

    twin = _twin()
    on_shutdown(twin.close)
    callbacks: CCallbacks = twin
    return callbacks


def has_compiled_callbacks() -> bool:
    """Return whether the functions are the compiled ones, which alone can be called at any time and with locks held."""
    from allotment.bridges import _c_callbacks

    return _twin() is not _c_callbacks


def _twin() -> Any:
    from allotment._twins import preferred
    from allotment.bridges import _c_callbacks

    return preferred(_c_callbacks)
