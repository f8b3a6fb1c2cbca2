"""A loaded plugin, and what core does with it: ask whether it can be used here, and make its allocators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from allotment.allocator import API_VERSION, AllocatorTraits, Availability
from allotment.errors import UnsupportedError
from allotment.registry._compatibility import api_mismatch
from allotment.registry._contract import accepted_keywords, check_instance, factory_problem, shape_error
from allotment.registry._loading import describe_exception, load_object
from allotment.registry._record import PluginStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.allocator import Allocator
    from allotment.device import Device
    from allotment.registry._record import PluginRecord


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin whose object has been imported and has the shape that the contract asks for.

    Parameters
    ----------
    record
        Its record.
    factory
        The class or function that makes its allocators.
    keywords
        Which of ``options`` and ``device`` the factory accepts.
    """

    record: PluginRecord
    factory: Callable[..., Any]
    keywords: frozenset[str]

    @property
    def name(self) -> str:
        """What a user types."""
        return self.record.name

    @property
    def traits(self) -> AllocatorTraits:
        """What its class declares, which holds with its default options; the defaults if it declares nothing."""
        return getattr(self.factory, "traits", None) or AllocatorTraits()

    def traits_for(self, options: object | None) -> AllocatorTraits:
        """Return what its class declares for certain options, the defaults if ``None``: `traits` unless it tells."""
        ask = getattr(self.factory, "traits_for", None)
        if ask is None or self.options_type is None:
            return self.traits
        return cast("AllocatorTraits", ask(self.options_type() if options is None else options))

    @property
    def options_type(self) -> type | None:
        """The dataclass of its options; ``None`` if it takes none."""
        return getattr(self.factory, "Options", None)


def load_plugin(record: PluginRecord) -> tuple[PluginRecord, Plugin | None]:
    """Import a plugin and check it once.

    Returns
    -------
    tuple
        The record with its new status, and the plugin unless something is wrong with it.
    """
    record, factory = load_object(record)
    if record.error is not None:
        return record, None
    try:
        problem, mismatch = factory_problem(factory), api_mismatch(getattr(factory, "api_version", API_VERSION))
    except Exception as error:  # noqa: BLE001 - what a class declares may be computed, and the computation may raise
        cause = f"what it declares cannot be read: {describe_exception(error)}"
        return record.become(PluginStatus.BROKEN, cause, exception=error), None
    if problem:
        return record.become(PluginStatus.BROKEN, problem, exception=shape_error(record.name, problem)), None
    if mismatch:
        remedy = f"Install a version of {record.distribution or 'the plugin'} made for this core, or another core."
        return record.become(PluginStatus.INCOMPATIBLE, mismatch, remedy=remedy), None
    record = record.become(PluginStatus.LOADED)
    return record, Plugin(record, factory, accepted_keywords(factory))


def checked_plugin(record: PluginRecord, factory: Callable[..., Any]) -> Plugin:
    """Return the plugin of a factory that was handed over instead of imported.

    Raises
    ------
    TypeError
        If it cannot be called.
    AllocatorContractError
        If what it makes has certainly not the shape of an allocator.
    """
    problem = factory_problem(factory)
    if problem and not callable(factory):
        raise TypeError(f"allocator {record.name!r} cannot be registered: {problem}")
    if problem:
        raise shape_error(record.name, problem)
    return Plugin(record.become(PluginStatus.LOADED), factory, accepted_keywords(factory))


def availability(plugin: Plugin, device: Device) -> Availability:
    """Return whether a plugin can be used on a device, as its class says. Raises nothing, and is asked anew each time.

    A plugin that says nothing can be used. One whose answer is an exception or no `Availability` cannot, and the
    reason tells so.
    """
    ask = getattr(plugin.factory, "availability", None)
    if ask is None:
        return Availability(ok=True)
    try:
        answer = ask(device)
    except Exception as error:  # noqa: BLE001 - the contract forbids it, and one plugin's fault must not hide the others
        return Availability(ok=False, reason=f"its availability check raised {describe_exception(error)}")
    if not isinstance(answer, Availability):
        return Availability(ok=False, reason=f"its availability check returned {answer!r}, not an Availability")
    return answer


def diagnosis(plugin: Plugin) -> str | None:
    """Return what a user should know of a plugin that works: what its class says; ``None`` if all is well.

    Raises nothing: an answer that is an exception, or no text, is told as such.
    """
    ask = getattr(plugin.factory, "diagnosis", None)
    if ask is None:
        return None
    try:
        answer = ask()
    except Exception as error:  # noqa: BLE001 - as above
        return f"its diagnosis raised {describe_exception(error)}"
    if answer is None or isinstance(answer, str):
        return answer
    return f"its diagnosis returned {answer!r}, which is no text"


def build(plugin: Plugin, options: object | None, device: Device) -> Allocator:
    """Make an allocator of a plugin for a device.

    Parameters
    ----------
    plugin
        The plugin.
    options
        An instance of its ``Options``; ``None`` for the defaults.
    device
        The device, for a factory that wants it.

    Raises
    ------
    UnsupportedError
        If options are given and the plugin takes none.
    AllocatorContractError
        If what the factory returns has not the two methods of an allocator.
    """
    if options is None and plugin.options_type is not None:
        options = plugin.options_type()
    if options is not None and "options" not in plugin.keywords:
        raise UnsupportedError(f"allocator {plugin.name!r} takes no options, and was given {options!r}")
    offered = {"device": device} if options is None else {"device": device, "options": options}
    allocator = plugin.factory(**{name: value for name, value in offered.items() if name in plugin.keywords})
    check_instance(allocator, plugin.name)
    return cast("Allocator", allocator)
