"""The parts of a memory snapshot of PyTorch, as its memory viewer reads them (https://pytorch.org/memory_viz).

The viewer reads pickles of the versions 2 to 4 with numbers, text, lists, tuples and dictionaries, and passes over keys
that it does not know: ``devices``, ``allocator``, ``library`` and ``held`` are Allotment's own.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from allotment.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allotment.trace._event import TraceEvent, TraceSite

    Frames: TypeAlias = list[dict[str, Any]]

_PROTOCOL: Final = 4
"""The latest version of pickles that the viewer reads."""
UNKNOWN: Final = "unknown"
"""The category of what has no label; the viewer wants it among the categories as soon as there are any."""
FIRST_DEVICE: Final = "cuda:0"
"""The device of what comes from an unknown one."""
_CUDA: Final = re.compile(r"cuda:(\d{1,3})", re.ASCII)


def write(document: dict[str, Any], path: str | Path) -> None:
    """Write a snapshot to a file; raise `TraceError` if that cannot be done."""
    try:
        with Path(path).open("wb") as file:
            pickle.dump(document, file, _PROTOCOL)
    except OSError as error:
        raise TraceError(origin=str(path), problem=f"it cannot be written: {error.strerror or error}") from error


def document(devices: list[str], traces: list[list[dict[str, Any]]], segments: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a snapshot of its parts; a trace of which no entry has a label loses its categories."""
    if all(entry["category"] == UNKNOWN for trace in traces for entry in trace):
        for entry in (entry for trace in traces for entry in trace):
            del entry["category"]
    for trace in filter(None, traces):
        trace.append(_snapshot_entry(trace[-1]))
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
        "devices": devices,
    }


def _snapshot_entry(last: dict[str, Any]) -> dict[str, Any]:
    """Return the entry with which PyTorch ends a trace."""
    entry = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": []}
    if "time_us" in last:
        entry["time_us"] = last["time_us"]
    return {**entry, "category": UNKNOWN} if "category" in last else entry


def device_names(used: Iterable[str]) -> list[str]:
    """Return the names of the viewer's devices 0, 1, ...: CUDA devices by their number, then all others."""
    once = dict.fromkeys(used)
    numbers = [int(found[1]) for name in once if (found := _CUDA.fullmatch(name))]
    names = [f"cuda:{number}" for number in range(max(numbers, default=-1) + 1)]
    return [*names, *(name for name in once if name not in names)]


class FrameLists:
    """The frames of call sites, each list made once."""

    def __init__(self) -> None:
        self._made: dict[TraceSite | None, Frames] = {}

    def of(self, site: TraceSite | None) -> Frames:
        """Return the frames of a site."""
        if site not in self._made:
            frames = site.frames if site else ()
            self._made[site] = [{"name": each.function, "filename": each.file, "line": each.line} for each in frames]
        return self._made[site]


def entry_of(event: TraceEvent, frames: Frames, label: str | None, **content: Any) -> dict[str, Any]:
    """Return the entry of an event: its action and what else is given, and what all have."""
    content |= {
        "size": event.size,
        "stream": event.stream,
        "frames": frames,
        "user_metadata": label or "",
        "compile_context": "N/A",
        "category": label or UNKNOWN,
        "allocator": event.source.allocator if event.source else "",
        "library": event.site.library if event.site else None,
    }
    if event.time is not None:
        content["time_us"] = event.time // 1000
    return content


def segment_of(device: int, stream: int, blocks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a segment of blocks that leave no gap."""
    in_use = sum(block["size"] for block in blocks if block["state"] == _ACTIVE)
    return {
        "device": device,
        "address": blocks[0]["address"],
        "total_size": sum(block["size"] for block in blocks),
        "allocated_size": in_use,
        "active_size": in_use,
        "requested_size": sum(block["requested_size"] for block in blocks),
        "stream": stream,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": list(blocks),
    }


_ACTIVE: Final = "active_allocated"


def live_block(address: int, size: int, requested: int, frames: Frames) -> dict[str, Any]:
    """Return a block of a segment that is handed out."""
    return {"address": address, "size": size, "requested_size": requested, "state": _ACTIVE, "frames": frames}


def gap(start: int, end: int) -> list[dict[str, Any]]:
    """Return the free block between two addresses, or none."""
    if start == end:
        return []
    return [{"address": start, "size": end - start, "requested_size": 0, "state": "inactive", "frames": []}]
