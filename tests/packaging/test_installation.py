"""What a user gets who installs Allotment in an environment with nothing in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml"))
BRIDGES = sorted(file.parent.name for file in ROOT.glob("bridges/*/pyproject.toml"))

LISTED = """
import json, allotment as al
print(json.dumps([record.name for record in al.list_allocators() if record.origin.value == "entry point"]))
"""


def test_core_alone_imports_and_lists_no_plugin(environment, wheels):
    environment.install(wheels["allotment"])
    assert environment.answer(LISTED) == []


def test_core_alone_has_a_command_line(environment, wheels):
    environment.install(wheels["allotment"])
    help_text = environment.run("-m", "allotment", "--help")
    assert "doctor" in help_text
    assert "demo" in help_text


def test_core_alone_allocates_on_the_cpu(environment, wheels):
    environment.install(wheels["allotment"])
    program = """
import json, allotment as al
array = al.zeros(3, device="cpu")
print(json.dumps([str(array.device), array.numpy().tolist()]))
"""
    assert environment.answer(program) == ["cpu", [0, 0, 0]]


def test_core_alone_says_which_allocator_a_device_lacks(environment, wheels):
    environment.install(wheels["allotment"])
    program = """
import json, allotment as al
try:
    al.zeros(3, device="cuda:1")
except al.UnknownAllocatorError as error:
    print(json.dumps(str(error)))
"""
    message = environment.answer(program, ALLOTMENT_PLATFORM="sim:2xh200")
    assert "'default' is not installed" in message


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_needs_no_other_plugin(environment, wheels, plugin):
    name = plugin.replace("_", "-")
    environment.install(wheels["allotment"], wheels[f"allotment-{name}"])
    assert environment.answer(LISTED) == [name]
    environment.run("-c", f"import allotment_{plugin}")


@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_bridge_needs_neither_its_library_nor_another_member(environment, wheels, bridge):
    environment.install(wheels["allotment"], wheels[f"allotment-{bridge}-bridge"])
    states = "import json, allotment as al; print(json.dumps([[s.library, s.state.value] for s in al.status()]))"
    assert environment.answer(states) == [[bridge, "unavailable"]]


def test_pip_installs_core_and_a_plugin_from_the_tree(environment):
    """By the pip that comes with Python, which is the oldest that this Python's users have."""
    venv = environment.folder.parent / "pip"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, capture_output=True)
    environment = type(environment)(venv)
    environment.run("-m", "pip", "install", "-q", "./core", "./plugins/managed", cwd=ROOT)
    assert environment.answer(LISTED) == ["managed"]
