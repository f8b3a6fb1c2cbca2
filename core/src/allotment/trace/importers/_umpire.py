"""Replay logs of Umpire: a line of JSON for each operation, among lines that the program printed.

Two forms exist. Older logs have ``{"kind": "replay", "event": "allocate", "payload": ..., "result": ...}``, each call
twice, before and after it was made; newer ones ``{"category": "operation", "name": "allocate", "string_args": ...}``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from allotment.trace._event import EventKind, TraceEvent, TraceSource
from allotment.trace.importers._blocks import NumberedBlocks
from allotment.trace.importers._log import parsed, report_strays, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from allotment.trace._file import OnProblem

_SIGN: Final = re.compile(rb'"kind"\s*:\s*"replay"|"category"\s*:\s*"(?:operation|statistic|metadata)"')


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is a replay log of Umpire."""
    return _SIGN.search(head) is not None


def events(file: BinaryIO, origin: str, on_problem: OnProblem) -> Iterator[TraceEvent]:
    """Yield the events of a log; tell of what cannot be read and go on."""
    log = _Log()
    yield from parsed(file, origin, on_problem, log.parse)
    report_strays(log.blocks.strays, origin, on_problem)


class _Operation(msgspec.Struct, frozen=True):
    """A line in one form: what was done, with its arguments under the names of the newer logs."""

    name: str
    arguments: dict[str, Any]
    time: int


class _Replay(msgspec.Struct, frozen=True):
    """A line of an older log."""

    event: str = ""
    timestamp: int = 0
    payload: dict[str, Any] = {}
    result: dict[str, Any] | str | None = None

    def operation(self) -> _Operation:
        pointer = self.result.get("memory_ptr") if isinstance(self.result, dict) else None
        given = self.payload.get
        arguments = {
            "pointer": given("memory_ptr") or pointer,
            "current_ptr": given("ptr"),
            "new_ptr": pointer,
            "size": given("size"),
            "allocator_ref": given("allocator_ref") or _reference(self.result),
            "allocator_name": given("allocator_name") or given("name"),
        }
        return _Operation(_NAMES.get(self.event, self.event), arguments, self.timestamp)


_NAMES: Final = {"makeMemoryResource": "make_memory_resource", "makeAllocator": "make_allocator"}


def _reference(result: object) -> object:
    return result.get("allocator_ref") if isinstance(result, dict) else result


class _Event(msgspec.Struct, frozen=True):
    """A line of a newer log."""

    name: str = ""
    category: str = ""
    timestamp: int = 0
    string_args: dict[str, str] = {}
    numeric_args: dict[str, int] = {}
    tags: dict[str, str] = {}

    def operation(self) -> _Operation:
        return _Operation(self.name, {**self.tags, **self.numeric_args, **self.string_args}, self.timestamp)


_replay_line: Final = msgspec.json.Decoder(_Replay)
_event_line: Final = msgspec.json.Decoder(_Event)


def _operation(line: str) -> _Operation:
    decoder = _replay_line if '"kind"' in line else _event_line
    try:
        return decoder.decode(line).operation()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is no line of Umpire: {error}") from error


class _Log:
    """What the lines so far have told."""

    def __init__(self) -> None:
        self.blocks = NumberedBlocks()
        self._sources: dict[str, TraceSource] = {}
        self._resized: tuple[object, object] = None, None
        self._first: int | None = None
        self._latest = 0

    def parse(self, line: str) -> list[TraceEvent]:
        if not line.startswith("{"):
            return []  # the program printed it
        operation = _operation(line)
        arguments = operation.arguments
        match operation.name:
            case "allocate" | "named_allocate" | "allocate_resource":
                return self._allocate(operation, arguments.get("pointer"), arguments.get("size"))
            case "deallocate" | "deallocate_resource":
                return self._free(operation, arguments.get("pointer"))
            case "reallocate" | "reallocate_ex":
                return self._reallocate(operation)
            case "make_memory_resource" | "make_allocator":
                self._name(arguments.get("allocator_ref"), arguments.get("allocator_name"))
        return []

    def _allocate(self, operation: _Operation, pointer: object, size: object) -> list[TraceEvent]:
        if pointer is None:
            return []  # the line before the call
        nbytes = whole_number("size", size)
        block = self.blocks.enter(whole_number("the pointer", pointer), nbytes)
        label = operation.arguments.get("allocation_name") or None
        time, source = self._time(operation), self._source(operation)
        return [TraceEvent(EventKind.ALLOCATE, block, nbytes, 0, time, source, label)]

    def _free(self, operation: _Operation, pointer: object) -> list[TraceEvent]:
        block = self.blocks.leave(whole_number("the pointer", pointer))
        if block is None:
            return []
        return [TraceEvent(EventKind.FREE, *block, 0, self._time(operation), self._source(operation))]

    def _reallocate(self, operation: _Operation) -> list[TraceEvent]:
        """Take the lines before and after a call, which has lines of its own in between if it allocates and frees."""
        given = operation.arguments.get
        if given("size") is not None:
            self._resized = given("current_ptr"), given("size")
        if given("new_ptr") is None:
            return []
        (old, size), self._resized = self._resized, (None, None)
        new, nbytes = whole_number("the pointer", given("new_ptr")), whole_number("size", size)
        if self.blocks.size(new) == nbytes:
            return []
        freed = [] if self._is_none(old) else self._free(operation, old)
        return freed + self._allocate(operation, new, nbytes)

    def _is_none(self, pointer: object) -> bool:
        return pointer is None or self.blocks.size(whole_number("the pointer", pointer)) is None

    def _name(self, reference: object, name: object) -> None:
        if isinstance(reference, str) and isinstance(name, str):
            self._sources[reference] = TraceSource(allocator=name)

    def _source(self, operation: _Operation) -> TraceSource:
        return self._sources.get(str(operation.arguments.get("allocator_ref")), _UNKNOWN)

    def _time(self, operation: _Operation) -> int:
        if self._first is None:
            self._first = operation.time
        self._latest = max(self._latest, operation.time - self._first)
        return self._latest


_UNKNOWN: Final = TraceSource(allocator="Umpire")
