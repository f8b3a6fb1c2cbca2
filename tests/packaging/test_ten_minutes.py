"""The ten-minute guide of plugin authors: its commands, as they are printed, from an empty folder on."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/plugin-authors/ten-minutes.md"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FOREIGN = ("ALLOTMENT_", "PYTHON", "PYTEST_", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the guide is for a shell, and there is none")


def commands():
    """Return each command of the page with the output that is shown below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    parts = (part.partition("\n") for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
    return [(command, expected) for command, _, expected in parts]


def script():
    """Return the commands as one session of a shell, which ends at the first that fails."""
    steps = (f"echo '<<< {number}'\n{command}\n" for number, (command, _) in enumerate(commands()))
    return "set -e\nexec 2>&1\n" + "".join(steps)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the empty folder in which the guide begins."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def session(folder, wheels, tmp_path_factory):
    """Run the guide, where pip takes Allotment from the wheel of this tree; return its exit code and all outputs."""
    wheel = wheels["allotment"]
    constraints = tmp_path_factory.mktemp("pip") / "constraints.txt"
    constraints.write_text(f"allotment=={wheel.name.split('-')[1]}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    ours = {
        "PATH": os.pathsep.join([str(Path(sys.base_prefix, "bin")), kept["PATH"]]),
        "PIP_CONSTRAINT": str(constraints),
        "PIP_FIND_LINKS": f"{kept.get('PIP_FIND_LINKS', '')} {wheel.parent}".strip(),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    ended = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script()],
        cwd=folder,
        env=kept | ours,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ended.returncode, re.split(r"^<<< \d+\n", ended.stdout, flags=re.MULTILINE)[1:]


def test_every_command_of_the_guide_ends_well(session):
    code, outputs = session

    assert code == 0, f"$ {commands()[len(outputs) - 1][0]}\n{outputs[-1]}"
    assert len(outputs) == len(commands())


def test_every_command_prints_what_the_guide_shows(session):
    checker = doctest.OutputChecker()

    wrong = [
        f"$ {command}\nexpected:\n{expected}\ngot:\n{got}"
        for (command, expected), got in zip(commands(), session[1], strict=True)
        if expected and not checker.check_output(expected, got, FLAGS)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_file_that_the_guide_shows_is_the_one_that_was_made(session, folder):
    shown = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))

    assert list(shown) == ["src/allotment_my_pool/_allocator.py"]
    for name, text in shown.items():
        assert (folder / "allotment-my-pool" / name).read_text() == text


def test_the_guide_runs_in_the_environment_that_it_makes_itself(session, folder):
    installed = list((folder / ".venv").glob("lib/python*/site-packages/allotment-*.dist-info"))

    assert len(installed) == 1
