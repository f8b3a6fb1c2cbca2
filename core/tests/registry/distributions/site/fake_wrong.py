"""Plugins that import well and are no allocators, or not for this core."""

from dataclasses import dataclass


class _TwoMethods:
    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass


an_instance = _TwoMethods()


class NoMethods:
    pass


class OneMethod:
    def allocate(self, size_in_bytes):
        return 4096


class WrongArity(_TwoMethods):
    def deallocate(self, ptr):
        pass


class NeedsMore(_TwoMethods):
    def __init__(self, pool, *, device):
        self.pool = pool


class BadTraits(_TwoMethods):
    traits = {"alignment": 256}


class BadOptions(_TwoMethods):
    Options = dict


class DeafToOptions(_TwoMethods):
    @dataclass(frozen=True)
    class Options:
        """What config may say."""


class BadAvailability(_TwoMethods):
    availability = True


class NewerMinor(_TwoMethods):
    api_version = (1, 99)


class OtherMajor(_TwoMethods):
    api_version = (2, 0)


class OddVersion(_TwoMethods):
    api_version = "1.0"
