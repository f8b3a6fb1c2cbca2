"""What the page is given: a document in JSON for all that is few, packed columns for all that is many."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from allotment.layers.call_site import Frame
    from allotment.trace.report._columns import Column, TraceColumns

    Document: TypeAlias = dict[str, Any]

_ALIGNMENT: Final = 8
"""A typed array of JavaScript begins at a multiple of its element's size."""
_UNSIGNED: Final = {"uint8": 8, "uint16": 16, "uint32": 32}
"""The bits of each type of whole numbers; what none of them holds is a float64."""
_NOT_IN_MARKUP: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """Columns of numbers in the fewest bytes.

    Parameters
    ----------
    layout
        For each column by name: the type of its elements, how many there are, where it begins in the content, and
        whether each element but the first is told by its difference from the one before.
    content
        The columns, one after the other, little-endian.
    """

    layout: dict[str, Document]
    content: bytes

    def as_text(self) -> str:
        """Return the content as text for a page: compressed by gzip, in base64."""
        return base64.b64encode(gzip.compress(self.content, compresslevel=6, mtime=0)).decode("ascii")


def pack(columns: Mapping[str, Column]) -> PackedColumns:
    """Pack columns of whole numbers.

    Notes
    -----
    JavaScript's numbers are exact up to 2^53; a larger size is rounded.
    """
    layout: dict[str, Document] = {}
    content = bytearray()
    for name, values in columns.items():
        content.extend(bytes(-len(content) % _ALIGNMENT))
        differences = np.diff(values, prepend=0)
        rises = bool((differences >= 0).all())
        packed, kind = _smallest(differences if rises else values)
        layout[name] = {"type": kind, "count": len(values), "begin": len(content), "differences": rises}
        content.extend(packed.tobytes())
    return PackedColumns(layout, bytes(content))


def _smallest(values: Column) -> tuple[NDArray[Any], str]:
    least, largest = int(values.min(initial=0)), int(values.max(initial=0))
    fitting = (kind for kind, bits in _UNSIGNED.items() if least >= 0 and largest < 2**bits)
    kind = next(fitting, "float64")
    return values.astype(np.dtype(kind).newbyteorder("<")), kind


def pack_trace(columns: TraceColumns) -> PackedColumns:
    """Pack the columns of a trace; the site of a free is told plus one, 0 for none."""
    named = {
        "begin": columns.begin,
        "life": columns.end - columns.begin,
        "size": columns.size,
        "number": columns.number,
        "origin": columns.origin,
        "held": columns.held,
        "freedAt": columns.freed_at + 1,
    }
    return pack(named if columns.time is None else {"time": columns.time, **named})


def describe_trace(columns: TraceColumns, title: str, version: str) -> Document:
    """Return all about a trace but its columns."""
    frames: dict[Frame, int] = {}
    sites = [
        {"frames": [frames.setdefault(frame, len(frames)) for frame in site.frames], "library": site.library}
        for site in columns.sites
    ]
    return {
        "title": title,
        "version": version,
        "events": columns.events,
        "labels": columns.labels,
        "sources": [{"device": source.device, "allocator": source.allocator} for source in columns.sources],
        "frames": list(frames),
        "sites": sites,
        "origins": [astuple(origin) for origin in columns.origins],
        "unmet": [astuple(request) for request in columns.unmet],
    }


def as_script_text(document: Document) -> str:
    """Return a document as JSON that may stand in a script element: no text in it can end the element."""
    return json.dumps(document, separators=(",", ":")).translate(_NOT_IN_MARKUP)
