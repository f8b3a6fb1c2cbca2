"""``allotment status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from allotment import configuration
from allotment.bridges import BridgeState
from allotment.bridges import status as library_status
from allotment.cli._output import AsJson, Column, console, print_json, print_table

if TYPE_CHECKING:
    from allotment.bridges import BridgeStatus

_COLUMNS = (
    Column("library"),
    Column("state"),
    Column("allocator", fold=40),
    Column("said by", fold=50),
    Column("bridge", optional=True),
)
_STYLES = {BridgeState.INSTALLED: "green", BridgeState.DISPLACED: "bold red", BridgeState.UNAVAILABLE: "dim"}


def status(as_json: AsJson = False) -> None:
    """Show which libraries can draw from Allotment, and which the configuration makes do so.

    What a running program has installed, it tells itself: allotment.status().
    """
    found = library_status()
    if as_json:
        print_json(found)
        return
    if not found:
        console().print("No bridge is installed. The bridge to CuPy comes with: pip install allotment-cupy-bridge")
        return
    print_table(console(), _COLUMNS, [_row(each) for each in found])


def _row(found: BridgeStatus) -> tuple[Text | str, ...]:
    configured = _configured(found.library)
    return (
        found.library,
        Text(found.state.value, style=_STYLES.get(found.state, "")),
        Text(found.allocator or found.reason or ("the allocator in force" if configured else "its own")),
        Text(found.by or configured),
        found.distribution or "",
    )


def _configured(library: str) -> str:
    """Return where the configuration says that the bridge is to be installed."""
    setting = configuration.current().value("bridges.install")
    names = (item if isinstance(item, str) else next(iter(item)) for item in setting.value)
    return f"{setting.origin}, at init()" if library in names else ""
