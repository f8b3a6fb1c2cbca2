import pytest

from allotment import platform as platforms
from allotment.cli.demo._stage import stage
from allotment.errors import PlatformUnavailableError


def test_without_a_gpu_two_are_simulated():
    with stage(None) as here:
        assert here.is_simulated
        assert len(here.registry.cuda) == 2
    assert platforms.current().name == "host"


def test_a_platform_that_is_asked_for_is_taken_also_without_a_gpu():
    with stage("host") as here:
        assert not here.is_simulated
        assert "asked for by --platform" in here.announcement


def test_a_simulated_platform_that_is_asked_for_is_announced():
    with stage("sim:rtx4090") as here:
        assert here.announcement == "This demo runs on simulated GPUs: sim:rtx4090 (asked for by --platform)."


def test_a_configured_simulation_is_taken(monkeypatch):
    monkeypatch.setenv("ALLOTMENT_PLATFORM", "sim:gh200")
    with stage(None) as here:
        assert here.registry.platform.name == "sim:gh200"


def test_a_platform_that_is_not_to_be_had_is_an_error():
    with pytest.raises(PlatformUnavailableError), stage("cuda"):
        pass
