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
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

HEAVY = ("cuda", "cupy", "numba", "torch", "warp")
BLOCK = 3_000_000


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
    """Put a platform in force and let a device's arrays draw from the allocator; return both."""
    import allotment as al
    from allotment.platform import current

    al.init(platform=allocator["platform"], quiet=True)
    if allocator["registers"]:
        al.register_allocator(allocator["name"], load(allocator["reference"]), replace=True)
    account = al.get_allocator(allocator["name"], allocator["device"], **allocator["options"])
    al.set_device_allocator(allocator["device"], account)
    return current(), account


def is_simulated(platform: Any) -> bool:
    """Return whether a platform is a simulated machine."""
    name: str = platform.name
    return name.startswith("sim:")


def watch(platform: Any, account: Any, tell: Any) -> None:
    """Let ``tell`` hear of each later call of the driver, by its name.

    Nobody can hear what a real driver is called for: there it hears of the plugin's methods in which it may be called,
    and of memory that no driver knows, of those that core calls.
    """
    if is_simulated(platform):
        platform.mark_shutdown(tell)
        return
    from allotment.testing._recording import METHODS

    plugin, has_driver = id(account.allocator), account.memory_kind.name != "HOST"

    def notice(frame: Any, event: str, _: Any) -> None:
        name = frame.f_code.co_name
        if event != "call" or name not in METHODS or id(frame.f_locals.get("self")) != plugin:
            return
        if has_driver or frame.f_back.f_globals["__name__"].partition(".")[0] == "allotment":
            tell(name)

    sys.setprofile(notice)


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
    stream = al.Stream("cuda:0") if platform.device_count() else None
    globals().update(array=al.empty(1000, "u1", device=device), cycle=Cycle(al.empty(10, device=device)), stream=stream)
    kept.append(al.empty(100, device=device))
    accounts.append(account)
    al.empty(1000, "u1", device=device)
    atexit.register(watch, platform, account, leave_at_once)  # the last to be registered is the first to run
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
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # by a real driver
    called: list[str] = []
    watch(platform, account, called.append)  # from here on, as a fork may itself call the plugin
    child = os.fork()
    if child == 0:
        os._exit(_in_child(account, arrays, called))
    _, status = os.waitpid(child, 0)
    account.deallocate(account.allocate(64), 64)
    arrays.clear()
    if account.statistics().live:
        say("the child changed the accounts of its parent")
    if os.waitstatus_to_exitcode(status) == 0:
        sys.stdout.write("done\n")


def _in_child(account: Any, arrays: list[Any], called: list[str]) -> int:
    from allotment.errors import ForkedProcessError

    arrays.clear()
    gc.collect()
    try:
        account.allocate(64)
    except ForkedProcessError:
        if called:
            say(f"the child called {called}")
        return len(called)
    say("the child was given memory")
    return 1


def fault(allocator: dict[str, Any]) -> None:
    """Let a kernel fault, after which every call of the driver fails, and see that no failure is hidden."""
    platform, account = select(allocator)
    live, idle = account.allocate(BLOCK), account.allocate(BLOCK)
    account.deallocate(idle, BLOCK)
    _let_a_kernel_fault(platform)
    if _error_of(account.deallocate, live, BLOCK):
        if not account.is_live(live):
            say("a block is gone whose free raised")
    elif account.is_live(live):
        say("a block is live whose free raised nothing")
    with suppress(Exception):
        account.trim()  # it may give back what the driver takes even now
    with suppress(Exception):
        if account.trim():
            say("a trim goes on saying that it gave memory back, to a driver that takes nothing")
    if isinstance(_error_of(account.allocate, BLOCK), MemoryError):
        say("broke rule E1 of the allocator contract: a device that failed is called out of memory")
    sys.stdout.write("done\n")
    sys.stdout.flush()
    os._exit(0)  # what libraries do at their end fails too, and says so


def _let_a_kernel_fault(platform: Any) -> None:
    """End a device's context by a kernel that writes where there is no memory."""
    import numpy as np

    from allotment.errors import PlatformError
    from allotment.platform import StridedMemory
    from allotment.testing._ledger import ALLOCATIONS, FREES

    nowhere = StridedMemory(4096, (1,), (2,), np.dtype("u2"), 0, None)
    try:
        platform.fill_elements(nowhere, np.uint16(258), 0, 0)
        platform.synchronize_device(0)
    except PlatformError:
        if is_simulated(platform):  # where a context does not end by that
            for name in (*ALLOCATIONS, *FREES, "trim_pool"):
                platform.fail(name, code="cudaErrorIllegalAddress", times=10**9)
        return
    say("no kernel faulted")


def _error_of(call: Any, *arguments: Any) -> Exception | None:
    try:
        call(*arguments)
    except Exception as error:
        return error
    return None


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


ACTS = {"end": end, "fork": fork, "fault": fault, "import": load_only}
"""The acts by their names."""

if __name__ == "__main__":
    ACTS[sys.argv[1]](json.loads(sys.argv[2]))
