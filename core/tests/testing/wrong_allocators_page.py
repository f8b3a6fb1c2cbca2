"""The page that shows which rule catches which wrong allocator. Run as a script it writes it, from a run of the kit."""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "wrong-allocators.md"
HEAD = """# Wrong allocators

The [conformance kit](allocator-contract.md#checking-an-allocator) is itself under test. It runs in full on allocators
that are wrong on purpose, and each must be caught by the rules that name its fault, and by no others; every rule of the
contract has one that it alone catches. Those which break a rule that core keeps for others keep their accounts
themselves. They are in `core/tests/testing/wrong_allocators.py`, made from right ones that the kit passes.

The table is written by `python core/tests/testing/wrong_allocators_page.py`, and a test compares it with what the kit
finds. The last column has the first test that fails.

| allocator | what is wrong with it | caught by | test |
| --- | --- | --- | --- |
"""
_ROW = re.compile(r"^\| `([\w-]+)` \|.*$", re.MULTILINE)


def row_of(case, failures):
    """Return the row of an allocator.

    Parameters
    ----------
    case
        The allocator.
    failures
        What the kit found.
    """
    rules = sorted({failure.rule for failure in failures})
    links = ", ".join(f"[{rule}](allocator-contract.md#rule-{rule.lower()})" for rule in rules)
    first = next((failure.test for failure in failures), "")
    return f"| `{case.name}` | {' '.join(case.fault.split())} | {links} | `{first}` |"


def rows():
    """Return the rows of the page, by allocator."""
    return {match[1]: match[0] for match in _ROW.finditer(PAGE.read_text(encoding="utf-8"))}


def write():
    """Run the kit on all of them and write the page."""
    from other_processes import OtherProcesses
    from trial import WRONG_CASES, failures, installed

    with installed(), OtherProcesses() as processes:
        table = [row_of(case, failures(case, processes)) for case in WRONG_CASES]
    PAGE.write_text(HEAD + "\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    write()
