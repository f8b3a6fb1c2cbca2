"""Installed distributions that are not: folders of metadata and modules, put on ``sys.path``."""

import sys
from pathlib import Path

import pytest

from allotment.registry import Registry

DISTRIBUTIONS = Path(__file__).parent / "distributions"


@pytest.fixture
def site(monkeypatch):
    """Put the main folder of fake distributions on the path."""
    monkeypatch.syspath_prepend(DISTRIBUTIONS / "site")
    return DISTRIBUTIONS / "site"


@pytest.fixture
def both_sites(monkeypatch, site):
    """Put the second folder before it: it repeats one distribution and competes with another."""
    monkeypatch.syspath_prepend(DISTRIBUTIONS / "second")


@pytest.fixture
def registry(site):
    """Return a registry that has seen nothing yet."""
    return Registry(core_version="0.1.0")


@pytest.fixture
def marks(tmp_path, monkeypatch):
    """Return the file in which some fake plugins note that they were imported."""
    path = tmp_path / "marks"
    path.touch()
    monkeypatch.setenv("FAKE_MARKS", str(path))
    return path


@pytest.fixture(autouse=True)
def forget_fake_modules():
    """Let each test import the fake plugins anew."""
    yield
    for name in [name for name in sys.modules if name.startswith("fake_")]:
        del sys.modules[name]
