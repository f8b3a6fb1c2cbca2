"""Who is compared, in the order of the page."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.allocators.contenders import cupy_pools, driver, rmm_resources, torch_native
from benchmarks.allocators.contenders.contender import Contender, Family, Side
from benchmarks.allocators.contenders.ours import AllotmentSession, NullSession

if TYPE_CHECKING:
    from collections.abc import Iterable

HOST = Family(name="host")
ALLOTMENT = Family(name="allotment", libraries=("allotment", "cupy", "cuda.bindings.driver", "cuda.bindings.runtime"))
CUPY = Family(name="cupy", libraries=("cupy", "cuda.core"))
TORCH = Family(name="torch", libraries=("torch",), environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"})
EXPANDABLE = Family(
    name="torch-expandable", libraries=("torch",), environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
)
RMM = Family(name="rmm", libraries=("rmm", "cupy", "cuda.bindings.runtime"))

CHURN_ONLY = frozenset({"churn"})
"""For those that ask the driver each time: a recorded trace would take them minutes, and they hold what is live."""

JUDGED = "al caching"
"""The contender that has budgets."""
CUPY_POOL, TORCH_SETTINGS = "CuPy MemoryPool", ("PyTorch", "PyTorch expandable")


def _ours(name: str, allocator: str, *, groups: frozenset[str] = frozenset(), **options: Any) -> Contender:
    return Contender(
        name=name,
        open=partial(AllotmentSession, allocator=allocator, **options),
        family=ALLOTMENT,
        side=Side.OURS,
        groups=groups,
        takes_limit="limit_option" in options,
    )


ROSTER = (
    _ours(JUDGED, "caching", limit_option="limit"),
    _ours("al caching, mlx", "caching", policy="mlx", limit_option="limit"),
    _ours("al mempool", "mempool"),
    _ours("al default", "default", groups=CHURN_ONLY),
    _ours("al managed", "managed", groups=CHURN_ONLY),
    _ours("al pinned", "pinned", groups=CHURN_ONLY, device="cpu"),
    Contender(name=CUPY_POOL, open=cupy_pools.MemoryPoolSession, family=CUPY, takes_limit=True),
    Contender(name="CuPy MemoryAsyncPool", open=cupy_pools.MemoryAsyncPoolSession, family=CUPY),
    Contender(name=TORCH_SETTINGS[0], open=torch_native.TorchSession, family=TORCH, takes_limit=True),
    Contender(name=TORCH_SETTINGS[1], open=torch_native.TorchSession, family=EXPANDABLE, takes_limit=True),
    Contender(name="PyTorch, Python API", open=torch_native.DocumentedTorchSession, family=TORCH, groups=CHURN_ONLY),
    Contender(name="RMM pool", open=rmm_resources.PoolSession, family=RMM, takes_limit=True),
    Contender(name="RMM arena", open=rmm_resources.ArenaSession, family=RMM, takes_limit=True),
    Contender(name="RMM binning", open=rmm_resources.BinningSession, family=RMM),
    Contender(name="RMM async", open=rmm_resources.AsyncSession, family=RMM),
    Contender(name="cudaMallocAsync", open=driver.AsyncSession, family=CUPY),
    Contender(name="cuda.core", open=driver.CoreSession, family=CUPY, groups=CHURN_ONLY),
    Contender(name="cudaMalloc", open=driver.CudaMallocSession, family=CUPY, groups=CHURN_ONLY),
    Contender(name="null", open=NullSession, family=HOST, side=Side.FLOOR),
)


def select(patterns: Iterable[str]) -> list[Contender]:
    """Return the contenders that a pattern fits; all if there is no pattern.

    Raises
    ------
    ValueError
        If nothing fits a pattern.
    """
    wanted = list(patterns)
    for pattern in wanted:
        if not any(fnmatch(contender.name, pattern) for contender in ROSTER):
            raise ValueError(f"no contender is called {pattern!r}: there are {', '.join(c.name for c in ROSTER)}")
    return [
        contender for contender in ROSTER if not wanted or any(fnmatch(contender.name, pattern) for pattern in wanted)
    ]
