"""The blocks about memory pools: the first halves of both guides."""

from __future__ import annotations

import numpy as np

import allotment as al
from allotment.platform import PoolAttribute

from .banner import has_lines_of
from .block import ACCESS, Block


def counted_up(names):
    """Check that the kernel ran once on zeros."""
    array = names["a"]
    np.testing.assert_array_equal(array.numpy(), np.arange(1, array.size + 1))


def launches_again(names):
    """Check that the graph does the same again."""
    counted_up(names)
    al.capture_launch(names["capture"].graph)
    counted_up(names)


def has_contents(names):
    assert [names[name].shape for name in "abcd"] == [(1000,)] * 4
    assert [set(names[name].numpy()) for name in "bcd"] == [{0.0}, {1.0}, {42.0}]


def pools_are_off(names):
    assert not al.is_mempool_enabled("cuda:0")
    assert al.zeros(3, device="cuda:0").memory_kind is al.MemoryKind.CUDA_DEVICE


def pools_are_on(names):
    assert al.is_mempool_enabled("cuda:0")
    assert al.zeros(3, device="cuda:0").memory_kind is al.MemoryKind.CUDA_MEMPOOL


def kinds_differ(names):
    assert names["a"].memory_kind is al.MemoryKind.CUDA_MEMPOOL
    assert names["b"].memory_kind is al.MemoryKind.CUDA_DEVICE


def threshold_is_set(names):
    counted_up(names)
    assert al.get_mempool_release_threshold("cuda:0") == 1024**3
    account = al.get_allocator("mempool", device="cuda:0")
    platform = account.device.platform
    assert platform.pool_attribute(account.allocator.pool_handle, PoolAttribute.RELEASE_THRESHOLD) == 1024**3


def prints_42(names):
    assert names["a"].numpy().tolist() == [42] * names["n"]


def access_is_granted_one_way(names):
    assert al.is_mempool_access_enabled("cuda:0", "cuda:1")
    assert not al.is_mempool_access_enabled("cuda:1", "cuda:0")


def is_copied(names):
    assert names["a0"].numpy().tolist() == names["a1"].numpy().tolist() == [0.0] * names["n"]


def is_copied_and_closed(names):
    is_copied(names)
    assert not al.is_mempool_access_enabled("cuda:0", "cuda:1")


def is_copied_by_each_launch(names):
    is_copied(names)
    names["a0"].fill_(5)
    al.synchronize()
    al.capture_launch(names["capture"].graph)
    al.synchronize()
    assert names["a1"].numpy().tolist() == [5.0] * names["n"]


def peers_are_granted_one_way(names):
    assert al.is_peer_access_enabled("cuda:0", "cuda:1")
    assert not al.is_peer_access_enabled("cuda:1", "cuda:0")


def peers_are_closed(names):
    assert not al.is_peer_access_enabled("cuda:0", "cuda:1")


POOL_BLOCKS = [
    Block(
        section="Introduction",
        number=1,
        code="""
            a = wp.empty(n, dtype=float, device="cuda:0")
            b = wp.zeros(n, dtype=float, device="cuda:0")
            c = wp.ones(n, dtype=float, device="cuda:0")
            d = wp.full(n, 42.0, dtype=float, device="cuda:0")
        """,
        check=has_contents,
    ),
    Block(
        section="Introduction",
        number=2,
        code="""
            with wp.ScopedCapture() as capture:
                a = wp.zeros(n, dtype=float)
                wp.launch(kernel, dim=a.size, inputs=[a])

            wp.capture_launch(capture.graph)
        """,
        check=launches_again,
    ),
    Block(
        section="Configuration",
        number=1,
        code='''
            banner = """
            Warp 0.15.1 initialized:
            CUDA Toolkit 11.5, Driver 12.2
            Devices:
                "cpu"      : "x86_64"
                "cuda:0"   : "NVIDIA GeForce RTX 4090" (24 GiB, sm_89, mempool enabled)
                "cuda:1"   : "NVIDIA GeForce RTX 3090" (24 GiB, sm_86, mempool enabled)
            """
        ''',
        check=has_lines_of,
    ),
    Block(
        section="Configuration",
        number=2,
        code="""
            import warp as wp

            wp.config.enable_mempools_at_init = False

            wp.init()
        """,
        check=pools_are_off,
    ),
    Block(
        section="Configuration",
        number=3,
        code="""
            if wp.is_mempool_enabled("cuda:0"):
                ...
        """,
        check=pools_are_on,
    ),
    Block(
        section="Configuration",
        number=4,
        before="""
            wp.set_mempool_enabled("cuda:0", False)
        """,
        code="""
            if wp.is_mempool_supported("cuda:0"):
                wp.set_mempool_enabled("cuda:0", True)
        """,
        check=pools_are_on,
    ),
    Block(
        section="Configuration",
        number=5,
        code="""
            with wp.ScopedMempool("cuda:0", True):
                a = wp.zeros(n, dtype=float, device="cuda:0")

            with wp.ScopedMempool("cuda:0", False):
                b = wp.zeros(n, dtype=float, device="cuda:0")
        """,
        check=kinds_differ,
    ),
    Block(
        section="Allocation Performance",
        code="""
            for i in range(100):
                a = wp.zeros(n, dtype=float, device="cuda:0")
                wp.launch(kernel, dim=a.size, inputs=[a], device="cuda:0")
        """,
        check=counted_up,
    ),
    Block(
        section="Reusing Memory",
        number=1,
        code="""
            # one array for all rounds
            a = wp.empty(n, dtype=float, device="cuda:0")
            for i in range(100):
                # begin with zeros again
                a.zero_()
                wp.launch(kernel, dim=a.size, inputs=[a], device="cuda:0")
        """,
        check=counted_up,
    ),
    Block(
        section="Reusing Memory",
        number=2,
        code="""
            # one buffer that is large enough for all rounds
            buffer = wp.empty(MAX_N, dtype=float, device="cuda:0")
            for i in range(100):
                # as much of it as this round needs
                n = get_size(i)
                a = buffer[:n]
                # begin with zeros again
                a.zero_()
                wp.launch(kernel, dim=a.size, inputs=[a], device="cuda:0")
        """,
        check=counted_up,
    ),
    Block(
        section="Release Threshold",
        code="""
            # keep up to 1 GiB for later rounds
            wp.set_mempool_release_threshold("cuda:0", 1024**3)

            for i in range(100):
                a = wp.zeros(n, dtype=float, device="cuda:0")
                wp.launch(kernel, dim=a.size, inputs=[a], device="cuda:0")
        """,
        check=threshold_is_set,
    ),
    Block(
        section="Graph Allocations",
        code="""
            with wp.ScopedCapture() as capture:
                a = wp.full(n, 42, dtype=float)

            wp.capture_launch(capture.graph)

            print(a)
        """,
        check=prints_42,
    ),
    Block(
        section="Memory Pool Access",
        number=1,
        devices=2,
        code="""
            if wp.is_mempool_access_supported("cuda:0", "cuda:1"):
                wp.set_mempool_access_enabled("cuda:0", "cuda:1", True)
        """,
        check=access_is_granted_one_way,
    ),
    Block(
        section="Memory Pool Access",
        number=2,
        devices=2,
        code="""
            with wp.ScopedMempoolAccess("cuda:0", "cuda:1", True):
                a0 = wp.zeros(n, dtype=float, device="cuda:0")
                a1 = wp.empty(n, dtype=float, device="cuda:1")

                # straight from one GPU to the other
                wp.copy(a1, a0)
        """,
        check=is_copied_and_closed,
    ),
    Block(
        section="CUDA Peer Access",
        number=1,
        guides=(ACCESS,),
        devices=2,
        profiles=("2xl40",),
        code='''
            banner = """
            Warp 0.15.1 initialized:
               CUDA Toolkit 11.5, Driver 12.2
               Devices:
                 "cpu"      : "x86_64"
                 "cuda:0"   : "NVIDIA L40" (48 GiB, sm_89, mempool enabled)
                 "cuda:1"   : "NVIDIA L40" (48 GiB, sm_89, mempool enabled)
                 "cuda:2"   : "NVIDIA L40" (48 GiB, sm_89, mempool enabled)
                 "cuda:3"   : "NVIDIA L40" (48 GiB, sm_89, mempool enabled)
               CUDA peer access:
                 Supported fully (all-directional)
            """
        ''',
        check=has_lines_of,
    ),
    Block(
        section="CUDA Peer Access",
        number=2,
        guides=(ACCESS,),
        devices=2,
        code="""
            if wp.is_peer_access_supported("cuda:0", "cuda:1"):
                wp.set_peer_access_enabled("cuda:0", "cuda:1", True)
        """,
        check=peers_are_granted_one_way,
    ),
    Block(
        section="CUDA Peer Access",
        number=3,
        guides=(ACCESS,),
        devices=2,
        before="wp.set_peer_access_enabled('cuda:0', 'cuda:1', False)",  # CuPy enables it unasked
        code="""
            with wp.ScopedPeerAccess("cuda:0", "cuda:1", True):
                ...
        """,
        check=peers_are_closed,
    ),
    Block(
        section="Limitations",
        devices=2,
        code="""
            # plain device memory at both ends, made before the capture
            with wp.ScopedMempool("cuda:0", False):
                a0 = wp.zeros(n, dtype=float, device="cuda:0")
            with wp.ScopedMempool("cuda:1", False):
                a1 = wp.empty(n, dtype=float, device="cuda:1")

            with wp.ScopedCapture("cuda:1") as capture:
                wp.copy(a1, a0)

            wp.capture_launch(capture.graph)
        """,
        check=is_copied_by_each_launch,
    ),
]
