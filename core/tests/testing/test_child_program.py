"""What runs in processes of its own. `test_wrong_allocators` shows the ends of processes; here are imports."""

import sys
from types import FunctionType, SimpleNamespace

import pytest

from allotment import MemoryKind
from allotment.testing._child_process import factory_reference, run_program
from allotment.testing._child_program import watch
from allotment.testing._subject import Subject


def plugin_file(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text + "\nclass Mine: ...\n")
    return {"reference": f"{path}:Mine"}


def test_a_plugin_that_imports_little_passes(tmp_path):
    run_program("import", plugin_file(tmp_path, "import json"))


def test_a_plugin_that_imports_a_heavy_package_is_caught(tmp_path):
    text = "import sys, types\nsys.modules['cupy'] = types.ModuleType('cupy')"  # as if CuPy were installed

    with pytest.raises(AssertionError, match="importing the plugin imports cupy"):
        run_program("import", plugin_file(tmp_path, text))


def test_a_plugin_that_chooses_a_platform_at_import_is_caught(tmp_path):
    with pytest.raises(AssertionError, match="chooses a platform"):
        run_program("import", plugin_file(tmp_path, "import allotment\nallotment.get_devices()"))


def test_a_plugin_that_fails_to_import_is_caught(tmp_path):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_program("import", plugin_file(tmp_path, "1 / 0"))


def test_a_process_that_prints_is_caught(tmp_path):
    with pytest.raises(AssertionError, match="hello"):
        run_program("import", plugin_file(tmp_path, "print('hello')"))


def test_a_factory_is_found_in_its_file_or_its_package():
    import json

    assert factory_reference(Subject) == f"{Subject.__init__.__code__.co_filename}:Subject"
    assert factory_reference(json.JSONDecoder).endswith("decoder.py:JSONDecoder")
    assert factory_reference(json.load) == "json:load"


class Noisy:
    def close(self):
        self.help()

    def help(self): ...


def heard_from(memory_kind, call):
    told, plugin, before = [], Noisy(), sys.getprofile()
    account = SimpleNamespace(allocator=plugin, memory_kind=memory_kind)
    watch(SimpleNamespace(name="cuda"), account, told.append)
    try:
        call(plugin)
    finally:
        sys.setprofile(before)
    return told


def by_itself(plugin):
    plugin.close()


by_core = FunctionType(by_itself.__code__, {"__name__": "allotment.layers"})


@pytest.mark.parametrize("call", [by_itself, by_core])
def test_on_real_devices_the_methods_of_the_plugin_that_may_call_the_driver_are_heard(call):
    assert heard_from(MemoryKind.CUDA_DEVICE, call) == ["close"]


def test_of_memory_that_no_driver_knows_only_what_core_calls_is_heard():
    assert heard_from(MemoryKind.HOST, by_itself) == []
    assert heard_from(MemoryKind.HOST, by_core) == ["close"]
