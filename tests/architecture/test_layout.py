"""The architecture, held by tests: who imports whom, how long things are, and what core may not name.

Every source file that exists is judged by its syntax tree; nothing is imported. Each rule is a function from a module
to its findings, one sentence each, and is itself tried on code that breaks it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

LAYERS = (
    {"_locks", "_names", "_process", "_scope", "_twins", "_version", "_wording", "units"},
    {"_layout", "allocator", "dtypes", "errors", "labels", "memory_kind"},
    {"configuration"},
    {"platform"},
    {"_allocator_scopes", "_beside_captures", "_captures", "_grants", "_graph_blocks", "device", "grants", "stream"},
    {"host_allocator", "report"},
    {"registry"},
    {"layers"},
    {"selection", "pools", "guides"},
    {"_array", "_array_memory", "_dlpack", "_foreign_memory", "copying", "factories", "foreign", "interchange", "ipc"},
    {"access"},
    {"launching", "capture"},
    {"bridges"},
    {"leaks", "measurement", "memory_use", "recording", "session", "statistics", "summary", "trace"},
    {"serving"},
    {""},
    {"cli", "__main__", "testing"},
)
"""The first step of each module's name below ``allotment``, lowest layer first; the empty one is the package itself."""

PLUGIN_NAMES = {"mempool", "managed", "pinned", "torch-caching", "rmm", "caching"}
DEFAULT_ORDER = "allotment.configuration._defaults"
"""The one module of core that may name plugins: it states which are chosen by default."""

BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "base2", "common", "misc"}
LASTING_LOCKS = {("threading", name) for name in ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore")}
OWN_RENEWAL = {"allotment._locks", "allotment._process", "allotment.testing._threads"}
"""The modules that renew their locks themselves, and one of the conformance kit, whose threads nobody forks beside."""
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 10
MEDIAN_MODULE_LINES = 120

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    text: str
    is_package: bool = False
    known: frozenset[str] = frozenset()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @property
    def length(self) -> int:
        return len(self.text.splitlines())

    @property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def imports(self) -> list[tuple[str, str | None, int]]:
        """Each import as module, name imported from it, and line; those for type checkers alone are left out."""
        return [found for node in _running_nodes(self.tree) for found in self._imports_of(node)]

    def _imports_of(self, node: ast.AST) -> Iterator[tuple[str, str | None, int]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = self._absolute(node)
            for alias in node.names:
                module = f"{source}.{alias.name}"
                yield (module, None, node.lineno) if module in self.known else (source, alias.name, node.lineno)

    def _absolute(self, node: ast.ImportFrom) -> str:
        parents = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
        start = parents[: len(parents) - node.level + 1] if node.level else []
        return ".".join([*start, *filter(None, [node.module])])


def _running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree, without the branches that only a type checker takes."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _running_nodes(other)
        else:
            yield from _running_nodes(child)


def read_sources(folder: Path) -> list[Module]:
    paths = sorted(path for path in folder.rglob("*.py") if "template" not in path.parts)  # a project of its own
    names = {path: ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    known = frozenset(names.values())
    return [Module(name, path.read_text(), path.stem == "__init__", known) for path, name in names.items()]


CORE = read_sources(ROOT / "core" / "src")
EXTENSIONS = [
    module
    for kind in ("plugins", "bridges")
    for folder in sorted(ROOT.glob(f"{kind}/*/src"))
    for module in read_sources(folder)
]
MODULES = [*CORE, *EXTENSIONS]


def named(modules: list[Module]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("module", modules, ids=[module.name for module in modules])


def assert_none(findings: list[str]) -> None:
    assert not findings, "\n".join(["", *findings])


# The rules


def layer_of(module: str) -> int | None:
    first = module.partition(".")[2].partition(".")[0]
    return next((number for number, names in enumerate(LAYERS) if first in names), None)


def upward_imports(module: Module) -> list[str]:
    own = layer_of(module.name)
    if own is None:
        return [f"{module.name} is in no layer: give it its place in LAYERS of this test"]
    return [
        f"{module.name}:{line} imports {target}, which is above it"
        for target, _, line in module.imports
        if target.partition(".")[0] == "allotment" and (layer := layer_of(target)) is not None and layer > own
    ]


def private_imports(module: Module) -> list[str]:
    """Find what a plugin or bridge imports of core's inside, or of another plugin or bridge."""
    findings = []
    for target, name, line in module.imports:
        root = target.partition(".")[0]
        if root.startswith("allotment_") and root != module.package:
            findings.append(f"{module.name}:{line} imports {target}: a plugin or bridge imports no other")
        private = any(step.startswith("_") for step in [*target.split("."), name or ""])
        if root == "allotment" and private:
            findings.append(
                f"{module.name}:{line} imports {target}{f'.{name}' if name else ''}, which is private to core"
            )
    return findings


def extension_imports(module: Module) -> list[str]:
    return [
        f"{module.name}:{line} imports {target}: core imports no plugin and no bridge"
        for target, _, line in module.imports
        if target.partition(".")[0].startswith("allotment_")
    ]


def plugin_names(module: Module) -> list[str]:
    """Find texts that are the name of a plugin. The platforms are left out: these words are CUDA's there."""
    if module.name == DEFAULT_ORDER or module.name.startswith("allotment.platform"):
        return []
    return [
        f"{module.name}:{node.lineno} names the plugin {node.value!r}: only {DEFAULT_ORDER} may"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.strip().lower().replace("_", "-") in PLUGIN_NAMES
    ]


def lasting_locks(module: Module) -> list[str]:
    """Return the imports of locks that a child forked while another thread holds them waits for without end."""
    return [
        f"{module.name}:{line} imports {name}: a forked child cannot take it. Use allotment._locks.RenewedLock."
        for source, name, line in module.imports
        if (source, name) in LASTING_LOCKS and module.name not in OWN_RENEWAL
    ]


def banned_name(module: Module) -> list[str]:
    banned = [step for step in module.name.split(".") if step.lstrip("_") in BANNED_NAMES]
    return [f"{module.name}: {step!r} says nothing about what is in it; name the noun" for step in banned]


def function_length(function: Function) -> int:
    """Return the lines of a function, its docstring left out."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is None:
        return lines
    return lines - ((first.end_lineno or first.lineno) - first.lineno + 1)


def too_long(module: Module) -> list[str]:
    findings = [
        f"{module.name}:{function.lineno} {function.name} has {length} lines; at most {MAX_FUNCTION_LINES}"
        for function in module.functions
        if (length := function_length(function)) > MAX_FUNCTION_LINES
    ]
    if module.length > MAX_MODULE_LINES:
        findings.append(f"{module.name} has {module.length} lines; at most {MAX_MODULE_LINES}")
    return findings


# The rules, applied


@named(CORE)
def test_core_imports_go_down_the_layers_only(module):
    assert_none(upward_imports(module))


@named(CORE)
def test_core_imports_no_plugin_and_no_bridge(module):
    assert_none(extension_imports(module))


@named(CORE)
def test_core_names_no_plugin(module):
    assert_none(plugin_names(module))


@named(EXTENSIONS)
def test_plugins_and_bridges_import_only_public_names_of_core_and_never_each_other(module):
    assert_none(private_imports(module))


@named(CORE)
def test_the_locks_of_core_can_be_taken_in_a_forked_child(module):
    assert_none(lasting_locks(module))


@named(MODULES)
def test_a_module_is_named_for_what_is_in_it(module):
    assert_none(banned_name(module))


@named(MODULES)
def test_modules_and_functions_are_short(module):
    assert_none(too_long(module))


def test_most_functions_are_very_short():
    lengths = [function_length(function) for module in MODULES for function in module.functions]

    assert median(lengths) <= MEDIAN_FUNCTION_LINES


def test_most_modules_are_short(record_property):
    lengths = {module.name: module.length for module in MODULES}
    record_property("median_module_lines", median(lengths.values()))

    assert median(lengths.values()) <= MEDIAN_MODULE_LINES, sorted(lengths.items(), key=lambda item: -item[1])[:10]


# The rules, tried


KNOWN = frozenset({"allotment", "allotment.device", "allotment.registry", "allotment.errors", "allotment.registry._x"})


def module(text, name="allotment.device", *, is_package=False):
    return Module(name, text, is_package, KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "import allotment",
        "import allotment.registry",
        "from allotment import registry",
        "from allotment import list_allocators",
        "from allotment.registry import Registry",
        "from .registry import Registry",
        "def late():\n    from allotment import registry",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import allotment.registry",
    ],
)
def test_every_way_to_import_upward_is_found(text):
    assert len(upward_imports(module(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from allotment import errors",
        "from allotment.errors import AllotmentError",
        "from allotment.device import Device",
        "import numpy",
        "if TYPE_CHECKING:\n    from allotment.registry import Registry",
        "if typing.TYPE_CHECKING:\n    import allotment",
    ],
)
def test_imports_downward_and_for_type_checkers_are_allowed(text):
    assert upward_imports(module(text)) == []


def test_a_relative_import_in_a_package_is_followed():
    assert module("from ._x import y", "allotment.registry", is_package=True).imports == [
        ("allotment.registry._x", "y", 1)
    ]


def test_a_module_without_a_layer_is_found():
    assert "LAYERS" in upward_imports(module("", "allotment.surprise"))[0]


@pytest.mark.parametrize(
    "text",
    [
        "from allotment.registry._x import y",
        "import allotment._names",
        "from allotment import _names",
        "from allotment_other import Pool",
        "import allotment_other.pool",
    ],
)
def test_a_plugin_that_reaches_inside_core_or_into_another_is_found(text):
    assert len(private_imports(module(text, "allotment_mine"))) == 1


@pytest.mark.parametrize(
    "text", ["import allotment as al", "from allotment.errors import AllotmentError", "from allotment_mine import x"]
)
def test_a_plugin_may_import_public_names_and_itself(text):
    assert private_imports(module(text, "allotment_mine.pool")) == []


def test_a_lock_that_a_forked_child_cannot_take_is_found():
    assert len(lasting_locks(module("from threading import RLock, get_ident"))) == 1


def test_core_importing_a_plugin_is_found():
    assert len(extension_imports(module("def late():\n    import allotment_mempool"))) == 1


@pytest.mark.parametrize("text", ["x = 'mempool'", "find('Torch_Caching')", "{'rmm': 1}", "f(name='managed')"])
def test_the_name_of_a_plugin_is_found(text):
    assert len(plugin_names(module(text))) == 1


@pytest.mark.parametrize("text", ['"""A mempool is faster."""', "'the managed kind'", "managed = 1", "f(pinned=True)"])
def test_the_words_may_be_used(text):
    assert plugin_names(module(text)) == []


@pytest.mark.parametrize("name", ["allotment.utils", "allotment._helpers", "allotment.registry.manager"])
def test_a_name_that_says_nothing_is_found(name):
    assert len(banned_name(module("", name))) == 1


def test_what_is_too_long_is_found_without_its_docstring():
    documented = 'def f():\n    """\n' + "    text\n" * 60 + '    """\n' + "    x = 1\n" * 59
    findings = too_long(module(documented + "    x = 1\n"))

    assert too_long(module(documented)) == []
    assert findings == ["allotment.device:1 f has 61 lines; at most 60"]
    assert too_long(module("x = 1\n" * 601)) == ["allotment.device has 601 lines; at most 600"]
