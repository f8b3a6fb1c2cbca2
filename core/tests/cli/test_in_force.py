import pytest

import allotment as al
from allotment.cli._in_force import choice_for, is_installed, made_for


def test_the_choice_is_told_without_making_it(sim, plain):
    al.configure(allocator=plain)
    calls = len(sim.calls)
    choice = choice_for(al.get_device("cuda:0"))

    assert (choice.asked, choice.configured, choice.got) == (plain, True, None)
    assert [call.name for call in list(sim.calls)[calls:] if "pool" in call.name or "malloc" in call.name] == []


def test_the_choice_for_one_device_is_stronger(sim, plain):
    al.configure(allocator="not-there", devices={"cuda:1": plain})

    assert choice_for(al.get_device("cuda:0")).asked == "not-there"
    assert choice_for(al.get_device("cuda:1")).asked == plain


def test_what_is_told_is_what_an_array_gets(sim, plain):
    al.configure(allocator=plain)
    device = al.get_device("cuda:0")

    assert made_for(device).got == al.empty(1, device=device).allocator.name == choice_for(device).asked


def test_a_choice_that_cannot_be_made_has_the_error(sim):
    al.configure(allocator="not-there")
    made = made_for(al.get_device("cuda:0"))

    assert made.got is None
    assert "'not-there' is not installed" in made.error


def test_pools_that_are_switched_off_are_the_reason_for_the_plain_allocator(sim):
    al.set_mempool_enabled("cuda:0", False)

    assert choice_for(al.get_device("cuda:0")).origin == "built in, memory pools are not enabled"


@pytest.mark.parametrize(("name", "installed"), [("host", True), ("Host", True), ("not-there", False)])
def test_a_name_is_installed_or_not(name, installed):
    assert is_installed(name) is installed


def test_a_plugin_that_was_switched_off_is_installed(plain):
    al.configure(plugins={"deny": [plain]})

    assert is_installed(plain)
