"""A live table of this process's own allocators."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

import allotment as al


def test_where_nobody_watches_the_table_is_printed_once_at_the_end(sim):
    out = Console(file=StringIO(), width=200)
    with al.watch(0.001, console=out):
        array = al.empty(2**17)
        assert out.file.getvalue() == ""

    assert out.file.getvalue().count("allocs/s") == 1
    assert "mempool     1 MiB" in out.file.getvalue()
    del array


def test_in_a_terminal_the_table_is_kept_up_to_date_and_stays(sim):
    out = Console(file=StringIO(), width=200, force_terminal=True, color_system=None)
    with al.watch(60, console=out):
        array = al.empty(2**17)

    assert "mempool     1 MiB" in out.file.getvalue()
    del array


def test_it_goes_to_standard_error_if_nothing_is_said(sim, capsys):
    with al.watch():
        al.empty(100)

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "mempool" in printed.err


@pytest.mark.parametrize("interval", [0, -1.0, float("nan")])
def test_an_interval_that_is_not_above_0_is_refused(interval):
    with pytest.raises(ValueError, match="above 0"), al.watch(interval):
        pass
