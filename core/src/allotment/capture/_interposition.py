"""What stands between allocators and their ledgers while graphs are captured, and while graphs own memory of them."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from allotment._graph_blocks import BlockState, GraphBlocks
from allotment.allocator import SupportsPrivatePools
from allotment.memory_kind import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from allotment.layers.accounting import AccountedAllocator
    from allotment.layers.layer import Calls
    from allotment.stream import Stream

    Allocate: TypeAlias = Callable[..., int]
    Free: TypeAlias = Callable[..., object]


def settle(account: AccountedAllocator) -> None:
    """Let an allocator's calls go as the captures under way want it, or as its graphs do, or straight."""
    with account.device.captures.lock():
        calls = _calls_of(account)
        if calls is None:
            account.restore_calls()
        else:
            account.interpose(*calls)


def _calls_of(account: AccountedAllocator) -> tuple[Allocate, Free] | None:
    """Return the calls that are to stand in for an allocator's own; ``None`` if none are."""
    captures, own = account.device.captures, account.own_calls
    if account.declared_kind.on_host:
        if captures.on_host or account.graph_blocks or (captures.on_devices and _is_pinned(account)):
            return _bound((_allocate_on_host, _free_on_host), account, own())
        return None
    if captures.on_devices:
        is_capturable = account.takes_streams and account.traits.capturable
        return _bound((_allocate, _free) if is_capturable else (_refuse, _postpone), account, own())
    return _bound((_allocate_apart, _free), account, own()) if account.graph_blocks else None


def _bound(
    calls: tuple[Callable[..., Any], Callable[..., Any]], account: AccountedAllocator, own: Calls
) -> tuple[Allocate, Free]:
    return tuple(partial(call, account, own) for call in calls)  # type: ignore[return-value]


def _is_pinned(account: AccountedAllocator) -> bool:
    return account.declared_kind is MemoryKind.PINNED


def blocks_of(account: AccountedAllocator) -> GraphBlocks:
    """Return the blocks that graphs own of an allocator's memory."""
    if account.graph_blocks is None:
        account.graph_blocks = GraphBlocks(partial(settle, account))
    blocks: GraphBlocks = account.graph_blocks
    return blocks


# Memory of devices


def _allocate(account: AccountedAllocator, own: Calls, size: int, stream: Stream) -> int:
    """Allocate for the graph that the stream is captured into, or as ever on a stream that is not captured.

    What a graph allocates is the graph's, launch after launch, and goes past the layers.
    """
    captures = account.device.captures
    capture = captures.covering(stream)
    if capture is None:
        captures.check_work(stream)
        return _allocate_apart(account, own, size, stream)
    bare = account.bare_calls()
    if isinstance(account.allocator, SupportsPrivatePools):
        ptr = capture.private_pool(account.allocator).allocate_on(size, stream)
        capture.own(account, ptr, size, bare.deallocate, stream, is_mapped=True)
    else:
        ptr = _allocate_apart(account, bare, size, stream)
        capture.own(account, ptr, size, bare.deallocate, stream)
    return ptr


def _allocate_apart(account: AccountedAllocator, own: Calls, size: int, stream: Stream) -> int:
    """Allocate at an address that no array without memory still has.

    The driver may hand out again what a lost capture had reserved, while arrays of it are held.
    """
    captures = account.device.captures
    is_apart = captures.covering(stream) is None
    passed_over: list[int] = []
    try:
        while True:
            ptr: int = captures.relaxed(own.allocate, size, stream) if is_apart else own.allocate(size, stream)
            if not _is_void(account, ptr):
                return ptr
            passed_over.append(ptr)
    finally:
        for ptr in passed_over:
            own.deallocate(ptr, size, stream)


def _is_void(account: AccountedAllocator, ptr: int) -> bool:
    block = account.graph_blocks.find(ptr) if account.graph_blocks else None
    return block is not None and block.state is BlockState.VOID


def _free(account: AccountedAllocator, own: Calls, ptr: int, size: int, stream: Stream) -> None:
    """Free in the graph what the graph allocates; leave to other graphs what is theirs; let the rest wait."""
    captures, free = account.device.captures, own.deallocate
    block = account.graph_blocks.find(ptr) if account.graph_blocks else None
    if block is None:
        captures.postpone(partial(free, ptr, size, stream))
        return
    capture = captures.covering(stream) if block.is_recording else None
    if capture is None or capture.thread != get_ident() or not capture.free(block, stream):
        blocks_of(account).drop_array(block)


def _refuse(account: AccountedAllocator, own: Calls, *arguments: object) -> int:
    account.device.captures.refuse_allocator(account.name, account.device)
    return own.allocate(*arguments)


def _postpone(account: AccountedAllocator, own: Calls, *arguments: object) -> None:
    account.device.captures.postpone(partial(own.deallocate, *arguments))


# Memory of the host


def _allocate_on_host(account: AccountedAllocator, own: Calls, size: int) -> int:
    """Allocate at once; what is made in a capture of host work is the graph's too."""
    captures = account.device.captures
    ptr: int = captures.relaxed(own.allocate, size) if _is_pinned(account) else own.allocate(size)
    capture = captures.of_host_work()
    if capture is not None:
        capture.own(account, ptr, size, own.deallocate)
    return ptr


def _free_on_host(account: AccountedAllocator, own: Calls, ptr: int, size: int) -> None:
    block = account.graph_blocks.find(ptr) if account.graph_blocks else None
    if block is not None:
        blocks_of(account).drop_array(block)
    elif _is_pinned(account):
        account.device.captures.postpone(partial(own.deallocate, ptr, size))
    else:
        own.deallocate(ptr, size)
