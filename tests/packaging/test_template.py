"""What ``allotment new-plugin`` makes, from core's wheel: it builds, installs and passes its own tests elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "allotment/cli/new_plugin/template"


@pytest.fixture(params=[("device", "bsd-3-clause"), ("host", "mit")], ids=lambda param: param[0])
def made(request, environment, wheels, tmp_path):
    """Return the environment with core's wheel alone, and the project that the command makes there."""
    kind, licence = request.param
    environment.install(f"allotment[testing] @ {wheels['allotment'].as_uri()}")
    options = ("--kind", kind, "--license", licence, "--author", "Ada Lovelace <ada@example.org>")
    environment.run("-m", "allotment", "new-plugin", "Side_Pool", *options, cwd=tmp_path)
    return environment, tmp_path / "allotment-side-pool"


def tool(project, name, *arguments):
    """Run a tool of this environment in the project; its configuration is the project's own."""
    ended = subprocess.run([sys.executable, "-m", name, *arguments], cwd=project, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_wheel_of_core_holds_the_template_whole(wheels):
    names = set(ZipFile(wheels["allotment"]).namelist())
    tree = ROOT / "core/src" / TEMPLATE
    files = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}
    ours = {name for name in files if not {"__pycache__", ".mypy_cache", ".ruff_cache"} & set(Path(name).parts)}

    assert {"pyproject.toml", "gitignore", "github/workflows/ci.yml", "src/allotment_your_pool/py.typed"} <= ours
    assert {f"{TEMPLATE}/{name}" for name in ours} <= names


def test_the_repository_shows_the_template_where_the_other_distributions_are():
    assert (ROOT / "templates/plugin").resolve() == (ROOT / "core/src" / TEMPLATE).resolve()


def test_a_new_plugin_is_in_order_before_anything_is_changed(made):
    environment, project = made

    tool(project, "ruff", "check", "--no-cache")
    tool(project, "ruff", "format", "--check", "--no-cache")
    tool(
        project, "mypy", "--python-executable", str(environment.python), "--cache-dir", str(environment.folder / "mypy")
    )


def test_the_wheel_of_a_new_plugin_passes_its_tests_and_the_kit(made, build_wheel, tmp_path):
    environment, project = made
    wheel = build_wheel(project)
    environment.install(wheel)
    shutil.copytree(project / "tests", tmp_path / "elsewhere/tests")
    shutil.copy(project / "pyproject.toml", tmp_path / "elsewhere")

    tested = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path / "elsewhere")
    checked = environment.run("-m", "allotment", "check", "side-pool")

    assert " passed" in tested
    assert "failed" not in tested
    assert "allotment-side-pool:side-pool keeps the contract" in checked
    assert "taken by the allocator of allotment-side-pool" in refusal(environment, "side-pool")


def refusal(environment, name):
    command = [environment.python, "-m", "allotment", "new-plugin", name]
    ended = subprocess.run(
        command, cwd=environment.folder, capture_output=True, text=True, env={"COLUMNS": "200"}, check=False
    )
    assert ended.returncode == 2
    return ended.stderr


def test_the_wheel_of_a_new_plugin_says_who_and_under_which_licence(made, build_wheel):
    _, project = made
    wheel = ZipFile(build_wheel(project))
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    about = message_from_string(wheel.read(metadata).decode())

    assert about["Author-email"] == "Ada Lovelace <ada@example.org>"
    assert about["License-Expression"] in ("MIT", "BSD-3-Clause")
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())
    assert "allotment_side_pool/py.typed" in wheel.namelist()
    assert about["Requires-Dist"].startswith("allotment")


def test_the_workflow_of_a_new_plugin_can_be_read(made):
    yaml = pytest.importorskip("yaml")
    _, project = made

    workflow = yaml.safe_load((project / ".github/workflows/ci.yml").read_text())

    steps = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    assert {"pytest", "mypy", "ruff check", "allotment check side-pool"} <= set(steps)
