"""What is to be launched: a kernel, over how much, on which arguments, where."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from allotment.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from allotment.device import Device
    from allotment.stream import Stream

Dim: TypeAlias = int | tuple[int, ...]

THREADS_PER_BLOCK: Final = 256
_BLOCKS: Final = {1: (THREADS_PER_BLOCK,), 2: (16, 16), 3: (8, 8, 4)}
"""The shape of a block of threads by the number of dimensions."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchRequest:
    """A launch as an adapter gets it.

    Parameters
    ----------
    kernel
        The kernel.
    dim
        Over how many elements it goes, as it was given: a number, or one for each dimension.
    inputs, outputs
        The arguments, as they were given.
    device
        Where it is to run.
    stream
        The stream that it goes to, which is in force while the adapter is called; ``None`` on the host.
    """

    kernel: Any
    dim: Dim
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    device: Device
    stream: Stream | None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """All arguments, the outputs last."""
        return self.inputs + self.outputs

    @property
    def named_arguments(self) -> list[tuple[str, Any]]:
        """All arguments, each with the path by which messages call it."""
        named = [(f"inputs[{position}]", argument) for position, argument in enumerate(self.inputs)]
        return named + [(f"outputs[{position}]", argument) for position, argument in enumerate(self.outputs)]

    @property
    def shape(self) -> tuple[int, ...]:
        """``dim`` as a tuple."""
        return (self.dim,) if isinstance(self.dim, int) else self.dim

    @property
    def size(self) -> int:
        """How many elements that are in all."""
        return prod(self.shape)

    @property
    def grid(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The blocks of a CUDA launch and the threads of each: 256, along x for the first dimension.

        More than three dimensions become one.
        """
        shape = self.shape if len(self.shape) in _BLOCKS else (self.size,)
        block = _BLOCKS[len(shape)]
        return tuple(-(-extent // threads) for extent, threads in zip(shape, block, strict=True)), block

    @property
    def name(self) -> str:
        """What the kernel is called."""
        return kernel_name(self.kernel)

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Raise because this kind of kernel does not run on the device."""
        where = f"{self.device.alias!r} of platform {self.device.platform.name!r}"
        raise UnsupportedError(f"{what} {self.name!r} cannot be launched on {where}. {remedy}")


def kernel_name(kernel: Any) -> str:
    """Return what a kernel of any library is called."""
    for attribute in ("key", "__qualname__", "__name__", "name"):
        if isinstance(name := getattr(kernel, attribute, None), str) and name:
            return name
    inner = getattr(kernel, "func", None) or getattr(kernel, "py_func", None)
    return kernel_name(inner) if inner is not None else type(kernel).__name__


def read_dim(dim: int | Sequence[int]) -> Dim:
    """Return what was given as ``dim``, checked.

    Raises
    ------
    TypeError
        If it is neither an integer nor a sequence of them.
    ValueError
        If one is negative, or there is none.
    """
    found = index(dim) if hasattr(dim, "__index__") else tuple(index(extent) for extent in dim)
    extents = (found,) if isinstance(found, int) else found
    if not extents or min(extents) < 0:
        raise ValueError(f"dim says over how many elements a kernel goes, in each dimension, and cannot be {dim!r}")
    return found
