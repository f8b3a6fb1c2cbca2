"""All that the doctor looks at, in order."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

from allotment import configuration
from allotment.cli._platform import asked_platform
from allotment.cli.doctor._allocation import examine_allocation
from allotment.cli.doctor._devices import examine_devices
from allotment.cli.doctor._finding import problem, warning
from allotment.cli.doctor._platform import examine_platform
from allotment.cli.doctor._plugins import examine_observers, examine_plugins
from allotment.cli.doctor._settings import examine_settings
from allotment.cli.doctor._versions import examine_versions
from allotment.configuration import Configuration
from allotment.errors import AllotmentError, AllotmentWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allotment.cli.doctor._finding import Finding

_ON_DEVICES = (
    ("plugins", examine_plugins),
    ("observers", examine_observers),
    ("devices", examine_devices),
    ("allocation", examine_allocation),
)


def examine(platform: str | None = None) -> list[Finding]:
    """Return all findings.

    Parameters
    ----------
    platform
        The platform to look at; the configured one if not given.
    """
    with ExitStack() as scope, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AllotmentWarning)
        findings = [*_answer("versions", examine_versions), *_answer("configuration", examine_settings)]
        if not _is_configuration_readable():
            scope.enter_context(configuration.use(Configuration.isolated()))
            findings.append(warning("configuration", "what follows is how it would be without any configuration"))
        findings += _answer("platform", lambda: examine_platform(platform))
        try:
            scope.enter_context(asked_platform(platform))
        except AllotmentError:
            return findings  # said by the finding about the platform
        for subject, look in _ON_DEVICES:
            findings += _answer(subject, look)
        told = dict.fromkeys(str(each.message) for each in caught)
    return [*findings, *(warning("warnings", text) for text in told)]


def _is_configuration_readable() -> bool:
    try:
        configuration.current().table()
    except AllotmentError:
        return False
    return True


def _answer(subject: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of one look; a failure of the look itself is a finding too."""
    findings: list[Finding] = []
    try:
        findings.extend(look())
    except Exception as error:  # noqa: BLE001 - what is broken here is what the doctor is asked about
        findings.append(problem(subject, f"it cannot be examined: {type(error).__name__}: {error}"))
    return findings
