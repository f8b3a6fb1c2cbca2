"""Beginning: the platform is chosen, said once, and simulated for a while."""

from __future__ import annotations

import gc

import pytest

import allotment as al
from allotment import configuration, platform
from allotment.configuration import Configuration


def test_init_prints_the_report(capsys):
    al.init("sim:2xh200", quiet=False)

    assert capsys.readouterr().out == al.startup_report() + "\n"


def test_init_prints_unless_it_is_configured_to_be_quiet(capsys):
    with configuration.use(Configuration.isolated(platform="sim:h200")):
        al.init()
    assert capsys.readouterr().out.startswith("Allotment ")
    with configuration.use(Configuration.isolated(platform="sim:h200", quiet=True)):
        al.init()
        assert capsys.readouterr().out == ""
        al.init(quiet=False)
    assert capsys.readouterr().out.startswith("Allotment ")


def test_using_a_device_does_what_init_does_without_a_word(capsys):
    al.configure(platform="sim:2xl40", quiet=False)

    assert al.zeros(3).device.name == "NVIDIA L40"
    assert capsys.readouterr().out == ""


def test_init_chooses_the_platform_and_says_who_asked():
    al.init("sim:rtx4090")

    assert platform.current().name == "sim:rtx4090"
    assert "asked for by init()" in al.startup_report()
    assert configuration.current().platform == "sim:rtx4090"


def test_init_with_another_platform_later_replaces_it_and_old_arrays_live_on():
    al.init("sim:2xh200")
    array = al.full(4, 2.0)
    al.init("sim:rtx4090")

    assert al.get_device("cuda:0").name == "NVIDIA GeForce RTX 4090"
    assert array.numpy().tolist() == [2.0] * 4


def test_init_without_a_platform_keeps_the_one_in_force(sim):
    al.init()

    assert platform.current() is sim


@pytest.mark.parametrize("name", ["sim:nothing", "sim:", "opencl", ""])
def test_a_platform_that_does_not_exist_is_refused_and_the_one_in_force_stays(sim, name):
    with pytest.raises((al.PlatformUnavailableError, al.ConfigError)):
        al.init(name)

    assert platform.current() is sim


def test_simulating_what_does_not_exist_is_refused_with_the_profiles(sim):
    with pytest.raises(al.PlatformUnavailableError, match="Did you mean '2xh200'"), al.simulate("2xh20"):
        pytest.fail("the block was entered")

    assert platform.current() is sim


def test_a_simulation_ends_also_after_an_exception(sim):
    with pytest.raises(ZeroDivisionError), al.simulate("rtx4090"):
        _ = 1 / 0

    assert platform.current() is sim


def test_a_simulation_may_come_from_a_file(tmp_path, sim):
    from importlib.resources import files

    profile = tmp_path / "mine.toml"
    profile.write_text((files("allotment.platform.simulated") / "profiles" / "gh200.toml").read_text())
    with al.simulate(profile) as simulated:
        assert al.get_device("cuda:0").is_cpu_memory_access_from_gpu_supported
        assert simulated.why == "simulated by allotment.simulate()"


def test_settings_of_devices_end_with_the_simulation(recording):
    al.set_cuda_allocator("managed")
    with al.simulate("2xh200"):
        assert al.get_device_allocator("cuda:0").name == "mempool"
        gc.collect()
        al.set_device_allocator("cuda:0", "default")
    assert al.get_device_allocator("cuda:0").name == "managed"


def test_configuration_stays_in_force_in_a_simulation(sim):
    al.configure(allocator="managed")
    with al.simulate("h200"):
        assert al.empty(4).memory_kind is al.MemoryKind.CUDA_MANAGED


def test_no_profile_is_given_the_two_h200():
    with al.simulate():
        assert [device.name for device in al.get_cuda_devices()] == ["NVIDIA H200"] * 2
