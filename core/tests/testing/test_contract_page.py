"""The contract page and the kit state the same rules."""

import inspect
import re
from pathlib import Path

import pytest

from allotment.testing import RULES, AllocatorConformance
from allotment.testing._rule import CONTRACT_PAGE, check_of

PAGE = Path(__file__).parents[3] / CONTRACT_PAGE
TESTS = {name: check_of(test) for name, test in inspect.getmembers(AllocatorConformance, inspect.isfunction)}


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


def test_each_rule_has_its_heading_on_the_page_and_each_heading_its_rule(page):
    headings = dict(re.findall(r"^### ([A-Z]\d+): (.+)$", page, re.MULTILINE))

    assert headings == RULES


def test_each_rule_has_the_anchor_that_failures_name(page):
    anchored = re.findall(r"^\(rule-([a-z]\d+)\)=\n### ([A-Z]\d+): ", page, re.MULTILINE)

    assert [number for number, _ in anchored] == [number.lower() for _, number in anchored]
    assert [number for _, number in anchored] == list(RULES)


def test_each_rule_is_checked_by_a_test():
    checked = {number for check in TESTS.values() if check for number in check.rules}

    assert checked == set(RULES)


def test_each_test_of_the_suite_says_what_it_checks():
    assert [name for name, check in TESTS.items() if name.startswith("test_") and check is None] == []


def test_the_page_names_no_test_that_does_not_exist(page):
    named = set(re.findall(r"`(test_\w+)`", page))

    assert named <= TESTS.keys()


def test_errors_of_core_name_rules_that_exist():
    sources = (Path(inspect.getfile(AllocatorConformance)).parents[1]).rglob("*.py")
    named = {
        number
        for source in sources
        for number in re.findall(r"(?:rule=|_RULE: Final = )\"([A-Z]\d+)\"", source.read_text(encoding="utf-8"))
    }

    assert {"A1", "A2", "A3"} <= named <= set(RULES)
