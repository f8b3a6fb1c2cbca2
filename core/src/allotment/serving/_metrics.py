"""The endpoint that a monitoring system scrapes: OpenMetrics text over HTTP."""

from __future__ import annotations

import errno
from operator import index
from typing import TYPE_CHECKING, Final

from allotment.errors import UnsupportedError
from allotment.serving._refusal import refusal
from allotment.serving._service import Service

if TYPE_CHECKING:
    from allotment.errors import ServingError
    from allotment.serving._http import HttpServer

LOOPBACK: Final = "127.0.0.1"
_MAX_PORT: Final = 65535


class MetricsServer(Service):
    """An endpoint with metrics; `serve_metrics` opens it.

    Attributes
    ----------
    address, port
        Where it listens. The port is a real one, also if any free one was asked for.
    """

    def __init__(self, server: HttpServer) -> None:
        self.address, self.port = str(server.server_address[0]), int(server.server_address[1])
        super().__init__(server, f"allotment-metrics-{self.port}")

    @property
    def url(self) -> str:
        """What to scrape."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    def __repr__(self) -> str:
        return f"<metrics at {self.url}{'' if self.is_open else ', closed'}>"


def serve_metrics(port: int, *, address: str = LOOPBACK) -> MetricsServer:
    """Serve how the memory of this process stands as OpenMetrics text, to be scraped by Prometheus and the like.

    Parameters
    ----------
    port
        The TCP port; 0 for any that is free.
    address
        The address to listen at. By default nobody but this machine can connect; ``"0.0.0.0"`` lets everybody, without
        a password.

    Returns
    -------
    MetricsServer
        It has the ``url``, and serves until ``close()``, until a ``with`` block on it is left, or until the process
        ends, also if nobody keeps it.

    Raises
    ------
    ServingError
        If the port is in use, or the address is not to be had.
    UnsupportedError
        If the package ``prometheus-client`` is not installed.

    Notes
    -----
    It reads the accounts when it is asked. For that it opens no context, and asks the driver nothing while a graph is
    captured: what only the driver knows is left out of such an answer. A forked child does not serve. To serve takes a
    thread, and since 3.12 Python warns of a fork in a process with threads.
    """
    port, address = _checked_port(port), _checked_address(address)
    try:
        from allotment.serving._http import HttpServer
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"metrics cannot be served: the package prometheus-client is not installed ({error}). "
            "Install it with: pip install 'allotment[metrics]'."
        ) from error
    try:
        return MetricsServer(HttpServer(address, port))
    except OSError as error:
        raise _refused(address, port, error) from error


def _checked_port(port: object) -> int:
    if isinstance(port, bool):
        raise TypeError(f"a port is a number, not {port!r}")
    number = index(port)  # type: ignore[arg-type]
    if not 0 <= number <= _MAX_PORT:
        raise ValueError(f"a port is a number from 0 to {_MAX_PORT}, not {number}")
    return number


def _checked_address(address: object) -> str:
    if not isinstance(address, str):
        raise TypeError(f"an address is text such as {LOOPBACK!r}, not {address!r}")
    if not address.strip():  # to a socket it would mean every interface
        raise ValueError(f"an address is text such as {LOOPBACK!r} or '0.0.0.0', not {address!r}")
    return address.strip()


def _refused(address: str, port: int, error: OSError) -> ServingError:
    what = f"metrics cannot be served on port {port} of {address!r}"
    problem = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        remedy = "Close what listens there, choose another port, or 0 for any that is free."
        return refusal(what, f"port {port} is in use", remedy)
    if error.errno == errno.EACCES:
        return refusal(what, problem, "Choose a port above 1023.")
    return refusal(what, problem, f"Choose an address of this machine, such as {LOOPBACK!r}.")
