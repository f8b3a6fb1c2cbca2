import pytest

from allotment.cli.doctor import _platform
from allotment.cli.doctor._platform import examine_platform


@pytest.fixture
def driver(monkeypatch):
    """Return what sets the driver that is found, without CuPy and with no device hidden."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(_platform, "find_spec", lambda name: None)

    def of_version(version):
        monkeypatch.setattr(_platform, "driver_version", lambda: version)

    return of_version


@pytest.mark.parametrize(
    ("version", "extra"), [(12000, "cuda12"), (12090, "cuda12"), (13000, "cuda13"), (14020, "cuda13")]
)
def test_without_cupy_the_command_installs_the_extra_that_fits_the_driver(driver, version, extra):
    driver(version)

    assert _platform._way_to_cuda().command == f'pip install "allotment[{extra}]"'


def test_without_a_driver_that_is_what_is_told(driver):
    driver(None)

    assert "there is no NVIDIA driver" in _platform._way_to_cuda().found


def test_a_driver_that_is_too_old_is_to_be_updated(driver):
    driver(11080)

    assert "the driver is for CUDA 11: update it" in _platform._way_to_cuda().found


def test_with_cupy_and_a_driver_nvidia_smi_is_asked(driver, monkeypatch):
    driver(13000)
    monkeypatch.setattr(_platform, "find_spec", lambda name: object())

    assert _platform._way_to_cuda().command == "nvidia-smi"


@pytest.mark.parametrize("visible", ["", "-1", " -1,0"])
def test_hidden_devices_come_first(driver, monkeypatch, visible):
    driver(None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert _platform._way_to_cuda().command == "unset CUDA_VISIBLE_DEVICES"


def test_a_simulated_platform_needs_no_gpu():
    assert [finding.severity.value for finding in examine_platform("sim:2xh200")] == ["ok"]


def test_a_host_that_is_asked_for_is_no_lack():
    assert [finding.subject for finding in examine_platform("host")] == ["platform"]
