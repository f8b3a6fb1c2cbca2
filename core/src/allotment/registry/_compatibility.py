"""Whether a plugin was made for this version of Allotment."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from allotment.allocator import API_VERSION
from allotment.registry._record import PluginStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allotment.registry._record import PluginRecord

CORE: Final = "allotment"
"""The name of core's distribution."""


def running_version() -> str | None:
    """Return the version of core, or ``None`` where it has no metadata, as in a frozen application."""
    try:
        return metadata.version(CORE)
    except metadata.PackageNotFoundError:
        return None


def requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    """Read requirements, and pass over those that cannot be read."""
    for text in texts:
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue


def required_core(requires: Iterable[str]) -> SpecifierSet:
    """Return the versions of core that a distribution's requirements accept, whatever its extras add."""
    accepted = SpecifierSet()
    for requirement in requirements(requires):
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and canonicalize_name(requirement.name) == CORE:
            accepted &= requirement.specifier
    return accepted


def check_core_version(record: PluginRecord, core_version: str | None) -> PluginRecord:
    """Return the record, incompatible if its distribution does not accept the running version of core.

    Nothing is imported. Where the running version is not known, nothing is found against the plugin.
    """
    accepted = required_core(record.requires)
    if core_version is None or accepted.contains(core_version, prereleases=True):
        return record
    return record.become(
        PluginStatus.INCOMPATIBLE,
        f"it requires {CORE} {accepted}, and this is {CORE} {core_version}",
        remedy=f"Install a version of {record.distribution} that accepts it, or another version of {CORE}.",
    )


def api_mismatch(version: object) -> str | None:
    """Return what is wrong with a plugin's ``api_version``, or ``None``: the major is ours and the minor no newer."""
    match version:
        case (int(major), int(minor)):
            ours = ".".join(map(str, API_VERSION))
            if major == API_VERSION[0] and minor <= API_VERSION[1]:
                return None
            return f"it is written for version {major}.{minor} of the allocator contract, and this core has {ours}"
        case _:
            return f"its api_version is {version!r}, not a pair of numbers such as {API_VERSION}"
