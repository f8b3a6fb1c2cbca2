"""Draw the heap of the ``caching`` allocator over time: ``python -m benchmarks.heap_picture --out FILE``.

A trace is replayed on a simulated H200, so anybody gets the same picture.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import allotment as al
from allotment.trace import EventKind, read, shipped_trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment.trace import TraceEvent

MIB = 1 << 20
PICTURE = Path(__file__).parent.parent / "docs" / "explanation" / "caching-heap.png"


@dataclass(frozen=True, slots=True)
class Life:
    """A block: its address and size, and the events between which it lived."""

    start: int
    nbytes: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Moment:
    """What is handed out and held after an event, in bytes."""

    in_use: int
    held: int


def replay(events: Iterable[TraceEvent], allocator: Any) -> tuple[list[Life], list[Moment]]:
    """Return the lives of the blocks of a trace, and how the allocator stood after each event."""
    live: dict[int, tuple[int, int, int]] = {}
    lives, moments = [], []
    for now, event in enumerate(events):
        if event.kind is EventKind.ALLOCATE:
            live[event.id] = allocator.allocate(event.size), event.size, now
        else:
            start, nbytes, begin = live.pop(event.id)
            allocator.deallocate(start, nbytes)
            lives.append(Life(start, nbytes, begin, now))
        figures = allocator.statistics()
        moments.append(Moment(figures.current, figures.reserved))
    lives += [Life(start, nbytes, begin, len(moments)) for start, nbytes, begin in live.values()]
    for start, nbytes, _ in live.values():
        allocator.deallocate(start, nbytes)
    return lives, moments


def draw(lives: list[Life], moments: list[Moment], path: Path) -> None:
    """Draw blocks by address over time, and below them what is in use and what is held."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    lowest = min(life.start for life in lives)
    figure, (heap, held) = plt.subplots(2, 1, figsize=(10, 7), height_ratios=(3, 1), sharex=True, layout="constrained")
    boxes = [
        Rectangle((life.begin, (life.start - lowest) / MIB), life.end - life.begin, life.nbytes / MIB) for life in lives
    ]
    blocks = PatchCollection(boxes, cmap="viridis", linewidth=0, rasterized=True)
    blocks.set_array([life.nbytes / MIB for life in lives])
    blocks.set_norm("log")
    heap.add_collection(blocks)
    heap.autoscale_view()
    heap.set_ylabel("address in the heap, MiB")
    heap.set_title("Blocks of a ResNet-50 training on one stream; white: free, or nothing behind the address")
    figure.colorbar(blocks, ax=heap, label="size, MiB")
    held.plot([moment.held / MIB for moment in moments], label="held of the device")
    held.plot([moment.in_use / MIB for moment in moments], label="in use")
    held.set_xlabel("event of the trace")
    held.set_ylabel("MiB")
    held.legend(loc="lower right")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Replay and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heap_picture", description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURE, help="file to write")
    parser.add_argument("--events", type=int, default=4000, help="how many events of the trace to draw")
    arguments = parser.parse_args()
    with al.simulate("2xh200"):
        allocator = al.get_allocator("caching", "cuda:0", idle_seconds=0)
        draw(*replay(islice(read(shipped_trace()), arguments.events), allocator), arguments.out)


if __name__ == "__main__":
    main()
