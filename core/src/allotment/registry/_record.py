"""The record of a plugin: what is known about it, mostly without importing it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from packaging.utils import canonicalize_name

PluginKey: TypeAlias = tuple[str, str | None]
"""What a registry holds a record under: its name and the normalised name of its distribution."""


class PluginKind(Enum):
    """What a plugin adds. The value is what its group of entry points is called for, ``allotment.allocators`` first."""

    ALLOCATOR = "allocator"
    """One is chosen by name."""
    LAYER = "layer"
    """Several are put before an allocator, by name."""
    BRIDGE = "bridge"
    """One for each library that is to draw from Allotment."""
    OBSERVER = "observer"
    """All that are installed watch."""


class PluginOrigin(Enum):
    """Where a plugin was declared."""

    BUILTIN = "builtin"
    """In core's own code."""
    ENTRY_POINT = "entry point"
    """In the metadata of an installed distribution."""
    RUNTIME = "runtime"
    """By a call of ``register``."""


class PluginStatus(Enum):
    """What became of a plugin so far."""

    AVAILABLE = "available"
    """Installed and not yet imported: nothing is known against it."""
    LOADED = "loaded"
    """Imported and ready."""
    DISABLED = "disabled"
    """Switched off by an allow or deny list."""
    CONFLICT = "conflict"
    """Its name alone does not choose it, because another plugin has the name too."""
    INCOMPATIBLE = "incompatible"
    """Made for another version of Allotment."""
    UNAVAILABLE = "unavailable"
    """A module that it needs, or that is itself, is not installed."""
    BROKEN = "broken"
    """Its import failed, or what it names is no allocator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """What is known about one plugin of one distribution.

    Parameters
    ----------
    name
        What a user types, normalised.
    reference
        Where its object is: ``"module:attribute"``.
    origin
        Where it was declared.
    distribution, version, summary
        The distribution that declares it; ``None`` and empty for a plugin registered at run time.
    requires
        What the distribution's metadata says that it requires.
    status
        What became of it so far.
    error
        Why it cannot be used, or not by its name alone; ``None`` if it can.
    remedy
        What to do about the error, where there is something particular to say.
    exception
        What the import raised, if it did.
    location
        The folder in which the distribution's metadata lies; ``None`` for what no distribution provides.
    is_editable
        Whether the distribution is installed in place, from its source.
    shadowed
        Other metadata of the same plugin, which counts for nothing: the version and the folder of each.
    """

    name: str
    reference: str
    origin: PluginOrigin
    distribution: str | None = None
    version: str | None = None
    summary: str = ""
    requires: tuple[str, ...] = field(default=(), repr=False)
    status: PluginStatus = PluginStatus.AVAILABLE
    error: str | None = None
    remedy: str | None = None
    exception: BaseException | None = field(default=None, repr=False, compare=False)
    location: str | None = field(default=None, repr=False, compare=False)
    is_editable: bool = field(default=False, repr=False, compare=False)
    shadowed: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def key(self) -> PluginKey:
        """What a registry holds the record under."""
        return self.name, canonicalize_name(self.distribution) if self.distribution else None

    @property
    def qualified_name(self) -> str:
        """The name that chooses this plugin whatever else has its name: ``"distribution:name"``."""
        return f"{self.distribution}:{self.name}" if self.distribution else self.name

    @property
    def provider(self) -> str | None:
        """The distribution with its version, as an error names it."""
        return f"{self.distribution} {self.version}" if self.distribution and self.version else self.distribution

    @property
    def usable(self) -> bool:
        """Whether nothing is known against choosing it by its qualified name."""
        return self.status in (PluginStatus.AVAILABLE, PluginStatus.LOADED, PluginStatus.CONFLICT)

    def become(
        self,
        status: PluginStatus,
        error: str | None = None,
        *,
        remedy: str | None = None,
        exception: BaseException | None = None,
    ) -> PluginRecord:
        """Return the record with another status and the reason for it."""
        return replace(self, status=status, error=error, remedy=remedy, exception=exception)
