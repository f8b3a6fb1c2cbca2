"""What a user configured, where each value was said, and which of several values counts."""

from allotment.configuration._configuration import Configuration
from allotment.configuration._current import configure, current, plugin_options, reset, subscribe, use
from allotment.configuration._defaults import BUILT_IN, BuiltInAllocators
from allotment.configuration._options import decode_options
from allotment.configuration._origin import PRECEDENCE, Origin, OriginKind, PrecedenceLevel, Setting, call_origin
from allotment.configuration._schema import DeviceValues, LaunchArrayAccessMode, PluginValues, Values
from allotment.configuration._settings import Settings, settings
from allotment.configuration._sources import Reading, read_sources

__all__ = [
    "BUILT_IN",
    "PRECEDENCE",
    "BuiltInAllocators",
    "Configuration",
    "DeviceValues",
    "LaunchArrayAccessMode",
    "Origin",
    "OriginKind",
    "PluginValues",
    "PrecedenceLevel",
    "Reading",
    "Setting",
    "Settings",
    "Values",
    "call_origin",
    "configure",
    "current",
    "decode_options",
    "plugin_options",
    "read_sources",
    "reset",
    "settings",
    "subscribe",
    "use",
]
