"""The page: its parts from the package, put together into one file that needs nothing else."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from allotment.trace.report._document import as_script_text, describe_trace, pack_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allotment.errors import TraceError
    from allotment.trace.report._columns import TraceColumns

_MODULES: Final = (
    "format",
    "elements",
    "trace",
    "grouping",
    "samples",
    "heap",
    "timeline",
    "tables",
    "flame",
    "panels",
    "page",
)
"""The modules of the page's program, each after those that it imports."""
_IMPORT: Final = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ", re.MULTILINE)
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
_SHOWN_PROBLEMS: Final = 20


def page_of(columns: TraceColumns, title: str, version: str, problems: Sequence[TraceError]) -> str:
    """Return the page that shows a trace.

    Parameters
    ----------
    columns
        The trace.
    title, version
        What to call it, and the version of Allotment.
    problems
        The lines that were left out.
    """
    packed = pack_trace(columns)
    style = _read("vendor", "uplot", "uPlot.min.css") + _read("page", "page.css")
    chart, program = _read("vendor", "uplot", "uPlot.iife.min.js"), _program()
    return _fill(
        _read("page", "page.html"),
        policy=_policy(style, [chart, program]),
        title=escape(title),
        notices=_notices(columns, problems),
        style=style,
        about=as_script_text({**describe_trace(columns, title, version), "columns": packed.layout}),
        columns=packed.as_text(),
        chart=chart,
        program=program,
    )


def _read(*path: str) -> str:
    return files("allotment.trace.report").joinpath(*path).read_text("utf-8")


def _program() -> str:
    """Return the modules as one, without the imports and exports between them."""
    modules = (_read("page", f"{name}.js") for name in _MODULES)
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", module)) for module in modules)


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Return a content security policy: these texts and no others may run or style, and nothing may be loaded."""
    allowed = " ".join(map(_digest, scripts))
    return f"default-src 'none'; style-src {_digest(style)}; script-src {allowed}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode('ascii')}'"


def _notices(columns: TraceColumns, problems: Sequence[TraceError]) -> str:
    empty = '<p class="notice">This trace is empty: it has no events.</p>' if not columns.events else ""
    return empty + (_problems(problems) if problems else "")


def _problems(problems: Sequence[TraceError]) -> str:
    lines = [f"<li>{escape(str(problem))}</li>" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"<li>and {len(problems) - _SHOWN_PROBLEMS:,} more</li>")
    count = "1 part" if len(problems) == 1 else f"{len(problems):,} parts"
    summary = f"{count} of the trace could not be read and {'was' if len(problems) == 1 else 'were'} left out."
    return f'<details class="notice"><summary>{summary}</summary><ul>{"".join(lines)}</ul></details>'


def _fill(template: str, **parts: str) -> str:
    """Put each part in its place, in one pass: what looks like a place within a part stays as it is."""
    return _PLACE.sub(lambda place: parts[place[1]], template)
