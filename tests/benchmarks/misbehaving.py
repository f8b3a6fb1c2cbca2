"""Allocators that do what none should."""

from __future__ import annotations

import os
import signal
import time

from benchmarks.allocators.contenders import Contender, Family, Side
from benchmarks.allocators.contenders.ours import NullSession
from benchmarks.allocators.session import MissingError

FAMILY = Family(name="misbehaving", libraries=("no_such_library",), environment={"MISBEHAVING": "yes"})


class Crashing(NullSession):
    def allocate(self, size):
        os.kill(os.getpid(), signal.SIGKILL)


class Hanging(NullSession):
    def allocate(self, size):
        time.sleep(600)


class Raising(NullSession):
    def allocate(self, size):
        raise RuntimeError("an illegal memory access was encountered")


class Absent(NullSession):
    def __init__(self, limit):
        raise MissingError("it is not installed")


class Reporting(NullSession):
    """Says what its process is like, by way of its figures."""

    def peak_reserved(self):
        return os.getpid()

    def reserved(self):
        return len(os.environ["MISBEHAVING"])


class Small(NullSession):
    """Has room for one mebibyte, and the error of a library without a class for it."""

    def __init__(self, limit=None):
        super().__init__()
        self.room = 1 << 20
        self.sizes = {}

    def allocate(self, size):
        if size > self.room:
            raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: the API call failed")
        self.room -= size
        block = super().allocate(size)
        self.sizes[block] = size
        return block

    def free(self, block, size):
        assert self.sizes.pop(block) == size
        self.room += size

    def reserved(self):
        return (1 << 20) - self.room


def contender(session, name="bad", **fields):
    return Contender(name=name, open=session, family=FAMILY, side=Side.FLOOR, **fields)


WELL = Contender(name="well", open=NullSession, family=FAMILY, side=Side.FLOOR)
