"""What can be configured about managed memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Location(Enum):
    """A place where pages can be."""

    NONE = "none"
    """Nothing is said; the driver decides."""
    DEVICE = "device"
    """The device that the array was made on."""
    HOST = "host"
    """The host's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedOptions:
    """Options of the ``managed`` allocator. Each is advice to the driver, given when a block is allocated.

    Parameters
    ----------
    preferred_location
        Where pages should stay while others reach them from afar.
    prefetch
        Where pages are moved at once, in the order of the stream in force.
    read_mostly
        Let each place that reads pages keep a copy of them.
    accessed_by_host
        Keep the host's mapping of the pages up to date, so that its reads need no fault.
    """

    preferred_location: Location = Location.NONE
    prefetch: Location = Location.NONE
    read_mostly: bool = False
    accessed_by_host: bool = False

    @property
    def is_advice(self) -> bool:
        """Whether anything is said at all."""
        return self != ManagedOptions()
