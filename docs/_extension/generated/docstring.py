"""What docstrings in numpydoc's form say: the first paragraph, and the entries of a section."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from sphinx.ext.napoleon import NumpyDocstring


def summary(thing: object) -> str:
    """Return the first paragraph of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n\n")[0]


def entries(thing: object, *sections: str) -> dict[str, str]:
    """Return the entries of a docstring's sections: what is said about each name."""
    found: dict[str, str] = {}
    for section in sections:
        for names, text in re.findall(r"^(\S.*)\n((?:[ ]+.*\n?|\n)+)", _section(thing, section), re.MULTILINE):
            for name in names.partition(" : ")[0].split(","):
                found[name.strip()] = " ".join(textwrap.dedent(text).split())
    return found


def _section(thing: object, title: str) -> str:
    text = inspect.getdoc(thing) or ""
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return match[1].rstrip() + "\n" if match else ""


def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return the texts that stand below the attributes in the source of a class."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        target = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        says = following.value.value if _is_text(following) else None
        if isinstance(target, ast.Name) and says is not None:
            found[target.id] = " ".join(inspect.cleandoc(says).split())
    return found


def prepare(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Change a docstring, in place, where napoleon would misread it.

    Of a property or attribute it takes what is before a colon in the first line for the type, and the rest for no
    sections. Of a class it does not know attributes that share an entry.
    """
    if what == "class":
        lines[:] = _SHARED.sub(_apart, "\n".join(lines)).split("\n")
    if what in ("attribute", "data", "property"):
        read = NumpyDocstring(list(lines), app.config, app, "method", name, obj, options).lines()
        lines[:] = ["..", "", *read]  # the empty comment is what napoleon then reads as the first line


_SHARED = re.compile(r"^(?P<names>\w+(?:, \w+)+)(?P<type> : .*)?\n(?P<text>(?: +\S.*(?:\n|$))+)", re.MULTILINE)
"""An entry that several names share."""


def _apart(entry: re.Match[str]) -> str:
    return "".join(f"{name}{entry['type'] or ''}\n{entry['text']}" for name in entry["names"].split(", "))


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
