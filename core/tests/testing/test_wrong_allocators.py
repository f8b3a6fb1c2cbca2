"""The kit catches each wrong allocator by a rule that it breaks, and passes the right ones."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from allotment.testing import RULES

FILE = Path(__file__).with_name("wrong_allocators.py")
KEPT_BY_CORE = {"S1", "S2", "O1", "O2", "O3", "R1", "L1"}
"""The rules that no allocator can break, because core sees to them whatever it does."""
OF_INSTALLED_PLUGINS = {"P5"}
"""The rules about what is installed; `test_child_program` breaks them."""


def names_and_rules():
    """Read the table without importing the file, whose suites are not for this session."""
    for node in ast.parse(FILE.read_text()).body:
        for decorator in getattr(node, "decorator_list", ()):
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "breaks":
                yield node.name, tuple(ast.literal_eval(argument) for argument in decorator.args)


BROKEN = dict(names_and_rules())


@pytest.fixture(scope="module")
def caught(tmp_path_factory):
    """Run the kit on all of them; return the rules of the tests that failed, by allocator, with the messages."""
    report = tmp_path_factory.mktemp("wrong") / "report.xml"
    options = ["-q", "-m", "not gpu", "-p", "no:cacheprovider", "--import-mode=importlib", "-o", "addopts="]
    command = [sys.executable, "-m", "pytest", *options, "-o", "xfail_strict=true", f"--junitxml={report}", str(FILE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=report.parent, timeout=500)
    assert report.exists(), ended.stdout + ended.stderr
    found = defaultdict(dict)
    for case in ET.parse(report).iter("testcase"):
        allocator = case.get("classname").rpartition(".Test")[2]
        rules = [each.get("value") for each in case.iter("property") if each.get("name") == "rule"]
        for outcome in (*case.findall("failure"), *case.findall("error")):
            for number in rules:
                found[allocator].setdefault(number, []).append(f"{case.get('name')}: {outcome.text}")
    return found


@pytest.mark.parametrize(("allocator", "rule"), [(name, rule) for name, rules in BROKEN.items() for rule in rules])
def test_a_wrong_allocator_is_caught_by_the_rule_it_breaks(caught, allocator, rule):
    assert rule in caught[allocator], f"caught by {sorted(caught[allocator])} only"
    assert any(f"{rule} " in text for text in caught[allocator][rule]), "the message does not name the rule"
    assert ("stuck" in "".join(caught[allocator][rule])) == (rule in ("T2", "T3"))


@pytest.mark.parametrize("allocator", [name for name, rules in BROKEN.items() if not rules])
def test_a_right_allocator_passes(caught, allocator):
    assert not caught[allocator], "\n".join(text for texts in caught[allocator].values() for text in texts)


def test_every_rule_that_an_allocator_can_break_is_broken_by_one():
    broken = {rule for rules in BROKEN.values() for rule in rules}

    assert broken == set(RULES) - KEPT_BY_CORE - OF_INSTALLED_PLUGINS
