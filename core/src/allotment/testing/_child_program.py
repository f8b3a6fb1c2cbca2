"""What tests of the kit run in a process of its own, because it ends there or is forked.

Run as a script, with the name of an act and the allocator as JSON. It ends with code 0 and prints ``done`` if all is
well; everything else is said on standard error.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

HEAVY = ("cuda", "cupy", "numba", "torch", "warp")


def say(problem: str) -> None:
    """Tell the test what is wrong."""
    sys.stderr.write(f"{problem}\n")
    sys.stderr.flush()


def load(reference: str) -> Any:
    """Return the factory at ``"module:name"``, or ``"path.py:name"`` for one in a file."""
    module, _, name = reference.rpartition(":")
    if not module.endswith(".py"):
        found: Any = importlib.import_module(module)
    else:
        spec = importlib.util.spec_from_file_location(Path(module).stem, module)
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        spec.loader.exec_module(found)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def select(allocator: dict[str, Any]) -> tuple[Any, Any]:
    """Put a simulated machine in force and let a device's arrays draw from the allocator; return both."""
    import allotment as al
    from allotment.platform import current

    al.init(platform=f"sim:{allocator['profile']}", quiet=True)
    if allocator["registers"]:
        al.register_allocator(allocator["name"], load(allocator["reference"]), replace=True)
    account = al.get_allocator(allocator["name"], allocator["device"], **allocator["options"])
    al.set_device_allocator(allocator["device"], account)
    return current(), account


class Cycle:
    """Keeps something alive until the collector comes."""

    def __init__(self, held: object) -> None:
        self.held, self.itself = held, self


def leave_at_once(name: str, write: Any = os.write, leave: Any = os._exit) -> None:
    """Say that a call came too late, with nothing but what stays to the last moment."""
    write(2, f"{name} was called after shutdown began\n".encode())
    leave(1)


def end(allocator: dict[str, Any]) -> None:
    """Leave blocks, freed and live, in every place from which they can be dropped late."""
    import allotment as al

    kept: list[Any] = []
    accounts: list[Any] = []
    atexit.register(_drop_and_ask, kept, accounts)  # runs after what is registered from here on
    platform, account = select(allocator)
    device = allocator["device"]
    stream = al.Stream("cuda:0")
    globals().update(array=al.empty(1000, "u1", device=device), cycle=Cycle(al.empty(10, device=device)), stream=stream)
    kept.append(al.empty(100, device=device))
    accounts.append(account)
    al.empty(1000, "u1", device=device)
    atexit.register(platform.mark_shutdown, leave_at_once)  # the last to be registered is the first to run
    sys.stdout.write("done\n")


def _drop_and_ask(kept: list[Any], accounts: list[Any]) -> None:
    """Drop an array after shutdown began, and ask for memory."""
    from allotment.errors import ShuttingDownError

    kept.clear()
    gc.collect()
    try:
        accounts[0].allocate(64)
    except ShuttingDownError:
        return
    say("memory was handed out after shutdown began")


def fork(allocator: dict[str, Any]) -> None:
    """Allocate, fork, and see what the child may do and that the parent goes on."""
    import allotment as al

    platform, account = select(allocator)
    arrays = [al.empty(1000, "u1", device=allocator["device"])]
    calls = len(platform.calls)
    child = os.fork()
    if child == 0:
        os._exit(_in_child(platform, account, arrays, calls))
    _, status = os.waitpid(child, 0)
    account.deallocate(account.allocate(64), 64)
    arrays.clear()
    if account.statistics().live:
        say("the child changed the accounts of its parent")
    if os.waitstatus_to_exitcode(status) == 0:
        sys.stdout.write("done\n")


def _in_child(platform: Any, account: Any, arrays: list[Any], before: int) -> int:
    from allotment.errors import ForkedProcessError

    arrays.clear()
    gc.collect()
    try:
        account.allocate(64)
    except ForkedProcessError:
        called = [call.name for call in platform.calls][before:]
        if called:
            say(f"the child called {called}")
        return len(called)
    say("the child was given memory")
    return 1


def load_only(allocator: dict[str, Any]) -> None:
    """Import the plugin, and see what came with it."""
    load(allocator["reference"])
    from allotment.platform import _choice

    heavy = [name for name in HEAVY if name in sys.modules]
    if heavy:
        say(f"importing the plugin imports {', '.join(heavy)}")
    if _choice._choice.in_force is not None:
        say("importing the plugin chooses a platform")
    sys.stdout.write("done\n")


ACTS = {"end": end, "fork": fork, "import": load_only}
"""The acts by their names."""

if __name__ == "__main__":
    ACTS[sys.argv[1]](json.loads(sys.argv[2]))
