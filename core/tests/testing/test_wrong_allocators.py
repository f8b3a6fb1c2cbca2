"""The kit catches each wrong allocator by exactly the rules that it breaks, and passes the right ones."""

import gc

import pytest
import wrong_allocators_page
from other_processes import OtherProcesses
from trial import RIGHT_CASES, WRONG_CASES, failures, installed

from allotment.testing import RULES


def name_of(case):
    return case.name


@pytest.fixture(scope="module")
def processes():
    gc.collect()
    gc.freeze()  # tests collect often, and none of what the session has made until now is their garbage
    with installed(), OtherProcesses() as others:
        yield others
    gc.unfreeze()


@pytest.mark.parametrize("case", RIGHT_CASES, ids=name_of)
def test_a_right_allocator_passes(case, processes):
    assert failures(case, processes) == []


@pytest.mark.parametrize("case", WRONG_CASES, ids=name_of)
def test_a_wrong_allocator_is_caught_by_exactly_the_rules_it_breaks(case, processes):
    found = failures(case, processes)

    assert {failure.rule for failure in found} == case.rules, found
    assert wrong_allocators_page.rows()[case.name] == wrong_allocators_page.row_of(case, found)


def test_each_rule_has_a_wrong_allocator_that_it_alone_catches():
    alone = {rule for case in WRONG_CASES if len(case.rules) == 1 for rule in case.rules}

    assert alone == set(RULES)


def test_the_page_shows_each_wrong_allocator_and_no_other():
    assert list(wrong_allocators_page.rows()) == [case.name for case in WRONG_CASES]
    assert wrong_allocators_page.PAGE.read_text(encoding="utf-8").startswith(wrong_allocators_page.HEAD)
