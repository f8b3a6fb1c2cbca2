"""The ``caching`` allocator keeps the allocator contract, with each engine and each way to get memory."""

import pytest

from allotment.testing import AllocatorConformance
from allotment_caching._twins import compiled_module

AS_MLX = {
    "test_a_request_above_the_memory_limit_is_out_of_memory_until_it_is_raised": "MLX's memory limit is a guideline"
}
ALL_REACH_IT = dict.fromkeys(
    ("test_memory_follows_peer_access", "test_an_allocator_made_later_follows_what_is_enabled"),
    "managed memory is every device's, whatever peer access is enabled",
)
needs_compiled_engine = pytest.mark.skipif(compiled_module() is None, reason="the compiled engine was not built here")


class TestCachingInPython(AllocatorConformance):
    allocator_name = "caching"
    options = {"engine": "python"}


class TestCachingInPythonWithSegments(AllocatorConformance):
    allocator_name = "caching"
    options = {"engine": "python", "map_memory": False}


@needs_compiled_engine
class TestCachingCompiled(AllocatorConformance):
    allocator_name = "caching"
    options = {"engine": "compiled"}


@needs_compiled_engine
class TestCachingCompiledWithSegments(AllocatorConformance):
    allocator_name = "caching"
    options = {"engine": "compiled", "map_memory": False}


class TestMlxInPython(AllocatorConformance):
    allocator_name = "caching"
    options = {"engine": "python", "policy": "mlx"}
    expected_failures = AS_MLX


@needs_compiled_engine
class TestMlxCompiled(AllocatorConformance):
    allocator_name = "caching"
    options = {"engine": "compiled", "policy": "mlx"}
    expected_failures = AS_MLX


@needs_compiled_engine
class TestManagedMlx(AllocatorConformance):
    allocator_name = "caching"
    options = {"engine": "compiled", "policy": "mlx", "mlx_managed": True}
    expected_failures = AS_MLX | ALL_REACH_IT
