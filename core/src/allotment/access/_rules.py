"""The access rules: one table, read from the top; the first row that fits decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from allotment.access import _condition as when
from allotment.access._condition import ANYBODY, GPU, HOST
from allotment.access._verdict import AccessReport, Verdict

if TYPE_CHECKING:
    from allotment.access._case import AccessCase
    from allotment.access._condition import Condition


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table.

    Parameters
    ----------
    id
        Its name.
    accessor, memory, condition
        Who touches what, and under which condition; the row fits a case that meets all three.
    verdict
        What it decides.
    reason, remedy
        Why, and what to do; ``{owner}``, ``{accessor}`` and ``{kind}`` stand for the facts of the case.
    """

    id: str
    accessor: Condition
    memory: Condition
    condition: Condition
    verdict: Verdict
    reason: str
    remedy: str | None = None

    def fits(self, case: AccessCase) -> bool:
        """Return whether the row decides a case that no row above it decided."""
        return self.accessor.holds(case) and self.memory.holds(case) and self.condition.holds(case)

    def report(self, case: AccessCase) -> AccessReport:
        """Return the verdict on a case, with its reason."""
        names = {"owner": case.owner.alias, "accessor": case.accessor.alias, "kind": case.kind.name}
        remedy = self.remedy and self.remedy.format(**names)
        return AccessReport(self.verdict, self.id, self.reason.format(**names), remedy)


class _Row:
    """The left half of a row: whom and what it is about."""

    def __init__(self, id: str, accessor: Condition, memory: Condition, condition: Condition = when.ALWAYS) -> None:  # noqa: A002
        self._left = (id, accessor, memory, condition)

    def accessible(self, reason: str) -> Rule:
        return Rule(*self._left, Verdict.ACCESSIBLE, reason)

    def inaccessible(self, reason: str, remedy: str) -> Rule:
        return Rule(*self._left, Verdict.INACCESSIBLE, reason, remedy)

    def unknown(self, reason: str, remedy: str) -> Rule:
        return Rule(*self._left, Verdict.UNKNOWN, reason, remedy)


_COPY: Final = 'Copy it with .to("{accessor}").'
_PINNED: Final = 'Copy it with .to("{accessor}"), or make the array with pinned=True.'
_MANAGED: Final = 'Copy it with .to("cpu"), or allocate it as managed memory where the device supports that.'
_WHEN_IDLE: Final = 'Copy it with .to("cpu"), after the work on it is done.'
_PEER: Final = 'Call set_peer_access_enabled("{owner}", "{accessor}", True), or copy it with .to("{accessor}").'
_POOL: Final = 'Call set_mempool_access_enabled("{owner}", "{accessor}", True), or copy it with .to("{accessor}").'
_ITS_LIBRARY: Final = 'Let the library that owns the pool grant {accessor} access, or copy it with .to("{accessor}").'
_ASK_BEFORE: Final = "Grant or ask before the capture begins, so that the answer is on record."
_DECLARE: Final = "Wrap the memory by its owner's array, or let the allocator declare its memory kind."

RULES: Final = (
    _Row("empty", ANYBODY, when.NOTHING).accessible("an array without elements has no memory to touch"),
    _Row("home", ANYBODY, when.ITS_OWN).accessible("the memory belongs to {accessor}"),
    # Host memory
    _Row("host-by-host", HOST, when.HOST_MEMORY).accessible("host code reaches all host memory"),
    _Row("pinned-uva", GPU, when.PAGE_LOCKED, when.UNIFIED_ADDRESSING).accessible(
        "page-locked memory is mapped for {accessor}, which has unified addressing"
    ),
    _Row("pageable", GPU, when.HOST_MEMORY, when.PAGEABLE_ACCESS).accessible(
        "{accessor} reaches pageable host memory (HMM or ATS)"
    ),
    _Row("pinned-no-uva", GPU, when.PAGE_LOCKED).inaccessible("{accessor} has no unified addressing", _COPY),
    _Row("pageable-not", GPU, when.HOST_MEMORY).inaccessible("{accessor} does not reach pageable host memory", _PINNED),
    # Managed memory
    _Row("managed-by-host", HOST, when.MANAGED, when.HOST_MAY_ANYTIME).accessible(
        "{owner} lets host code reach managed memory at any time"
    ),
    _Row("managed-limited", HOST, when.MANAGED).inaccessible(
        "{owner} has limited managed memory, which host code may touch only while the device is idle", _WHEN_IDLE
    ),
    _Row("managed-by-device", GPU, when.MANAGED, when.BOTH_MANAGED).accessible(
        "managed memory moves to whichever device touches it"
    ),
    _Row("managed-unsupported", GPU, when.MANAGED).inaccessible(
        "{accessor} or {owner} does not support managed memory", _COPY
    ),
    # Device memory, from the host
    _Row("device-by-host", HOST, when.DEVICE_MEMORY).inaccessible(
        "host code does not reach {kind} memory of {owner}", _MANAGED
    ),
    # Device memory of another library, or that an allocator of ours mapped: the driver is asked about the address
    _Row("foreign-mapped", GPU, when.FOREIGN, when.MAPPED).accessible(
        "the driver maps this address of {owner} for {accessor}"
    ),
    _Row("foreign-pool", GPU, when.FOREIGN_POOL, when.NOT_MAPPED).inaccessible(
        "the driver does not map this pool memory of {owner} for {accessor}", _ITS_LIBRARY
    ),
    _Row("foreign-plain", GPU, when.FOREIGN, when.NOT_MAPPED).inaccessible(
        "the driver does not map this address of {owner} for {accessor}", _PEER
    ),
    # Device memory of ours: the grants decide
    _Row("pool-granted", GPU, when.POOL, when.POOL_GRANTED).accessible("the pool of {owner} grants {accessor} access"),
    _Row("pool-not-granted", GPU, when.POOL, when.POOL_NOT_GRANTED).inaccessible(
        "the pool of {owner} grants no access to {accessor}; peer access does not help", _POOL
    ),
    _Row("peer-enabled", GPU, when.PLAIN, when.PEER_ENABLED).accessible("{accessor} has peer access to {owner}"),
    _Row("peer-not-enabled", GPU, when.PLAIN, when.PEER_NOT_ENABLED).inaccessible(
        "{accessor} has no peer access to {owner}; pool access does not help", _PEER
    ),
    _Row("not-on-record", GPU, when.DEVICE_MEMORY, when.NEVER_ASKED).unknown(
        "whether {owner} grants access to {accessor} was never asked, and asking now could end a capture", _ASK_BEFORE
    ),
    # What is left
    _Row("kind-unknown", ANYBODY, when.ANYTHING).unknown(
        "neither an allocator nor the driver says what kind of memory this is", _DECLARE
    ),
)
"""All rules. Every case fits one: the last fits all."""


def judge(case: AccessCase) -> AccessReport:
    """Return the verdict of the first rule that fits."""
    return next(rule for rule in RULES if rule.fits(case)).report(case)
