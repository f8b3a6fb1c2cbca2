"""What a wheel holds."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))
BRIDGES = sorted(file.parent for file in ROOT.glob("bridges/*/pyproject.toml"))
MEMBERS = [ROOT / "core", *PLUGINS, *BRIDGES]

members = pytest.mark.parametrize("member", MEMBERS, ids=lambda member: f"{member.parent.name}-{member.name}")
others = pytest.mark.parametrize(
    "member", [*PLUGINS, *BRIDGES], ids=lambda member: f"{member.parent.name}-{member.name}"
)


def project(member):
    return tomllib.loads((member / "pyproject.toml").read_text())["project"]


def wheel_files(wheel):
    """The names in a wheel: those of its packages, and those of its metadata."""
    names = ZipFile(wheel).namelist()
    metadata = [name for name in names if name.partition("/")[0].endswith(".dist-info")]
    return sorted(set(names) - set(metadata)), metadata


def source_files(member):
    left_by_tools = {"__pycache__", ".mypy_cache", ".ruff_cache"}
    files = (path for path in (member / "src").rglob("*") if path.is_file() and left_by_tools.isdisjoint(path.parts))
    # What is compiled, and what of it a checkout made in place, is no source of a wheel.
    return sorted(
        path.relative_to(member / "src").as_posix() for path in files if path.suffix not in COMPILED | TO_BE_COMPILED
    )


COMPILED = {".so", ".pyd"}
TO_BE_COMPILED = {".c", ".h", ".cpp", ".hpp", ".pyx"}


def test_there_is_a_wheel_of_each_member(wheels):
    assert sorted(wheels) == sorted(project(member)["name"] for member in MEMBERS)


@members
def test_a_wheel_holds_what_lies_under_src_and_nothing_else(member, wheels):
    files, _ = wheel_files(wheels[project(member)["name"]])
    assert [file for file in files if Path(file).suffix not in COMPILED] == source_files(member)


def test_the_wheel_of_core_holds_the_hot_paths_compiled_or_says_that_it_is_pure(wheels):
    wheel = wheels["allotment"]
    files, _ = wheel_files(wheel)
    compiled = [file for file in files if Path(file).suffix in COMPILED]
    if wheel.name.endswith("-py3-none-any.whl"):
        assert not compiled  # no compiler was at hand
    else:
        assert [file.partition(".")[0] for file in compiled] == [
            "allotment/_array_memory_native",
            "allotment/_beside_captures_native",
            "allotment/bridges/_c_callbacks_native",
            "allotment/bridges/_express_native",
            "allotment/layers/_ledger_native",
        ]


def test_core_can_be_built_without_a_compiler_and_works(environment, tmp_path):
    build = ["-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT / "core"]
    subprocess.run([sys.executable, *build], env={**os.environ, "ALLOTMENT_BUILD_PURE": "1"}, check=True)
    (wheel,) = tmp_path.glob("allotment-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    environment.install(wheel)
    answer = environment.answer(
        "import json, allotment as al; from allotment.layers.ledger import IS_COMPILED; a = al.zeros(3, device='cpu');"
        "print(json.dumps([IS_COMPILED, a.allocator.statistics().live]))"
    )
    assert answer == [False, 1]


@members
def test_a_wheel_declares_its_one_package_typed(member, wheels):
    files, _ = wheel_files(wheels[project(member)["name"]])
    package = project(member)["name"].replace("-", "_")
    assert {file.partition("/")[0] for file in files} == {package}
    assert f"{package}/py.typed" in files


@members
def test_a_wheel_brings_the_licence_of_the_workspace(member, wheels):
    wheel = wheels[project(member)["name"]]
    _, metadata = wheel_files(wheel)
    licence = next(name for name in metadata if name.endswith("/licenses/LICENSE"))
    assert ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()


@members
def test_a_wheel_has_a_summary_and_a_page_to_read(member, wheels):
    wheel = wheels[project(member)["name"]]
    name = next(name for name in ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    metadata = message_from_string(ZipFile(wheel).read(name).decode())
    assert metadata["Summary"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip().startswith("#")


def test_the_wheel_of_core_holds_the_profiles_of_the_simulator_and_the_trace_of_the_demo(wheels):
    files, _ = wheel_files(wheels["allotment"])
    profiles = {Path(file).stem for file in files if Path(file).parent.name == "profiles" and file.endswith(".toml")}
    assert {"2xh200", "rtx4090", "2xl40", "gh200", "gb10", "jetson-thor", "jetson-orin", "wsl", "hmm"} <= profiles
    assert any("trace" in file and not file.endswith((".py", ".toml")) for file in files)


def test_all_members_have_one_version():
    assert len({project(member)["version"] for member in MEMBERS}) == 1


@others
def test_a_plugin_and_a_bridge_ask_for_core_from_its_own_version_to_the_next_series(member):
    version = project(member)["version"]
    major, minor, _ = version.split(".")
    assert f"allotment>={version},<{major}.{int(minor) + 1}" in project(member)["dependencies"]


@others
def test_the_names_of_a_plugin_and_of_a_bridge_agree(member):
    """The folder, the distribution, the package and the entry point are one name."""
    name, is_bridge = member.name.replace("_", "-"), member.parent.name == "bridges"
    entry_points = project(member)["entry-points"]["allotment.bridges" if is_bridge else "allotment.allocators"]
    assert project(member)["name"] == f"allotment-{name}{'-bridge' if is_bridge else ''}"
    assert list(entry_points) == [name]
    assert entry_points[name].startswith(f"allotment_{member.name}{'_bridge' if is_bridge else ''}:")
