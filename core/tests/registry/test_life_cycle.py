"""The life of an installed plugin: each way to be installed, to fail, to be upgraded and to be taken away."""

import json
import shutil
import site
import sys
import threading
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

import pytest

import allotment as al
from allotment import registry as registries
from allotment.errors import PluginLoadError
from allotment.registry import PluginKind, PluginStatus, Registry

ALLOCATOR = """
class Allocator:
    version = {version!r}

    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass
"""
GROUPS = {
    "allocators": ALLOCATOR.format(version="1.0"),
    "layers": """
from dataclasses import dataclass

@dataclass(frozen=True)
class Options: ...

class Allocator:
    name, place, Options = "late", 10, Options

    def __init__(self, options, device): ...

    def wrap(self, calls, account):
        return calls
""",
    "bridges": """
from dataclasses import dataclass

@dataclass(frozen=True)
class Options: ...

class Allocator:
    name, Options = "late", Options

    def __init__(self, options): ...

    def availability(self): ...

    def install(self, delivery): ...

    def uninstall(self): ...

    def describe(self): ...
""",
    "observers": """
class Allocator:
    def allotment_after_allocate(self, ptr): ...
""",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder on the path, as that of installed packages is."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a module that is replaced within a second must be read anew
    return path


@pytest.fixture
def install(folder):
    """Return a function that installs a distribution with one plugin into a folder."""

    def write(name, source=None, *, group="allocators", version="1.0", into=folder, plugin=None, files=()):
        module = f"fake_{name.replace('-', '_')}"
        info = into / f"{module}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: fake-{name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[allotment.{group}]\n{plugin or name} = {module}:Allocator\n")
        for file, text in dict(files).items():
            (info / file).write_text(text)
        if source is not None:
            (into / f"{module}.py").write_text(source)
        return info

    return write


@pytest.fixture
def registry():
    """Put a fresh registry in force."""
    with registries.use(Registry(core_version="0.1.0")) as fresh:
        yield fresh


def listed(kind=PluginKind.ALLOCATOR):
    """Return what is listed of the plugins of these tests, by qualified name."""
    found = (record for record in al.list_plugins()[kind] if (record.distribution or "").startswith("fake-"))
    return {record.qualified_name: record for record in found}


# Ways to fail


@pytest.mark.parametrize(
    "statement",
    [
        "raise BaseException('odd')",
        "raise GeneratorExit",
        "raise MemoryError",
        "raise StopIteration",
        "class Odd(BaseException): pass\nraise Odd('odd')",
        "import asyncio\nraise asyncio.CancelledError",
        "import pytest\npytest.skip('not here', allow_module_level=True)",
        "import os\nos.chdir('/nowhere')",
        "1 / 0",
        "assert False",
        "def Allocator(:",
        "import fake_odd_itself",
        "__getattr__ = None",
    ],
)
def test_whatever_an_import_raises_the_plugin_is_broken_and_the_others_work(registry, install, statement):
    install("odd", statement)
    install("even", ALLOCATOR.format(version="1.0"))

    with pytest.raises(PluginLoadError) as refusal:
        registry.get("odd")

    assert refusal.value.__cause__ is not None
    assert listed()["fake-odd:odd"].status in (PluginStatus.BROKEN, PluginStatus.UNAVAILABLE)
    assert registry.get("even").record.status is PluginStatus.LOADED


@pytest.mark.parametrize("attribute", ["traits", "Options", "availability", "api_version"])
def test_a_declaration_that_raises_when_it_is_read_makes_a_broken_plugin(registry, install, attribute):
    install(
        "computing",
        f"""
class Computed(type):
    @property
    def {attribute}(cls):
        raise RuntimeError("no licence found")

class Allocator(metaclass=Computed):
    def allocate(self, size_in_bytes): ...
    def deallocate(self, ptr, size_in_bytes): ...
""",
    )

    with pytest.raises(PluginLoadError, match="what it declares cannot be read: RuntimeError: no licence found"):
        registry.get("computing")


@pytest.mark.parametrize("raised", ["SystemExit(3)", "BaseException('odd')", "RuntimeError('odd')"])
def test_an_observer_that_raises_anything_when_it_is_made_is_broken(registry, install, raised):
    source = f"class Allocator:\n    def __init__(self):\n        raise {raised}\n"
    install("odd", source, group="observers")
    install("even", GROUPS["observers"], group="observers")

    registry.hooks.load_observers()

    assert listed(PluginKind.OBSERVER)["fake-odd:odd"].status is PluginStatus.BROKEN
    assert registry.hooks.has_observers("allotment_after_allocate")


def test_a_slow_import_keeps_no_other_plugin_waiting(registry, install, folder):
    (folder / "fake_gate.py").write_text("import threading\nreached, opened = threading.Event(), threading.Event()\n")
    install("slow", "import fake_gate\nfake_gate.reached.set()\nfake_gate.opened.wait()\n" + GROUPS["allocators"])
    install("quick", ALLOCATOR.format(version="1.0"))
    import fake_gate

    waiting = threading.Thread(target=registry.get, args=["slow"])
    waiting.start()
    assert fake_gate.reached.wait(30)
    quick = registry.get("quick")
    fake_gate.opened.set()
    waiting.join()

    assert quick.record.status is PluginStatus.LOADED
    assert registry.get("slow").record.status is PluginStatus.LOADED


# Metadata that is stale or there twice


def test_metadata_that_outlived_its_module_is_listed_as_such_without_an_import(registry, install):
    install("gone")

    record = listed()["fake-gone:gone"]

    assert record.status is PluginStatus.UNAVAILABLE
    assert record.error == "ModuleNotFoundError: No module named 'fake_gone'"
    assert record.remedy == "Its installation is out of date: reinstall or uninstall fake-gone."


def test_a_reference_that_cannot_be_one_is_listed_as_broken(registry, install):
    info = install("garbled", "raise RuntimeError")
    (info / "entry_points.txt").write_text("[allotment.allocators]\ngarbled = fake garbled::Allocator\n")

    assert listed()["fake-garbled:garbled"].status is PluginStatus.BROKEN


def test_a_finder_that_fails_says_nothing_about_a_plugin(registry, install, monkeypatch):
    install("there", ALLOCATOR.format(version="1.0"))

    class Failing:
        @staticmethod
        def find_spec(name, path, target=None):
            if name == "fake_there":
                raise OSError("the network is down")

    monkeypatch.setattr(sys, "meta_path", [Failing, *sys.meta_path])

    assert listed()["fake-there:there"].status is PluginStatus.AVAILABLE


def test_metadata_left_by_an_interrupted_upgrade_counts_for_nothing_and_is_told(registry, install, folder):
    install("pool", ALLOCATOR.format(version="1.1"), version="1.1")
    install("pool", version="1.0")

    record = listed()["fake-pool:pool"]

    assert (record.version, record.shadowed) == ("1.1", (f"1.0 in {folder}",))
    assert registry.get("pool").factory.version == "1.1"


def test_a_distribution_that_is_there_twice_counts_where_it_is_imported_from(registry, install, tmp_path, monkeypatch):
    for place in ("last", "first"):
        monkeypatch.syspath_prepend(tmp_path / place)
        install("twice", ALLOCATOR.format(version=place), into=tmp_path / place)

    record = listed()["fake-twice:twice"]

    assert (record.status, record.location) == (PluginStatus.AVAILABLE, str(tmp_path / "first"))
    assert record.shadowed == (f"1.0 in {tmp_path / 'last'}",)
    assert registry.get("twice").factory.version == "first"


@pytest.mark.parametrize("group", ["layers", "bridges"])
def test_a_conflict_of_any_kind_is_listed_with_the_names_that_choose(registry, install, group):
    for name in ("one", "two"):
        install(name, GROUPS[group], group=group, plugin="late")

    found = listed(PluginKind(group.removesuffix("s")))

    assert {record.status for record in found.values()} == {PluginStatus.CONFLICT}
    assert found["fake-one:late"].remedy == "Choose it as 'fake-one:late'."


# Editable installs


def test_an_editable_install_by_a_path_file_is_found_and_told(registry, install, folder, tmp_path, monkeypatch):
    source = tmp_path / "project" / "src"
    source.mkdir(parents=True)
    (source / "fake_mine.py").write_text(ALLOCATOR.format(version="source"))
    about = {"url": source.parent.as_uri(), "dir_info": {"editable": True}}
    install("mine", files={"direct_url.json": json.dumps(about)})
    (folder / "_fake_mine.pth").write_text(f"{source}\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    site.addsitedir(str(folder))

    record = listed()["fake-mine:mine"]

    assert (record.status, record.is_editable) == (PluginStatus.AVAILABLE, True)
    assert registry.get("mine").factory.version == "source"


def test_an_editable_install_by_an_import_hook_is_found(registry, install, tmp_path, monkeypatch):
    module = tmp_path / "elsewhere.py"
    module.write_text(ALLOCATOR.format(version="hook"))
    install("hooked", files={"direct_url.json": '{"dir_info": {"editable": true}}'})

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None) -> ModuleSpec | None:
            return spec_from_file_location(name, module) if name == "fake_hooked" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])

    assert listed()["fake-hooked:hooked"].status is PluginStatus.AVAILABLE
    assert registry.get("hooked").factory.version == "hook"


def test_a_development_install_by_an_egg_info_beside_the_source_is_found(registry, folder):
    (folder / "fake_egg.py").write_text(ALLOCATOR.format(version="egg"))
    info = folder / "fake_egg.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: fake-egg\nVersion: 0.1.dev0\n")
    (info / "entry_points.txt").write_text("[allotment.allocators]\negg = fake_egg:Allocator\n")
    (info / "requires.txt").write_text("allotment<0.2,>=0.1.0\n\n[cuda]\nfake-absent\n")

    assert registry.get("egg").factory.version == "egg"
    assert listed()["fake-egg:egg"].version == "0.1.dev0"


@pytest.mark.parametrize("text", ["[]", "{", '{"dir_info": 3}', '{"dir_info": {"editable": false}}'])
def test_what_an_installer_wrote_down_otherwise_is_no_editable_install(registry, install, text):
    install("plain", ALLOCATOR.format(version="1.0"), files={"direct_url.json": text})

    assert not listed()["fake-plain:plain"].is_editable


# While the program runs


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_installed_meanwhile_is_found_after_a_refresh(registry, install, group):
    kind = PluginKind(group.removesuffix("s"))
    registry.hooks.load_observers()
    assert listed(kind) == {}

    install("late", GROUPS[group], group=group)
    al.refresh_plugins()

    assert listed(kind)["fake-late:late"].status is PluginStatus.AVAILABLE
    {
        PluginKind.ALLOCATOR: lambda: registry.get("late"),
        PluginKind.LAYER: lambda: registry.layers.get("late", "a test", "layers"),
        PluginKind.BRIDGE: lambda: registry.bridges.get("late"),
        PluginKind.OBSERVER: registry.hooks.load_observers,
    }[kind]()
    assert listed(kind)["fake-late:late"].status is PluginStatus.LOADED


def test_an_observer_that_is_loaded_stays_the_same_after_a_refresh(registry, install):
    install("watching", GROUPS["observers"], group="observers")
    registry.hooks.load_observers()

    al.refresh_plugins()

    assert listed(PluginKind.OBSERVER)["fake-watching:watching"].status is PluginStatus.LOADED
    assert [record.error for record in registry.hooks.load_observers()] == [None]


def test_what_is_uninstalled_meanwhile_is_gone_after_a_refresh_and_what_it_made_goes_on(registry, install, sim):
    info = install("leaving", ALLOCATOR.format(version="1.0"))
    account = al.get_allocator("leaving", "cuda:0")

    shutil.rmtree(info)
    al.refresh_plugins()

    assert listed() == {}
    assert account.allocate(8) == 4096
    account.deallocate(4096, 8)
    with pytest.raises(al.UnknownAllocatorError):
        registry.get("leaving")


def test_a_plugin_that_is_upgraded_meanwhile_stays_what_was_imported(registry, install):
    info = install("upgraded", ALLOCATOR.format(version="1.0"))
    before = registry.get("upgraded")

    shutil.rmtree(info)
    install("upgraded", ALLOCATOR.format(version="2.0"), version="2.0")
    al.refresh_plugins()

    assert registry.get("upgraded") is before
    assert listed()["fake-upgraded:upgraded"].version == "1.0"


@pytest.mark.parametrize("group", ["layers", "bridges"])
def test_what_failed_to_load_is_listed_with_the_reason_and_tried_again_after_a_refresh(
    registry, install, group, folder
):
    kind = PluginKind(group.removesuffix("s"))
    catalogue = registry.layers if group == "layers" else registry.bridges
    install("late", "raise RuntimeError('not yet')", group=group)
    with pytest.raises(al.AllotmentError, match="not yet"):
        catalogue.get("late", "a test", "layers") if group == "layers" else catalogue.get("late")
    assert listed(kind)["fake-late:late"].error == "RuntimeError: not yet"

    (folder / "fake_late.py").write_text(GROUPS[group])
    al.refresh_plugins()

    assert listed(kind)["fake-late:late"].status is PluginStatus.AVAILABLE
    assert catalogue.load("late").name == "late"
