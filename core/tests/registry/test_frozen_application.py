"""A frozen application: core in an archive, without the metadata of anything that is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import allotment

PROGRAM = """
import sys
from importlib import metadata

metadata.MetadataPathFinder.find_distributions = classmethod(lambda cls, *args, **kwargs: iter(()))
import allotment as al

class Mine:
    def __init__(self, device):
        self.allocate, self._free = device.platform.malloc, device.platform.free

    def deallocate(self, ptr, size_in_bytes):
        self._free(ptr)

assert ".zip" in al.__file__
al.register_allocator("mine", Mine)
with al.simulate("2xh200"), al.ScopedAllocator("cuda:0", "mine"):
    array = al.full(3, 7.0, device="cuda:0")
    print(array.allocator.name, array.numpy().tolist(), al.__version__)
print([record.name for record in al.list_allocators()])
print(sorted({record.name for records in al.list_plugins().values() for record in records} & {"mine", "limit"}))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Return core's package in an archive, as tools that freeze programs pack it: without what is compiled."""
    folder = tmp_path_factory.mktemp("frozen")
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "*.h", "__pycache__")
    shutil.copytree(Path(allotment.__file__).parent, folder / "tree" / "allotment", ignore=ignored)
    return shutil.make_archive(str(folder / "application"), "zip", folder / "tree")


def test_what_a_frozen_application_registers_is_chosen_by_name(archive, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env={"PYTHONPATH": archive, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        "mine [7.0, 7.0, 7.0] unknown",
        "['host', 'mine']",
        "['limit', 'mine']",
    ]
