"""``allotment check`` on the allocators of the workspace, as a user runs it: no rule is broken or left open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPPLIERS_OF_OTHERS = {"rmm", "torch-caching"}
"""Plugins that need a library which this environment need not have; they are checked where they are available."""
PLUGINS = sorted(file.parent.name.replace("_", "-") for file in ROOT.glob("plugins/*/pyproject.toml"))


@pytest.fixture
def check(tmp_path):
    """Return a function that runs the command in an empty folder and returns its exit code and its document."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ALLOTMENT_", "PYTEST_"))}

    def run(name):
        ended = subprocess.run(
            [sys.executable, "-m", "allotment", "check", name, "--json"],
            env=clean | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.stdout, ended.stderr
        return ended.returncode, json.loads(ended.stdout)

    return run


@pytest.mark.parametrize("name", ["host", *(name for name in PLUGINS if name not in SUPPLIERS_OF_OTHERS)])
def test_every_rule_is_held_or_does_not_apply_for_a_reason(check, name):
    code, document = check(name)

    broken = {each["rule"]: [failure["message"] for failure in each["failures"]] for each in document["rules"]}
    assert {rule: messages for rule, messages in broken.items() if messages} == {}
    assert {each["status"] for each in document["rules"]} == {"held", "not applicable"}
    assert [each["rule"] for each in document["rules"] if each["status"] != "held" and not each["reasons"]] == []
    assert (code, document["checked"]) == (0, True)
