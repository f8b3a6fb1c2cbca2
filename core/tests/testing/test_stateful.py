"""Random sequences of calls find what single calls do not show."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from allotment import registry
from allotment.platform import current
from allotment.testing import Subject
from allotment.testing._stateful import CallSequence

QUICKLY = settings(
    max_examples=60, stateful_step_count=30, database=None, deadline=None, phases=[Phase.generate], derandomize=True
)


class Slab:
    """Cuts blocks from one slab, the lowest free place first."""

    grain = 256
    step = 256

    def __init__(self, *, device):
        self.slab, self.device, self.free = device.platform.malloc(2**24), device, {}
        self.live = []

    def allocate(self, size_in_bytes):
        size = -(-size_in_bytes // self.grain) * self.step
        place = self.slab
        for start, end in sorted(self.live):
            if place + size <= start:
                break
            place = end
        self.live.append((place, place + size))
        return place

    def deallocate(self, ptr, size_in_bytes):
        self.live = [block for block in self.live if block[0] != ptr]


class SlabThatRoundsDownFromAPage(Slab):
    def allocate(self, size_in_bytes):
        return super().allocate(size_in_bytes if size_in_bytes < 4096 else size_in_bytes - 256)


class SlabThatForgetsAfterTwelve(Slab):
    def allocate(self, size_in_bytes):
        if len(self.live) > 12:
            self.live.pop(0)
        return super().allocate(size_in_bytes)


def run(factory):
    registry.current().register("slab", factory, replace=True)
    subject = Subject(registry.current().get("slab"), current(), {})
    subject.enter()
    try:
        run_state_machine_as_test(lambda: CallSequence(subject), settings=QUICKLY)
    finally:
        subject.platform.set_current_device(0)


def test_a_right_allocator_stands_any_sequence(simulated):
    run(Slab)


@pytest.mark.parametrize("factory", [SlabThatRoundsDownFromAPage, SlabThatForgetsAfterTwelve])
def test_an_allocator_that_goes_wrong_in_some_sequences_is_found(simulated, factory):
    with pytest.raises(Exception, match=r"overlap|contents|live already"):
        run(factory)
