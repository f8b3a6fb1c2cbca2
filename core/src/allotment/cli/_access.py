"""``allotment access``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from allotment.access import RULES, Verdict, kinds_of, survey
from allotment.cli._devices import platform_facts, print_platform
from allotment.cli._output import AsJson, Column, PlatformName, console, print_json, print_table, yes_no
from allotment.cli._platform import asked_devices, asked_platform
from allotment.device import device_registry
from allotment.grants import (
    is_mempool_access_enabled,
    is_mempool_access_supported,
    is_peer_access_enabled,
    is_peer_access_supported,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType
    from rich.text import Text

    from allotment.device import Device
    from allotment.memory_kind import MemoryKind

_IS_YES = {Verdict.ACCESSIBLE: True, Verdict.INACCESSIBLE: False, Verdict.UNKNOWN: None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRow:
    """A verdict as ``--json`` prints it.

    Parameters
    ----------
    accessor, owner
        Who touches whose memory.
    kind
        The kind of the memory.
    verdict, rule, reason, remedy
        The answer; see `AccessReport`.
    """

    accessor: str
    owner: str
    kind: str
    verdict: Verdict
    rule: str
    reason: str
    remedy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRow:
    """Grants between two CUDA devices as ``--json`` prints them.

    Parameters
    ----------
    accessor, owner
        Who touches whose memory.
    peer_access_supported, peer_access_enabled
        For plain device memory.
    mempool_access_supported, mempool_access_enabled
        For memory of pools.
    """

    accessor: str
    owner: str
    peer_access_supported: bool
    peer_access_enabled: bool
    mempool_access_supported: bool
    mempool_access_enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    """A rule as ``--json`` prints it; see `Rule`."""

    id: str
    accessor: str
    memory: str
    condition: str
    verdict: Verdict
    reason: str
    remedy: str | None


def access(
    accessor: Annotated[str | None, typer.Argument(metavar="FROM", help="The device whose code touches.")] = None,
    owner: Annotated[str | None, typer.Argument(metavar="TO", help="The device whose memory is touched.")] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Print the rules, in the order in which they are tried.")
    ] = False,
    platform: PlatformName = None,
    as_json: AsJson = False,
) -> None:
    """Tell which kinds of a device's memory code of another device can touch now, and why.

    Without devices, all pairs of this machine. Grants last as long as a process, so here none is in force. Keys of
    --json: platform; access, each with accessor, owner, kind, verdict, rule, reason, remedy; grants, each with
    accessor, owner, peer_access_supported, peer_access_enabled, mempool_access_supported, mempool_access_enabled. With
    --table: rules, each with id, accessor, memory, condition, verdict, reason, remedy.
    """
    if table:
        _tell_rules(as_json=as_json)
        return
    with asked_platform(platform):
        registry = device_registry()
        accessors, owners = asked_devices(accessor), asked_devices(owner)
        rows = [row for by in accessors for of in owners for row in access_rows(by, of)]
        grants = [grant_row(by, of) for by in accessors for of in owners if by is not of and by.is_cuda and of.is_cuda]
        if as_json:
            print_json({"platform": platform_facts(registry), "access": rows, "grants": grants})
            return
        out = console()
        print_platform(out, registry)
        out.print()
        if accessor is None:
            _print_matrix(out, accessors, owners)
        else:
            _print_rows(out, rows)
        _print_grants(out, grants)


def access_rows(accessor: Device, owner: Device) -> list[AccessRow]:
    """Return the verdict on each kind of memory that a device can have."""
    return [
        AccessRow(
            accessor=accessor.alias,
            owner=owner.alias,
            kind=kind.name,
            verdict=report.verdict,
            rule=report.rule,
            reason=report.reason,
            remedy=report.remedy,
        )
        for kind, report in survey(accessor, owner).items()
    ]


def grant_row(accessor: Device, owner: Device) -> GrantRow:
    """Return the grants between two CUDA devices."""
    return GrantRow(
        accessor=accessor.alias,
        owner=owner.alias,
        peer_access_supported=is_peer_access_supported(owner, accessor),
        peer_access_enabled=is_peer_access_enabled(owner, accessor),
        mempool_access_supported=is_mempool_access_supported(owner, accessor),
        mempool_access_enabled=is_mempool_access_enabled(owner, accessor),
    )


# What people read

_ANSWERS = (
    Column("by"),
    Column("memory of"),
    Column("kind"),
    Column("access"),
    Column("rule"),
    Column("reason", fold=30),
    Column("remedy", fold=30, optional=True),
)


def _print_rows(out: Console, rows: Sequence[AccessRow]) -> None:
    cells: list[list[RenderableType]] = [
        [row.accessor, row.owner, row.kind, yes_no(_IS_YES[row.verdict]), row.rule, row.reason, row.remedy or ""]
        for row in rows
    ]
    print_table(out, _ANSWERS, cells)


def _print_matrix(out: Console, accessors: Sequence[Device], owners: Sequence[Device]) -> None:
    """Print who can touch what: a row a kind of memory, a column a device."""
    columns = [Column("memory of"), Column("kind"), *(Column(f"by {accessor}") for accessor in accessors)]
    surveys = {(by, of): survey(by, of) for by in accessors for of in owners}

    def cells(owner: Device, kind: MemoryKind) -> list[Text]:
        return [yes_no(_IS_YES[surveys[by, owner][kind].verdict]) for by in accessors]

    print_table(out, columns, [[of.alias, kind.name, *cells(of, kind)] for of in owners for kind in kinds_of(of)])


_GRANTS = (Column("by"), Column("memory of"), Column("peer access"), Column("pool access"))


def _print_grants(out: Console, grants: Sequence[GrantRow]) -> None:
    if grants:
        out.print()
        print_table(out, _GRANTS, [_grant_cells(row) for row in grants])


def _grant_cells(row: GrantRow) -> list[str]:
    peer = _state(supported=row.peer_access_supported, enabled=row.peer_access_enabled)
    pool = _state(supported=row.mempool_access_supported, enabled=row.mempool_access_enabled)
    return [row.accessor, row.owner, peer, pool]


def _state(*, supported: bool, enabled: bool) -> str:
    return "enabled" if enabled else "supported" if supported else "not supported"


_RULES = (
    Column("rule"),
    Column("by"),
    Column("memory", fold=12),
    Column("condition", fold=20),
    Column("access"),
    Column("reason", fold=30, optional=True),
)


def _tell_rules(*, as_json: bool) -> None:
    rows = [
        RuleRow(
            id=rule.id,
            accessor=rule.accessor.words,
            memory=rule.memory.words,
            condition=rule.condition.words,
            verdict=rule.verdict,
            reason=rule.reason,
            remedy=rule.remedy,
        )
        for rule in RULES
    ]
    if as_json:
        print_json({"rules": rows})
        return
    cells: list[list[RenderableType]] = [
        [row.id, row.accessor, row.memory, row.condition, yes_no(_IS_YES[row.verdict]), row.reason] for row in rows
    ]
    print_table(console(), _RULES, cells)
