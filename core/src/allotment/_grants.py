"""The record of grants between devices, and the questions to the driver about them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from allotment._allocator_scopes import is_pooling
from allotment._locks import RenewedLock
from allotment.errors import PlatformError
from allotment.memory_kind import MemoryKind
from allotment.platform import PoolAccess

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.allocator import SupportsPeers
    from allotment.device import Device
    from allotment.platform import PointerAttributes

_AS_IT_SHOULD_BE: Final = ("cudaErrorPeerAccessAlreadyEnabled", "cudaErrorPeerAccessNotEnabled")
"""What CUDA answers to a change that changes nothing."""
_PROBE_BYTES: Final = 512

Key = TypeVar("Key")


class Pair(NamedTuple):
    """Whose memory, and who touches it."""

    target: Device
    peer: Device


class Grants:
    """The grants between the devices of one platform.

    Attributes
    ----------
    version : int
        A number that grows whenever a grant is seen to change, so that verdicts can be remembered.
    """

    def __init__(self) -> None:
        self.version = 0
        self._lock = RenewedLock()
        self._peer_access: dict[Pair, bool] = {}
        self._granted_peers: set[Pair] = set()
        self._followers: dict[Device, list[SupportsPeers]] = {}
        self._pool_access: dict[tuple[int, Device], bool] = {}
        self._pools: dict[Device, list[int]] = {}
        self._granted_pools: set[Pair] = set()
        self._probes: dict[Device, int] = {}

    # Peer access

    def set_peer_access(self, pair: Pair, *, enable: bool) -> None:
        """Let the peer touch plain device memory of the target, and of allocators that follow, or not.

        If an allocator refuses, all is as it was before.
        """
        with self._lock(), ExitStack() as undo:
            changes = [partial(_change_peer_access, pair)]
            if (pair in self._granted_peers) is not enable:
                changes += [partial(_tell, follower, pair) for follower in self._followers.get(pair.target, ())]
            for change in changes if enable else reversed(changes):
                if change(enable=enable):
                    undo.callback(change, enable=not enable)
            undo.pop_all()
            (self._granted_peers.add if enable else self._granted_peers.discard)(pair)
            self._note(self._peer_access, pair, enable)

    def adopt_follower(self, device: Device, allocator: SupportsPeers) -> None:
        """Note an allocator whose memory follows peer access; what was enabled on the device holds for it too."""
        with self._lock():
            for pair in tuple(self._granted_peers):
                if pair.target is device:
                    device.captures.relaxed(partial(_tell, allocator, pair, enable=True))
            self._followers.setdefault(device, []).append(allocator)

    def peer_access(self, pair: Pair) -> bool | None:
        """Return whether the peer may touch plain device memory of the target; ``None`` if only asking could tell."""
        target, peer = pair
        if target is peer:
            return True
        if peer.is_capturing:
            return self._peer_access.get(pair)
        if not (target.has_context and peer.has_context):
            return False  # enabling would have opened both contexts
        with self._lock():
            return self._note(self._peer_access, pair, self._observe_peer_access(pair))

    def _observe_peer_access(self, pair: Pair) -> bool:
        """Ask whether a small block of the target could be touched: CUDA has no question about the grant itself.

        ``devicePointer`` of cudaPointerGetAttributes is null exactly without access (``pointer/tells-access`` of the
        recording in tests/truth). Trying to enable access, the other way to ask, would change what it asks about.
        """
        target, peer = pair
        seen = self._attributes_of_probe(target, peer)
        if seen.kind is MemoryKind.UNKNOWN:  # none yet, or another library reset the device
            self._probes[target] = on_device(target, target.platform.malloc, _PROBE_BYTES)
            seen = self._attributes_of_probe(target, peer)
        return seen.accessible

    def _attributes_of_probe(self, target: Device, peer: Device) -> PointerAttributes:
        attributes: PointerAttributes = on_device(peer, peer.platform.pointer_attributes, self._probes.get(target, 0))
        return attributes

    # Pool access

    def pools(self, device: Device) -> tuple[int, ...]:
        """Return the handles of the pools that Allotment draws from on a device."""
        return tuple(self._pools.get(device, ()))

    def adopt_pool(self, device: Device, pool: int) -> None:
        """Note a pool that Allotment draws from on a device; what was granted on the device holds for it too."""
        with self._lock():
            self._pools.setdefault(device, []).append(pool)
            for pair in self._granted_pools:
                if pair.target is device:
                    device.captures.relaxed(
                        device.platform.set_pool_access, pool, pair.peer.ordinal, PoolAccess.READ_WRITE
                    )
                    self._note(self._pool_access, (pool, pair.peer), True)

    def set_pool_access(self, pair: Pair, *, enable: bool) -> None:
        """Let the peer touch memory of all pools that Allotment draws from on the target, or not."""
        target, peer = pair
        access = PoolAccess.READ_WRITE if enable else PoolAccess.NONE
        with self._lock():
            for pool in self._pools.get(target, ()):
                target.platform.set_pool_access(pool, peer.ordinal, access)
                self._note(self._pool_access, (pool, peer), enable)
            (self._granted_pools.add if enable else self._granted_pools.discard)(pair)
            self.version += 1

    def is_pool_access_granted(self, pair: Pair) -> bool | None:
        """Return whether the peer may touch memory of the target's pools; ``None`` if only asking could tell."""
        pools = self._pools.get(pair.target, ())
        if not pools:
            return pair in self._granted_pools
        answers = [self.pool_access(pool, pair) for pool in pools]
        return None if None in answers else all(answers)

    def pool_access(self, pool: int, pair: Pair) -> bool | None:
        """Return whether the peer may touch memory of one pool, anybody's; ``None`` if only asking could tell."""
        target, peer = pair
        if target is peer:
            return True
        if peer.is_capturing or target.is_capturing:
            return self._pool_access.get((pool, peer))
        with self._lock():
            answer = target.platform.pool_access(pool, peer.ordinal) is PoolAccess.READ_WRITE
            return self._note(self._pool_access, (pool, peer), answer)

    def _note(self, record: dict[Key, bool], key: Key, granted: bool) -> bool:
        if record.get(key) is not granted:
            record[key] = granted
            self.version += 1
        return granted


def _change_peer_access(pair: Pair, *, enable: bool) -> bool:
    """Change what the driver grants; return whether that was another thing than it had."""
    target, peer = pair
    change = peer.platform.enable_peer_access if enable else peer.platform.disable_peer_access
    try:
        change(peer.ordinal, target.ordinal)
    except PlatformError as error:
        if error.code not in _AS_IT_SHOULD_BE:
            raise
        return False
    return True


def _tell(allocator: SupportsPeers, pair: Pair, *, enable: bool) -> bool:
    on_device(pair.target, partial(allocator.set_peer_access, pair.peer, enable=enable))
    return True


def grants_of(device: Device) -> Grants:
    """Return the grants between the devices of a device's platform."""
    return device.registry.grants


def on_device(device: Device, call: Callable[..., Any], *arguments: object) -> Any:
    """Return the answer of a call made with a device current; what was current before is again afterwards."""
    before = device.platform.switch_device(device.ordinal)
    try:
        return call(*arguments)
    finally:
        device.platform.restore_context(before)


def reaches_built_in_memory(accessor: Device, owner: Device) -> bool:
    """Return whether a device reaches memory that the built-in allocator of another hands out now."""
    if accessor is owner:
        return True
    if owner.is_cpu:
        return accessor.is_cpu_memory_access_from_gpu_supported
    if accessor.is_cpu:
        return False
    grants, pair = grants_of(owner), Pair(owner, accessor)
    return bool(grants.is_pool_access_granted(pair) if is_pooling(owner) else grants.peer_access(pair))
