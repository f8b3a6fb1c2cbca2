"""Who knows how to launch which kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.launching._request import LaunchRequest


class KernelAdapter(Protocol):
    """What launches the kernels of one library.

    Attributes
    ----------
    kernels : str
        What it launches, in words: for the error about a kernel that nobody launches.
    """

    kernels: str

    def accepts(self, kernel: Any) -> bool:
        """Return whether it launches a kernel. It judges by the type and imports nothing: it may be asked about any."""
        ...

    def launch(self, request: LaunchRequest) -> None:
        """Launch a kernel that it accepts, in the order of the request's stream.

        Arrays come as the user gave them. It raises `UnsupportedError` where the kernel cannot run on the device.
        """
        ...


class _Adapters:
    """The adapters, those of others before those of core, and which one launches which type of kernel."""

    def __init__(self) -> None:
        self._added: list[KernelAdapter] = []
        self._found: dict[type, KernelAdapter] = {}

    def add(self, adapter: KernelAdapter) -> Callable[[], None]:
        self._added.insert(0, adapter)
        self._found.clear()

        def remove() -> None:
            self._added.remove(adapter)
            self._found.clear()

        return remove

    def find(self, kernel: Any) -> KernelAdapter:
        found = self._found.get(type(kernel))
        return found if found is not None and found.accepts(kernel) else self._search(kernel)

    def _search(self, kernel: Any) -> KernelAdapter:
        adapters = [*self._added, *_built_in()]
        adapter = next((adapter for adapter in adapters if adapter.accepts(kernel)), None)
        if adapter is None:
            kinds = "; ".join(adapter.kernels for adapter in adapters)
            raise TypeError(
                f"launch does not know how to launch a {type(kernel).__module__}.{type(kernel).__qualname__}. "
                f"It takes: {kinds}. register_kernel_adapter adds others."
            )
        self._found[type(kernel)] = adapter
        return adapter


def _built_in() -> tuple[KernelAdapter, ...]:
    from allotment.launching._cupy import CupyAdapter
    from allotment.launching._numba import NumbaCudaAdapter
    from allotment.launching._python import FunctionAdapter
    from allotment.launching._warp import WarpAdapter

    return CupyAdapter(), NumbaCudaAdapter(), WarpAdapter(), FunctionAdapter()


adapters: Final = _Adapters()


def register_kernel_adapter(adapter: KernelAdapter) -> Callable[[], None]:
    """Let `launch` take the kernels of another library, before those that it knows; return what takes that back.

    Parameters
    ----------
    adapter
        An object with ``kernels``, ``accepts(kernel)`` and ``launch(request)``; see `KernelAdapter`.

    Raises
    ------
    TypeError
        If it lacks one of them.
    """
    if not isinstance(getattr(adapter, "kernels", None), str) or not all(
        callable(getattr(adapter, name, None)) for name in ("accepts", "launch")
    ):
        raise TypeError(f"a kernel adapter has a text kernels and methods accepts and launch; {adapter!r} has not")
    return adapters.add(adapter)


def root_module(kernel: Any) -> str:
    """Return the package that a kernel's type comes from."""
    return type(kernel).__module__.partition(".")[0]
