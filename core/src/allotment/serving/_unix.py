"""The server behind a status socket. It can be imported only where there are Unix sockets."""

from __future__ import annotations

from socketserver import BaseRequestHandler, UnixStreamServer
from typing import TYPE_CHECKING

import msgspec

from allotment.serving._reading import read_status
from allotment.serving._service import Answering

if TYPE_CHECKING:
    from pathlib import Path


class UnixServer(Answering, UnixStreamServer):
    """A server that tells the status to whoever connects, as one JSON document, and hangs up.

    Parameters
    ----------
    path
        Where the socket is made, in a folder that nobody else can enter.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Teller)
        path.chmod(0o600)


class _Teller(BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(msgspec.json.encode(read_status()))
