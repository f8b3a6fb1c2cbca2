"""Rules P: what a plugin declares."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from allotment.allocator import (
    API_VERSION,
    AllocatorTraits,
    Availability,
    IpcKind,
    KeepsAccounts,
    SupportsCFunctions,
    SupportsClose,
    SupportsLargestFree,
    SupportsLimits,
    SupportsPeers,
    SupportsPool,
    SupportsPrivatePools,
    SupportsReservation,
    SupportsStreams,
    SupportsTrim,
    SupportsUse,
)
from allotment.device import ScopedDevice, device_registry
from allotment.errors import PluginUnavailableError
from allotment.memory_kind import MemoryKind
from allotment.platform.simulated import SimulatedPlatform
from allotment.registry import Registry
from allotment.selection import get_allocator
from allotment.stream import Stream
from allotment.testing._child_process import run_program
from allotment.testing._fixtures import HOST, AllocatorFixtures, exempt_from
from allotment.testing._ledger import outstanding
from allotment.testing._rule import RULES, rule

if TYPE_CHECKING:
    from allotment.platform import Platform
    from allotment.registry import Plugin
    from allotment.testing._subject import Subject

_MACHINES: Final = ("2xh200", "2xl40", "no-pools", "wsl", "jetson-orin", "gb10", HOST)
_ABILITIES: Final[dict[type, tuple[str, ...]]] = {
    SupportsStreams: ("allocate_on", "deallocate_on"),
    SupportsTrim: ("trim",),
    SupportsReservation: ("reservation", "reset_peak_reservation"),
    SupportsLargestFree: ("largest_free",),
    SupportsLimits: ("get_memory_limit", "set_memory_limit", "get_cache_limit", "set_cache_limit"),
    SupportsPool: ("pool_handle",),
    SupportsUse: ("record_use",),
    SupportsPeers: ("set_peer_access",),
    SupportsCFunctions: ("c_functions", "c_client"),
    SupportsClose: ("close",),
}
_BESIDE_STREAMS: Final = {KeepsAccounts: "open_accounts", SupportsPrivatePools: "open_private_pool"}
"""The abilities that need the calls with a stream, each with its own method."""


class DeclarationTests(AllocatorFixtures):
    """Rules P: what a plugin declares."""

    @rule("P1", on_cuda=False)
    def test_the_traits_are_well_formed(self, plugin: Plugin) -> None:
        _check_traits(plugin.traits)

    @rule("P1", on_cuda=False)
    def test_the_traits_for_certain_options_are_well_formed(self, subject: Subject) -> None:
        _check_traits(subject.traits)

    @rule("P1", on_cuda=False)
    def test_the_traits_for_the_default_options_are_those_of_the_class(self, plugin: Plugin) -> None:
        assert plugin.traits_for(None) == plugin.traits

    @rule("P1", on_cuda=False)
    def test_an_object_has_the_traits_that_its_class_declares_for_its_options(self, subject: Subject) -> None:
        assert (getattr(subject.build(), "traits", None) or AllocatorTraits()) == subject.traits

    @rule("P1", on_cuda=False)
    def test_an_ability_is_offered_whole(self, subject: Subject) -> None:
        allocator = subject.build()

        for ability, members in _ABILITIES.items():
            missing = [member for member in members if not hasattr(allocator, member)]
            assert missing in ([], list(members)), f"{ability.__name__} lacks {missing}"
        for ability in (KeepsAccounts, SupportsPrivatePools):
            if hasattr(allocator, _BESIDE_STREAMS[ability]):
                assert isinstance(allocator, SupportsStreams), f"{ability.__name__} lacks the calls with a stream"

    @rule("P1", on_cuda=False)
    def test_the_api_version_is_one_that_this_core_accepts(self, plugin: Plugin) -> None:
        major, minor = getattr(plugin.factory, "api_version", API_VERSION)

        assert major == API_VERSION[0]
        assert minor <= API_VERSION[1]

    @rule("P1", on_cuda=False)
    def test_calls_declared_straight_from_a_pool_are_nothing_more(self, subject: Subject) -> None:
        if not subject.traits.straight_from_pool:
            pytest.skip(f"{self.allocator_name} does not declare straight_from_pool")
        allocator: Any = subject.bare().allocator
        stream, log = Stream(subject.device), subject.simulation.calls
        log.clear()

        ptr = allocator.allocate_on(1000, stream)
        allocator.deallocate_on(ptr, 1000, stream)

        pool, handle = allocator.pool_handle, stream.handle
        assert [(call.name, call.arguments) for call in log] == [
            ("malloc_from_pool", {"nbytes": 1000, "pool": pool, "stream": handle}),
            ("free_async", {"ptr": ptr, "stream": handle}),
        ]

    @rule("P1", on_cuda=False)
    def test_the_rules_that_it_declares_itself_exempt_from_exist(self, plugin: Plugin) -> None:
        found = exempt_from(plugin)

        assert found.keys() <= RULES.keys()
        assert all(isinstance(reason, str) and reason for reason in found.values())

    @rule("P2", on_cuda=False)
    def test_options_are_a_frozen_hashable_value(self, plugin: Plugin) -> None:
        options = _default_options(plugin)

        assert options == plugin.options_type()  # type: ignore[misc]
        assert hash(options) == hash(plugin.options_type())  # type: ignore[misc]
        for field in fields(options):
            with pytest.raises(AttributeError):
                setattr(options, field.name, getattr(options, field.name))

    @rule("P2", on_cuda=False)
    def test_options_are_given_by_keyword_only(self, plugin: Plugin) -> None:
        assert all(field.kw_only for field in fields(_default_options(plugin)) if field.init)

    @rule("P2", on_cuda=False)
    def test_an_object_can_be_made_with_the_default_options(self, subject: Subject) -> None:
        calls = subject.bare()

        calls.deallocate(calls.allocate(1000), 1000)

    @rule("P3", profiles=_MACHINES)
    def test_asking_for_availability_has_no_effect(self, plugin: Plugin, platform: Platform) -> None:
        ask = getattr(plugin.factory, "availability", None)
        if ask is None:
            pytest.skip(f"{self.allocator_name} says nothing about availability")

        for device in device_registry():
            answer = ask(device)
            assert isinstance(answer, Availability)
            assert answer.ok or answer.reason, f"no reason why not on {device.alias!r}"

        if isinstance(platform, SimulatedPlatform):
            assert not outstanding(platform.calls)
            assert not platform.contexts(), "the answer opened a context"

    @rule("P3", profiles=_MACHINES)
    def test_asking_for_a_diagnosis_has_no_effect(self, plugin: Plugin, platform: Platform) -> None:
        ask = getattr(plugin.factory, "diagnosis", None)
        if ask is None:
            pytest.skip(f"{self.allocator_name} has no diagnosis")

        answer = ask()

        assert answer is None or (isinstance(answer, str) and answer)
        if isinstance(platform, SimulatedPlatform):
            assert not outstanding(platform.calls)
            assert not platform.contexts(), "the diagnosis opened a context"

    @rule("P4", profiles=_MACHINES)
    def test_memory_can_be_had_where_it_says_so(self, subject: Subject) -> None:
        for device in subject.devices:
            account = get_allocator(self.allocator_name, device)
            with ScopedDevice(device) if device.is_cuda else nullcontext():
                account.deallocate(account.allocate(1000), 1000)
                account.close()

    @rule("P4", profiles=_MACHINES)
    def test_choosing_it_elsewhere_is_refused_with_its_reason(self, subject: Subject) -> None:
        for device, answer in subject.answers.items():
            if not answer:
                with pytest.raises(PluginUnavailableError) as refusal:
                    get_allocator(self.allocator_name, device)
                assert answer.reason in str(refusal.value)

    @rule("P5")
    def test_importing_the_plugin_is_cheap(self) -> None:
        if self.allocator_factory is not None:
            pytest.skip(f"{self.allocator_name} is not installed")
        run_program("import", {"reference": Registry().find(self.allocator_name).reference})

    @rule("P6")
    def test_options_survive_pickling_and_copying(self, subject: Subject) -> None:
        plugin = subject.plugin
        for options in (_default_options(plugin), subject.options):
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                assert pickle.loads(pickle.dumps(options, protocol)) == options
            assert copy.deepcopy(options) == options


def _check_traits(traits: AllocatorTraits) -> None:
    assert isinstance(traits, AllocatorTraits)
    assert isinstance(traits.memory_kind, MemoryKind)
    assert traits.alignment > 0
    assert traits.alignment & (traits.alignment - 1) == 0, "an alignment is a power of two"
    assert not (traits.host_accessible and traits.memory_kind in (MemoryKind.CUDA_DEVICE, MemoryKind.CUDA_MEMPOOL))
    if traits.mapped:
        assert traits.memory_kind is MemoryKind.CUDA_DEVICE, "mapped memory is device memory to the driver"
    if traits.ipc is IpcKind.LEGACY:
        assert traits.memory_kind is MemoryKind.CUDA_DEVICE, "its handle exists for cudaMalloc memory only"


def _default_options(plugin: Plugin) -> Any:
    if plugin.options_type is None:
        pytest.skip(f"{plugin.name} takes no options")
    options = plugin.options_type()
    assert is_dataclass(options)
    return options
