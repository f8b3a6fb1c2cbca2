"""An allocator that notes how it is called."""

import pytest

from allotment.allocator import (
    Allocator,
    AllocatorTraits,
    SupportsClose,
    SupportsPeers,
    SupportsReservation,
    SupportsStreams,
    SupportsTrim,
    SupportsUse,
)
from allotment.testing import RecordingAllocator


class TwoMethods:
    traits = AllocatorTraits(alignment=1024, straight_from_pool=True)

    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        if ptr != 4096:
            raise ValueError(ptr)


class Everything(TwoMethods):
    def allocate_on(self, size_in_bytes, stream):
        return 4096

    def deallocate_on(self, ptr, size_in_bytes, stream): ...
    def trim(self, keep_bytes=0): ...
    def reservation(self): ...
    def reset_peak_reservation(self): ...
    def record_use(self, ptr, stream): ...
    def set_peer_access(self, peer, *, enable): ...
    def close(self): ...


ABILITIES = (SupportsStreams, SupportsTrim, SupportsReservation, SupportsUse, SupportsPeers, SupportsClose)


def test_calls_are_passed_on_and_noted_in_order():
    recording = RecordingAllocator(TwoMethods())

    ptr = recording.allocate(100)
    recording.deallocate(ptr, 100)

    assert [(call.name, call.arguments) for call in recording.calls] == [
        ("allocate", (100,)),
        ("deallocate", (4096, 100)),
    ]


def test_what_is_given_by_name_is_noted():
    recording = RecordingAllocator(Everything())

    recording.set_peer_access("cuda:1", enable=True)

    assert [(call.name, call.arguments, call.keywords) for call in recording.calls] == [
        ("set_peer_access", ("cuda:1",), {"enable": True})
    ]


def test_a_call_that_fails_is_noted_too():
    recording = RecordingAllocator(TwoMethods())

    with pytest.raises(ValueError, match="1"):
        recording.deallocate(1, 100)

    assert [call.arguments for call in recording.frees] == [(1, 100)]


@pytest.mark.parametrize("ability", ABILITIES)
def test_it_offers_what_the_allocator_behind_offers_and_no_more(ability):
    assert isinstance(RecordingAllocator(Everything()), ability)
    assert not isinstance(RecordingAllocator(TwoMethods()), ability)


def test_it_is_an_allocator_with_the_traits_of_the_one_behind():
    recording = RecordingAllocator(TwoMethods())

    assert isinstance(recording, Allocator)
    assert recording.traits.alignment == 1024


def test_core_must_call_it_even_where_it_could_take_a_shortcut_past_it():
    assert not RecordingAllocator(TwoMethods()).traits.straight_from_pool
