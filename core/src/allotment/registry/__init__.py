"""The allocators that are installed, and the plugin that a name means."""

from allotment.registry._contract import check_instance
from allotment.registry._current import (
    current,
    list_allocators,
    list_plugins,
    refresh_plugins,
    register_allocator,
    reset,
    use,
)
from allotment.registry._hooks import HookBus
from allotment.registry._layers import LayerCatalogue
from allotment.registry._plugin import Plugin, availability, build, diagnosis
from allotment.registry._plugin_tables import check_plugin_tables, configured_options, owner_of_table
from allotment.registry._policy import PluginPolicy, chooses
from allotment.registry._record import PluginKind, PluginOrigin, PluginRecord, PluginStatus
from allotment.registry._registry import Registry

__all__ = [
    "HookBus",
    "LayerCatalogue",
    "Plugin",
    "PluginKind",
    "PluginOrigin",
    "PluginPolicy",
    "PluginRecord",
    "PluginStatus",
    "Registry",
    "availability",
    "build",
    "check_instance",
    "check_plugin_tables",
    "chooses",
    "configured_options",
    "current",
    "diagnosis",
    "list_allocators",
    "list_plugins",
    "owner_of_table",
    "refresh_plugins",
    "register_allocator",
    "reset",
    "use",
]
