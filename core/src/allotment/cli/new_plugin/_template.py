"""The files of a new plugin, made from the template.

The template is a project of its own, for a plugin that is called ``your-pool``: its files are read by the same tools as
any others. Making a project is replacing words, and leaving out lines that are marked for another kind of memory.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from allotment.cli.new_plugin._plugin_name import PluginName


class Kind(Enum):
    """The kind of memory that the plugin is to serve."""

    DEVICE = "device"
    HOST = "host"


class Licence(Enum):
    """The licence of the plugin, as the command line has it."""

    APACHE = "apache-2.0"
    MIT = "mit"
    BSD = "bsd-3-clause"

    @property
    def identifier(self) -> str:
        """Its SPDX identifier."""
        return {"apache-2.0": "Apache-2.0", "mit": "MIT", "bsd-3-clause": "BSD-3-Clause"}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who writes the plugin: a name, and perhaps an address."""

    name: str
    email: str | None = None

    @classmethod
    def read(cls, text: str) -> Author:
        """Read ``Ada Lovelace`` or ``Ada Lovelace <ada@example.org>``."""
        match = re.fullmatch(r"\s*(?P<name>[^<>\n]*[^<>\s])\s*(?:<(?P<email>[^<>\s@]+@[^<>\s@]+)>)?\s*", text)
        if match is None or not text.isprintable():
            raise ValueError(f"an author is a name, or a name and <address>, not {text!r}")
        return cls(name=match["name"], email=match["email"])

    @property
    def as_toml(self) -> str:
        """The table of ``project.authors``."""
        facts = {"name": self.name, "email": self.email}
        said = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in facts.items() if value)
        return f"{{ {', '.join(said)} }}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for.

    Parameters
    ----------
    name
        The name of the plugin.
    kind, licence, author
        See these classes.
    core
        The version of core that it is made for.
    year
        The year of the copyright.
    """

    name: PluginName
    kind: Kind
    licence: Licence
    author: Author
    core: str
    year: int


_RENAMED: Final = {"gitignore": ".gitignore", "github": ".github"}
"""Names that would have an effect where the template lies."""
_MARKED: Final = re.compile(r"^(?P<line>.*?) *(?:#|<!--) only: (?P<kind>\w+)(?: -->)?\n", re.MULTILINE)
_CORE: Final = '"allotment>=0.1.0,<0.2"'
_HOST: Final = {
    "Device memory for Allotment.": "Host memory for Allotment.",
    _CORE: f'{_CORE}, "numpy>=1.26"',
}
"""What else is other in a plugin for the host."""


def project_files(request: Request) -> dict[str, str]:
    """Return the text of each file of a plugin's project, by its path."""
    words = _words(request)
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))

    def replaced(text: str) -> str:
        return pattern.sub(lambda word: words[word[0]], text)

    found = {}
    for path, file in _walk(files(__package__) / "template"):
        if place := _place(path, request):
            text = file.read_text(encoding="utf-8")
            found[replaced(place)] = replaced(_only(request.kind, text))
    return dict(sorted(found.items()))


def _walk(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        inner = f"{path}{entry.name}"
        if entry.is_file():
            yield inner, entry
        elif entry.name != "__pycache__" and not entry.name.startswith("."):  # what tools leave
            yield from _walk(entry, f"{inner}/")


def _place(path: str, request: Request) -> str | None:
    """Return where a file of the template belongs in the project; ``None`` for one of another kind or licence."""
    first, *rest = path.split("/")
    match first:
        case "licences":
            return "LICENSE" if rest == [f"{request.licence.value}.txt"] else None
        case "kinds":
            kind, file = rest
            folder = "tests" if file.startswith("test_") else "src/allotment_your_pool"
            return f"{folder}/{file}" if kind == request.kind.value else None
        case _:
            return "/".join([_RENAMED.get(first, first), *rest])


def _only(kind: Kind, text: str) -> str:
    """Return a text without the lines for another kind, and without marks."""
    return _MARKED.sub(lambda match: f"{match['line']}\n" if match["kind"] == kind.value else "", text)


def _words(request: Request) -> Mapping[str, str]:
    """Return what replaces each word of the template."""
    name = request.name
    core = f'"allotment{core_range(request.core)}"'
    words = {
        "your-pool": name.text,
        "your_pool": name.underscored,
        "YourPool": name.capitalised,
        "Apache-2.0": request.licence.identifier,
        '{ name = "Your Name" }': request.author.as_toml,
        "Your Name": request.author.name,
        "YEAR": str(request.year),
        _CORE: core,
    }
    if request.kind is Kind.HOST:
        words |= {word: text.replace(_CORE, core) for word, text in _HOST.items()}
    return words


def core_range(core: str) -> str:
    """Return the versions of core that a plugin made for this one accepts: up to the next that may break it."""
    version = Version(core)
    following = f"{version.major + 1}" if version.major else f"0.{version.minor + 1}"
    return f">={version.public},<{following}"
