"""Memory snapshots of PyTorch, as ``torch.cuda.memory._dump_snapshot`` pickles them.

A snapshot has the events of each device and the segments that the caching allocator held at the end, with their
blocks. Blocks that were live before the recording began show by being freed, or by being there at the end. The events
of segments tell about PyTorch's allocator, not about the program, and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from allotment.errors import TraceError
from allotment.layers.call_site import Frame
from allotment.trace._event import EventKind, TraceEvent, TraceSite, TraceSource
from allotment.trace.importers._blocks import NumberedBlocks, NumberedStreams
from allotment.trace.importers._log import report_strays, whole_number
from allotment.trace.importers._plain_pickle import load_plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from allotment.trace._file import OnProblem

_PICKLE: Final = 0x80
"""How pickles begin, from the second version of their format on, before the number of the version."""


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is a pickle."""
    return len(head) > 1 and head[0] == _PICKLE and 2 <= head[1] <= 5


def events(file: BinaryIO, origin: str, on_problem: OnProblem) -> Iterator[TraceEvent]:
    """Yield the events of a snapshot; tell of what cannot be read and go on."""
    snapshot = _Snapshot.of(load_plain(file.read(), origin), origin)
    reader = _Reader(snapshot)
    for place, device, entry in chain(reader.held_blocks(), snapshot.entries()):
        try:
            event = reader.event(device, entry)
        except ValueError as error:
            on_problem(TraceError(origin=origin, problem=f"{place} of device {device}: {error}"))
            continue
        if event is not None:
            yield event
    report_strays(reader.blocks.strays, origin, on_problem)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A snapshot whose outermost containers are what they must be.

    Parameters
    ----------
    traces
        The entries of each device.
    segments
        What is held at the end.
    devices
        The names of the devices, where Allotment wrote the snapshot.
    """

    traces: list[list[Any]]
    segments: list[Any]
    devices: list[str]

    @classmethod
    def of(cls, document: Any, origin: str) -> _Snapshot:
        """Return what a pickle holds; raise `TraceError` if that is no snapshot."""
        if isinstance(document, list):  # the segments only, as `torch.cuda.memory_snapshot` returns them
            document = {"segments": document}
        if not isinstance(document, dict) or not ("segments" in document or "device_traces" in document):
            raise TraceError(origin=origin, problem="it is a pickle, and no memory snapshot of PyTorch")
        traces, segments = document.get("device_traces", []), document.get("segments", [])
        devices = document.get("devices", [])
        is_whole = all(isinstance(each, list) for each in (traces, segments, devices))
        if not is_whole or not all(isinstance(trace, list) for trace in traces):
            raise TraceError(origin=origin, problem="its 'segments' and 'device_traces' must be lists")
        return cls(traces, segments, [str(each) for each in devices])

    def entries(self) -> Iterator[tuple[str, int, Any]]:
        """Yield the entries of all devices in the order of time, with their place and device."""
        numbered = (
            [(f"event {index}", device, entry) for index, entry in enumerate(trace)]
            for device, trace in enumerate(self.traces)
        )
        return merge(*numbered, key=lambda item: _microseconds(item[2]) or 0)

    def first_microsecond(self) -> int | None:
        """Return the time of the first entry; ``None`` if no entry has one."""
        times = [time for trace in self.traces for entry in trace if (time := _microseconds(entry)) is not None]
        return min(times, default=None)

    def device_name(self, device: int) -> str:
        """Return what Allotment calls a device."""
        return self.devices[device] if device < len(self.devices) else f"cuda:{device}"


def _microseconds(entry: Any) -> int | None:
    time = entry.get("time_us") if isinstance(entry, dict) else None
    return time if type(time) is int else None


class _Reader:
    """Makes events of the entries of a snapshot, one after the other."""

    def __init__(self, snapshot: _Snapshot) -> None:
        self._snapshot = snapshot
        self._start = snapshot.first_microsecond()
        self._streams = NumberedStreams(0)
        self._sites = _Sites()
        self._sources: dict[tuple[int, Any], TraceSource] = {}
        self._frees = [_action_that_frees(trace) for trace in snapshot.traces]
        self.blocks = NumberedBlocks()

    def held_blocks(self) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yield an entry for each block that was live when the recording began, with its place and device."""
        for device, trace in enumerate(self._snapshot.traces):
            for entry in _freed_first(trace, self._frees[device]):
                yield "a free", device, self._held(entry, entry["addr"], entry["size"], ())
        for device, address, block in _left_over(self._snapshot, self._frees):
            yield "a block", device, self._held(block, address, block["requested_size"], block.get("frames"))

    def _held(self, entry: dict[str, Any], address: int, size: Any, frames: Any) -> dict[str, Any]:
        kept = {"addr": address, "size": size, "frames": frames, "time_us": self._start}
        return {**entry, **kept, "action": "alloc", "held": True}

    def event(self, device: int, entry: Any) -> TraceEvent | None:
        """Return the event of an entry; ``None`` for one that tells of no block.

        Raises
        ------
        ValueError
            If it is malformed, or cannot follow those before.
        """
        if not isinstance(entry, dict):
            raise ValueError(f"it is {entry!r}, and must be a dictionary")  # noqa: TRY004 - it is the file's fault
        action = entry.get("action")
        if action == "alloc":
            kind = EventKind.HELD if entry.get("held") is True else EventKind.ALLOCATE
            return self._block(kind, device, entry)
        if action == self._frees[device]:
            return self._free(device, entry)
        return self._out_of_memory(device, entry) if action == "oom" else None

    def _block(self, kind: EventKind, device: int, entry: dict[str, Any]) -> TraceEvent:
        size, stream = whole_number("size", entry.get("size")), self._stream(entry)
        number = self.blocks.enter((device, _address(entry)), size)
        source, site = self._source(device, entry), self._sites.of(entry)
        return TraceEvent(kind, number, size, stream, self._time(entry), source, _label(entry), site)

    def _free(self, device: int, entry: dict[str, Any]) -> TraceEvent | None:
        stream, block = self._stream(entry), self.blocks.leave((device, _address(entry)))
        if block is None:
            return None
        source, site = self._source(device, entry), self._sites.of(entry)
        return TraceEvent(EventKind.FREE, *block, stream, self._time(entry), source, None, site)

    def _out_of_memory(self, device: int, entry: dict[str, Any]) -> TraceEvent:
        size, stream = whole_number("size", entry.get("size")), self._stream(entry)
        source, site = self._source(device, entry), self._sites.of(entry)
        return TraceEvent(EventKind.OUT_OF_MEMORY, -1, size, stream, self._time(entry), source, _label(entry), site)

    def _time(self, entry: dict[str, Any]) -> int | None:
        time = _microseconds(entry)
        return None if time is None or self._start is None else (time - self._start) * 1000

    def _stream(self, entry: dict[str, Any]) -> int:
        return self._streams[whole_number("stream", entry.get("stream", 0))]

    def _source(self, device: int, entry: dict[str, Any]) -> TraceSource:
        allocator = str(entry.get("allocator", "PyTorch"))
        key = device, allocator
        if key not in self._sources:
            self._sources[key] = TraceSource(self._snapshot.device_name(device), allocator)
        return self._sources[key]


# ---------------------------------------------------------------------------------------------------------------------
# Which blocks were live before the recording


def _action_that_frees(trace: list[Any]) -> str:
    """Return the action that stands for a free: the request, unless the recording left requests out."""
    actions = {entry.get("action") for entry in trace if isinstance(entry, dict)}
    return "free_completed" if "free_completed" in actions and "free_requested" not in actions else "free_requested"


def _freed_first(trace: list[Any], free: str) -> Iterator[dict[str, Any]]:
    """Yield the frees of blocks that no entry before has allocated."""
    known: set[int] = set()
    for entry in trace:
        if not (_is_about_a_block(entry) and entry["action"] in ("alloc", free)):
            continue
        if entry["action"] == free and entry["addr"] not in known:
            yield entry
        known.add(entry["addr"])


def _left_over(snapshot: _Snapshot, frees: list[str]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the blocks that are live at the end and that no entry allocated, with device and address."""
    allocated = {
        (device, entry["addr"])
        for device, trace in enumerate(snapshot.traces)
        for entry in trace
        if _is_about_a_block(entry) and entry["action"] in ("alloc", frees[device])
    }
    for segment in snapshot.segments:
        for address, block in _live_blocks(segment):
            device = segment.get("device", 0)
            if type(device) is int and (device, address) not in allocated:
                yield device, address, block


def _is_about_a_block(entry: Any) -> bool:
    """Return whether an entry has what one about a block must have; those that have not are reported later."""
    if not isinstance(entry, dict):
        return False
    return type(entry.get("addr")) is int and _is_size(entry.get("size")) and isinstance(entry.get("action"), str)


def _live_blocks(segment: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the blocks of a segment that are live, with the stream of the segment."""
    if not (isinstance(segment, dict) and isinstance(segment.get("blocks"), list)):
        return
    address = segment.get("address")
    for block in segment["blocks"]:
        if not isinstance(block, dict):
            return
        address = block.get("address", address)
        if type(address) is not int or not _is_size(block.get("size")):
            return
        if block.get("state") == "active_allocated":
            requested = block.get("requested_size", block["size"])
            yield address, {**block, "requested_size": requested, "stream": segment.get("stream", 0)}
        address += block["size"]


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


# ---------------------------------------------------------------------------------------------------------------------
# What entries say


def _address(entry: dict[str, Any]) -> int:
    return whole_number("addr", entry.get("addr"))


_NO_LABEL: Final = ("", "N/A", "unknown")
"""What PyTorch writes where nothing was said."""


def _label(entry: dict[str, Any]) -> str | None:
    """Return what the program said of a block: its own words, or else its category, or else what was being compiled."""
    texts = (entry.get(key) for key in ("user_metadata", "category", "compile_context"))
    return next((text for text in texts if isinstance(text, str) and text not in _NO_LABEL), None)


_parts_of: Final = itemgetter("filename", "line", "name")


class _Sites:
    """The places in the program, each made once."""

    def __init__(self) -> None:
        self._known: dict[Any, TraceSite | None] = {}

    def of(self, entry: dict[str, Any]) -> TraceSite | None:
        """Return where an entry happened; its frames of Python only, if it has any."""
        frames, library = entry.get("frames"), entry.get("library", "torch")
        try:
            key = library, tuple(map(_parts_of, frames or ()))
            if key not in self._known:
                self._known[key] = _site(frames, library)
        except (KeyError, TypeError, AttributeError):  # no frames, or such as PyTorch does not write
            return _site(frames, library)
        return self._known[key]


def _site(frames: Any, library: Any) -> TraceSite | None:
    found = [_frame(each) for each in frames if isinstance(each, dict)] if isinstance(frames, list) else []
    shown = [frame for frame in found if _is_python(frame)] or found
    site = TraceSite(tuple(shown), library if isinstance(library, str) else None)
    return None if site == TraceSite() else site


def _frame(each: dict[str, Any]) -> Frame:
    line = each.get("line")
    return Frame(str(each.get("filename", "")), line if type(line) is int else 0, str(each.get("name", "")))


def _is_python(frame: Frame) -> bool:
    return frame.file.endswith(".py") or frame.file.startswith("<")
