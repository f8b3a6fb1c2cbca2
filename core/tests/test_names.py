import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment._names import normalise_name


@pytest.mark.parametrize("name", ["torch-caching", "torch_caching", "Torch_Caching", " TORCH-CACHING "])
def test_spellings_of_one_name_are_one_name(name):
    assert normalise_name(name) == "torch-caching"


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_a_normal_name_stays_as_it_is(name):
    assert normalise_name(normalise_name(name)) == normalise_name(name)
