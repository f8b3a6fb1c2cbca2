"""Traces: what a real program allocated and freed, read from a file and replayed through any allocator."""

from allotment.errors import TraceError
from allotment.trace._event import EventKind, TraceEvent
from allotment.trace._ledger import TraceLedger
from allotment.trace._reading import read, shipped_trace
from allotment.trace._replay import ReplayResult, replay
from allotment.trace._summary import TraceSummary, shrink, summarize

__all__ = [
    "EventKind",
    "ReplayResult",
    "TraceError",
    "TraceEvent",
    "TraceLedger",
    "TraceSummary",
    "read",
    "replay",
    "shipped_trace",
    "shrink",
    "summarize",
]
