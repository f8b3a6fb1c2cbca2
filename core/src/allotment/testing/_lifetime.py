"""Rules L: the end of arrays, allocators and processes."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from allotment.allocator import SupportsClose
from allotment.errors import UnsupportedError
from allotment.factories import full
from allotment.memory_kind import MemoryKind
from allotment.selection import ScopedAllocator
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._ledger import outstanding
from allotment.testing._recording import RecordingAllocator
from allotment.testing._rule import concerning, rule

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from allotment.testing._subject import Subject

_PROGRAM: Final = Path(__file__).with_name("_child_program.py")


class LifetimeTests(AllocatorFixtures):
    """Rules L: the end of arrays, allocators and processes."""

    @rule("L1")
    def test_an_array_outlives_every_other_reference_to_its_allocator(self, subject: Subject) -> None:
        allocator = RecordingAllocator(subject.bare().allocator)
        calls = allocator.calls
        with ScopedAllocator(subject.device, allocator):
            array = full(1000, 7, "u1", device=subject.device)
        ptr = array.ptr

        del allocator
        gc.collect()
        alive = (array.numpy() == 7).all()
        del array
        gc.collect()

        assert alive
        assert [call.arguments[:2] for call in calls if call.name.startswith("deallocate")] == [(ptr, 1000)]

    @rule("L2", on_cuda=False)
    def test_closing_gives_everything_back(self, subject: Subject) -> None:
        simulation, ordinals = subject.simulation, range(subject.platform.device_count())
        free = [subject.platform.memory_info(ordinal).free for ordinal in ordinals]
        held = outstanding(simulation.calls)

        _use_and_close(subject)

        assert outstanding(simulation.calls) == held
        assert [subject.platform.memory_info(ordinal).free for ordinal in ordinals] == free

    @rule("L2")
    def test_another_object_works_after_one_was_closed(self, subject: Subject) -> None:
        for _ in range(3):
            _use_and_close(subject)

    @rule("L2")
    def test_closing_is_refused_while_blocks_are_live(self, subject: Subject) -> None:
        recording = RecordingAllocator(subject.bare().allocator)
        account = subject.account(allocator=recording)
        ptr = account.allocate(1000)

        with pytest.raises(UnsupportedError, match="live"):
            account.close()

        assert [call.name for call in recording.calls if call.name == "close"] == []
        account.deallocate(ptr, 1000)

    @rule("L3", on_cuda=False)
    def test_nothing_is_called_once_shutdown_has_begun(self, subject: Subject) -> None:
        self._run("end", subject)

    @rule("L4", on_cuda=False)
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_child_gets_an_error_and_calls_nothing(self, subject: Subject) -> None:
        if subject.traits.memory_kind is MemoryKind.HOST:
            pytest.skip("pageable memory of the host is the child's own copy")
        self._run("fork", subject)

    def _run(self, act: str, subject: Subject) -> None:
        allocator = {
            "name": self.allocator_name,
            "options": dict(self.options),
            "registers": self.allocator_factory is not None,
            "reference": factory_reference(subject.plugin.factory),
            "profile": subject.simulation.name.partition(":")[2],
            "device": subject.device.alias,
        }
        run_program(act, allocator)


def _use_and_close(subject: Subject) -> None:
    """Make an object, use it, and let go of it."""
    calls = subject.bare()
    for size in (1000, 70_000, 3_000_000):
        calls.allocate(size)
    calls.free_all()
    if isinstance(calls.allocator, SupportsClose):
        calls.allocator.close()
    subject.forget(calls)


def factory_reference(factory: Any) -> str:
    """Return where another process finds a factory: in the file it was read from."""
    file = getattr(sys.modules.get(factory.__module__), "__file__", None) or factory.__module__
    module = factory.__module__ if Path(file).name == "__init__.py" else file
    return f"{module}:{factory.__qualname__}"


def run_program(act: str, allocator: dict[str, Any]) -> None:
    """Run an act of the child program in a new process, and fail unless it ends well and silently."""
    code, output, problems = end_of(act, allocator)
    with _as_said(problems):
        assert (code, problems) == (0, ""), problems or f"it ended with code {code}"
        assert output == "done\n", f"it printed {output!r}"


def _as_said(problems: str) -> AbstractContextManager[None]:
    """Let a failure be of the rule that core named in the other process, if it named one."""
    named = re.search(r"broke rule ([A-Z]\d+) of the allocator contract", problems)
    return concerning(named[1]) if named else nullcontext()


def end_of(act: str, allocator: dict[str, Any]) -> tuple[int, str, str]:
    """Run an act in a new process; return its exit code, and what it wrote to standard output and standard error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ALLOTMENT_")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(
        [sys.executable, "-P", str(_PROGRAM), act, json.dumps(allocator)],
        env=environment,
        cwd=_PROGRAM.anchor,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr
