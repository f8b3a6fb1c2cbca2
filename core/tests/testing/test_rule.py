"""How a test says which rule it checks."""

import pytest

from allotment import AllocatorContractError
from allotment.testing import RULES, rule
from allotment.testing._rule import broken_rule, check_of, concerning


def test_a_test_says_what_it_checks_and_where():
    @rule("M3", "A3", profiles=("wsl",), on_cuda=False, devices=2)
    def check(): ...

    found = check_of(check)

    assert (found.rules, found.profiles, found.on_cuda, found.devices) == (("M3", "A3"), ("wsl",), False, 2)


def test_a_failure_names_the_rule_and_its_place_on_the_page():
    @rule("A2")
    def check():
        assert [] == [1], "returned None"

    with pytest.raises(AssertionError) as failure:
        check()

    (note,) = failure.value.__notes__
    assert note.startswith(f"rule A2 ({RULES['A2']})")
    assert note.endswith("allocator-contract.md#rule-a2")


def test_a_failure_breaks_the_rule_that_the_test_says_there():
    @rule("M3", "A3")
    def check():
        with concerning("A3"):
            pytest.fail("twice")

    with pytest.raises(pytest.fail.Exception) as failure:
        check()

    assert broken_rule(failure.value) == "A3"
    assert f"rule A3 ({RULES['A3']})" in failure.value.__notes__[0]


def test_what_core_refuses_breaks_the_rule_that_core_names():
    @rule("S3")
    def check():
        raise AllocatorContractError(allocator="mine", rule="A2", problem="allocate returned None")

    with pytest.raises(AllocatorContractError) as failure:
        check()

    assert broken_rule(failure.value) == "A2"


def test_a_failure_that_cleaning_up_hides_breaks_its_rule():
    def fail():
        with concerning("R3"):
            raise AssertionError

    def clean_up():
        try:
            fail()
        finally:
            raise OSError

    with pytest.raises(OSError, match=r"^$") as hidden:
        clean_up()

    assert broken_rule(hidden.value) == "R3"
    assert broken_rule(ExceptionGroup("several", [ValueError(), hidden.value])) == "R3"


def test_an_error_of_somebody_else_breaks_no_rule():
    assert broken_rule(ValueError()) is None


def test_a_skip_is_left_as_it_is():
    @rule("A2")
    def check():
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception) as skip:
        check()

    assert not hasattr(skip.value, "__notes__")


@pytest.mark.parametrize("ids", [(), ("A99",), ("A1", "X1")])
def test_a_rule_that_does_not_exist_is_refused(ids):
    with pytest.raises(ValueError, match="A1, A2"):
        rule(*ids)


def test_a_test_of_somebody_else_checks_no_rule():
    assert check_of(len) is None
