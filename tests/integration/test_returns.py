"""Each block returns to the allocator that made it, wherever and whenever it is dropped."""

import pytest

from .libraries import NAMES

pytestmark = pytest.mark.gpu

BEGIN = """
import gc, json, threading
import allotment as al
from tests.integration.libraries import CLASSES, let_go, used

al.install({name!r})
library = CLASSES[{name!r}]()
made_by = al.get_allocator({supplier!r}, "cuda:0")
with al.ScopedAllocator("cuda:0", {supplier!r}):
    held = [library.full(1000, 1.0) for _ in range(4)]
    library.synchronize()
made = made_by.statistics().current
"""
END = """
held.clear()
let_go(library)
print(json.dumps([made >= 4000, used(), made_by.statistics().allocations == made_by.statistics().frees]))
"""
SUPPLIERS = ("caching", "default")
WAYS = {
    "out of the scope": "",
    "another allocator in force": 'al.set_device_allocator("cuda:0", "managed")',
    "in another scope": 'with al.ScopedAllocator("cuda:0", "default"):\n    held.clear()\n    gc.collect()',
    "in other threads": """
threads = [threading.Thread(target=held.pop) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""",
    "collected during a capture": """
cycle = [held.pop(), held.pop()]
cycle.append(cycle)
with al.ScopedCapture(stream=al.Stream("cuda:0", non_blocking=True)) as capture:
    del cycle
    gc.collect()
    held.clear()
capture.graph.close()
""",
    "after the bridge": "al.uninstall()",
}


@pytest.fixture(scope="module")
def results(run_all):
    """What became of each library, supplier and way, all run when the first is asked for."""
    return run_all(
        {
            (name, supplier, way): BEGIN.format(name=name, supplier=supplier) + drop + END
            for name in NAMES
            for supplier in SUPPLIERS
            for way, drop in WAYS.items()
        }
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("supplier", SUPPLIERS)
@pytest.mark.parametrize("name", NAMES)
def test_each_block_returns_to_the_allocator_that_made_it(results, name, supplier, way):
    outcome = results((name, supplier, way))

    assert outcome.code == 0, outcome.errors
    assert outcome.lines[-1] == "[true, {}, true]"
