"""Traces: what a real program allocated and freed, read from a file and replayed through any allocator."""

from allotment.errors import TraceError
from allotment.trace._ballast import leave_free
from allotment.trace._event import EventKind, TraceEvent, TraceSite, TraceSource
from allotment.trace._ledger import TraceLedger
from allotment.trace._live_snapshot import memory_snapshot
from allotment.trace._pytorch_snapshot import write_pytorch_snapshot
from allotment.trace._reading import read, shipped_trace
from allotment.trace._replay import ReplayMoment, ReplayResult, replay
from allotment.trace._summary import TraceSummary, shrink, summarize
from allotment.trace.report import WrittenReport, write_report

__all__ = [
    "EventKind",
    "ReplayMoment",
    "ReplayResult",
    "TraceError",
    "TraceEvent",
    "TraceLedger",
    "TraceSite",
    "TraceSource",
    "TraceSummary",
    "WrittenReport",
    "leave_free",
    "memory_snapshot",
    "read",
    "replay",
    "shipped_trace",
    "shrink",
    "summarize",
    "write_pytorch_snapshot",
    "write_report",
]
