"""A process with four libraries on one pool ends without a word, in each order of imports and of teardown."""

from itertools import permutations

import pytest

from .libraries import NAMES

pytestmark = pytest.mark.gpu

BEGIN = """
import gc, sys
{early}
from tests.integration.libraries import CLASSES, let_go, used
libraries = {{name: CLASSES[name]() for name in {order!r}}}
"""
INSTALL = """
import allotment as al
al.install(*{order!r}{allocator})
"""
WORK = """
def work():
    arrays = [library.full(1000, 1.0) for library in libraries.values() for _ in range(3)]
    cycle = [library.full(10, 1.0) for library in libraries.values()]
    cycle.append(cycle)
    for library in libraries.values():
        library.synchronize()
    return arrays
"""
TEARDOWNS = {
    "arrays, then bridges": "kept = work()\nkept.clear()\nlet_go(*libraries.values())\nassert used() == {}, used()",
    "bridges, then arrays": "kept = work()\nal.uninstall()\nkept.clear()\nlet_go(*libraries.values())\n"
    "assert used() == {}, used()",
    "neither": "kept = work()",
    "bridges alone": "kept = work()\nal.uninstall()",
    "arrays alone": "kept = work()\nkept.clear()",
    "libraries forgotten": "kept = work()\nlibraries.clear()\ndel kept\ngc.collect()",
    "sys.exit in a scope": "with al.ScopedAllocator('cuda:0', 'default'):\n    kept = work()\n    sys.exit(0)",
    "in a thread": "import threading\nkept = []\nthread = threading.Thread(target=lambda: kept.extend(work()))\n"
    "thread.start()\nthread.join()",
}
FAILURE = """
def fail():
    kept = work()
    raise RuntimeError("in flight")
fail()
"""


def script(order, teardown, *, late=(), allocator=None):
    """Return a script that installs the bridges to ``late`` after the libraries were imported, and the rest before."""
    suffix = f", allocator={allocator!r}" if allocator else ""
    early = [name for name in order if name not in late]
    begin = BEGIN.format(early=INSTALL.format(order=tuple(early), allocator=suffix) if early else "", order=order)
    return begin + (INSTALL.format(order=tuple(late), allocator=suffix) if late else "") + WORK + teardown


CASES = {
    **{
        f"imported {', '.join(order)}": script(order, TEARDOWNS["neither"], allocator="caching")
        for order in permutations(NAMES)
    },
    **{
        f"imported {', '.join(order)} before Allotment": script(order, TEARDOWNS["neither"], late=NAMES)
        for order in (NAMES, NAMES[::-1])
    },
    **{
        f"{name}, {allocator or 'in force'}": script(NAMES, teardown, allocator=allocator)
        for name, teardown in TEARDOWNS.items()
        for allocator in (None, "caching", "default")
    },
}
FAILURES = {f"{', '.join(order)}": script(order, FAILURE) for order in (NAMES, NAMES[::-1])}


@pytest.fixture(scope="module")
def outcomes(run_all):
    """What became of each case, all run when the first is asked for, and of one without Allotment."""
    alone = BEGIN.format(early="", order=NAMES) + WORK + "kept = work()"
    return run_all({"alone": alone} | CASES | FAILURES)


@pytest.fixture(scope="module")
def usual_words(outcomes):
    """What the libraries say on stderr by themselves, which is not held against Allotment."""
    return set(outcomes("alone").errors.splitlines())


@pytest.mark.parametrize("case", CASES)
def test_a_process_ends_without_a_word(outcomes, usual_words, case):
    outcome = outcomes(case)

    assert [line for line in outcome.errors.splitlines() if line not in usual_words] == []
    assert outcome.code == 0


@pytest.mark.parametrize("case", FAILURES)
def test_an_exception_in_flight_is_all_that_is_told(outcomes, usual_words, case):
    outcome = outcomes(case)
    said = [line for line in outcome.errors.splitlines() if line not in usual_words]

    assert outcome.code == 1
    assert said[0] == "Traceback (most recent call last):"
    assert said[-1] == "RuntimeError: in flight"
    assert outcome.errors.count("Traceback") == 1
