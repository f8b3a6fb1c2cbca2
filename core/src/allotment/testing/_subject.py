"""The allocator under test."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pytest

from allotment import configuration
from allotment.allocator import SupportsClose, SupportsStreams
from allotment.device import ScopedDevice, device_registry
from allotment.layers.account import account
from allotment.layers.stack import build_layers
from allotment.platform.simulated import SimulatedPlatform
from allotment.registry import availability, build
from allotment.selection import layers_before, stand_in
from allotment.stream import stream_in_force
from allotment.testing._ledger import outstanding
from allotment.testing._memory import Memory
from allotment.testing._rule import cannot_check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from allotment.allocator import Allocator, AllocatorTraits
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.platform import Platform
    from allotment.registry import Plugin


class BareCalls:
    """A plugin's object, called as core calls it: by position, with its device current, on the stream in force.

    Parameters
    ----------
    allocator
        The object.
    device
        The device it serves here.
    """

    def __init__(self, allocator: Allocator, device: Device) -> None:
        self.allocator, self.device = allocator, device
        self.live: dict[int, tuple[int, Any]] = {}

    def allocate(self, size_in_bytes: int) -> int:
        """Return a new block, which is freed after the test if the test does not."""
        stream = None
        if self.device.is_cuda and isinstance(self.allocator, SupportsStreams):
            stream = stream_in_force(self.device)
            ptr = self.allocator.allocate_on(size_in_bytes, stream)
        else:
            ptr = self.allocator.allocate(size_in_bytes)
        self.live[ptr] = size_in_bytes, stream
        return ptr

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Take a block back on the stream it was allocated on."""
        stream = self.live[ptr][1]
        if stream is None:
            self.allocator.deallocate(ptr, size_in_bytes)
        else:
            cast("SupportsStreams", self.allocator).deallocate_on(ptr, size_in_bytes, stream)
        del self.live[ptr]

    def free_all(self) -> None:
        """Take back every block that is live."""
        for ptr, (size, _) in list(self.live.items()):
            self.deallocate(ptr, size)


class Subject:
    """The allocator under test, on a platform.

    Parameters
    ----------
    plugin
        What makes it.
    platform
        The platform in force.
    options
        What configuration says about it.
    layers
        What stands between it and its accounts.

    Attributes
    ----------
    devices : list of Device
        The devices that it says it can be used on, CUDA devices first.
    options : object or None
        What configuration says about it, as the plugin gets it.
    """

    def __init__(
        self, plugin: Plugin, platform: Platform, options: Mapping[str, Any], layers: Sequence[Any] = ()
    ) -> None:
        self.plugin, self.platform = plugin, platform
        self._layers = layers
        self.options = configuration.current().options_for(plugin.name, plugin.options_type, **options)
        self.answers = {device: availability(plugin, device) for device in device_registry()}
        usable = [device for device, answer in self.answers.items() if answer.ok]
        self.devices = sorted(usable, key=lambda device: (device.is_cpu, device.ordinal))
        self._made: list[BareCalls] = []
        self._scope = ExitStack()

    # What it is

    @property
    def device(self) -> Device:
        """The first device that it can be used on."""
        return self.devices[0]

    @cached_property
    def traits(self) -> AllocatorTraits:
        """What it declares for its options."""
        return self.plugin.traits_for(self.options)

    @cached_property
    def memory(self) -> Memory:
        """The contents of memory on its device."""
        return Memory(self.device)

    @property
    def simulation(self) -> SimulatedPlatform:
        """The platform, in a test that only a simulated machine can show; the test is skipped on another."""
        if not isinstance(self.platform, SimulatedPlatform):
            cannot_check(f"only a simulated machine can show it, and {self.platform.name!r} is none")
        return self.platform

    def outstanding(self) -> Counter[str]:
        """Return what the simulated driver has handed out and not got back, by kind; a real one does not tell."""
        return outstanding(self.platform.calls) if isinstance(self.platform, SimulatedPlatform) else Counter()

    @property
    def refusals(self) -> str:
        """The reasons it gives where it cannot be used."""
        return "; ".join(f"{device.alias}: {answer.reason}" for device, answer in self.answers.items() if not answer)

    # Making it

    def build(self, device: Device | None = None) -> Allocator:
        """Return a new object of the plugin."""
        return build(self.plugin, self.options, device or self.device)

    def bare(self, device: Device | None = None, allocator: Allocator | None = None) -> BareCalls:
        """Return the calls of an object of the plugin, a new one if none is given, without core around them."""
        device = device or self.device
        calls = BareCalls(allocator or self.build(device), device)
        self._made.append(calls)
        return calls

    def account(self, device: Device | None = None, allocator: Allocator | None = None) -> AccountedAllocator:
        """Return the accounts of an object of the plugin, a new one if none is given."""
        device = device or self.device
        layers = build_layers(layers_before(device, self._layers), device, stand_in)
        return account(allocator or self.bare(device).allocator, device, self.plugin.name, layers=layers)

    def forget(self, calls: BareCalls) -> None:
        """Leave an object that the test has closed itself out of what is freed and closed after the test."""
        self._made.remove(calls)

    # Around a test

    def enter(self) -> None:
        """Make its device current."""
        if self.device.is_cuda:
            self._scope.enter_context(ScopedDevice(self.device))

    def leave(self) -> None:
        """Free and close what the test made and left, and make the device before it current."""
        if isinstance(self.platform, SimulatedPlatform):
            self.platform.stop_failing()
        with self._scope:
            for calls in self._made:
                calls.free_all()
            for allocator in {id(calls.allocator): calls.allocator for calls in self._made}.values():
                if isinstance(allocator, SupportsClose):
                    allocator.close()

    def require(self, ability: type, because: str) -> None:
        """Skip the test of an allocator that does not offer an ability."""
        if not self.offers(ability):
            pytest.skip(f"{self.plugin.name} offers no {ability.__name__}: {because}")

    def offers(self, ability: type) -> bool:
        """Return whether the plugin's objects offer an ability."""
        return isinstance(self._sample, ability)

    @cached_property
    def _sample(self) -> Allocator:
        return self.bare().allocator
