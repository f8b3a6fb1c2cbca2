"""The configuration file that names an allocator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from allotment.configuration import Configuration, read_sources

if TYPE_CHECKING:
    from pathlib import Path

    from allotment.configuration import PluginValues
    from allotment.device import Device


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that chooses an allocator, as a user would write it.

    Parameters
    ----------
    path
        Where it is written.
    text
        What it says.
    """

    path: Path
    text: str

    @classmethod
    def naming(cls, allocator: str, device: Device, path: Path) -> ConfigFile:
        """Return a file that makes a device draw from an allocator; for a CUDA device, all of them."""
        choice = f"allocator = {json.dumps(allocator)}"
        return cls(path, f"{choice}\n" if device.is_cuda else f"[devices.{device.alias}]\n{choice}\n")

    def load(self, plugins: PluginValues) -> Configuration:
        """Write the file and return the configuration of a process that finds it, and nothing else.

        Parameters
        ----------
        plugins
            Which plugins the user allows.
        """
        self.path.write_text(self.text, encoding="utf-8")
        environment = {"ALLOTMENT_CONFIG": str(self.path)}
        found = Configuration(partial(read_sources, environment, self.path.parent, self.path.parent / "no user"))
        found.configure(plugins={"allow": plugins.allow, "deny": plugins.deny})
        return found
