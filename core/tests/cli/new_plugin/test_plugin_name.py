"""Names for new plugins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.cli.new_plugin._plugin_name import read_name

words = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)


@pytest.mark.parametrize("text", ["My_Pool", "my-pool", " MY-POOL "])
def test_every_spelling_is_one_name(text):
    name = read_name(text)

    assert (name.text, name.distribution) == ("my-pool", "allotment-my-pool")
    assert (name.package, name.underscored, name.capitalised) == ("allotment_my_pool", "my_pool", "MyPool")


@pytest.mark.parametrize(
    "text",
    ["", "2x", "-x", "x-", "a--b", "a b", "a.b", "a/b", "../x", "péage", "x" * 31, "a:b", "a\nb", ".", "con/"],
)
def test_what_could_name_no_package_is_refused(text):
    with pytest.raises(ValueError, match="cannot be one"):
        read_name(text)


def test_the_name_of_a_distribution_is_refused_with_what_users_type():
    with pytest.raises(ValueError, match="without 'allotment-': 'my-pool'"):
        read_name("allotment_my-pool")


def test_the_name_of_core_s_own_allocator_is_taken():
    with pytest.raises(ValueError, match="'host' is taken by the allocator of allotment"):
        read_name("Host")


@pytest.mark.parametrize("text", ["trial-plain", "TRIAL_PLAIN"])
def test_the_name_of_an_installed_allocator_is_taken(plain, text):
    with pytest.raises(ValueError, match=r"taken by the allocator of trial-trial-plain 1\.5, which is installed"):
        read_name(text)


def test_the_name_of_an_allocator_that_is_denied_is_taken_all_the_same(plain, monkeypatch):
    monkeypatch.setenv("ALLOTMENT_PLUGINS__DENY", plain)

    with pytest.raises(ValueError, match="is taken"):
        read_name(plain)


def test_the_name_of_a_distribution_with_another_allocator_is_taken(install, plain_source):
    site = install("pool", plain_source, "Plain")
    (site / "installed_pool-1.5.dist-info").rename(site / "allotment_lake-1.5.dist-info")

    with pytest.raises(ValueError, match="the distribution allotment-lake"):
        read_name("lake")


def test_a_package_that_can_be_imported_is_not_shadowed(tmp_path, monkeypatch):
    (tmp_path / "allotment_lake.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ValueError, match="the package allotment_lake"):
        read_name("lake")


@given(st.lists(words, min_size=1, max_size=4).map("-".join))
def test_every_form_of_a_name_can_be_what_it_is_for(text):
    name = read_name(f"q{text}"[:30].rstrip("-"))

    assert name.package.isidentifier()
    assert f"{name.capitalised}Allocator".isidentifier()
