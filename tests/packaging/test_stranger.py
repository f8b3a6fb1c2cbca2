"""A plugin that the workspace does not know: a project in a folder elsewhere, its wheel installed beside core alone."""

from __future__ import annotations

from textwrap import dedent

import pytest

PYPROJECT = """
[build-system]
requires = ["hatchling>=1.27,<2"]
build-backend = "hatchling.build"

[project]
name = "strange-memory"
version = "3.1"
description = "Counts what it is asked for."
requires-python = ">=3.11"
dependencies = ["allotment>=0.1.0,<0.2"]

[project.entry-points."allotment.allocators"]
stranger = "strange_memory:StrangeAllocator"
"""

MODULE = """
from allotment.platform import current


class StrangeAllocator:
    def __init__(self):
        self.asked = []

    def allocate(self, size_in_bytes):
        self.asked.append(size_in_bytes)
        return current().malloc(size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        current().free(ptr)
"""


@pytest.fixture(scope="module")
def strange_wheel(tmp_path_factory, build_wheel):
    project = tmp_path_factory.mktemp("strange")
    (project / "strange_memory").mkdir()
    (project / "strange_memory/__init__.py").write_text(MODULE)
    (project / "pyproject.toml").write_text(PYPROJECT)
    return build_wheel(project)


@pytest.fixture
def environment_with_stranger(environment, wheels, strange_wheel):
    environment.install(wheels["allotment"], strange_wheel)
    return environment


def test_a_stranger_is_listed_and_not_imported(environment_with_stranger):
    program = """
    import json, sys, allotment as al
    records = {record.name: record for record in al.list_allocators()}
    stranger = records["stranger"]
    imported = "strange_memory" in sys.modules
    print(json.dumps([stranger.distribution, stranger.version, stranger.status.value, imported]))
    """
    listed = environment_with_stranger.answer(dedent(program))
    assert listed == ["strange-memory", "3.1", "available", False]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("allotment.toml", 'allocator = "stranger"\n'),
        ("pyproject.toml", '[tool.allotment]\nallocator = "stranger"\n'),
    ],
    ids=["allotment.toml", "pyproject.toml"],
)
def test_a_stranger_named_in_config_supplies_the_memory(environment_with_stranger, tmp_path, file, text):
    (tmp_path / file).write_text(text)
    program = """
    import json, sys, allotment as al
    array = al.empty(16, device="cuda:0")
    array.fill_(7)
    used = sys.modules["strange_memory"].__name__
    print(json.dumps([array.allocator.name, used, array.numpy().tolist()]))
    """
    answer = environment_with_stranger.answer(dedent(program), cwd=tmp_path, ALLOTMENT_PLATFORM="sim:2xh200")
    assert answer == ["stranger", "strange_memory", [7.0] * 16]


def test_the_command_line_lists_a_stranger(environment_with_stranger):
    assert "stranger" in environment_with_stranger.run("-m", "allotment", "allocators", ALLOTMENT_PLATFORM="sim:2xh200")
