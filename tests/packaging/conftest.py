"""Wheels of the workspace's members, and clean environments to install them in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("bridges/*/pyproject.toml")]
MEMBERS = ("core", *sorted(str(file.parent.relative_to(ROOT)) for file in PROJECTS))
UV = Path(sysconfig.get_path("scripts")) / ("uv.exe" if os.name == "nt" else "uv")
"""Makes an environment in a tenth of pip's time. Where ``dev`` had to do without it, so do these tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder ``packaging``."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.packaging)


def command(*arguments: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command without this session's settings and return its output; show all of it if it fails."""
    foreign = ("ALLOTMENT_", "PYTHON", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    done = subprocess.run(arguments, cwd=cwd, env=kept | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in a folder of its own, with nothing of the workspace on its path."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def install(self, *requirements: str | Path) -> None:
        """Install wheels, with what they require."""
        install = (
            [UV, "pip", "install", "--python", self.python] if UV.exists() else [self.python, "-m", "pip", "install"]
        )
        command(*install, "-q", *requirements, cwd=self.folder)

    def run(self, *arguments: str | Path, cwd: Path | None = None, **variables: str) -> str:
        """Run the interpreter and return its output."""
        return command(self.python, *arguments, cwd=cwd or self.folder, **variables)

    def answer(self, code: str, *, cwd: Path | None = None, **variables: str) -> Any:
        """Run a program and return the JSON that it prints."""
        return json.loads(self.run("-W", "error", "-c", code, cwd=cwd, **variables))


@pytest.fixture(scope="session")
def build_wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A function that builds a project's wheel; where uv does it, by way of its source distribution."""

    def build(project: Path) -> Path:
        folder = tmp_path_factory.mktemp("wheel")
        if UV.exists():
            command(UV, "build", "-q", "--out-dir", folder, project, cwd=folder)
        else:
            command(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, project, cwd=folder)
        return next(folder.glob("*.whl"))

    return build


@pytest.fixture(scope="session")
def wheels(build_wheel: Callable[[Path], Path]) -> dict[str, Path]:
    """The wheel of each distribution of the workspace, by its name."""
    built = [build_wheel(ROOT / member) for member in MEMBERS]
    return {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in built}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty environment."""
    folder = tmp_path / "environment"
    if UV.exists():
        command(UV, "venv", "-q", "--python", sys.executable, folder, cwd=tmp_path)
    else:
        command(sys.executable, "-m", "venv", folder, cwd=tmp_path)
    return Environment(folder)
