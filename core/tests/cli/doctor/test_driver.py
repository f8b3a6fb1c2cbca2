import ctypes

from allotment.cli.doctor import _driver
from allotment.cli.doctor._driver import driver_version


def test_without_the_library_there_is_no_driver(monkeypatch):
    monkeypatch.setattr(_driver, "_LIBRARY", "libof_no_such_driver.so.1")

    assert driver_version() is None


def test_the_version_is_what_the_library_says(monkeypatch):
    class Library:
        @staticmethod
        def cuDriverGetVersion(version):  # noqa: N802 - CUDA's name
            version._obj.value = 13010
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)

    assert driver_version() == 13010


def test_a_library_that_refuses_is_no_driver(monkeypatch):
    class Library:
        @staticmethod
        def cuDriverGetVersion(version):  # noqa: N802 - CUDA's name
            return 999

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)

    assert driver_version() is None
