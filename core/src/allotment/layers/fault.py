"""Failures on demand, to test what a program makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from allotment.errors import PlatformError
from allotment.layers.layer import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls


class FaultyCall(Enum):
    """Which calls fail."""

    ALLOCATE = "allocate"
    DEALLOCATE = "deallocate"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """Options of the layer ``fault``.

    Parameters
    ----------
    at
        The number of the call that fails, the first being 1.
    every
        Let every call fail whose number this divides; 1 for all.
    call
        Which calls are counted and fail.
    code
        CUDA's name for the failure. The default one is out of memory.
    """

    at: int | None = None
    every: int | None = None
    call: FaultyCall = FaultyCall.ALLOCATE
    code: str = "cudaErrorMemoryAllocation"

    def __post_init__(self) -> None:
        said = [number for number in (self.at, self.every) if number is not None]
        if not said:
            raise ValueError("say which call is to fail, with 'at' or 'every'")
        if min(said) < 1:
            raise ValueError(f"calls are counted from 1, not {min(said)}")

    def concerns(self, number: int) -> bool:
        """Return whether the call with a number fails."""
        return number == self.at or (self.every is not None and number % self.every == 0)


class Fault:
    """Lets calls fail as the driver would, before the allocator is asked.

    Parameters
    ----------
    options
        See `FaultOptions`.
    device
        The device of the account.
    """

    name: ClassVar = "fault"
    Options: ClassVar = FaultOptions
    place: ClassVar = Place.FAULT

    def __init__(self, options: FaultOptions, device: Device) -> None:
        self._options, self._device = options, device
        self._numbers = count(1)

    def wrap(self, calls: Calls, account: AccountedAllocator) -> Calls:  # noqa: ARG002 - all accounts are alike to it
        """Return the calls, of which some fail."""
        name = self._options.call.value
        return calls._replace(**{name: self._failing(getattr(calls, name))})

    def _failing(self, call: Callable[..., int]) -> Callable[..., int]:
        numbers, options = self._numbers, self._options

        def fail_or_call(*arguments: object) -> int:
            if options.concerns(next(numbers)):
                raise self._error()
            return call(*arguments)

        return fail_or_call

    def _error(self) -> PlatformError:
        call = f"{self._options.call.value} on {self._device.alias!r}"
        return PlatformError(call=call, code=self._options.code, detail="The layer 'fault' was asked for this failure.")
