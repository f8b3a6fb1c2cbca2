"""Whether each device gives memory that keeps what is written to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from allotment.cli._in_force import choice_for
from allotment.cli.doctor._finding import ok, problem
from allotment.device import device_registry
from allotment.factories import empty
from allotment.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.cli.doctor._finding import Finding
    from allotment.device import Device

_NBYTES: Final = 2**20
_PATTERN: Final = 0xA5


def examine_allocation() -> Iterator[Finding]:
    """Yield what came of allocating on each device."""
    for device in device_registry():
        yield _try_device(device)


def _try_device(device: Device) -> Finding:
    asked = choice_for(device)
    try:
        array = empty(_NBYTES, np.uint8, device).fill_(_PATTERN)
        contents = array.numpy()
        used = f"{format_bytes(_NBYTES)} from {array.allocator.name} ({array.memory_kind.name})"
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises is the answer
        text = f"nothing can be allocated: {error or repr(error)} It is to draw from {asked.asked!r}: {asked.origin}."
        return problem(device.alias, text, f"allotment allocators {device.alias} --check")
    if wrong := int(np.count_nonzero(contents != _PATTERN)):
        return problem(device.alias, f"{used} came back with {wrong:,} of {_NBYTES:,} bytes wrong")
    return ok(device.alias, f"{used} allocated, filled, copied back and compared")
