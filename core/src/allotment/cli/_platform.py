"""The platform that a command asks about."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from allotment import platform as platforms
from allotment.device import device_registry, find_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.device import Device


@contextmanager
def asked_platform(spec: str | None) -> Iterator[None]:
    """Put the platform of the option ``--platform`` in force until the block is left; nothing changes without it."""
    if spec is None:
        yield
        return
    token = platforms.use(platforms.choose(spec, origin="--platform"))
    try:
        yield
    finally:
        platforms.reset(token)


def asked_devices(alias: str | None) -> list[Device]:
    """Return the device of that alias, or all devices."""
    return list(device_registry()) if alias is None else [find_device(alias)]
