"""What PyTorch must not be set up for when the bridge is installed."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from allotment import BridgeError, get_cuda_devices
from allotment.bridges import has_compiled_callbacks, require_devices
from allotment_torch_bridge._library import require_parts

if TYPE_CHECKING:
    from allotment import Delivery

_SETTINGS: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def refuse_conflicts(delivery: Delivery, *, replaces: bool) -> None:
    """Raise unless PyTorch can draw from a delivery.

    Raises
    ------
    BridgeError
        With the name of what is in the way.
    """
    import torch

    if not has_compiled_callbacks():
        raise _refusal(
            "its functions in C are not among this build of core, and those in Python might wait for ever for a lock "
            "that PyTorch holds",
            "Install a wheel of allotment for this machine, or build it where there is a C compiler.",
        )
    if torch.version.cuda is None:
        raise _refusal(f"PyTorch {torch.__version__} was built without CUDA")
    require_parts(torch, replaces=replaces)
    _refuse_settings(replaces=replaces)
    _refuse_other_allocator(torch)
    _refuse_devices(torch)
    refuse_circle(delivery)
    if replaces:
        _refuse_use(torch)
    elif torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise _refusal("a CUDA graph is being captured", "Install it before the capture begins or after it.")


def _refusal(cause: str, remedy: str | None = None) -> BridgeError:
    return BridgeError(bridge="torch", cause=cause, remedy=remedy)


def _refuse_settings(*, replaces: bool) -> None:
    for variable in _SETTINGS:
        settings = os.environ.get(variable, "")
        if not replaces and re.search(r"expandable_segments\s*:\s*true", settings, re.IGNORECASE):
            raise expandable_refusal(variable)
        if re.search(r"backend\s*:\s*cudaMallocAsync", settings):
            raise _refusal(
                f"PyTorch is told to use backend:cudaMallocAsync ({variable}), and two allocators cannot serve it",
                f"Take it out of {variable}.",
            )
    if not replaces and os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0"):
        raise _refusal(
            "PyTorch's cache, beneath which it would draw, is switched off (PYTORCH_NO_CUDA_MEMORY_CACHING)",
            "Unset PYTORCH_NO_CUDA_MEMORY_CACHING, or use mode 'replace'.",
        )


def expandable_refusal(where: str) -> BridgeError:
    """Return the error for segments that expand."""
    return _refusal(
        f"PyTorch is told to use expandable_segments ({where}), which it maps itself: what comes from Allotment does "
        "not expand",
        f"Take expandable_segments out of {where}, or use mode 'replace'.",
    )


def _refuse_other_allocator(torch: Any) -> None:
    backend = torch.cuda.get_allocator_backend()
    if backend == "native":
        return
    if backend == "pluggable":
        raise _refusal(
            "somebody gave PyTorch a pluggable allocator already (torch.cuda.memory.change_current_allocator), such as "
            "RMM's rmm_torch_allocator, and PyTorch keeps it for ever"
        )
    raise _refusal(f"PyTorch uses its allocator {backend!r}, and two allocators cannot serve it")


def _refuse_devices(torch: Any) -> None:
    count = torch.cuda.device_count()
    devices = require_devices("torch", "PyTorch", lambda: bool(count))
    if count and count != len(devices):
        raise _refusal(f"PyTorch sees {count} devices, and Allotment {len(devices)}")


def refuse_circle(delivery: Delivery) -> None:
    """Raise if the delivery draws from PyTorch itself."""
    for device in get_cuda_devices():
        account = delivery.account(device)
        if getattr(account.allocator, "draws_from", None) == "torch":
            raise _refusal(
                f"allocator {account.name!r} draws from PyTorch itself, so that neither would ever have memory",
                "Choose another allocator for it: allotment.install('torch', allocator='mempool').",
            )


def _refuse_use(torch: Any) -> None:
    is_in_use = getattr(torch._C, "_accelerator_isAllocatorInitialized", torch.cuda.is_initialized)
    if torch.cuda.is_initialized() or is_in_use():
        used = sum(torch.cuda.memory_reserved(ordinal) for ordinal in range(torch.cuda.device_count()))
        raise _refusal(
            f"PyTorch's own caching allocator is in use already, with {used:,} bytes, and PyTorch does not swap it "
            "then",
            "Install it before anything uses a CUDA device through PyTorch, or use mode 'pool'.",
        )
