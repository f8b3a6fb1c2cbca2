"""Running part of the kit in a process of its own, because it ends there, is forked or breaks its device."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from allotment.testing._rule import concerning

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_PROGRAM: Final = Path(__file__).with_name("_child_program.py")


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
