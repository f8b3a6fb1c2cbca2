"""Each page of documentation is read and its code run, in a folder and a world of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def simulated_machine(monkeypatch, tmp_path, begin_anew):
    """Let a page begin in an empty folder, on two simulated H200, with nothing else configured."""
    for variable in [name for name in os.environ if name.startswith("ALLOTMENT_")]:
        monkeypatch.delenv(variable)
    for variable in ("HOME", "XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder / "src"))
    monkeypatch.setenv("ALLOTMENT_PLATFORM", "sim:2xh200")
    begin_anew()
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("allotment_"):
            del sys.modules[name]
    begin_anew()
