"""Importing what a plugin's entry point names, and saying what went wrong."""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from allotment.registry._compatibility import requirements
from allotment.registry._record import PluginOrigin, PluginStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.requirements import Requirement

    from allotment.registry._record import PluginRecord


def load_object(record: PluginRecord) -> tuple[PluginRecord, Any]:
    """Import the object that a record names.

    Returns
    -------
    tuple
        The record and the object; or the record with its new status and the reason, and ``None``.
    """
    entry_point = metadata.EntryPoint(name=record.name, value=record.reference, group="")
    if entry_point.pattern.match(record.reference) is None:
        return _malformed(record), None
    try:
        return record, entry_point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a plugin's import may raise anything; it is kept and chained
        return explain(record, error), None


def explain(record: PluginRecord, error: BaseException) -> PluginRecord:
    """Return the record as the error of its import leaves it."""
    cause = describe_exception(error)
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return record.become(PluginStatus.BROKEN, cause, exception=error)
    if _is_part(error.name, record.reference):
        remedy = f"Its installation is out of date: reinstall or uninstall {record.distribution or 'it'}."
    else:
        remedy = how_to_install(error.name, record)
    return record.become(PluginStatus.UNAVAILABLE, cause, remedy=remedy, exception=error)


def describe_exception(error: BaseException) -> str:
    """Return the type and the text of an exception on one line."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def how_to_install(module: str, record: PluginRecord) -> str:
    """Return what to type to get a missing module, as far as the distribution's metadata tells.

    A requirement provides the module if it is named as the module is, or so with a suffix: ``cupy-cuda12x`` for
    ``cupy``.
    """
    own = record.distribution
    extras = sorted(set(_extras_with(module, record.requires, set())))
    if extras:
        return "Install it with: " + " or ".join(f"pip install '{own}[{extra}]'" for extra in extras) + "."
    provider = next((each for each in requirements(record.requires) if _provides(each, module)), None)
    if provider is not None:
        return f"{own} requires it. Install it with: pip install '{provider.name}{provider.specifier}'."
    return f"Install the package that provides the module {module!r}."


def find_faults(record: PluginRecord) -> PluginRecord:
    """Return the record as it would be after its import, as far as that can be told without importing anything."""
    if record.status is not PluginStatus.AVAILABLE or record.origin is not PluginOrigin.ENTRY_POINT:
        return record
    if metadata.EntryPoint(name=record.name, value=record.reference, group="").pattern.match(record.reference) is None:
        return _malformed(record)
    package = record.reference.partition(":")[0].partition(".")[0].strip()
    if package in sys.modules or _is_there(package):
        return record
    return explain(record, ModuleNotFoundError(f"No module named {package!r}", name=package))


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except Exception:  # noqa: BLE001 - a finder that fails says nothing about the package
        return True


def _malformed(record: PluginRecord) -> PluginRecord:
    return record.become(PluginStatus.BROKEN, f"{record.reference!r} is not a reference such as 'module:attribute'")


def _is_part(module: str, reference: str) -> bool:
    own = reference.partition(":")[0].strip()
    return own == module or own.startswith(f"{module}.")


def _provides(requirement: Requirement, module: str) -> bool:
    name, package = canonicalize_name(requirement.name), canonicalize_name(module.partition(".")[0])
    return name == package or name.startswith(f"{package}-")


def _extras_with(module: str, requires: Iterable[str], seen: set[str]) -> Iterator[str]:
    for requirement in requirements(requires):
        extra = _extra_of(requirement)
        if extra and (_provides(requirement, module) or _reaches(requirement, module, seen)):
            yield extra


def _reaches(requirement: Requirement, module: str, seen: set[str]) -> bool:
    """Return whether the extras of a requirement bring the module, as ``allotment[cuda12]`` brings CuPy."""
    name = canonicalize_name(requirement.name)
    if not requirement.extras or name in seen:
        return False
    try:
        requires = metadata.requires(requirement.name) or ()
    except metadata.PackageNotFoundError:
        return False
    return any(extra in requirement.extras for extra in _extras_with(module, requires, seen | {name}))


def _extra_of(requirement: Requirement) -> str | None:
    """Return the extra that a requirement belongs to, if it does."""
    if requirement.marker is None:
        return None
    text = str(requirement.marker)
    return text.partition('extra == "')[2].partition('"')[0] or None
