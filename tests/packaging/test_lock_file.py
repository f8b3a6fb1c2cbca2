"""The lock file, from which ``dev`` installs."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = shutil.which("uv", path=sysconfig.get_path("scripts"))


def test_it_names_the_public_index_and_no_other():
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    sources = {package["source"].get("registry", "a member") for package in packages}
    assert sources == {"https://pypi.org/simple", "a member"}


@pytest.mark.skipif(UV is None, reason="uv is not installed in this environment")
def test_it_agrees_with_what_the_members_declare():
    done = subprocess.run([UV, "lock", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
