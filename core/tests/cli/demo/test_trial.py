import pytest
from hypothesis import given
from hypothesis import strategies as st

import allotment as al
from allotment.cli.demo._stage import stage
from allotment.cli.demo._trial import _divisor, candidates


@given(st.integers(0, 2**50), st.integers(1, 2**50))
def test_the_divisor_is_the_smallest_power_of_two_that_makes_room(peak, room):
    divisor = _divisor(peak, room)

    assert divisor & (divisor - 1) == 0
    assert peak <= room * divisor
    assert divisor == 1 or peak > room * (divisor // 2)


def test_an_allocator_serves_the_first_gpu_that_can_use_it_and_copies_with_the_rest(plain):
    with stage("sim:2xh200") as here:
        found = {candidate.name: candidate for candidate in candidates(here)[0]}

    assert found[plain].device.alias == "cuda:0"
    assert [device.alias for device in found[plain].others] == ["cuda:1", "cpu"]
    assert found["host"].device.alias == "cpu"


def test_the_host_is_copied_with_a_gpu_that_has_memory_to_give(plain):
    with stage("sim:2xh200") as here:
        al.configure(allocator=plain)
        with_gpu = {candidate.name: candidate for candidate in candidates(here)[0]}
        al.configure(allocator="not-there")
        without = {candidate.name: candidate for candidate in candidates(here)[0]}

    assert [device.alias for device in with_gpu["host"].others] == ["cuda:0"]
    assert without["host"].others == ()


def test_two_distributions_with_one_name_are_tried_by_their_full_names(install, monkeypatch, plain):
    site = install("other", "from installed_trial_plain import Plain", "Plain")
    (site / "installed_other-1.5.dist-info" / "entry_points.txt").write_text(
        "[allotment.allocators]\ntrial-plain = installed_other:Plain\n"
    )
    with stage("sim:2xh200") as here:
        names = {candidate.name for candidate in candidates(here)[0]}

    assert {"trial-trial-plain:trial-plain", "trial-other:trial-plain"} <= names


@pytest.mark.parametrize("source", ["raise RuntimeError('spoilt')", "x = 1"])
def test_what_cannot_be_loaded_is_passed_over(install, source):
    install("spoilt", source, "Allocator")
    with stage("host") as here:
        usable, passed_over = candidates(here)

    assert [candidate.name for candidate in usable] == ["host"]
    assert passed_over["spoilt"]
