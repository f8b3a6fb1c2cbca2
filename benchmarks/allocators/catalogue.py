"""The workloads by name. Each is made once a process, when it is first asked for, and is the same in all of them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from allotment.trace import read, shipped_trace
from benchmarks.allocators import minimalloc, sequence
from benchmarks.allocators.sequence import KIB, MIB
from benchmarks.allocators.threads import Handover, Larson
from benchmarks.allocators.workload import Pairs, Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allotment.trace import TraceEvent
    from benchmarks.allocators.workload import Workload

TRACES = Path(__file__).parents[1] / "traces"
RECORDED = ("resnet50_train", "gpt2_train", "gpt2_serve", "two_stream_pipeline")
CAPS = (1.0, 1.1, 1.5, 2.0)
"""What a contender may hold, as multiples of what is live at most."""

GROUPS = {
    "trace": "Recorded from PyTorch",
    "minimalloc": "MiniMalloc's problems in the order of time, sizes × 64",
    "churn": "One size allocated and freed at once",
    "pairs": "256 B allocated and freed at once, beside many live blocks",
    "streams": "Four streams in turn",
    "growth": "k × 64 MiB for k up to 200, one at a time or each beside the one before",
    "mix": "Random sizes and life times, after RMM's benchmark",
    "pressure": "The random mix up to 64 MiB, held to a multiple of its peak",
    "threads": "Freed by another thread: sets passed on after larson, and 1 MiB blocks handed over",
    "live": "5000 blocks of 4 B to 1 KiB, freed in an order",
    "contexts": "Key/value buffers of growing contexts, 8 GiB to 32 GiB",
    "training": "Training a GPT-2 small, batch sizes 8, 16 and 7 (synthetic)",
    "serving": "Requests of log-normal length that arrive at random",
}
"""What each group of workloads does, in the order in which they are run: what budgets are about comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A workload that can be made.

    Parameters
    ----------
    name
        Its group and what sets it apart there, with a slash between.
    make
        Makes it.
    file
        The file that it is read from; only there if the file is.
    is_quick
        It belongs to a quick run.
    """

    name: str
    make: Callable[[], Workload]
    file: Path | None = None
    is_quick: bool = False

    @property
    def group(self) -> str:
        """The group."""
        return self.name.partition("/")[0]

    @property
    def variant(self) -> str:
        """What sets it apart in its group."""
        return self.name.partition("/")[2]

    @property
    def reason(self) -> str:
        """Why it is not there; empty if it is."""
        is_there = self.file is None or self.file.exists()
        return "" if is_there else f"{self.file} is not there; {minimalloc.VARIABLE} names the folder"


@cache
def entries() -> dict[str, Entry]:
    """Return all workloads by name, in the order of the page."""
    found = [
        *(_pairs(f"churn/{label}", Pairs(size=size), quick=label in JUDGED) for label, size in CHURN.items()),
        *(_pairs(f"pairs/{live:,}", Pairs(size=256, live=live), quick=live == 1000) for live in (10**3, 10**5, 10**6)),
        *(_events(f"live/{order}", partial(sequence.live_set, order)) for order in ("same", "reverse")),
        _events("live/shuffle", partial(sequence.live_set, "shuffle"), quick=True),
        _events("mix/1 MiB", partial(sequence.random_mix, MIB), quick=True),
        _events("mix/64 MiB", _mix),
        _events("streams/4", sequence.multi_stream, quick=True),
        Entry(name="threads/larson", make=Larson.make),
        Entry(name="threads/handover", make=lambda: Handover(size=MIB), is_quick=True),
        _events("growth/one", sequence.growth),
        _events("growth/two", partial(sequence.growth, double=True), quick=True),
        _events("contexts/kv", sequence.contexts),
        _events("training/gpt2", sequence.training, quick=True),
        _events("serving/poisson", sequence.serving),
        *(Entry(name=f"pressure/{cap} ×", make=partial(_under_pressure, cap), is_quick=cap == CAPS[1]) for cap in CAPS),
        *(_events(f"trace/{name}", partial(_recorded, name), 2, quick=name != "gpt2_serve") for name in RECORDED),
        *(_problem(letter) for letter in minimalloc.PROBLEMS),
    ]
    order = list(GROUPS)
    return {entry.name: entry for entry in sorted(found, key=lambda entry: order.index(entry.group))}


CHURN = {"8 B": 8, "256 B": 256, "4 KiB": 4 * KIB, "64 KiB": 64 * KIB} | {
    f"{mebibytes} MiB": mebibytes * MIB for mebibytes in (1, 16, 64)
}
JUDGED = ("256 B", "1 MiB", "64 MiB")
"""The sizes that have budgets."""


@cache
def find(name: str) -> Workload:
    """Return a workload, made now if this process has not made it before."""
    return entries()[name].make()


def select(patterns: Iterable[str], *, quick: bool = False) -> list[Entry]:
    """Return the workloads that a pattern or a group's name fits; all if there is no pattern.

    Raises
    ------
    ValueError
        If nothing fits a pattern.
    """
    wanted = list(patterns)
    for pattern in wanted:
        if not any(_fits(entry, pattern) for entry in entries().values()):
            raise ValueError(f"no workload is called {pattern!r}: there are {', '.join(entries())}")
    return [
        entry
        for entry in entries().values()
        if (entry.is_quick or not quick) and (not wanted or any(_fits(entry, pattern) for pattern in wanted))
    ]


def _fits(entry: Entry, pattern: str) -> bool:
    return entry.group == pattern or fnmatch(entry.name, pattern)


def _pairs(name: str, pairs: Pairs, *, quick: bool) -> Entry:
    return Entry(name=name, make=lambda: pairs, is_quick=quick)


def _events(
    name: str, events: Callable[[], Iterable[TraceEvent]], warm_passes: int = 5, *, quick: bool = False
) -> Entry:
    return Entry(name=name, make=lambda: Replay.of(events(), warm_passes), is_quick=quick)


def _problem(letter: str) -> Entry:
    file = minimalloc.path_of(letter)
    make = partial(_read_problem, file)
    return Entry(name=f"minimalloc/{letter}", make=make, file=file, is_quick=letter in "AK")


def _read_problem(file: Path) -> Workload:
    return Replay.of(minimalloc.read(file), warm_passes=2)


def _mix() -> list[TraceEvent]:
    return sequence.random_mix(64 * MIB)


def _under_pressure(cap: float) -> Workload:
    return Replay.of(_mix()).limited(cap)


def _recorded(name: str) -> Iterable[TraceEvent]:
    return read(shipped_trace() if name == "resnet50_train" else TRACES / f"{name}.csv.gz")
