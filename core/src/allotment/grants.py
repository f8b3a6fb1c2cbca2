"""Which device may touch whose memory: peer access for plain device memory, pool access for memory of pools.

Neither stands in for the other. Both are directional: ``(target, peer)`` lets device ``peer`` touch memory of device
``target``. A device always has access to its own memory. Nothing is granted unasked, because allocation can cost more
under a grant.

Grants are recorded. Outside a graph capture the driver is asked as well, which tells of grants that other libraries
made; inside a capture, where asking about a pool would end it, the record alone counts, and what was never asked is
unknown.
"""

from __future__ import annotations

from contextlib import contextmanager
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from allotment._grants import Pair, grants_of, on_device
from allotment._locks import RenewedLock
from allotment.device import find_device
from allotment.errors import PlatformError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from allotment.device import Device, DeviceLike


def _pair(target: DeviceLike, peer: DeviceLike) -> Pair:
    return Pair(find_device(target), find_device(peer))


def _require_cuda(pair: Pair, what: str) -> None:
    for device in pair:
        if device.is_cpu:
            raise ValueError(f"{what} access is between CUDA devices: 'cpu' neither grants it nor gets it")


def _require_peers(pair: Pair) -> None:
    target, peer = pair
    if not is_peer_access_supported(target, peer):
        raise UnsupportedError(
            f"device {peer.alias!r} cannot access memory of device {target.alias!r}: "
            "the hardware does not connect them. Copy the data, or allocate it as managed memory."
        )


def _require_no_capture(pair: Pair) -> None:
    pair.target.captures.refuse_unsafe("changing a grant", "Change it before the capture begins.")


# ---------------------------------------------------------------------------------------------------------------------
# Scopes


@dataclass(slots=True, eq=False)
class _Entry:
    """A scope that was entered, and what was granted before it."""

    scope: _ScopedGrant
    before: bool


_entered: WeakKeyDictionary[Device, dict[tuple[type[_ScopedGrant], Device], list[_Entry]]] = WeakKeyDictionary()
"""The scopes that are entered, innermost last, by target, kind and peer."""
_entered_lock: Final = RenewedLock()


class _ScopedGrant:
    """A grant for the length of a block. Scopes left out of turn leave in force what the others say."""

    def _is_enabled(self, pair: Pair) -> bool:
        raise NotImplementedError

    def _set_enabled(self, pair: Pair, *, enable: bool) -> None:
        raise NotImplementedError

    def __init__(self, target: DeviceLike, peer: DeviceLike, enable: bool) -> None:
        self.target, self.peer, self.enable = target, peer, enable
        self._pairs: list[Pair] = []

    def _entries(self, pair: Pair) -> list[_Entry]:
        return _entered.setdefault(pair.target, {}).setdefault((type(self), pair.peer), [])

    def __enter__(self) -> None:
        with _entered_lock():
            pair = _pair(self.target, self.peer)
            before = self._is_enabled(pair)
            self._set_enabled(pair, enable=self.enable)
            self._entries(pair).append(_Entry(self, before))
            self._pairs.append(pair)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with _entered_lock():
            pair = self._pairs.pop()
            entries = self._entries(pair)
            index = max(index for index, entry in enumerate(entries) if entry.scope is self)
            left = entries.pop(index)
            if index == len(entries):
                self._set_enabled(pair, enable=left.before)
            else:
                entries[index].before = left.before


# ---------------------------------------------------------------------------------------------------------------------
# Peer access


def is_peer_access_supported(target: DeviceLike, peer: DeviceLike) -> bool:
    """Return whether device ``peer`` can be let touch plain device memory of ``target``; ``False`` for the host."""
    found, by = _pair(target, peer)
    if found.is_cpu or by.is_cpu:
        return False
    return found is by or by.platform.can_access_peer(by.ordinal, found.ordinal)


def is_peer_access_enabled(target: DeviceLike, peer: DeviceLike) -> bool:
    """Return whether device ``peer`` may touch plain device memory of ``target``.

    Asking changes nothing and opens no context. Inside a capture it is what was recorded before.
    """
    pair = _pair(target, peer)
    if pair.target.is_cpu or pair.peer.is_cpu:
        return False
    return bool(grants_of(pair.target).peer_access(pair))


def set_peer_access_enabled(target: DeviceLike, peer: DeviceLike, enable: bool, *, verify: bool = False) -> None:
    """Let device ``peer`` touch plain device memory of ``target``, or not. It does not help memory of pools.

    It holds for memory that is allocated already and for allocators made later, also for those that map their memory
    themselves and follow peer access (`SupportsPeers`).

    Parameters
    ----------
    target
        Whose memory.
    peer
        Who touches it.
    enable
        Whether it may. Disabling what is not supported, or on the host, does nothing.
    verify
        Prove the grant by moving bytes over it; if the proof fails, it is taken back.

    Raises
    ------
    ValueError
        If access is enabled for the host.
    UnsupportedError
        If the hardware does not connect the devices.
    PlatformError
        If the driver refuses, or the proof fails. What devices may touch is as it was before.
    """
    pair = _pair(target, peer)
    if enable:
        _require_cuda(pair, "peer")
        _require_peers(pair)
    if pair.target is pair.peer or not is_peer_access_supported(*pair):
        return
    _require_no_capture(pair)
    grants, platform = grants_of(pair.target), pair.target.platform
    grants.set_peer_access(pair, enable=enable)
    if enable and verify:
        with _taken_back_on_error(partial(grants.set_peer_access, pair, enable=False)):
            _prove(pair, partial(on_device, pair.target, platform.malloc), platform.free)


class ScopedPeerAccess(_ScopedGrant):
    """Let a device touch plain device memory of another, or not, for the length of a ``with`` block.

    Parameters
    ----------
    target, peer, enable
        As for `set_peer_access_enabled`; errors come on entry.

    Notes
    -----
    A grant is a state of the driver and so of the whole process, not of a thread.
    """

    def _is_enabled(self, pair: Pair) -> bool:
        return is_peer_access_enabled(*pair)

    def _set_enabled(self, pair: Pair, *, enable: bool) -> None:
        set_peer_access_enabled(*pair, enable)


# ---------------------------------------------------------------------------------------------------------------------
# Pool access


def is_mempool_access_supported(target: DeviceLike, peer: DeviceLike) -> bool:
    """Return whether device ``peer`` can be let touch memory of pools of ``target``."""
    found, by = _pair(target, peer)
    return found.is_mempool_supported and is_peer_access_supported(found, by)


def is_mempool_access_enabled(target: DeviceLike, peer: DeviceLike) -> bool:
    """Return whether device ``peer`` may touch memory of the pools that Allotment draws from on ``target``.

    Inside a capture it is what was recorded before.
    """
    pair = _pair(target, peer)
    if pair.peer.is_cpu or not pair.target.is_mempool_supported:
        return False
    return pair.target is pair.peer or bool(grants_of(pair.target).is_pool_access_granted(pair))


def set_mempool_access_enabled(target: DeviceLike, peer: DeviceLike, enable: bool, *, verify: bool = False) -> None:
    """Let device ``peer`` touch memory of the pools that Allotment draws from on ``target``, or not.

    It holds for memory that is allocated already and for pools made later. It does not help plain device memory.

    Parameters
    ----------
    target
        Whose memory.
    peer
        Who touches it.
    enable
        Whether it may. Disabling what is not supported, or on the host, does nothing.
    verify
        Prove the grant by moving bytes over it, because on some drivers such copies were seen to write nothing; if the
        proof fails, it is taken back.

    Raises
    ------
    ValueError
        If access is enabled for the host.
    UnsupportedError
        If the target has no pools or the hardware does not connect the devices.
    PlatformError
        If the driver refuses, or the proof fails.
    """
    pair = _pair(target, peer)
    if enable:
        _require_cuda(pair, "memory pool")
        if not pair.target.is_mempool_supported:
            raise UnsupportedError(f"device {pair.target.alias!r} does not support memory pools")
        _require_peers(pair)
    if pair.target is pair.peer or not is_mempool_access_supported(*pair):
        return
    _require_no_capture(pair)
    grants = grants_of(pair.target)
    grants.set_pool_access(pair, enable=enable)
    if enable and verify:
        with _taken_back_on_error(partial(grants.set_pool_access, pair, enable=False)):
            _prove_pools(pair)


class ScopedMempoolAccess(_ScopedGrant):
    """Let a device touch memory of the pools of another, or not, for the length of a ``with`` block.

    Parameters
    ----------
    target, peer, enable
        As for `set_mempool_access_enabled`; errors come on entry.

    Notes
    -----
    A grant is a state of the driver and so of the whole process, not of a thread.
    """

    def _is_enabled(self, pair: Pair) -> bool:
        return is_mempool_access_enabled(*pair)

    def _set_enabled(self, pair: Pair, *, enable: bool) -> None:
        set_mempool_access_enabled(*pair, enable)


# ---------------------------------------------------------------------------------------------------------------------
# Proof


@contextmanager
def _taken_back_on_error(take_back: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        take_back()
        raise


def _prove_pools(pair: Pair) -> None:
    platform = pair.target.platform

    def allocate_from(pool: int, nbytes: int) -> int:
        ptr: int = on_device(pair.target, platform.malloc_from_pool, nbytes, pool, 0)
        return ptr

    for pool in grants_of(pair.target).pools(pair.target):
        _prove(pair, partial(allocate_from, pool), lambda ptr: on_device(pair.target, platform.free_async, ptr, 0))


def _prove(pair: Pair, allocate: Callable[[int], int], free: Callable[[int], object]) -> None:
    """Write a pattern into memory of the target through the peer, read it back through the target, and compare."""
    platform, (target, peer) = pair.target.platform, pair
    pattern = bytearray(range(1, 256)) * 4
    answer = bytearray(len(pattern))
    source, sink = (memoryview(buffer) for buffer in (pattern, answer))
    ptr = allocate(len(pattern))
    try:
        platform.fill(ptr, 0, len(pattern), 0, target.ordinal)
        platform.synchronize_device(target.ordinal)
        platform.copy(ptr, _address(source), len(pattern), 0, peer.ordinal)
        platform.synchronize_device(peer.ordinal)
        platform.copy(_address(sink), ptr, len(pattern), 0, target.ordinal)
        platform.synchronize_device(target.ordinal)
    finally:
        free(ptr)
    if answer != pattern:
        raise PlatformError(
            call="verification of a grant",
            code="data lost",
            detail=f"bytes that {peer.alias!r} wrote into memory of {target.alias!r} did not arrive",
        )


def _address(buffer: memoryview) -> int:
    return addressof((c_char * len(buffer)).from_buffer(buffer))
