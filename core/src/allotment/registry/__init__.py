"""The allocators that are installed, and the plugin that a name means."""

from allotment.registry._contract import check_instance
from allotment.registry._current import current, list_allocators, register_allocator, reset, use
from allotment.registry._hooks import HookBus
from allotment.registry._layers import LayerCatalogue
from allotment.registry._plugin import Plugin, availability, build, diagnosis
from allotment.registry._policy import PluginPolicy
from allotment.registry._record import PluginOrigin, PluginRecord, PluginStatus
from allotment.registry._registry import Registry

__all__ = [
    "HookBus",
    "LayerCatalogue",
    "Plugin",
    "PluginOrigin",
    "PluginPolicy",
    "PluginRecord",
    "PluginStatus",
    "Registry",
    "availability",
    "build",
    "check_instance",
    "current",
    "diagnosis",
    "list_allocators",
    "register_allocator",
    "reset",
    "use",
]
