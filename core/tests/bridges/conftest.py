"""A library that can be given an allocator, and bridges to it, installed as distributions are."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from textwrap import dedent
from types import ModuleType

import pytest

from allotment import registry
from allotment.bridges._installation import installations

BRIDGE = """
from dataclasses import dataclass
from typing import ClassVar

import library
from allotment import Availability, BridgeError

@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    mode: str = "usual"

class LibraryBridge:
    name: ClassVar[str] = "library"
    Options: ClassVar[type] = Options

    def __init__(self, options):
        self.options = options

    @classmethod
    def availability(cls):
        return Availability(ok=library.is_there, reason="" if library.is_there else "library is not installed")

    def install(self, delivery):
        if self.options.mode == "refused":
            raise BridgeError(bridge="library", cause="its mode is 'refused'")
        self.before, library.source = library.source, delivery
        self.delivery = delivery

    def uninstall(self):
        library.source = self.before

    def describe(self):
        return None if library.source is self.delivery else str(library.source)
"""


class Library(ModuleType):
    """A library that draws from what it is given."""

    def __init__(self):
        super().__init__("library")
        self.is_there, self.source = True, "its own"

    def allocate(self, size, device=0, stream=0):
        return self.source.allocate(device, size, stream)


@dataclass(frozen=True)
class Installed:
    """Where distributions are installed in a test."""

    site: object
    modules: list

    def add(self, name, source=BRIDGE, attribute="LibraryBridge", *, distribution=None, requires=()):
        """Install a distribution with one bridge, made of a module's source."""
        distribution = distribution or f"allotment-{name}-bridge"
        module = f"installed_{distribution.replace('-', '_')}"
        self.modules.append(module)
        (self.site / f"{module}.py").write_text(dedent(source))
        info = self.site / f"{module}-1.5.dist-info"
        info.mkdir()
        required = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n{required}")
        (info / "entry_points.txt").write_text(f"[allotment.bridges]\n{name} = {module}:{attribute}\n")
        registry.reset()


@pytest.fixture
def installed(monkeypatch, tmp_path, isolated):
    """Return what installs bridges; whatever they did is undone."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    modules = []
    yield Installed(site, modules)
    for name in reversed(installations.names()):
        installations.uninstall(name)
    for module in modules:
        sys.modules.pop(module, None)
    registry.reset()


@pytest.fixture
def library(monkeypatch, installed):
    """Return a library with a bridge to it."""
    module = Library()
    monkeypatch.setitem(sys.modules, "library", module)
    installed.add("library")
    return module
