"""The name of a plugin that is to be, in each of its forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from allotment import registry
from allotment._names import normalise_name

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST: Final = 30
"""What leaves the lines of the template within their length."""
PREFIX: Final = "allotment-"


@dataclass(frozen=True, slots=True)
class PluginName:
    """The name that users are going to type, normalised, such as ``my-pool``."""

    text: str

    @property
    def distribution(self) -> str:
        """The name of the distribution: ``allotment-my-pool``."""
        return f"{PREFIX}{self.text}"

    @property
    def underscored(self) -> str:
        """The name within that of the package: ``my_pool``."""
        return self.text.replace("-", "_")

    @property
    def package(self) -> str:
        """The name of the package that is imported: ``allotment_my_pool``."""
        return f"allotment_{self.underscored}"

    @property
    def capitalised(self) -> str:
        """The name within those of classes: ``MyPool``."""
        return "".join(map(str.capitalize, self.text.split("-")))


def read_name(text: str) -> PluginName:
    """Return the name of a new plugin.

    Raises
    ------
    ValueError
        If it cannot be one, or something that is installed has it.
    """
    name = normalise_name(text)
    if name.startswith(PREFIX):
        raise ValueError(f"it is what users type, without {PREFIX!r}: {name.removeprefix(PREFIX)!r}")
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST:
        raise ValueError(
            f"{text!r} cannot be one: it begins with a letter and has letters, digits and single hyphens, "
            f"at most {_LONGEST} characters in all, such as 'my-pool'"
        )
    found = PluginName(name)
    if owner := _owner(found):
        raise ValueError(f"{name!r} is taken by {owner}, which is installed here. Choose another name")
    return found


def _owner(name: PluginName) -> str | None:
    """Return what has a name already. Nothing is imported."""
    for record in registry.list_allocators():
        if record.name == name.text:
            return f"the allocator of {record.provider or 'this program'}"
    try:
        return f"the distribution {name.distribution} {metadata.version(name.distribution)}"
    except metadata.PackageNotFoundError:
        return f"the package {name.package}" if find_spec(name.package) else None
