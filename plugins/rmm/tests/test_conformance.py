"""The ``rmm`` allocator keeps the allocator contract on real devices, with each of RMM's resources."""

import sys

import fake_rmm
import pytest

from allotment.testing import AllocatorConformance


class OnRealDevices(AllocatorConformance):
    """RMM needs a driver, so that nothing runs on simulated machines."""

    __test__ = False
    allocator_name = "rmm"
    profiles = ()

    @pytest.fixture(autouse=True)
    def _rmm(self):
        pytest.importorskip("rmm", reason="RMM is not installed")


class TestCurrent(OnRealDevices):
    __test__ = True


class TestCuda(OnRealDevices):
    __test__ = True
    options = {"resource": "cuda"}


class TestAsync(OnRealDevices):
    __test__ = True
    options = {"resource": "async"}


class TestManaged(OnRealDevices):
    __test__ = True
    options = {"resource": "managed"}


class TestPool(OnRealDevices):
    __test__ = True
    options = {"resource": "pool", "initial_size": "1 GiB"}


class TestArena(OnRealDevices):
    __test__ = True
    options = {"resource": "arena", "initial_size": "2 GiB"}


class TestBinning(OnRealDevices):
    __test__ = True
    options = {"resource": "binning", "initial_size": "1 GiB"}


class TestThroughRmmAsItIsDocumented(AllocatorConformance):
    """On simulated machines, through what stands for RMM there: all that does not need RMM itself."""

    allocator_name = "rmm"
    options = {"resource": "cuda"}
    expected_failures = {
        "test_nothing_is_called_once_shutdown_has_begun": "RMM itself would be needed in a process of its own",
        "test_a_forked_child_gets_an_error_and_calls_nothing": "likewise",
    }

    @classmethod
    def _platforms(cls, check):
        return [found for found in super()._platforms(check) if found.values != ("cuda",)]

    @pytest.fixture(autouse=True)
    def _rmm(self, monkeypatch):
        for name, module in fake_rmm.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("allotment_rmm._allocator.is_installed", lambda: True)
        monkeypatch.setattr("allotment_rmm._allocator._REAL", "sim:2xh200")
