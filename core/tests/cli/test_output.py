import io
import json
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

import pytest
from rich.console import Console

from allotment.cli._output import Column, print_json, print_table, yes_no

COLUMNS = [
    Column("name"),
    Column("text", fold=10),
    Column("first", optional=True),
    Column("second", optional=True),
    Column("size", right=True),
]
ROWS = [["one", "some words to fold", "aaaa", "bbbb", "10 MiB"], ["two", "few", "cccc", "dddd", "1 B"]]


def printed(width):
    out = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO())
    print_table(out, COLUMNS, ROWS)
    return out.file.getvalue().splitlines()


def test_where_there_is_room_every_row_is_a_line():
    lines = printed(100)

    assert len(lines) == 3
    assert "some words to fold" in lines[1]


def test_cells_are_folded_before_columns_are_left_out():
    lines = printed(42)

    assert len(lines) == 4
    assert "second" in lines[0]


def test_optional_columns_are_left_out_the_last_first_and_named():
    assert "Left out for lack of width: second." in " ".join(map(str.strip, printed(36)))
    assert "Left out for lack of width: first, second." in " ".join(map(str.strip, printed(28)))


@pytest.mark.parametrize("width", range(28, 60))
def test_no_line_is_wider_than_the_terminal_and_no_essential_cell_is_cut(width):
    lines = printed(width)

    assert all(len(line.rstrip()) <= width for line in lines)
    assert lines[1].rstrip().endswith("10 MiB")


def test_json_has_dataclasses_as_objects_and_enums_as_values(capsys):
    class Colour(Enum):
        RED = "red"

    @dataclass
    class Item:
        colour: Colour
        size: int

    print_json([Item(Colour.RED, 2), (Colour.RED,), MappingProxyType({"é": None})])

    assert json.loads(capsys.readouterr().out) == [
        {"colour": "red", "size": 2},
        ["red"],
        {"é": None},
    ]


def test_a_flag_that_nobody_knows_is_neither_yes_nor_no():
    assert [yes_no(flag).plain for flag in (True, False, None)] == ["yes", "no", "?"]
