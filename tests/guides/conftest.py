"""Where the blocks run, and how many did, printed at the end of the run."""

from __future__ import annotations

import gc
import os
import sys

import pytest

import allotment as al

from .block import ACCESS, ALLOCATORS
from .kernels import KernelOfBoth, common_names

RAN, LEFT = "guide block that ran", "guide block that is left"


@pytest.fixture
def machine(request, monkeypatch, tmp_path, begin_anew):
    """Begin a process's life anew on the platform that the test is for, with nothing configured."""
    for variable in [name for name in os.environ if name.startswith("ALLOTMENT_")]:
        monkeypatch.delenv(variable)
    for variable in ("HOME", "XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOTMENT_PLATFORM", request.param)
    begin_anew()
    yield request.param
    gc.collect()
    begin_anew()


@pytest.fixture
def names(machine, monkeypatch):
    """Return the names that a block may use, ``warp`` being Allotment."""
    monkeypatch.setitem(sys.modules, "warp", al)
    remove = al.register_kernel_adapter(KernelOfBoth())
    found = common_names()
    yield found
    found.clear()
    gc.collect()
    al.synchronize()
    remove()


def pytest_terminal_summary(terminalreporter):
    """Count the blocks of each guide; a worker's reports are counted by the process that started it."""
    reports = [report for kind in ("passed", "failed", "skipped") for report in terminalreporter.stats.get(kind, [])]
    found = {
        (key, value)
        for report in reports
        for key, value in getattr(report, "user_properties", ())
        if key in (RAN, LEFT)
    }
    if not found:
        return
    terminalreporter.section("the guides")
    for guide in (ALLOCATORS, ACCESS):
        ran, left = (len([1 for key, (of, *_) in found if key == kind and of == guide]) for kind in (RAN, LEFT))
        terminalreporter.line(f"{guide}: {ran} blocks run, {left} left")
    for reason in sorted({value[2] for key, value in found if key == LEFT}):
        terminalreporter.line(f"left: {reason}")
