"""The configuration: the places that say something, and what is wrong there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allotment import configuration
from allotment.cli.doctor._finding import ok, problem, warning
from allotment.configuration import OriginKind
from allotment.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allotment.cli.doctor._finding import Finding

_SUBJECT = "configuration"
_SHOW = "allotment config show"


def examine_settings() -> Iterator[Finding]:
    """Yield where settings come from, or why they cannot be read."""
    current = configuration.current()
    try:
        settings = current.table()
    except ConfigError as error:
        yield problem(_SUBJECT, str(error))
        return
    said = [each for setting in settings for each in (setting, *setting.shadowed)]
    places = dict.fromkeys(str(each.origin) for each in said if each.origin.kind is not OriginKind.DEFAULT)
    if not places:
        yield ok(_SUBJECT, "nothing is configured: all settings are the defaults")
    for place in places:
        keys = ", ".join(each.key for each in said if str(each.origin) == place)
        yield ok(_SUBJECT, f"{place} says {keys}", _SHOW)
    for note in current.notes():
        yield warning(_SUBJECT, note, _SHOW)
