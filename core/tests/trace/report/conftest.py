import pytest

from allotment.layers.call_site import Frame
from allotment.trace import EventKind, TraceEvent, TraceSite, TraceSource

ALLOCATE, FREE, _, OUT_OF_MEMORY = EventKind


@pytest.fixture
def leak():
    """Return a short trace with a block that is never freed, told in full."""
    site = TraceSite((Frame("train.py", 7, "forward"), Frame("train.py", 20, "main")), "torch")
    source = TraceSource("cuda:0", "caching")
    return [
        TraceEvent(ALLOCATE, 0, 4096, 0, 10, source, "weights", site),
        TraceEvent(ALLOCATE, 1, 1024, 0, 20, source, "activations", site),
        TraceEvent(OUT_OF_MEMORY, -1, 2**40, 0, 25, source, "activations", site),
        TraceEvent(FREE, 1, 1024, 0, 30),
    ]
