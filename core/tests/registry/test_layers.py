"""The layers that are installed."""

import sys

import pytest

from allotment.errors import ConfigError
from allotment.registry import LayerCatalogue, PluginPolicy

MODULE = """
from dataclasses import dataclass

@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    size: int = 1

class Good:
    name, Options, place = "good", Options, 35
    def __init__(self, options, device): ...
    def wrap(self, calls, account): return calls

class Placeless(Good):
    place = "first"

class Bare(Good):
    Options = int

class Nameless(Good):
    name = None

class Unwrapping(Good):
    wrap = None

class Needy(Good):
    def __init__(self, options): ...

ready = Good(None, None)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts the metadata of a distribution with these layers on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fake_layers.py").write_text(MODULE)

    def write(distribution, **points):
        folder = tmp_path / f"{distribution}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = fake_layers:{target}" for name, target in points.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[allotment.layers]", *lines, ""]))

    return write


@pytest.fixture
def catalogue():
    return LayerCatalogue(core_version="0.1.0")


def refusal(catalogue, name):
    with pytest.raises(ConfigError) as caught:
        catalogue.get(name, "allotment.toml", "layers")
    return str(caught.value)


def test_the_layers_of_core_are_there_and_each_is_what_its_name_says(catalogue):
    assert {"fallback", "fault", "ladder", "limit", "prefetch"} <= set(catalogue.names())
    assert all(catalogue.get(name, "", "").name == name for name in catalogue.names())


def test_an_installed_layer_is_imported_when_it_is_asked_for(catalogue, install):
    install("mine", good="Good")
    assert "good" in catalogue.names()
    assert "fake_layers" not in sys.modules

    assert catalogue.get("GOOD", "", "").name == "good"


def test_an_unknown_layer_is_refused_with_the_nearest(catalogue):
    text = refusal(catalogue, "limt")

    assert text.startswith("allotment.toml: layers.limt: unknown layer. Accepted here: ")
    assert text.endswith("Did you mean 'limit'?")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("Placeless", "its place is 'first', not a number"),
        ("Bare", "its Options are <class 'int'>, not a dataclass"),
        ("Nameless", "it has no name"),
        ("Unwrapping", "it has no method wrap"),
        ("Needy", "it cannot be made from its options and a device"),
        ("ready", "is no class"),
        ("missing", "AttributeError: module 'fake_layers' has no attribute 'missing'"),
    ],
)
def test_what_is_no_layer_is_refused_with_the_reason(catalogue, install, target, problem):
    install("mine", broken=target)
    text = refusal(catalogue, "broken")

    assert text.startswith("allotment.toml: layers.broken: the layer of mine 1.0 cannot be used: ")
    assert problem in text


def test_a_name_of_two_distributions_must_be_qualified(catalogue, install):
    install("mine", good="Good")
    install("yours", good="Good")

    assert "Ask for one of them as 'mine:good' or 'yours:good'" in refusal(catalogue, "good")
    assert catalogue.get("yours:good", "", "").name == "good"


def test_the_name_of_a_layer_of_core_means_that(catalogue, install):
    install("mine", limit="Good")

    assert catalogue.get("limit", "", "").__module__ == "allotment.layers.limit"
    assert catalogue.get("mine:limit", "", "").__module__ == "fake_layers"


def test_a_denied_layer_is_refused(install):
    install("mine", good="Good")
    catalogue = LayerCatalogue(lambda: PluginPolicy(deny=("good",)), "0.1.0")

    assert "good" not in catalogue.names()
    assert "the layer of mine 1.0 cannot be used: the deny list names it" in refusal(catalogue, "good")


def test_a_layer_installed_later_is_found_after_a_refresh(catalogue, install):
    assert "good" not in catalogue.names()
    install("mine", good="Good")
    assert "good" not in catalogue.names()
    catalogue.refresh()

    assert "good" in catalogue.names()
