"""The HTTP server of the metrics, and what it answers. It imports the client library of Prometheus."""

from __future__ import annotations

import os
import socket
from http import HTTPStatus
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from allotment.serving._collector import MemoryCollector
from allotment.serving._service import Answering

if TYPE_CHECKING:
    from collections.abc import Callable

    WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Any]

OPEN_METRICS: Final = "application/openmetrics-text"


class HttpServer(Answering, WSGIServer):
    """A server of the metrics, which listens when it is made.

    Parameters
    ----------
    address, port
        Where it listens.

    Raises
    ------
    OSError
        If it cannot.
    """

    allow_reuse_address = os.name == "posix"
    """On Windows this would let two processes have one port."""

    def __init__(self, address: str, port: int) -> None:
        facts = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, *_, place = facts[0]
        registry = CollectorRegistry()
        registry.register(MemoryCollector())
        super().__init__((str(place[0]), port), _Handler)
        self.set_app(_open_metrics_first(make_wsgi_app(registry)))

    def server_bind(self) -> None:
        """Bind, without the question for the host's full name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the standard library's
        """Log nothing: standard error is the program's."""


def _open_metrics_first(app: WsgiApp) -> WsgiApp:
    """Answer in OpenMetrics whoever takes anything; the client library would answer in the older format."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ["PATH_INFO"] not in ("/", "/metrics"):
            status = HTTPStatus.NOT_FOUND
            start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"The metrics are at /metrics.\n"]
        if environ.get("HTTP_ACCEPT", "*/*") == "*/*":
            environ = environ | {"HTTP_ACCEPT": OPEN_METRICS}
        return app(environ, start_response)

    return answer
