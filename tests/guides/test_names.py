"""Every name of the programming interface that the guides use or tell of exists in Allotment."""

from __future__ import annotations

import ast
from operator import attrgetter

import pytest

import allotment as al

from .test_blocks import BLOCKS

PROSE = {
    "Allocator",
    "CudaManagedAllocator",
    "CudaManagedAllocator.allocate",
    "MemoryKind",
    "ScopedAllocator",
    "array",
    "can_access",
    "capture_launch",
    "config.LaunchArrayAccessMode.CHECKED",
    "config.LaunchArrayAccessMode.RELAXED",
    "config.LaunchArrayAccessMode.STRICT",
    "config.enable_mempools_at_init",
    "config.launch_array_access_mode",
    "config.verify_cuda",
    "copy",
    "empty",
    "full",
    "get_cuda_device",
    "get_device_allocator",
    "get_mempool_used_mem_current",
    "get_mempool_used_mem_high",
    "init",
    "launch",
    "ones",
    "set_cuda_allocator",
    "set_device_allocator",
    "set_peer_access_enabled",
    "utils.AllocatorRmm",
    "zeros",
}
"""Names of the module that the text around the blocks tells of."""

ATTRIBUTES = [
    (al.Array, "memory_kind", "device", "size", "to", "zero_", "ipc_handle", "__getitem__", "numpy", "pinned"),
    (
        al.Device,
        "can_access",
        "is_concurrent_managed_access_supported",
        "is_cpu_memory_access_from_gpu_supported",
        "is_gpu_memory_access_from_cpu_supported",
        "is_managed_memory_supported",
        "is_uva",
        "ordinal",
        "stream",
    ),
    (al.Stream, "cuda_stream"),
    (al.Allocator, "allocate", "deallocate"),
    (al.MemoryKind, "CUDA_MANAGED"),
]
"""Attributes of objects that the guides use or tell of."""

ABSENT = {
    "config.verify_cuda": "not of the memory system: Warp's switch to check for CUDA errors after each launch",
}
"""Names that are not there, and why."""


def names_in(code):
    """Return the names of the module that a block uses, dotted."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # a command line
        return set()
    chains = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {chain.removeprefix("wp.") for chain in chains if chain.startswith("wp.")}


NAMES = sorted(PROSE.union(*(names_in(block.code) for block in BLOCKS)))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ABSENT])
def test_a_name_of_the_guides_exists(name):
    assert attrgetter(name)(al) is not None


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, *names in ATTRIBUTES for name in names], ids=str)
def test_an_attribute_of_the_guides_exists(owner, name):
    with al.simulate("h200"):
        objects = {al.Device: lambda: al.get_device("cuda:0"), al.Array: lambda: al.zeros(1), al.Stream: al.Stream}
        found = objects.get(owner, lambda: owner)()
        assert hasattr(found, name)


@pytest.mark.parametrize("name", ABSENT)
def test_a_name_that_is_said_to_be_absent_is(name):
    with pytest.raises(AttributeError):
        attrgetter(name)(al)


def test_the_blocks_use_more_than_forty_names():
    """As a guard of the way in which they are found."""
    assert len(NAMES) > 40
