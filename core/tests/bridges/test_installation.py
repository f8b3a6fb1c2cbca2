"""Installing bridges: by one explicit call, all or none, and whoever asks is told how each library stands."""

import inspect
import sys

import pytest

import allotment as al
from allotment.errors import BridgeError, ConfigError, UnknownAllocatorError


def line():
    """Return the line that calls this."""
    return inspect.currentframe().f_back.f_lineno


def status_of(name="library"):
    (found,) = (each for each in al.status() if each.library == name)
    return found


def test_nothing_is_installed_by_being_there(sim, library):
    assert library.source == "its own"
    assert status_of().state is al.BridgeState.AVAILABLE


def test_listing_bridges_imports_none(installed):
    installed.add("library", "raise RuntimeError('imported')")

    assert "library" in [record.name for record in al.registry.current().bridges.records()]
    assert "installed_allotment_library_bridge" not in sys.modules


def test_a_library_draws_from_the_allocator_in_force(sim, library):
    al.install("library")
    blocks = [library.allocate(100)]
    with al.ScopedAllocator("cuda:0", "managed"):
        blocks.append(library.allocate(200))
    al.set_device_allocator("cuda:0", "default")
    blocks.append(library.allocate(300))
    used = {name: stats.current for name, stats in al.memory_stats("cuda:0")["cuda:0"].items()}

    assert used == {"mempool": 100, "managed": 200, "default": 300}
    for block in blocks:
        library.source.deallocate(block)
    assert {stats.current for stats in al.memory_stats("cuda:0")["cuda:0"].values()} == {0}


@pytest.mark.parametrize("make", [lambda _: "managed", lambda recording: recording()])
def test_a_library_may_draw_from_an_allocator_of_its_own(sim, library, recording, make):
    al.install("library", allocator=make(recording))
    with al.ScopedAllocator("cuda:0", "default"):
        block = library.allocate(100)
    (name,) = (name for name, stats in al.memory_stats("cuda:0")["cuda:0"].items() if stats.current == 100)

    assert name in ("managed", "RecordingAllocator")
    assert status_of().allocator == name
    library.source.deallocate(block)


def test_it_is_told_which_library_draws_from_what_and_who_said_so(sim, library):
    al.install("library"), (at := line())
    found = status_of()

    assert (found.state, found.allocator) == (al.BridgeState.INSTALLED, "the allocator in force")
    assert found.by == f"install() at {__file__}:{at}"
    assert found.distribution == "allotment-library-bridge 1.5"


def test_it_is_told_that_somebody_else_took_a_library_over(sim, library):
    al.install("library")
    library.source = "another pool"

    assert (status_of().state, status_of().allocator) == (al.BridgeState.DISPLACED, "another pool")


def test_an_installed_bridge_may_be_installed_again_as_it_is(sim, library):
    al.install("library")
    before = library.source
    al.install("library")

    assert library.source is before


@pytest.mark.parametrize(
    "again",
    [
        lambda: al.install("library", allocator="managed"),
        lambda: al.install({"library": {"mode": "other"}}),
    ],
)
def test_an_installed_bridge_is_not_installed_in_another_way(sim, library, again):
    al.install("library"), (at := line())

    with pytest.raises(BridgeError, match=f"drawing from the allocator in force, by install.*:{at}.*uninstall"):
        again()


def test_an_uninstalled_library_has_what_it_had_before(sim, library):
    al.install("library")
    al.uninstall("library")

    assert library.source == "its own"
    assert status_of().state is al.BridgeState.AVAILABLE


def test_a_block_outlives_the_bridge_and_returns_to_its_allocator(sim, library):
    al.install("library", allocator="managed")
    delivery, block = library.source, library.allocate(100)
    al.uninstall()
    delivery.deallocate(block)

    assert al.memory_stats("cuda:0", "managed")["cuda:0"]["managed"].frees == 1


def test_what_is_not_installed_cannot_be_uninstalled(sim, library):
    with pytest.raises(BridgeError, match="it is not installed in this process"):
        al.uninstall("library")


def test_several_bridges_are_installed_together_or_not_at_all(sim, installed, library):
    with pytest.raises(BridgeError, match="unknown bridge"):
        al.install("library", "nowhere")

    assert library.source == "its own"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "libary",
            "broken, .*library, .*shapeless.* Did you mean 'library'.*pip install allotment-libary-bridge",
        ),
        ("broken", "the bridge of allotment-broken-bridge 1.5 cannot be used: RuntimeError: no"),
        ("shapeless", "has no method availability, install, uninstall, describe"),
    ],
)
def test_a_bridge_that_cannot_be_used_says_why(sim, installed, library, name, problem):
    installed.add("broken", "raise RuntimeError('no')")
    installed.add("shapeless", "class LibraryBridge: pass")

    with pytest.raises(BridgeError, match=problem):
        al.install(name)


def test_two_bridges_of_one_name_are_told_apart_by_their_distributions(sim, installed, library):
    installed.add("library", distribution="other-bridge")

    with pytest.raises(BridgeError, match="'allotment-library-bridge:library' or 'other-bridge:library'"):
        al.install("library")
    al.install("other-bridge:library")


def test_a_library_that_is_not_there_is_told(sim, library):
    library.is_there = False

    assert (status_of().state, status_of().reason) == (al.BridgeState.UNAVAILABLE, "library is not installed")
    with pytest.raises(BridgeError, match="library is not installed"):
        al.install("library")


def test_what_the_library_does_not_allow_changes_nothing(sim, library):
    with pytest.raises(BridgeError, match="mode is 'refused'"):
        al.install({"library": {"mode": "refused"}})

    assert status_of().state is al.BridgeState.AVAILABLE


def test_an_allocator_that_is_not_there_is_told_before_anything_is_changed(sim, library):
    with pytest.raises(UnknownAllocatorError):
        al.install("library", allocator="nothing")

    assert library.source == "its own"


@pytest.mark.parametrize("options", [{"colour": 1}, {"mode": 3}])
def test_wrong_options_are_refused(sim, library, options):
    with pytest.raises(ConfigError, match=r"bridges\.library\."):
        al.install({"library": options})


def test_the_configured_bridges_are_installed_by_a_call_without_names(sim, library, monkeypatch):
    monkeypatch.setenv("ALLOTMENT_BRIDGES__INSTALL", "library")
    al.configuration.reset()
    al.install()

    assert status_of().by == "ALLOTMENT_BRIDGES__INSTALL"


def test_the_configured_bridges_are_installed_by_init(library):
    al.configure(bridges={"install": [{"library": {"mode": "special"}}]}, platform="sim:2xh200")
    al.init(quiet=True)

    assert status_of().state is al.BridgeState.INSTALLED


def test_a_bridge_on_the_deny_list_is_not_installed(sim, library):
    al.configure(plugins={"deny": ["library"]})

    assert status_of().reason == "the deny list names it"
    with pytest.raises(BridgeError, match="the deny list names it"):
        al.install("library")
