"""The page of the training runs, from outcomes made up here."""

from __future__ import annotations

import pytest
from benchmarks.training import suite
from benchmarks.training.contender import CONTENDERS, OWN, find

ABOUT = {"date": "2026-11-30", "devices": ["H200"], "platform": "cuda", "python": "3.12", "packages": {"torch": "2.11"}}


def outcome(step_ms=50.0, held=4 * 2**30, reserved=None, losses=(2.0, 1.5)):
    return {
        "losses": [float(loss).hex() for loss in losses],
        "step_ms": step_ms,
        "pytorch_reserved": held,
        "reserved": reserved,
    }


def test_each_supplier_is_compared_with_pytorch_s_own():
    page = suite.page_of(
        ABOUT,
        {
            "PyTorch": {"ResNet-50": outcome()},
            "pool, al mempool": {"ResNet-50": outcome(step_ms=55.0, held=5 * 2**30, reserved=6 * 2**30)},
        },
    )

    assert "| PyTorch | the same to the bit | 50.0 | 1.000 | 4.00 | 1.000 |  |" in page
    assert "| pool, al mempool | the same to the bit | 55.0 | 1.100 | 5.00 | 1.250 | 6.00 |" in page


def test_where_pytorch_has_no_figures_none_are_told():
    page = suite.page_of(
        ABOUT,
        {"PyTorch": {"m": outcome()}, "replace, al caching": {"m": outcome(held=None, reserved=2**30)}},
    )

    assert "| replace, al caching | the same to the bit | 50.0 | 1.000 |  |  | 1.00 |" in page


def test_what_could_not_run_is_told_with_the_reason():
    page = suite.page_of(ABOUT, {"PyTorch": {"m": outcome()}, "pool, al rmm": {"missing": "RMM is not installed"}})

    assert page.endswith("Not measured: pool, al rmm: RMM is not installed.\n")


def test_losses_that_differ_are_told_by_how_much():
    assert suite.compare_losses(["0x1.0p+1"], ["0x1.0p+0"]) == "within 1.0e+00"


def test_a_run_that_fails_says_its_last_words(monkeypatch):
    monkeypatch.setattr(suite.sys, "executable", "/bin/sh")

    assert "missing" in suite._run(OWN)


@pytest.mark.parametrize("contender", CONTENDERS)
def test_a_contender_is_found_by_its_name(contender):
    assert find(contender.name) is contender
