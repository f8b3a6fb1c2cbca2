import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from allotment import configuration, registry
from allotment.cli import build_app
from allotment.configuration import Configuration

PLAIN = """
from allotment import AllocatorTraits, Availability, MemoryKind

class Plain:
    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE)

    def __init__(self, *, device):
        self.platform = device.platform

    def allocate(self, size_in_bytes):
        return self.platform.malloc(size_in_bytes)

    def deallocate(self, ptr, size_in_bytes):
        self.platform.free(ptr)

    @classmethod
    def availability(cls, device):
        return Availability(device.is_cuda, "" if device.is_cuda else "it serves GPUs only")
"""
"""An allocator plugin that works."""


VISIBLE_DEVICES = os.environ.get("CUDA_VISIBLE_DEVICES")
"""What this machine lets a process see; the fixtures hide it."""


@pytest.fixture(autouse=True)
def empty_folder(isolated, monkeypatch, tmp_path):
    """Work in an empty folder, without a GPU, with a configuration that is read as in a process of its own."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with configuration.use(Configuration()):
        yield folder


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Return what installs a distribution with one allocator or observer, made of a module's source."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    modules = []

    def add(name, source, attribute, *, group="allotment.allocators", requires=()):
        module = f"installed_{name.replace('-', '_')}"
        modules.append(module)
        (site / f"{module}.py").write_text(dedent(source))
        info = site / f"{module}-1.5.dist-info"
        info.mkdir()
        required = "".join(f"Requires-Dist: {each}\n" for each in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: trial-{name}\nVersion: 1.5\n{required}")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module}:{attribute}\n")
        registry.reset()
        return site

    yield add
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def plain_source():
    """Return the source of an allocator that works."""
    return PLAIN


@pytest.fixture
def plain(install, plain_source):
    """Install an allocator that works, by the name trial-plain."""
    install("trial-plain", plain_source, "Plain")
    return "trial-plain"


@pytest.fixture
def run():
    """Return what runs the command line in this process."""

    def invoke(*arguments, **environment):
        return CliRunner(env=environment).invoke(build_app(), arguments)

    return invoke


@pytest.fixture
def run_json(run):
    """Return what runs a command with --json and returns the document: all that is on standard output."""

    def invoke(*arguments, exit_code=0, **environment):
        result = run(*arguments, "--json", **environment)
        assert exit_code in (None, result.exit_code), result.output
        return json.loads(result.stdout)

    return invoke


@pytest.fixture
def process(empty_folder, environment):
    """Return what runs the command line in a process of its own, piped."""

    def start(*arguments, **more):
        return subprocess.run(
            [sys.executable, "-m", "allotment", *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
            env=environment(**more),
        )

    return start


@pytest.fixture
def environment():
    """Return what makes the environment of a process that finds what this one finds."""

    def make(**more):
        ours = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8", **more}
        return {name: value for name, value in (os.environ | ours).items() if value is not None}

    return make


@pytest.fixture
def visible_devices():
    """Return the environment in which a process sees the GPUs that this machine lets it see."""
    return {"CUDA_VISIBLE_DEVICES": VISIBLE_DEVICES}
