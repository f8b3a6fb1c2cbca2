"""``allotment new-plugin``."""

from allotment.cli.new_plugin._command import new_plugin

__all__ = ["new_plugin"]
