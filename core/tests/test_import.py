"""Importing costs next to nothing, touches nothing, and every public name is what its declaration says."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import allotment as al

SOURCE = ast.parse(Path(al.__file__).read_text(encoding="utf-8"))
HEAVY = [
    "numpy",
    "cupy",
    "cuda",
    "torch",
    "numba",
    "rmm",
    "pluggy",
    "typer",
    "rich",
    "msgspec",
    "platformdirs",
    "packaging",
]
PLUGINS = ["allotment_default", "allotment_mempool", "allotment_managed", "allotment_pinned"]


def declared():
    """Return the module and the name there of each public name, as the block for type checkers says."""
    block = next(node for node in SOURCE.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    return {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}


DECLARED = declared()
WITHOUT_DECLARATION = {"CudaManagedAllocator", "__version__"}
"""Names that no import can declare: they are answers and not objects of a module."""


@pytest.mark.parametrize("name", al.__all__)
def test_a_public_name_resolves(name, sim):
    assert getattr(al, name) is not None


@pytest.mark.parametrize("name", DECLARED)
def test_a_public_name_is_the_object_that_its_declaration_says(name):
    module, original = DECLARED[name]

    assert getattr(al, name) is getattr(import_module(module), original)


def test_every_public_name_is_declared_to_type_checkers_and_every_declared_name_is_public():
    assert sorted(DECLARED.keys() | WITHOUT_DECLARATION) == al.__all__ == dir(al)
    assert len(set(al.__all__)) == len(al.__all__)


def test_the_module_of_each_name_is_the_one_that_is_declared():
    homes = {name: (f"allotment.{module}", name) for module, names in al._HOMES.items() for name in names.split()}

    assert homes == {name: place for name, place in DECLARED.items() if name != "config"}


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'allotment' has no attribute 'enpty'"):
        _ = al.enpty


def test_the_guides_managed_allocator_is_the_installed_one(sim):
    al.set_cuda_allocator(managed := al.CudaManagedAllocator())

    assert al.get_device_allocator("cuda:1") is managed
    assert al.zeros(4).memory_kind is al.MemoryKind.CUDA_MANAGED


def test_importing_loads_nothing_heavy_and_no_plugin(output_of):
    loaded = output_of("""
        import sys
        before = set(sys.modules)
        import allotment
        print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
        print(*sorted(name for name in sys.modules if name.startswith("allotment")))
    """)

    assert not set(loaded[0].split()) & {*HEAVY, *PLUGINS}
    assert loaded[1].split() == ["allotment"]


def test_import_times_show_nothing_heavy(run_script):
    done = run_script("import allotment", "-X", "importtime")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}

    assert done.returncode == 0
    assert "allotment" in imported
    assert not imported & {*HEAVY, *PLUGINS}


def test_listing_allocators_loads_no_plugin_and_chooses_no_platform(output_of):
    loaded = output_of("""
        import sys
        import allotment as al
        records = al.list_allocators()
        print(len(records) > 3, *sorted(name for name in sys.modules if name.startswith("allotment_")))
        from allotment.platform import _choice
        print(_choice._choice.in_force, "cupy" in sys.modules)
    """)

    assert loaded == ["True", "None False"]


def test_importing_installs_nothing_in_the_interpreter_and_chooses_no_platform(output_of):
    assert output_of("""
        import atexit
        before = atexit._ncallbacks()
        import allotment
        from allotment import device, selection, stream
        from allotment.platform import _choice
        print(_choice._choice.in_force, device._registry)
    """) == ["None None"]


def test_the_visible_devices_may_be_set_after_the_import(output_of):
    """Where there is no driver it is the host that answers; where there is one, no device is visible to it."""
    assert output_of("""
        import os
        import allotment as al
        al.list_allocators()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        print(al.is_cuda_available(), al.get_cuda_device_count(), al.zeros(3).numpy().tolist())
    """) == ["False 0 [0.0, 0.0, 0.0]"]


@pytest.mark.parametrize("visible", ["", "-1"])
def test_with_no_visible_device_asking_never_raises_and_allocating_says_why(output_of, visible):
    assert output_of(
        """
        import allotment as al
        print(al.is_cuda_available(), al.get_cuda_device_count())
        try:
            al.zeros(3, device="cuda:0")
        except al.DeviceNotFoundError as error:
            print("no CUDA here" in str(error), "allotment.simulate" in str(error))
        with al.simulate("2xh200"):
            print(al.zeros(3, device="cuda:1").device)
        """,
        CUDA_VISIBLE_DEVICES=visible,
    ) == ["False 0", "True True", "cuda:1"]


def test_the_environment_chooses_platform_and_allocator(output_of):
    assert output_of(
        "import allotment as al; a = al.empty(3); print(a.device, a.allocator.name, a.memory_kind.name)",
        ALLOTMENT_PLATFORM="sim:gh200",
        ALLOTMENT_ALLOCATOR="managed",
    ) == ["cuda:0 managed CUDA_MANAGED"]
