"""The example plugins, as strangers have them: built, installed beside core in an environment of their own, chosen by
name, and tried by the tests that they bring.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

EXAMPLES = sorted(file.parent for file in (Path(__file__).parents[2] / "examples").glob("*/pyproject.toml"))
PUBLIC = {"allotment", "allotment.testing"}

examples = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


@pytest.fixture
def install(environment, wheels, build_wheel):
    """A function that installs an example with core and what its tests need, and what else is named."""

    def install_example(name, *more):
        (example,) = (example for example in EXAMPLES if example.name == name)
        core = f"allotment[testing] @ {wheels['allotment'].as_uri()}"
        environment.install(core, build_wheel(example), *more)
        return environment, example

    return install_example


def imports(example):
    """Yield each module that an example imports, and each name from it."""
    for file in example.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from ((alias.name, None) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file} imports relatively"
                yield from ((node.module, alias.name) for alias in node.names)


@examples
def test_an_example_imports_public_names_of_allotment_only(example):
    found = {(module, name) for module, name in imports(example) if module.split(".")[0].startswith("allotment")}

    assert {module for module, _ in found} <= PUBLIC
    assert [name for _, name in found if name and name.startswith("_")] == []
    assert ("allotment.testing", "AllocatorConformance") in found


@examples
def test_an_example_reaches_into_nothing_private_of_an_object_that_is_not_its_own(example):
    nodes = [node for file in example.rglob("src/**/*.py") for node in ast.walk(ast.parse(file.read_text()))]
    private = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("_")]

    assert [ast.unparse(node) for node in private if ast.unparse(node.value) not in ("self", "cls")] == []


@examples
def test_an_example_is_a_project_of_its_own(example):
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]

    assert not project["name"].startswith("allotment")
    assert "allotment>=0.1.0,<0.2" in project["dependencies"]
    assert {"LICENSE", "README.md", "src", "tests"} <= {path.name for path in example.iterdir()}
    (reference,) = project["entry-points"]["allotment.allocators"].values()
    assert (example / "src" / reference.partition(":")[0] / "py.typed").exists()


def test_arrays_that_processes_share_are_a_plugin_of_strangers(install):
    environment, example = install("shared-host-allocator")
    program = """
    import json, allotment as al
    from acme_shared_host import share
    array = al.full(3, 7, device="cpu")
    print(json.dumps([array.allocator.name, share(array).open().tolist()]))
    """

    answer = environment.answer(dedent(program), ALLOTMENT_PLATFORM="host", ALLOTMENT_DEVICES__CPU="shared-host")

    assert answer == ["shared-host", [7, 7, 7]]
    environment.run("-m", "doctest", "-o", "NORMALIZE_WHITESPACE", example / "README.md", ALLOTMENT_PLATFORM="host")
    run_its_tests(environment, example, "-k", "not WithoutReserving")


def test_memory_of_cuda_core_is_a_plugin_of_strangers(install):
    environment, example = install("cuda-core-allocator", "cuda-core>=1.2,<2", "cuda-bindings>=13,<14")
    program = """
    import json, sys, allotment as al
    (record,) = (record for record in al.list_allocators() if record.name == "cuda-core")
    try:
        al.empty(3, device="cuda:0")
    except al.PluginUnavailableError as error:
        print(json.dumps([record.distribution, str(error), "cuda" in sys.modules]))
    """

    distribution, refusal, imported = environment.answer(
        dedent(program), ALLOTMENT_PLATFORM="sim:2xh200", ALLOTMENT_ALLOCATOR="cuda-core"
    )

    assert distribution == "acme-cuda-core-memory"
    assert "cuda.core reaches real devices only" in refusal
    assert not imported
    run_its_tests(environment, example)


def run_its_tests(environment, example, *options):
    """Run the tests of an example where nothing of the workspace is found but its installed wheel."""
    report = environment.run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not gpu", example / "tests", *options
    )
    assert " passed" in report
