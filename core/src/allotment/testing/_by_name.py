"""The whole suite for installed allocators that are named on pytest's command line.

pytest collects this file for ``--allotment-allocator``; its tests are the classes that `suites` makes.
"""

from __future__ import annotations

import re
import tomllib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from allotment.registry import Registry
from allotment.testing import AllocatorConformance
from allotment.testing._fixtures import CUDA, HOST, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def suites(names: Sequence[str], platforms: Sequence[str], options: Sequence[str]) -> ModuleType:
    """Return a module with a class of tests for each allocator.

    Parameters
    ----------
    names
        The names, qualified or not.
    platforms
        The only platforms to run on; the suite's own choice if there is none.
    options
        What configuration says about each of them: ``"name=value"``, the value as in TOML or plain text.

    Raises
    ------
    PluginError
        If a name means no plugin that may be used. Nothing is imported.
    ValueError
        If a platform or an option is not written as it must be.
    """
    facts = {"platforms": _checked(platforms) or None, "options": dict(map(_option, options))}
    found = ModuleType("allotment_conformance", __doc__)
    for name in names:
        Registry().find(name)
        suite = _suite(name, facts)
        setattr(found, suite.__name__, suite)
    return found


def _suite(name: str, facts: Mapping[str, Any]) -> type[AllocatorConformance]:
    """Return the suite of one allocator: ``TestMyPool`` for ``my-pool``."""
    title = "".join(map(str.capitalize, re.split(r"\W|_", name)))
    return type(f"Test{title}", (AllocatorConformance,), {"allocator_name": name, **facts})


def _checked(platforms: Sequence[str]) -> tuple[str, ...]:
    for name in platforms:
        is_simulated = name.startswith(SIMULATED) and name != SIMULATED
        if not is_simulated and name not in (CUDA, HOST):
            raise ValueError(f"the platform is cuda, host or sim:PROFILE, not {name!r}")
    return tuple(platforms)


def _option(text: str) -> tuple[str, Any]:
    name, is_said, value = text.partition("=")
    if not is_said or not name.strip():
        raise ValueError(f"an option is written name=value, not {text!r}")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()
