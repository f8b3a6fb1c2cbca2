"""Train with one contender, in a process of its own: ``python -m benchmarks.training.loop NAME``."""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.training.contender import Contender, find
from benchmarks.training.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment import AccountedAllocator

WARM_UP, STEPS = 5, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of training a model.

    Parameters
    ----------
    losses
        The loss of each step, as a hexadecimal number.
    step_ms
        The median time of a step after the warm-up, in milliseconds.
    pytorch_reserved
        The most bytes that PyTorch held; ``None`` where it does not know.
    reserved
        The most bytes that the allocator held of the device; ``None`` where PyTorch allocates for itself.
    """

    losses: tuple[str, ...]
    step_ms: float
    pytorch_reserved: int | None
    reserved: int | None


def prepare(contender: Contender) -> Any:
    """Import PyTorch, let it draw from the contender and do the same in each run; return it."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if contender.mode is not None:
        import allotment as al

        al.init(platform="cuda", quiet=True)
        al.install({"torch": {"mode": contender.mode}}, allocator=contender.allocator)
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return torch


def train(contender: Contender, torch: Any, make: Callable[[Any], Callable[[], Any]]) -> Outcome:
    """Train a model for some steps."""
    account = _account(contender)
    keeps_figures = torch.cuda.get_allocator_backend() == "native"
    gc.collect()
    torch.cuda.empty_cache()
    if account is not None:
        account.trim()
        account.reset_peak()
    if keeps_figures:
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(1)
    step = make(torch)
    losses, times = [], []
    for _ in range(WARM_UP + STEPS):
        start = perf_counter()
        losses.append(float(step()).hex())  # which waits for the device
        times.append(perf_counter() - start)
    return Outcome(
        losses=tuple(losses),
        step_ms=median(times[WARM_UP:]) * 1000,
        pytorch_reserved=torch.cuda.max_memory_reserved() if keeps_figures else None,
        reserved=account.statistics().peak_reserved if account is not None else None,
    )


def _account(contender: Contender) -> AccountedAllocator | None:
    if contender.allocator is None:
        return None
    import allotment as al

    return al.get_allocator(contender.allocator, "cuda:0")


def main(name: str) -> int:
    """Train all models and print what came of it."""
    contender = find(name)
    torch = prepare(contender)
    print(json.dumps({model: asdict(train(contender, torch, make)) for model, make in MODELS.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
