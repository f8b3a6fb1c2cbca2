"""Installing the bridge to Numba: before it uses a device, or not at all."""

import sys

import pytest

import allotment as al
from allotment.errors import BridgeError
from allotment_numba_bridge import NumbaBridge


def status():
    (found,) = (each for each in al.status() if each.library == "numba")
    return found


def test_the_bridge_imports_nothing_of_numba(output_of):
    lines = output_of("import sys, allotment_numba_bridge; print('numba' in sys.modules)")
    assert lines == ["False"]


def test_it_says_what_is_missing_without_numba(monkeypatch):
    monkeypatch.setattr("allotment_numba_bridge._bridge.find_spec", lambda name: None)
    assert "numba is not installed: pip install" in NumbaBridge.availability().reason


def test_asking_whether_numba_is_there_imports_nothing(output_of):
    script = "import sys, allotment_numba_bridge as b; b.NumbaBridge.availability(); print('numba' in sys.modules)"
    assert output_of(script) == ["False"]


def test_numba_uses_our_manager_and_its_own_after_it_is_uninstalled(driver, sim):
    from allotment_numba_bridge import AllotmentNumbaManager

    al.install("numba")
    assert driver._memory_manager is AllotmentNumbaManager
    assert (status().state, status().allocator) == (al.BridgeState.INSTALLED, "the allocator in force")
    al.uninstall("numba")
    assert driver._memory_manager is driver.NumbaCUDAMemoryManager
    assert AllotmentNumbaManager.delivery is None


def test_it_may_draw_from_an_allocator_of_its_own(driver, sim, make_manager):
    al.install("numba", allocator="caching")
    pointer = make_manager_of_installed().memalloc(100)
    assert al.get_allocator("caching", "cuda:0").statistics().current == 100
    del pointer


def make_manager_of_installed():
    from types import SimpleNamespace

    from allotment_numba_bridge import AllotmentNumbaManager

    class Context(SimpleNamespace):
        pass

    make_manager_of_installed.context = Context(device=SimpleNamespace(id=0))
    return AllotmentNumbaManager(context=make_manager_of_installed.context)


def test_it_tells_that_somebody_else_took_numba_over(driver, sim, monkeypatch):
    al.install("numba")

    class Other(driver.NumbaCUDAMemoryManager):
        pass

    monkeypatch.setattr(driver, "_memory_manager", Other)
    assert status().state is al.BridgeState.DISPLACED
    assert status().allocator.endswith("Other")
    monkeypatch.undo()


def test_a_context_that_exists_keeps_its_manager_so_it_is_too_late(driver, sim, monkeypatch):
    from types import SimpleNamespace

    context = SimpleNamespace(memory_manager=driver.NumbaCUDAMemoryManager(context=None))
    monkeypatch.setitem(driver.driver.devices, 0, SimpleNamespace(id=0, primary_context=context))
    with pytest.raises(BridgeError, match=r"context on device 0 already.*NumbaCUDAMemoryManager\. Install it before"):
        al.install("numba")
    del driver.driver.devices[0]


def test_a_context_with_our_manager_is_no_obstacle(driver, sim, monkeypatch):
    from types import SimpleNamespace

    from allotment_numba_bridge import AllotmentNumbaManager

    context = SimpleNamespace(memory_manager=AllotmentNumbaManager(context=None))
    monkeypatch.setitem(driver.driver.devices, 0, SimpleNamespace(id=0, primary_context=context))
    al.install("numba")
    al.uninstall("numba")
    al.install("numba")
    assert status().state is al.BridgeState.INSTALLED
    al.uninstall("numba")
    del driver.driver.devices[0]


def test_another_plugin_that_was_chosen_is_not_displaced(driver, sim, monkeypatch):
    class Other(driver.NumbaCUDAMemoryManager):
        pass

    monkeypatch.setattr(driver, "_memory_manager", Other)
    with pytest.raises(BridgeError, match=r"set_memory_manager was called with .*Other"):
        al.install("numba")


def test_another_plugin_that_is_configured_is_not_displaced(driver, sim, monkeypatch):
    from numba.cuda.core import config

    monkeypatch.setattr(driver, "_memory_manager", None)
    monkeypatch.setattr(config, "CUDA_MEMORY_MANAGER", "rmm.allocators.numba")
    with pytest.raises(BridgeError, match=r"NUMBA_CUDA_MEMORY_MANAGER says .*'rmm\.allocators\.numba'"):
        al.install("numba")


def test_numba_s_simulator_takes_no_allocator(driver, output_of):
    script = """
    import allotment as al
    with al.simulate():
        try:
            al.install("numba")
        except al.BridgeError as error:
            print(error)
    """
    (line,) = output_of(script, NUMBA_ENABLE_CUDASIM="1")
    assert "NUMBA_ENABLE_CUDASIM" in line


def test_numba_finds_the_manager_by_the_environment(driver, output_of):
    script = """
    from numba.cuda.cudadrv import driver
    driver._ensure_memory_manager()
    print(driver._memory_manager.__name__, driver._memory_manager.delivery.source)
    """
    lines = output_of(script, NUMBA_CUDA_MEMORY_MANAGER="allotment_numba_bridge")
    assert lines == ["AllotmentNumbaManager the allocator in force"]


def test_the_module_has_no_other_names():
    import allotment_numba_bridge

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = allotment_numba_bridge.nothing
    assert "allotment_numba_bridge" in sys.modules
