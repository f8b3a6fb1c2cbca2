"""The startup report: which platform and devices there are, and what their memory can do."""

from __future__ import annotations

from textwrap import dedent

import pytest

import allotment as al
from allotment import configuration
from allotment.device import device_registry
from allotment.platform.simulated._profile import load_profile, profile_names
from allotment.report import peer_matrix

DEVICES = {
    "2xh200": ['"NVIDIA H200" (140 GiB, sm_90, mempool enabled)'] * 2,
    "2xl40": ['"NVIDIA L40" (47.5 GiB, sm_89, mempool enabled)'] * 2,
    "gb10": ['"NVIDIA GB10" (120 GiB, sm_121, mempool enabled)'],
    "gh200": ['"NVIDIA GH200 480GB" (94.5 GiB, sm_90, mempool enabled)'],
    "h200": ['"NVIDIA H200" (140 GiB, sm_90, mempool enabled)'],
    "hmm": ['"NVIDIA GeForce RTX 4090" (23.6 GiB, sm_89, mempool enabled)'],
    "jetson-orin": ['"Orin" (61.4 GiB, sm_87, mempool enabled)'],
    "jetson-thor": ['"NVIDIA Thor" (123 GiB, sm_110, mempool enabled)'],
    "no-pools": ['"NVIDIA A40-24Q" (22.5 GiB, sm_86, mempool not supported)'],
    "rtx4090": ['"NVIDIA GeForce RTX 4090" (23.6 GiB, sm_89, mempool enabled)'],
    "wsl": ['"NVIDIA GeForce RTX 4090" (24 GiB, sm_89, mempool enabled)'],
}
FULL = """
   CUDA peer access:
     Supported fully (all-directional)"""


def dotted(version):
    return f"{version // 1000}.{version % 1000 // 10}"


@pytest.mark.parametrize("name", profile_names())
def test_the_report_has_the_form_of_the_guides(name):
    profile = load_profile(name)
    with al.simulate(name) as sim:
        report = al.startup_report()
        assert sim.contexts() == frozenset()

    cuda = "".join(f'\n     "cuda:{ordinal}"   : {text}' for ordinal, text in enumerate(DEVICES[name]))
    assert report == (
        f"Allotment {al.__version__} initialized:\n"
        f"   Platform: simulated: {profile.description} (simulated by allotment.simulate())\n"
        f"   CUDA Toolkit {dotted(profile.runtime_version)}, Driver {dotted(profile.driver_version)}\n"
        "   Devices:\n"
        f'     "cpu"      : "{host_name()}"'
        f"{cuda}{FULL if len(DEVICES[name]) > 1 else ''}"
    )


def host_name():
    return al.get_device("cpu").name


def test_the_report_of_a_machine_without_cuda_says_why():
    al.init("host", quiet=True)

    assert al.startup_report() == (
        f"Allotment {al.__version__} initialized:\n"
        "   Platform: CPU only (asked for by init())\n"
        "   CUDA not available\n"
        "   Devices:\n"
        f'     "cpu"      : "{host_name()}"'
    )


def test_a_pool_that_is_not_enabled_is_said_to_be_supported(sim):
    al.set_mempool_enabled("cuda:1", False)
    lines = al.startup_report().splitlines()

    assert '     "cuda:0"   : "NVIDIA H200" (140 GiB, sm_90, mempool enabled)' in lines
    assert '     "cuda:1"   : "NVIDIA H200" (140 GiB, sm_90, mempool supported)' in lines


def test_with_pools_left_out_at_the_start_none_is_enabled():
    with configuration.use(configuration.Configuration.isolated(enable_mempools_at_init=False)), al.simulate("h200"):
        assert "mempool supported" in al.startup_report()


@pytest.fixture
def machine(tmp_path):
    """Return a function that simulates H200s with given peers."""

    def simulate(peers):
        ordinals = range(len(peers))
        file = tmp_path / "machine.toml"
        file.write_text(
            dedent(f"""
            description = "some H200"
            runtime_version = 13_000
            driver_version = 13_000
            host_memory = 1_000_000_000_000
            peers = {str(peers).lower()}
            """)
            + "".join(device(ordinal) for ordinal in ordinals)
        )
        return al.simulate(file)

    def device(ordinal):
        return dedent(f"""
            [[devices]]
            name = "NVIDIA H200"
            total_memory = 150_000_000_000
            compute_capability = [9, 0]
            sm_count = 132
            max_shared_memory_per_block = 49_152
            uuid = "GPU-5eed0000-0000-4000-8000-00000000000{ordinal}"
            pci_bus_id = "0000:0{ordinal}:00.0"
            unified_addressing = true
            pageable_memory_access = false
            direct_managed_access_from_host = false
            host_native_atomic = false
            managed_memory = true
            concurrent_managed_access = true
            memory_pools = true
            virtual_memory = true
            integrated = false
            ipc = true
            """)

    return simulate


def peers_reported():
    return al.startup_report().partition("   CUDA peer access:\n")[2].splitlines()


def test_full_peer_access_is_said_in_a_line(machine):
    with machine([[False, True, True], [True, False, True], [True, True, False]]):
        assert peers_reported() == ["     Supported fully (all-directional)"]


def test_absent_peer_access_is_said_in_a_line(machine):
    with machine([[False, False], [False, False]]):
        assert peers_reported() == ["     Not supported"]


def test_partial_peer_access_shows_a_matrix_with_a_row_for_each_device_whose_memory_is_reached(machine):
    """Device 0 reaches the memory of device 1, and nobody else reaches anything."""
    with machine([[False, True, False], [False, False, False], [False, False, False]]):
        assert peers_reported() == [
            "     Supported partially (see access matrix)",
            '     "cuda:0"   : [1, 0, 0]',
            '     "cuda:1"   : [1, 1, 0]',
            '     "cuda:2"   : [0, 0, 1]',
        ]


def test_the_matrix_of_one_device_and_of_none_is_whole(machine):
    with machine([[False]]):
        assert peer_matrix(device_registry()) == [[1]]
        assert peers_reported() == []
    al.init("host", quiet=True)
    assert peer_matrix(device_registry()) == []
