"""The page that compares Allotment with other allocators says what the pages of benchmarks say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "comparison.md"


def measured():
    section = PAGE.read_text().partition("## What was measured")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [pytest.param(row, id=row[0]) for row in rows[2:]]


@pytest.mark.parametrize("row", measured())
def test_a_figure_is_one_of_the_page_that_it_links_to(row):
    _, ours, theirs, link = row
    (target,) = re.findall(r"\((\S+)\)", link)
    there = set(re.findall(r"\d[\d,.]*\d|\d", (PAGE.parent / target).read_text()))
    quoted = re.findall(r"(?<![\w-])\d[\d,.]*\d", f"{ours} {theirs}")

    assert len(quoted) >= 2
    assert set(quoted) <= there


def test_the_number_of_wrong_allocators_is_that_of_their_page():
    table = (PAGE.parents[1] / "reference" / "wrong-allocators.md").read_text()
    (said,) = re.findall(r"\[(\d+) wrong allocators\]", PAGE.read_text())

    assert int(said) == len(re.findall(r"^\| `", table, re.MULTILINE))
