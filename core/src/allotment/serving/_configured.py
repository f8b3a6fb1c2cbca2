"""Serving what the configuration asks for, from the first use of a device on."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from allotment import configuration
from allotment.errors import ConfigError, ConfigWarning, ServingError, UnsupportedError
from allotment.serving._metrics import MetricsServer, serve_metrics
from allotment.serving._service import guard, open_services
from allotment.serving._status import serve_status

if TYPE_CHECKING:
    from collections.abc import Iterator

_WATCH: Final = "watch"
_PORT: Final = "metrics.port"


class _Hold:
    """Whether this process may serve what is configured."""

    is_held = False


_hold: Final = _Hold()


def serve_configured() -> None:
    """Open what is configured, unless it is open or held back; called when the devices of a process are found.

    Raises
    ------
    ConfigError
        If it cannot be served here at all.

    Warns
    -----
    ConfigWarning
        If the address is taken, as by another process of the same project: that is no reason for this one to fail.
    """
    if _hold.is_held:
        return
    values = configuration.current().values
    with guard():
        if values.watch:
            _served(_WATCH)
        if values.metrics.port is not None and not any(isinstance(each, MetricsServer) for each in open_services()):
            _served(_PORT)


def _served(key: str) -> None:
    values = configuration.current().values
    origin = str(configuration.current().value(key).origin)
    try:
        if key == _WATCH:
            serve_status()
        else:
            serve_metrics(values.metrics.port or 0, address=values.metrics.address)
    except ServingError as error:
        warnings.warn(f"{key} in {origin} has no effect: {error}", ConfigWarning, stacklevel=2)
    except (UnsupportedError, ValueError) as error:
        raise ConfigError(origin=origin, key=key, problem=str(error)) from error


@contextmanager
def held_back() -> Iterator[None]:
    """Serve nothing that is configured while a block runs: a command must not take the port of the program."""
    with _holding(is_held=True):
        yield


@contextmanager
def let_go() -> Iterator[None]:
    """Serve what is configured while a block runs, also inside of `held_back`."""
    with _holding(is_held=False):
        yield


@contextmanager
def _holding(*, is_held: bool) -> Iterator[None]:
    before, _hold.is_held = _hold.is_held, is_held
    try:
        yield
    finally:
        _hold.is_held = before
