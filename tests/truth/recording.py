"""The recorded cases, and what of them is compared."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

HEALTHY = {
    "last_error": "cudaSuccess",
    "read_once": "cudaSuccess",
    "read_again": "cudaSuccess",
    "malloc": "cudaSuccess",
    "memset": "cudaSuccess",
    "sync": "cudaSuccess",
    "free": "cudaSuccess",
    "sticky": False,
}

ATTRIBUTES_OF_PLATFORM = {
    "Integrated", "UnifiedAddressing", "ManagedMemory", "ConcurrentManagedAccess", "PageableMemoryAccess",
    "DirectManagedMemAccessFromHost", "HostNativeAtomicSupported", "MemoryPoolsSupported", "IpcEventSupport",
    "ComputeCapabilityMajor", "ComputeCapabilityMinor", "MultiProcessorCount", "total_memory", "name",
}  # fmt: skip
POOL_ATTRIBUTES_OF_PLATFORM = {
    "ReuseFollowEventDependencies", "ReuseAllowOpportunistic", "ReuseAllowInternalDependencies",
    "AttrReleaseThreshold", "AttrReservedMemCurrent", "AttrReservedMemHigh", "AttrUsedMemCurrent", "AttrUsedMemHigh",
}  # fmt: skip
RANGE_ATTRIBUTES_OF_PLATFORM = {"ReadMostly", "PreferredLocation", "AccessedBy", "LastPrefetchLocation"}

LABELS_LEFT_OUT = {
    "peer/calls": {"enable with flags 1", "last error 3"},  # no call of Platform takes flags
    "ipc/handles": {"event made for it", "event not made for it", "interprocess event with timing"},  # no such events
    "pool/max-size": {"max"},  # an attribute that the recorded driver does not know
}
"""Answers of calls that `Platform` does not have, by case."""

ALLOCATES = ("alloc", "Alloc", "Malloc")


@cache
def cases() -> dict[str, dict[str, Any]]:
    """Return the recorded cases by name."""
    return json.loads((HERE / "data" / "h200x2.json").read_text(encoding="utf-8"))["cases"]


@cache
def unmodelled() -> dict[str, str]:
    """Return the cases that the simulator is known to answer differently, with the reason."""
    table = tomllib.loads((HERE / "unmodelled.toml").read_text(encoding="utf-8"))
    return {name: entry["reason"] for entry in table["differs"] for name in entry["cases"]}


def is_left_out(name: str) -> bool:
    """Return whether no simulator is held to a case: it is a timing, or what CUDA leaves undefined.

    A kernel that still reads memory that is gone shows what the hardware happened to leave there.
    """
    if name.startswith("cost/"):
        return True
    return name.startswith("access/gone/") and cases()[name]["result"]["kernel reads it"]["right_value"]


def expected(name: str) -> dict[str, Any]:
    """Return what of a case's result is compared."""
    result = cases()[name]["result"]
    return {label: _projected(name, label, answer) for label, answer in result.items() if not _is_beside(name, label)}


def _is_beside(name: str, label: str) -> bool:
    if label in LABELS_LEFT_OUT.get(name, ()) or label in ("took", "hostGetFlags"):  # a timing; flags have no name here
        return True
    if name.startswith("attr/device"):
        return label not in ATTRIBUTES_OF_PLATFORM
    if name.startswith("capture/") and label == "value":  # of a query, it says nothing about captures
        return not any(part in name for part in ALLOCATES)
    return "numa node" in label  # Platform knows no nodes


def _projected(name: str, label: str, answer: Any) -> Any:
    if not isinstance(answer, dict):
        return answer
    if "runtime" in answer and "type" in answer:
        return _pointer(answer)
    kept = None
    if name == "attr/peers":
        kept = {"canAccessPeer", "able"}
    elif name == "pool/attributes-of-a-new-pool":
        kept = POOL_ATTRIBUTES_OF_PLATFORM
    elif name == "managed/attributes" or (name, label) == ("managed/advice", "attributes"):
        kept = RANGE_ATTRIBUTES_OF_PLATFORM
    return answer if kept is None else {key: value for key, value in answer.items() if key in kept}


def _pointer(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what `PointerAttributes` has words for."""
    if answer["type"] == "Unregistered":
        return {"type": "Unregistered"}
    found = {"type": answer["type"], "device": answer["device"]}
    if "devicePointer" in answer:
        found |= {"accessible": answer["devicePointer"] == "same", "pool": answer["MEMPOOL_HANDLE"]}
        if isinstance(answer["offset_in_range"], int):  # the driver names another address for host memory of pools
            found |= {"nbytes": answer["RANGE_SIZE"], "offset": answer["offset_in_range"]}
    return found
