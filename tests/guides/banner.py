"""The startup report, compared with what the guides print."""

from __future__ import annotations

import re

import allotment as al


def shape_of(line: str) -> str:
    """Return a line without what differs between machines and versions: names, numbers, space."""
    line = re.sub(r"^(Warp|Allotment) \S+", "LIBRARY", line.strip())
    line = re.sub(r'(: )"[^"]*"', r'\1"NAME"', line)
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)*", "N", line))


def has_lines_of(names):
    """Check that each line of the guide's output has its like in the report, in the same order."""
    wanted = [shape_of(line) for line in names["banner"].splitlines() if line.strip()]
    found = [shape_of(line) for line in al.startup_report().splitlines()]
    missing = [line for line in wanted if line not in found]
    assert missing == []
    places = [found.index(line) for line in wanted]
    assert places == sorted(places)
