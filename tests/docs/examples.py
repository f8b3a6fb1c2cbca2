"""How each kind of code block in a page is tried.

python   is run, all blocks of a page in one namespace; with prompts its output is compared.
console  each line after ``$``: ``allotment``, ``python`` and ``pytest`` are run and their output compared; a verb of
         ``dev`` must exist.
toml     is read as what it is: configuration, a plugin's project, a profile of the simulator.
text     is not tried: what a program printed somewhere else, or a picture. Likewise a block without a language.

A python or toml block whose first line is a comment with a file name is also written to that file. A project written so
counts as installed from then on: its metadata is put where it is found, as ``pip install .`` would.
"""

from __future__ import annotations

import doctest
import gc
import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from sybil import Sybil
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

from allotment import registry
from allotment.configuration import Configuration
from allotment.platform.simulated import load_profile

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "core/README.md")),
        *ROOT.glob("plugins/*/README.md"),
        *ROOT.glob("bridges/*/README.md"),
    ]
)
TRIED_ELSEWHERE = {ROOT / "docs/plugin-authors/ten-minutes.md"}
"""The page whose commands `tests/packaging/test_ten_minutes.py` runs, in an environment that they make themselves."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NOT_TRIED = ("text", "{")
"""Blocks that show no code: output from elsewhere, and directives."""
NOT_RUN = (
    *("pip", "cd", "git", ".venv/bin/uv", "python3 -m pip", "python -m build", "python -m twine"),
    "PYTHONPATH=$PWD/site python3 dev gpu-test",
)
"""How commands begin that would change the machine."""

_FILE = re.compile(r"# (?P<name>[\w./-]+\.(?:toml|py))\n")
_FENCE = re.compile(r"^ *```+(?P<language>\S*)", re.MULTILINE)


def languages_of(page):
    """Return the languages of a page's blocks."""
    return [match["language"] or "text" for match in _FENCE.finditer(page.read_text())][::2]


def files_of(page):
    """Return the files that a page's blocks show, by name."""
    blocks = re.findall(r"^```(?:python|toml)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return {match["name"]: block for block in blocks if (match := _FILE.match(block))}


def try_page(page):
    """Run the examples of a page in their order."""
    parsers = [
        PythonCodeBlockParser(doctest_optionflags=FLAGS),
        CodeBlockParser("toml", check_toml),
        CodeBlockParser("console", Console()),
    ]
    document = Sybil(parsers=parsers, path=str(ROOT)).parse(page)
    for example in document.examples():
        write_file(str(example.parsed))
        example.evaluate()
    document.namespace.clear()
    gc.collect()  # what the page left behind goes while its platform is in force


def write_file(text):
    if match := _FILE.match(text):
        path = Path(match["name"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def install(project):
    """Write the metadata by which a plugin's project in the working folder is found, as if the process began now."""
    registry.reset()
    importlib.invalidate_caches()
    folder = Path(f"src/{project['name'].replace('-', '_')}-{project['version']}.dist-info")
    folder.mkdir(parents=True)
    facts = [f"Name: {project['name']}", f"Version: {project['version']}"]
    facts += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", *facts, ""]))
    groups = ((group, "\n".join(map(" = ".join, points.items()))) for group, points in project["entry-points"].items())
    (folder / "entry_points.txt").write_text("\n".join(f"[{group}]\n{points}\n" for group, points in groups))


def check_toml(example):
    """Read a table as what it is."""
    table = tomllib.loads(example.parsed)
    if "runtime_version" in table:
        Path("profile.toml").write_text(example.parsed)
        load_profile(Path("profile.toml"))
    elif "name" in table.get("project", {}):
        install(table["project"])
    elif "project" not in table:
        check_configuration(table["tool"]["allotment"] if "tool" in table else table)


def check_configuration(table):
    configured = Configuration.isolated(**table)
    for name in configured.configured_allocators():
        configured.options_for(name, registry.current().get(name).options_type)


class Console:
    """Runs the commands of one page, which share what they export."""

    def __init__(self):
        self.exported = {}

    def __call__(self, example):
        checker = doctest.OutputChecker()
        for command, expected in commands_of(example.parsed):
            got = self.run(command)
            if expected and not checker.check_output(expected, got, FLAGS):
                return f"$ {command}\nexpected:\n{expected}\ngot:\n{got}"
        return None

    def run(self, command):
        words = shlex.split(command, comments=True)
        if command.startswith(NOT_RUN):
            return ""
        if words[0] == "export":
            self.exported |= dict([words[1].split("=", 1)])
            return ""
        if words[:2] == ["python3", "dev"]:
            verbs = runpy.run_path(str(ROOT / "dev"))["VERBS"]
            assert not words[2:] or words[2] in verbs, f"dev has no verb {words[2]!r}"
            return ""
        given = {}
        while "=" in words[0]:
            given |= dict([words.pop(0).split("=", 1)])
        return run(words, self.exported | given)


def commands_of(block):
    """Yield each command of a block with the output that is shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def run(words, environment):
    """Run a command of ours in this Python; return what it prints."""
    programs = {"allotment": ["-m", "allotment"], "python": [], "pytest": ["-m", "pytest", "-p", "no:cacheprovider"]}
    assert words[0] in programs, f"it is not said how {words[0]!r} is tried"
    done = subprocess.run(
        [sys.executable, *programs[words[0]], *words[1:]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", "PYTHONPATH": "src", **environment},
    )
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
