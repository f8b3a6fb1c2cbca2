"""Copies between devices inside a capture: refused without access to the pools, and what helps."""

# ruff: noqa: SIM117 - what happens inside of blocks is what is tried here

from __future__ import annotations

import pytest

import allotment as al
from allotment.platform import CaptureStatus

DIRECTIONS = [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")]
PAIRS = pytest.mark.parametrize(("source", "target"), DIRECTIONS, ids="->".join)
ON = pytest.mark.parametrize("on", ["cuda:0", "cuda:1"])


@pytest.fixture(autouse=True)
def _nothing_left(nothing_left):
    """Hold for every test here."""


def arrays(source, target):
    return al.full(8, 3.0, device=source), al.zeros(8, device=target)


def works(src, dest, on):
    with al.ScopedCapture(on) as capture:
        al.copy(dest, src)
    assert dest.numpy().tolist() == [0.0] * 8
    for value in (3.0, 4.0):
        src.fill_(value)
        al.synchronize()
        capture.graph.launch()
        al.synchronize()
        assert dest.numpy().tolist() == [value] * 8


@PAIRS
@ON
def test_pool_arrays_are_refused_without_access_before_the_driver_is_asked(sim, source, target, on):
    src, dest = arrays(source, target)
    with al.ScopedCapture(on) as capture:
        sim.calls.clear()
        with pytest.raises(al.CaptureError) as raised:
            al.copy(dest, src)
        assert sim.calls.named("copy", "copy_peer", "wait_for_stream", "pool_access") == []
        inside = al.get_stream(on)
        assert sim.capture_status(inside.handle, inside.device.ordinal) is CaptureStatus.ACTIVE
    assert f'set_mempool_access_enabled("{source}", "{target}", True)' in str(raised.value)
    assert "ScopedMempool" in str(raised.value)
    capture.graph.launch()
    al.copy(dest, src)
    assert dest.numpy().tolist() == [3.0] * 8


@PAIRS
@ON
@pytest.mark.parametrize(("granting", "to"), DIRECTIONS, ids=" to ".join)
def test_access_to_either_pool_is_enough(sim, source, target, on, granting, to):
    src, dest = arrays(source, target)
    with al.ScopedMempoolAccess(granting, to, True):
        works(src, dest, on)


@PAIRS
@ON
def test_arrays_that_were_made_with_pools_disabled_can_be_copied(sim, source, target, on):
    with al.ScopedMempool("cuda:0", False), al.ScopedMempool("cuda:1", False):
        src, dest = arrays(source, target)
    works(src, dest, on)


@PAIRS
@ON
@pytest.mark.parametrize("pooled", ["source", "target"])
def test_one_end_with_pools_disabled_is_enough(sim, source, target, on, pooled):
    with al.ScopedMempool(target if pooled == "source" else source, False):
        src, dest = arrays(source, target)
    works(src, dest, on)


@PAIRS
def test_managed_arrays_can_be_copied(sim, source, target):
    with al.ScopedAllocator(target, "managed"):
        src, dest = arrays(source, target)
    works(src, dest, source)


def test_memory_of_the_graph_itself_can_be_copied_with_access_that_was_granted_before(sim):
    dest = al.zeros(8, device="cuda:1")
    with al.ScopedMempoolAccess("cuda:0", "cuda:1", True):
        with al.ScopedCapture("cuda:0") as capture:
            src = al.full(8, 5.0, device="cuda:0")
            al.copy(dest, src)
            src.fill_(6)
    capture.graph.launch()
    al.synchronize()

    assert dest.numpy().tolist() == [5.0] * 8
    assert src.numpy().tolist() == [6.0] * 8


def test_work_before_and_after_a_copy_keeps_its_order(sim):
    src, dest = arrays("cuda:0", "cuda:1")
    back = al.zeros(8, device="cuda:0")
    with al.ScopedMempoolAccess("cuda:0", "cuda:1", True), al.ScopedMempoolAccess("cuda:1", "cuda:0", True):
        with al.ScopedCapture("cuda:0") as capture:
            src.fill_(1)
            al.copy(dest, src)
            src.fill_(2)
            al.copy(back, dest)
    capture.graph.launch()
    al.synchronize()

    assert [array.numpy()[0] for array in (src, dest, back)] == [2.0, 1.0, 1.0]


def test_a_copy_on_a_stream_that_joined_is_in_its_order(sim):
    src, dest = arrays("cuda:0", "cuda:1")
    other = al.Stream("cuda:0", non_blocking=True)
    with al.ScopedMempoolAccess("cuda:0", "cuda:1", True), al.ScopedCapture("cuda:0") as capture:
        with al.ScopedStream(other):
            src.fill_(7)
            al.copy(dest, src)
            sim.calls.clear()
            src.fill_(8)
            assert sim.calls.named("fill_elements", "fill")[0].arguments["stream"] == other.handle
    capture.graph.launch()
    al.synchronize()

    assert [array.numpy()[0] for array in (src, dest)] == [8.0, 7.0]


def test_copies_on_one_device_and_of_strided_views_need_no_access(sim):
    src, dest = al.full((4, 4), 2.0), al.zeros((4, 4))
    with al.ScopedCapture() as capture:
        al.copy(dest, src)
        dest[::2] = src.T[::2]
        dest[:, 1] = 9.0
    capture.graph.launch()

    assert dest.numpy()[0].tolist() == [2.0, 9.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "read",
    [
        lambda a: a.numpy(),
        str,
        lambda a: a.to("cpu"),
        lambda a: al.clone(a, "cpu"),
        lambda a: al.array(a, device="cpu", pinned=True),
        lambda a: a.__dlpack__(dl_device=(1, 0)),
    ],
)
def test_reading_inside_is_refused_before_the_driver_is_asked(sim, read):
    before = al.full(4, 1.0)
    with al.ScopedCapture() as capture:
        inside = al.empty(4)
        for array in (before, inside):
            sim.calls.clear()
            with pytest.raises(al.CaptureError, match="cannot be read while a graph is captured"):
                read(array)
            assert sim.calls.named("copy", "copy_elements", "synchronize_stream", "host_alloc") == []
    capture.graph.launch()
