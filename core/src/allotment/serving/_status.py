"""The socket at which other processes of the user can ask how the memory of this one stands."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from allotment.serving._place import check_system, prepared_path, remove_stale_sockets
from allotment.serving._refusal import refusal
from allotment.serving._service import Service, guard, open_services

if TYPE_CHECKING:
    from pathlib import Path

    from allotment.serving._unix import UnixServer

_WHAT: Final = "the status of this process cannot be served"


class StatusServer(Service):
    """A socket at which ``allotment watch`` can ask; `serve_status` opens it.

    Attributes
    ----------
    path : Path
        The socket. It and its folder are the user's alone.
    pid : int
        What to give to ``allotment watch``.
    """

    def __init__(self, server: UnixServer, path: Path) -> None:
        self.path, self.pid = path, os.getpid()
        super().__init__(server, "allotment-status")

    def close(self) -> None:
        """Stop answering and remove the socket. Calling it again does nothing."""
        if self.is_open:
            with suppress(OSError):  # whoever tidies up the folder may have been faster
                self.path.unlink()
        super().close()

    def __repr__(self) -> str:
        return f"<status at {str(self.path)!r}{'' if self.is_open else ', closed'}>"


def serve_status() -> StatusServer:
    """Let other processes of this user ask how the memory of this one stands, as ``allotment watch PID`` does.

    Returns
    -------
    StatusServer
        It serves until ``close()``, until a ``with`` block on it is left, or until the process ends, also if nobody
        keeps it. If the status is served already, what serves it.

    Raises
    ------
    ServingError
        If there is no folder for the socket that is the user's alone.
    UnsupportedError
        Where there are no Unix domain sockets, as on Windows.

    Notes
    -----
    ``ALLOTMENT_WATCH=1``, or ``watch = true`` in a file, does the same at the first use of a device. Being asked costs
    what reading the accounts costs. The driver is asked nothing while a graph is captured. A forked child does not
    serve.
    """
    check_system()
    with guard():
        found = next((service for service in open_services() if isinstance(service, StatusServer)), None)
        return found or _opened()


def _opened() -> StatusServer:
    from allotment.serving._unix import UnixServer

    path = prepared_path(os.getpid(), _WHAT)
    remove_stale_sockets(path.parent)
    try:
        return StatusServer(UnixServer(path), path)
    except OSError as error:
        problem = f"{error.strerror or error} ({path})"
        raise refusal(_WHAT, problem) from error
