import dataclasses
from pathlib import Path

import pytest

from allotment.errors import ConfigError, PlatformUnavailableError
from allotment.platform._values import DeviceProperties
from allotment.platform.simulated import SimulatedPlatform, load_profile, profile_names
from allotment.platform.simulated._profile import _folder

NAMES = ["2xh200", "2xl40", "gb10", "gh200", "h200", "hmm", "jetson-orin", "jetson-thor", "no-pools", "rtx4090", "wsl"]


def write(tmp_path, old, new, name="2xh200"):
    text = (_folder() / f"{name}.toml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_the_profiles_are_listed():
    assert profile_names() == tuple(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_loads_and_says_where_its_figures_come_from(name):
    profile = load_profile(name)
    assert profile.devices
    comments = [line for line in (_folder() / f"{name}.toml").read_text().splitlines() if line.startswith("#")]
    assert any("Plausible figures" in line for line in comments)
    assert any("Documented" in line or "Recorded" in line for line in comments)


def test_two_h200_say_what_was_recorded():
    profile = load_profile("2xh200")
    for device in profile.devices:
        facts = dataclasses.asdict(device)
        assert (device.name, device.total_memory, device.compute_capability) == ("NVIDIA H200", 150109880320, (9, 0))
        assert [facts[name] for name in ("sm_count", "pageable_memory_access", "host_native_atomic")] == [132, 0, 0]
        assert [facts[name] for name in ("concurrent_managed_access", "memory_pools", "ipc", "integrated")] == [
            1,
            1,
            1,
            0,
        ]
    assert profile.peers == ((False, True), (True, False))


@pytest.mark.parametrize(
    ("name", "pageable", "concurrent", "direct"),
    [
        ("rtx4090", False, True, False),
        ("2xl40", False, True, False),
        ("hmm", True, True, False),
        ("gh200", True, True, True),
        ("gb10", True, True, False),
        ("jetson-thor", True, True, False),
        ("jetson-orin", False, False, False),
        ("wsl", False, False, False),
    ],
)
def test_capabilities_follow_the_hardware_matrix(name, pageable, concurrent, direct):
    for device in load_profile(name).devices:
        assert (
            device.pageable_memory_access,
            device.concurrent_managed_access,
            device.direct_managed_access_from_host,
        ) == (pageable, concurrent, direct)


def test_an_attribute_that_the_driver_does_not_know_is_none():
    assert load_profile("no-pools").devices[0].ipc is None


def test_devices_are_told_apart():
    devices = load_profile("2xl40").devices
    assert len({device.uuid for device in devices}) == len({device.pci_bus_id for device in devices}) == 2


@pytest.mark.parametrize("name", ["2XH200", "jetson_orin", " wsl "])
def test_case_and_separators_do_not_matter(name):
    assert isinstance(load_profile(name).devices[0], DeviceProperties)


def test_an_unknown_profile_lists_the_names_and_the_nearest():
    with pytest.raises(PlatformUnavailableError, match=r"2xh200, 2xl40.*Did you mean 'rtx4090'") as caught:
        load_profile("rtx490")
    assert caught.value.platform == "sim:rtx490"


def test_a_file_that_is_not_there_is_told_apart():
    with pytest.raises(PlatformUnavailableError, match="cannot be read"):
        load_profile("nowhere/mine.toml")


def test_a_profile_of_ones_own_is_read_from_a_file(tmp_path):
    path = write(tmp_path, "NVIDIA H200", "NVIDIA H2000")
    for given in (path, str(path)):
        platform = SimulatedPlatform.from_profile(given)
        assert platform.device_properties(1).name == "NVIDIA H2000"
        assert platform.name == f"sim:{path}"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sm_count = 132", "smcount = 132", r"mine\.toml: devices\[0\]\.smcount: no such key.*Did you mean 'sm_count'"),
        ("sm_count = 132", "", r"mine\.toml: devices\[0\]\.sm_count: it is missing"),
        ("sm_count = 132", 'sm_count = "many"', r"mine\.toml: devices\[0\]\.sm_count: Expected `int`, got `str`"),
        ("total_memory = 150_109_880_320", "total_memory = 0", r"devices\[0\]\.total_memory: it must be above 0"),
        ("[[false, true], [true, false]]", "[[false]]", r"peers: it has one row and one column for each of 2"),
        ("[[false, true], [true, false]]", "[[true, true], [true, false]]", r"peers: a device is not its own peer"),
        ("description =", "descripton =", r"mine\.toml: descripton: no such key"),
        ("peers = ", "peers : ", r"mine\.toml: it is not TOML"),
    ],
)
def test_a_mistake_in_a_file_names_file_and_key(tmp_path, old, new, says):
    with pytest.raises(ConfigError, match=says):
        load_profile(write(tmp_path, old, new))


def test_devices_are_tables(tmp_path):
    path = Path(tmp_path / "mine.toml")
    path.write_text(
        'description = ""\nruntime_version = 1\ndriver_version = 1\nhost_memory = 1\npeers = []\ndevices = 3\n'
    )
    with pytest.raises(ConfigError, match="written as"):
        load_profile(path)


def test_a_profile_without_devices_is_a_machine_without_gpus(tmp_path):
    path = Path(tmp_path / "bare.toml")
    versions = "runtime_version = 12090\ndriver_version = 12090\n"
    path.write_text(f'description = "none"\n{versions}host_memory = 1024\npeers = []\ndevices = []\n')
    assert SimulatedPlatform.from_profile(path).device_count() == 0
