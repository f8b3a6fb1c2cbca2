"""Rules D: the right device."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

import pytest

from allotment.allocator import SupportsPeers, SupportsReservation, SupportsTrim
from allotment.device import ScopedDevice
from allotment.errors import PlatformError
from allotment.grants import ScopedPeerAccess, is_peer_access_supported
from allotment.memory_kind import MemoryKind
from allotment.selection import account_of
from allotment.testing._fixtures import AllocatorFixtures
from allotment.testing._memory import Memory, pattern
from allotment.testing._rule import cannot_check, concerning, rule
from allotment.units import MAX_BYTES

if TYPE_CHECKING:
    from allotment.allocator import Allocator
    from allotment.device import Device
    from allotment.layers.accounting import AccountedAllocator
    from allotment.platform import Platform
    from allotment.registry import Plugin
    from allotment.testing._subject import Subject

_TWO: Final = 2


class DeviceTests(AllocatorFixtures):
    """Rules D: the right device."""

    @rule("D1", devices=_TWO)
    def test_a_block_belongs_to_the_device_it_was_asked_for(self, subject: Subject) -> None:
        for device, account in _account_each(subject):
            with ScopedDevice(device):
                ptr = account.allocate(5000)
                found = subject.platform.pointer_attributes(ptr)
                account.deallocate(ptr, 5000)

            assert found.kind is MemoryKind.UNKNOWN or found.device == device.ordinal

    @rule("D1", devices=_TWO)
    def test_each_device_can_use_its_blocks(self, subject: Subject) -> None:
        for device, account in _account_each(subject):
            with ScopedDevice(device):
                ptr, memory = account.allocate(5000), Memory(device)
                memory.fill_by_kernel(ptr, 5000, 9, device.ordinal)
                data = memory.read(ptr, 5000)
                account.deallocate(ptr, 5000)

            assert (data == 9).all()

    @rule("D1", on_cuda=False)
    def test_no_other_device_is_woken(self, plugin: Plugin, platform: Platform) -> None:
        subject = self.find_subject(plugin, platform)
        device = _two_devices(subject)[1]
        with ScopedDevice(device):
            account = subject.account(device)
            account.deallocate(account.allocate(5000), 5000)
            account.statistics()
            account.trim()
            subject.leave()

            assert subject.simulation.contexts() == {device.ordinal}

    @rule("D2", "D3", devices=_TWO)
    def test_the_current_device_is_afterwards_what_it_was_before(self, subject: Subject) -> None:
        for _, account in _account_each(subject):
            for current in range(subject.platform.device_count()):
                subject.platform.set_current_device(current)
                ptr = account.allocate(5000)
                assert subject.platform.current_device() == current, "after allocate"
                with concerning("D3"):
                    account.deallocate(ptr, 5000)
                assert subject.platform.current_device() == current, "after deallocate"
                with suppress(MemoryError):
                    account.allocate(MAX_BYTES)
                assert subject.platform.current_device() == current, "after an allocate that failed"

    @rule("D2", devices=_TWO)
    def test_the_allocator_itself_leaves_the_current_device_alone(self, subject: Subject) -> None:
        for device in _two_devices(subject):
            with ScopedDevice(device):
                calls = subject.bare(device)
                ptr = calls.allocate(5000)
                calls.deallocate(ptr, 5000)
                _ask_abilities(calls.allocator)
                assert subject.platform.current_device() == device.ordinal

    @rule("D3", devices=_TWO)
    def test_a_block_can_be_freed_while_another_device_is_current(self, subject: Subject) -> None:
        for _, account in _account_each(subject):
            for current in range(subject.platform.device_count()):
                ptr = account.allocate(5000)
                subject.platform.set_current_device(current)
                account.deallocate(ptr, 5000)

            assert account.statistics().live == 0

    @rule("D3", devices=_TWO)
    def test_one_object_serves_all_devices_if_it_is_bound_to_none(self, subject: Subject) -> None:
        if subject.traits.device_bound:
            pytest.skip(f"{self.allocator_name} declares device_bound")
        devices = _two_devices(subject)
        allocator = subject.bare(devices[0]).allocator
        accounts = [subject.account(device, allocator) for device in devices]
        pointers = [account.allocate(3000) for account in accounts]

        for device, ptr in zip(devices, pointers, strict=True):
            Memory(device).write(ptr, pattern(3000, seed=device.ordinal))
        for device, account, ptr in zip(devices, accounts, pointers, strict=True):
            assert (Memory(device).read(ptr, 3000) == pattern(3000, seed=device.ordinal)).all()
            account.deallocate(ptr, 3000)

    @rule("D4", devices=_TWO)
    def test_memory_follows_peer_access(self, subject: Subject) -> None:
        subject.require(SupportsPeers, "nobody tells it of peer access")
        owner, peer = _peers(subject)
        account = account_of(subject.bare(owner).allocator, owner)

        early = account.allocate(5000)
        with ScopedPeerAccess(owner, peer, True):
            late = account.allocate(5000)
            enabled = [_write_by(peer, ptr) for ptr in (early, late)]
        disabled = [_is_reached_by(peer, ptr) for ptr in (early, late)]
        for ptr in (early, late):
            account.deallocate(ptr, 5000)

        assert enabled == [True, True]
        assert disabled == [False, False]

    @rule("D4", devices=_TWO)
    def test_an_allocator_made_later_follows_what_is_enabled(self, subject: Subject) -> None:
        subject.require(SupportsPeers, "nobody tells it of peer access")
        owner, peer = _peers(subject)

        with ScopedPeerAccess(owner, peer, True):
            account = account_of(subject.bare(owner).allocator, owner)
            ptr = account.allocate(5000)
            enabled = _write_by(peer, ptr)
        disabled = _is_reached_by(peer, ptr)
        account.deallocate(ptr, 5000)

        assert (enabled, disabled) == (True, False)

    @rule("D4", on_cuda=False, devices=_TWO)
    @pytest.mark.parametrize("nth", [1, 2])
    def test_a_grant_that_fails_leaves_what_devices_may_touch(self, subject: Subject, nth: int) -> None:
        subject.require(SupportsPeers, "nobody tells it of peer access")
        owner, peer = _peers(subject)
        account = account_of(subject.bare(owner).allocator, owner)
        pointers = [account.allocate(5000) for _ in range(_TWO)]
        subject.simulation.fail("set_mapping_access", nth=nth, code="cudaErrorUnknown")

        failed = _fails_to_grant(cast("SupportsPeers", account.allocator), owner, peer)
        reached = [_is_reached_by(peer, ptr) for ptr in pointers]
        for ptr in pointers:
            account.deallocate(ptr, 5000)

        if not failed:
            pytest.skip(f"{self.allocator_name} grants access to {_TWO} blocks with fewer than {nth} calls")
        assert reached == [False] * _TWO


def _peers(subject: Subject) -> tuple[Device, Device]:
    """Return two devices of which the second can reach memory of the first, or skip the test."""
    owner, peer = _two_devices(subject)[:_TWO]
    if not is_peer_access_supported(owner, peer):
        cannot_check(f"{peer.alias!r} cannot access memory of {owner.alias!r}")
    return owner, peer


def _fails_to_grant(allocator: SupportsPeers, owner: Device, peer: Device) -> bool:
    """Let a device touch an allocator's memory; return whether that failed."""
    with ScopedDevice(owner):
        try:
            allocator.set_peer_access(peer, enable=True)
        except PlatformError:
            return True
    return False


def _is_reached_by(device: Device, ptr: int) -> bool:
    """Return whether the driver maps an address for a device."""
    with ScopedDevice(device):
        return device.platform.pointer_attributes(ptr).accessible


def _write_by(device: Device, ptr: int) -> bool:
    """Write to memory by a device's own work if the driver lets it; return whether it did."""
    if reached := _is_reached_by(device, ptr):
        Memory(device).fill_by_kernel(ptr, 5000, 9, device.ordinal)
    return reached


def _two_devices(subject: Subject) -> list[Device]:
    """Return the CUDA devices that the allocator serves, or skip the test of one that serves no two."""
    devices = [device for device in subject.devices if device.is_cuda]
    if len(devices) < _TWO:
        pytest.skip(f"{subject.plugin.name} serves no two CUDA devices here: {subject.refusals}")
    return devices


def _account_each(subject: Subject) -> list[tuple[Device, AccountedAllocator]]:
    """Return the accounts on each device: of one object, if it is bound to none."""
    devices = _two_devices(subject)
    shared = None if subject.traits.device_bound else subject.bare(devices[0]).allocator
    return [(device, subject.account(device, shared)) for device in devices]


def _ask_abilities(allocator: Allocator) -> None:
    if isinstance(allocator, SupportsReservation):
        allocator.reservation()
        allocator.reset_peak_reservation()
    if isinstance(allocator, SupportsTrim):
        allocator.trim(0)
