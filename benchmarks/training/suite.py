"""Train with each contender, in processes of their own, and write the page."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

import allotment as al
from benchmarks.process import answer_of
from benchmarks.report import about_this_run, in_words
from benchmarks.training.contender import CONTENDERS, OWN, Contender
from benchmarks.training.loop import STEPS, WARM_UP
from benchmarks.training.models import IMAGES, LENGTH, TOKENS

if TYPE_CHECKING:
    from pathlib import Path

_SETTING = (
    f"ResNet-50 on {IMAGES} images, and a transformer of the size of GPT-2 small on {TOKENS} sequences of up to "
    f"{LENGTH} tokens, whose length differs from step to step. {STEPS} steps after {WARM_UP} to warm up, each supplier "
    "of PyTorch's memory in a process of its own, with deterministic algorithms. Ratios are to PyTorch's own "
    "allocator. Mode pool is beneath its cache, replace in its place."
)

Results: TypeAlias = dict[str, dict[str, Any]]
"""By contender: what came of each model, or ``{"missing": why}``."""


def can_run() -> bool:
    """Return whether there is a GPU, and PyTorch with the models."""
    return bool(al.get_cuda_devices()) and all(find_spec(name) for name in ("torch", "torchvision"))


def measure(folder: Path) -> Path | None:
    """Train, and return the page; ``None`` where that is not possible."""
    if not can_run():
        return None
    results: Results = {}
    for contender in CONTENDERS:
        results[contender.name] = _run(contender)
        print(f"trained: {contender.name}", file=sys.stderr, flush=True)
    return write(results, folder)


def _run(contender: Contender) -> dict[str, Any]:
    try:
        found: dict[str, Any] = answer_of("benchmarks.training.loop", contender.name, options=("-W", "ignore"))
    except RuntimeError as error:
        return {"missing": str(error)}
    return found


def write(results: Results, folder: Path) -> Path:
    """Write ``training.json`` and ``training.md``; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    about = about_this_run()
    (folder / "training.json").write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")
    page = folder / "training.md"
    page.write_text(page_of(about, results))
    return page


def page_of(about: dict[str, Any], results: Results) -> str:
    """Return the page."""
    lines = [
        "# Training",
        "",
        f"{in_words(about)} Written by `python -m benchmarks --only training`.",
        "",
        _SETTING,
    ]
    own = results.get(OWN.name, {})
    for model in own if "missing" not in own else ():
        lines += ["", f"## {model}", "", *_table(model, own[model], results)]
    missing = [f"{name}: {found['missing']}" for name, found in results.items() if "missing" in found]
    if missing:
        lines += ["", "Not measured: " + "; ".join(missing) + "."]
    return "\n".join(lines) + "\n"


def _table(model: str, own: dict[str, Any], results: Results) -> list[str]:
    rows = [
        "| memory from | losses | step, ms | ratio | PyTorch held, GiB | ratio | allocator held, GiB |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, found in results.items():
        if model in found:
            rows.append(_row(name, found[model], own))
    return rows


def _row(name: str, found: dict[str, Any], own: dict[str, Any]) -> str:
    held, before = found["pytorch_reserved"], own["pytorch_reserved"]
    cells = [
        name,
        compare_losses(found["losses"], own["losses"]),
        f"{found['step_ms']:.1f}",
        f"{found['step_ms'] / own['step_ms']:.3f}",
        _gib(held),
        "" if held is None else f"{held / before:.3f}",
        _gib(found["reserved"]),
    ]
    return f"| {' | '.join(cells)} |"


def compare_losses(found: list[str], own: list[str]) -> str:
    """Return how the losses of two runs compare, in words."""
    if found == own:
        return "the same to the bit"
    apart = max(abs(float.fromhex(a) / float.fromhex(b) - 1) for a, b in zip(found, own, strict=True))
    return f"within {apart:.1e}"


def _gib(count: int | None) -> str:
    return "" if count is None else f"{count / 2**30:.2f}"
