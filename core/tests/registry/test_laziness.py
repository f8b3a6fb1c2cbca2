"""Fifty plugins are listed without importing one, the same in every process."""

import itertools
import os
import subprocess
import sys

import pytest

LIST = """
import sys
from allotment.registry import Registry
Registry(core_version="0.1.0").survey()
for record in Registry(core_version="0.1.0").records():
    if record.distribution.startswith("fake-plugin-"):
        print(record.name, record.distribution, record.version, record.reference, record.status.value)
imported = sorted(name for name in sys.modules if name.startswith("fake_plugin"))
print(f"imported: {imported}", file=sys.stderr)
"""

GROUPS = ("allocators", "layers", "bridges", "observers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two folders with 25 distributions each; every fifth name is claimed by both."""
    folders = [tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")]
    for number, folder in itertools.product(range(25), folders):
        plugin = f"fake_plugin_{folder.name[:-1]}_{number}"
        name = f"shared-{number}" if number % 5 == 0 else f"{folder.name[:-1]}-{number}"
        (folder / f"{plugin}.py").write_text("raise RuntimeError('imported')\n")
        dist_info = folder / f"{plugin}-1.{number}.dist-info"
        dist_info.mkdir()
        (dist_info / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {plugin.replace('_', '-')}\nVersion: 1.{number}\n"
        )
        groups = (f"[allotment.{group}]\n{name} = {plugin}:Allocator\n" for group in GROUPS)
        (dist_info / "entry_points.txt").write_text("\n".join(groups))
    return folders


def listing(folders, hash_seed):
    paths = [*map(str, folders), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run([sys.executable, "-c", LIST], check=True, capture_output=True, text=True, env=environment)
    return done.stdout, done.stderr


def test_listing_fifty_plugins_imports_none(folders):
    listed, imported = listing(folders, 0)

    assert len(listed.splitlines()) == 50
    assert listed.count("conflict") == 10
    assert imported == "imported: []\n"


def test_the_list_depends_neither_on_the_hash_seed_nor_on_the_order_of_the_path(folders):
    lists = {listing(order, seed)[0] for order in itertools.permutations(folders) for seed in (0, 1, 2)}

    assert len(lists) == 1
