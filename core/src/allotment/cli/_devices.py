"""``allotment devices``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from allotment.cli._output import AsJson, Column, PlatformName, console, print_json, print_table, yes_no
from allotment.cli._platform import asked_platform
from allotment.device import device_registry
from allotment.report import mempool_state, peer_matrix
from allotment.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from allotment.device import Device, DeviceRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A device as ``--json`` prints it. Of the host, all but ``alias`` and ``name`` is null.

    Parameters
    ----------
    alias, name
        What a program calls it, and the product.
    total_memory
        In bytes.
    free_memory
        In bytes; null without ``--memory``.
    compute_capability
        Such as ``"9.0"``.
    mempool
        ``"enabled"``, ``"supported"`` (but not enabled) or ``"not supported"``.
    managed_memory, concurrent_managed_access, pageable_memory_access, unified_addressing
        Whether the device has it.
    ipc
        Whether memory can be shared with other processes; null where the driver cannot say.
    """

    alias: str
    name: str
    total_memory: int | None = None
    free_memory: int | None = None
    compute_capability: str | None = None
    mempool: str | None = None
    managed_memory: bool | None = None
    concurrent_managed_access: bool | None = None
    pageable_memory_access: bool | None = None
    unified_addressing: bool | None = None
    ipc: bool | None = None


def devices(
    memory: Annotated[bool, typer.Option("--memory", help="Show free memory, which opens contexts.")] = False,
    platform: PlatformName = None,
    as_json: AsJson = False,
) -> None:
    """List the devices, what their memory can do, and who can access whom.

    Keys of --json: platform (name, description, why); devices, each with alias, name, total_memory, free_memory,
    compute_capability, mempool, managed_memory, concurrent_managed_access, pageable_memory_access, unified_addressing,
    ipc; peer_access, where row i, column j tells whether CUDA device j can access memory of device i.
    """
    with asked_platform(platform):
        registry = device_registry()
        rows = [device_row(device, with_free=memory) for device in registry]
        if as_json:
            print_json({"platform": platform_facts(registry), "devices": rows, "peer_access": _peers(registry)})
            return
        out = console()
        print_platform(out, registry)
        out.print()
        print_devices(out, rows, with_free=memory)
        _print_peers(out, registry)


def device_row(device: Device, *, with_free: bool = False) -> DeviceRow:
    """Return what is said about a device."""
    if device.is_cpu:
        return DeviceRow(alias=device.alias, name=device.name)
    return DeviceRow(
        alias=device.alias,
        name=device.name,
        total_memory=device.total_memory,
        free_memory=device.free_memory if with_free else None,
        compute_capability=f"{device.arch // 10}.{device.arch % 10}",
        mempool=mempool_state(device),
        managed_memory=device.is_managed_memory_supported,
        concurrent_managed_access=device.is_concurrent_managed_access_supported,
        pageable_memory_access=device.is_cpu_memory_access_from_gpu_supported,
        unified_addressing=device.is_uva,
        ipc=device.is_ipc_supported,
    )


def platform_facts(registry: DeviceRegistry) -> dict[str, str]:
    """Return what ``--json`` says about the platform."""
    platform = registry.platform
    return {"name": platform.name, "description": platform.description, "why": platform.why}


def print_platform(out: Console, registry: DeviceRegistry) -> None:
    """Print which platform is in force, and why."""
    out.print(Text.assemble(("Platform  ", "bold"), registry.platform.description))
    out.print(Text.assemble(("Why       ", "bold"), registry.platform.why))


_COLUMNS = (
    Column("device"),
    Column("name", fold=14),
    Column("memory", right=True),
    Column("free", right=True),
    Column("cc"),
    Column("memory\npool"),
    Column("managed\nmemory"),
    Column("pageable", optional=True),
    Column("UVA", optional=True),
    Column("IPC"),
)


def print_devices(out: Console, rows: list[DeviceRow], *, with_free: bool = False) -> None:
    """Print the devices as a table."""
    has_gpu = any(row.total_memory is not None for row in rows)
    columns = _COLUMNS if has_gpu else _COLUMNS[:2]
    shown = [index for index, column in enumerate(columns) if with_free or column.title != "free"]
    cells = [_cells(row) for row in rows]
    print_table(out, [_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in cells])


_MEMPOOL_CELLS = {"not supported": Text("no", "dim"), "enabled": Text("enabled", "green")}


def _cells(row: DeviceRow) -> list[RenderableType]:
    if row.total_memory is None:
        return [row.alias, row.name, *[""] * (len(_COLUMNS) - 2)]
    return [
        row.alias,
        row.name,
        format_bytes(row.total_memory),
        "" if row.free_memory is None else format_bytes(row.free_memory),
        row.compute_capability or "",
        _MEMPOOL_CELLS.get(row.mempool or "", row.mempool or ""),
        Text("concurrent", "green") if row.concurrent_managed_access else yes_no(row.managed_memory),
        *(yes_no(flag) for flag in (row.pageable_memory_access, row.unified_addressing, row.ipc)),
    ]


def _peers(registry: DeviceRegistry) -> list[list[bool]]:
    return [[bool(can) for can in row] for row in peer_matrix(registry)]


def _print_peers(out: Console, registry: DeviceRegistry) -> None:
    """Print who can access whose memory: a sentence if it is all or nothing, else a matrix."""
    if len(registry.cuda) < 2:
        return
    matrix = _peers(registry)
    pairs = [matrix[i][j] for i in range(len(matrix)) for j in range(len(matrix)) if i != j]
    answer = "between all devices" if all(pairs) else "none" if not any(pairs) else "between some devices"
    out.print()
    out.print(Text.assemble(("Peer access  ", "bold"), answer))
    if len(set(pairs)) > 1:
        aliases = [device.alias for device in registry.cuda]
        columns = [Column("memory of"), *(Column(f"by {alias}") for alias in aliases)]
        print_table(out, columns, [[alias, *map(yes_no, row)] for alias, row in zip(aliases, matrix, strict=True)])
