"""Telling other processes how memory stands: metrics to scrape, a status to watch.

Nothing is served unless a call or the configuration asks for it. A server is one thread that sleeps until it is asked,
opens no context, and makes no call of the driver while a graph is captured. It ends with the process, and a forked
child has none.
"""

from allotment.serving._configured import held_back, let_go, serve_configured
from allotment.serving._inquiry import ask
from allotment.serving._metrics import MetricsServer, serve_metrics
from allotment.serving._pace import Pace, Tick, ticking
from allotment.serving._reading import AllocatorStatus, DeviceStatus, ProcessStatus, read_status
from allotment.serving._status import StatusServer, serve_status
from allotment.serving._table import view_of
from allotment.serving._watch import watch

__all__ = [
    "AllocatorStatus",
    "DeviceStatus",
    "MetricsServer",
    "Pace",
    "ProcessStatus",
    "StatusServer",
    "Tick",
    "ask",
    "held_back",
    "let_go",
    "read_status",
    "serve_configured",
    "serve_metrics",
    "serve_status",
    "ticking",
    "view_of",
    "watch",
]
