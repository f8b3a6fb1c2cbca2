import pytest

KEYS = {
    "alias",
    "name",
    "total_memory",
    "free_memory",
    "compute_capability",
    "mempool",
    "managed_memory",
    "concurrent_managed_access",
    "pageable_memory_access",
    "unified_addressing",
    "ipc",
}


def test_the_document_has_the_keys_that_the_help_names(run, run_json):
    document = run_json("devices", "--platform", "sim:2xh200")
    told = run("devices", "--help").output

    assert set(document) == {"platform", "devices", "peer_access"}
    assert all(set(device) == KEYS for device in document["devices"])
    assert all(key in told for key in KEYS)


def test_two_h200_are_told_as_they_are(run_json):
    host, first, second = run_json("devices", "--platform", "sim:2xh200")["devices"]

    assert (host["alias"], host["total_memory"]) == ("cpu", None)
    assert (first["alias"], second["alias"]) == ("cuda:0", "cuda:1")
    assert (first["name"], first["compute_capability"], first["mempool"]) == ("NVIDIA H200", "9.0", "enabled")
    assert first["managed_memory"] is first["concurrent_managed_access"] is True
    assert first["pageable_memory_access"] is False


def test_free_memory_is_asked_for_only_on_demand(run_json):
    without = run_json("devices", "--platform", "sim:2xh200")["devices"]
    device = run_json("devices", "--platform", "sim:2xh200", "--memory")["devices"][1]

    assert all(each["free_memory"] is None for each in without)
    assert 0 < device["free_memory"] <= device["total_memory"]


def test_a_device_without_pools_says_so(run_json):
    assert run_json("devices", "--platform", "sim:no-pools")["devices"][1]["mempool"] == "not supported"


def test_pools_that_are_not_enabled_are_supported(run_json):
    document = run_json("devices", "--platform", "sim:2xh200", ALLOTMENT_ENABLE_MEMPOOLS_AT_INIT="false")

    assert document["devices"][1]["mempool"] == "supported"


def test_the_platform_is_that_of_the_configuration(run_json):
    document = run_json("devices", ALLOTMENT_PLATFORM="sim:rtx4090")

    assert document["platform"]["name"] == "sim:rtx4090"
    assert "ALLOTMENT_PLATFORM" in document["platform"]["why"]


def test_without_a_gpu_the_host_is_listed_with_the_reason(run):
    result = run("devices")

    assert result.exit_code == 0
    assert "CUDA_VISIBLE_DEVICES is ''" in result.stdout
    assert "memory" not in result.stdout


def test_the_peer_matrix_is_in_the_document_and_its_summary_in_the_text(run, run_json):
    assert run_json("devices", "--platform", "sim:2xh200")["peer_access"] == [[True, True], [True, True]]
    assert "between all devices" in run("devices", "--platform", "sim:2xh200").stdout


def test_partial_peer_access_is_shown_as_a_matrix(run, monkeypatch):
    from allotment.platform.simulated import SimulatedPlatform

    monkeypatch.setattr(SimulatedPlatform, "can_access_peer", lambda self, ordinal, peer: (ordinal, peer) == (1, 0))
    lines = run("devices", "--platform", "sim:2xh200").stdout.splitlines()

    assert "Peer access  between some devices" in lines
    assert [line.split() for line in lines[-2:]] == [["cuda:0", "yes", "yes"], ["cuda:1", "no", "yes"]]


@pytest.mark.parametrize("profile", ["gh200", "gb10", "jetson-orin", "wsl", "hmm", "2xl40"])
def test_every_profile_can_be_listed(run, profile):
    assert run("devices", "--platform", f"sim:{profile}").exit_code == 0


def test_the_option_leaves_the_process_as_it_was(run, run_json):
    run("devices", "--platform", "sim:2xh200")

    assert run_json("devices")["platform"]["name"] == "host"
