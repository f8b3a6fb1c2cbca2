"""What two GPUs do to each other's memory: the speed of copies with and without access, and what a grant costs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

import allotment as al
from benchmarks.contenders import pair
from benchmarks.measurement import Comparison, Within, compare

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NBYTES = 32 << 20
"""The size of a copy. Managed memory is kept small on purpose."""
COPIES = 15
KINDS = ("default", "mempool", "managed", "pinned")
PAIRS = [(source, target) for source in KINDS for target in KINDS if (source, target) != ("pinned", "pinned")]
GRANTS = ("none", "peer", "pool", "both")
SOURCE, TARGET = "cuda:0", "cuda:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The speed of a copy between two arrays.

    Parameters
    ----------
    source, target
        The allocators of both; all but ``pinned`` are on two devices.
    grants
        What the devices granted each other.
    direct, staged
        Gigabytes a second: copied at once, and by way of a page-locked array on the host.
    """

    source: str
    target: str
    grants: str
    direct: float
    staged: float

    @property
    def ratio(self) -> float:
        """How many times faster the direct copy is."""
        return self.direct / self.staged


def make(kind: str, device: str) -> al.Array:
    """Return an array of an allocator."""
    if kind == "pinned":
        return al.empty(NBYTES, "u1", "cpu", pinned=True)
    with al.ScopedAllocator(device, kind):
        return al.empty(NBYTES, "u1", device)


def granted(grants: str) -> ExitStack:
    """Return a scope in which both devices grant each other access to one kind of memory, both, or none."""
    scopes = ExitStack()
    for target, peer in ((SOURCE, TARGET), (TARGET, SOURCE)):
        scopes.enter_context(al.ScopedPeerAccess(target, peer, grants in ("peer", "both")))
        scopes.enter_context(al.ScopedMempoolAccess(target, peer, grants in ("pool", "both")))
    return scopes


def are_there() -> bool:
    """Return whether there are two GPUs."""
    return al.get_cuda_device_count() > 1


def copies() -> Iterator[Copy]:
    """Copy between all pairs of kinds under all grants, check every byte, and time it."""
    staging = make("pinned", "cpu")
    for grants in GRANTS:
        with granted(grants):
            for source_kind, target_kind in PAIRS:
                source, target = make(source_kind, SOURCE), make(target_kind, TARGET)
                check(source, target)
                yield Copy(
                    source=source_kind,
                    target=target_kind,
                    grants=grants,
                    direct=speed([(target, source)]),
                    staged=speed([(staging, source), (target, staging)]),
                )


def check(source: al.Array, target: al.Array) -> None:
    """Copy random bytes and compare all of them."""
    data = np.random.default_rng(NBYTES).integers(0, 256, NBYTES, dtype=np.uint8)
    al.copy(source, al.array(data, device="cpu"))
    target.fill_(0)
    al.copy(target, source)
    al.synchronize()
    if not np.array_equal(target.numpy(), data):
        raise AssertionError(f"a copy from {source} to {target} lost data")


def speed(steps: list[tuple[al.Array, al.Array]]) -> float:
    """Return the gigabytes a second of the median copy."""
    times = []
    for _ in range(COPIES):
        al.synchronize()
        start = perf_counter()
        for target, source in steps:
            al.copy(target, source)
            al.synchronize()
        times.append(perf_counter() - start)
    return NBYTES / median(times) / 1e9


def comparisons() -> Iterator[Comparison]:
    """Time an allocation and a free with and without a grant to the other device."""
    if not are_there():
        return
    for name, scope in (("default", al.ScopedPeerAccess), ("mempool", al.ScopedMempoolAccess)):
        call = pair(al.get_allocator(name, SOURCE), 4 << 20)
        contenders = {
            f"{name}, {state} a grant": Within(partial(scope, SOURCE, TARGET, enable), call)
            for state, enable in (("without", False), ("with", True))
        }
        found = compare("", contenders)
        without, granted = (figure.ns for figure in found.figures)
        title = f"allocate + deallocate 4 MiB of {name} memory under a grant: {granted / without:.2f} ×"
        yield replace(found, title=title)


def write_copies(found: list[Copy], folder: Path) -> None:
    """Write the copies as a table and a picture."""
    lines = [
        "# Copies between two GPUs",
        "",
        f"Written by `python3 dev bench --only grants`. {NBYTES >> 20} MiB, the median of {COPIES} copies, each waited",
        "for, every byte compared before. Staged is by way of a page-locked array on the host, step by step.",
        "",
        "![Direct against staged copies](two-gpus.svg)",
        "",
        "| from | to | access granted | direct, GB/s | staged, GB/s | direct / staged |",
        "|---|---|---|---:|---:|---:|",
        *(f"| {c.source} | {c.target} | {c.grants} | {c.direct:.1f} | {c.staged:.1f} | {c.ratio:.1f} |" for c in found),
        "",
    ]
    (folder / "two-gpus.md").write_text("\n".join(lines))
    draw(found, folder / "two-gpus.svg")


def draw(found: list[Copy], path: Path) -> None:
    """Draw the ratios of direct to staged copies, a row a pair of kinds, a column a grant."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    by_case = {(copy.source, copy.target, copy.grants): copy.ratio for copy in found}
    ratios = np.array([[by_case[*ends, grants] for grants in GRANTS] for ends in PAIRS])
    figure, axes = plt.subplots(figsize=(6, 7), layout="constrained")
    image = axes.imshow(np.log2(ratios), cmap="viridis", aspect="auto")
    axes.set_xticks(range(len(GRANTS)), GRANTS)
    axes.set_yticks(range(len(PAIRS)), [f"{source} → {target}" for source, target in PAIRS])
    axes.set_xlabel("access granted, both ways")
    axes.set_title("Direct copy, times faster than staged")
    middle = image.norm(float(np.log2(ratios).mean()))
    for (row, column), ratio in np.ndenumerate(ratios):
        dark = image.norm(float(np.log2(ratio))) < middle
        axes.text(column, row, f"{ratio:.1f}", ha="center", va="center", color="white" if dark else "black")
    figure.savefig(path)
