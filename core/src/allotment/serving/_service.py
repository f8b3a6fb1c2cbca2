"""A server of this process: one thread that answers one request after the other, until it is closed."""

from __future__ import annotations

import selectors
import socket
import sys
from contextlib import suppress
from socketserver import BaseServer
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from allotment import _process
from allotment._locks import RenewedLock

if TYPE_CHECKING:
    from threading import RLock
    from types import TracebackType

Socket: TypeAlias = socket.socket
PATIENCE: Final = 2.0
"""Seconds that a client may take to send its request or to read the answer."""
_LAST_ANSWER: Final = 5.0
"""Seconds that closing waits for an answer under way."""
_Selector: Final[type[selectors.BaseSelector]] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Answering(BaseServer):
    """What a socket server has to be to stand behind a `Service`; mixed in before a server of the standard library."""

    timeout = 0
    socket: Socket
    connection: Socket | None = None

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection."""
        found: tuple[Any, Any] = super().get_request()
        found[0].settimeout(PATIENCE)
        self.connection = found[0]
        return found

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self.connection = None
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that broke off; any other failure is told as the standard library does."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def interrupt(self) -> None:
        """End the connection under way, from another thread: a client may be slow."""
        if (connection := self.connection) is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close what a forked child has of it, which changes nothing for the parent."""
        for each in (self.socket, self.connection):
            if each is not None:
                each.close()


class Service:
    """A server that is open until `close` is called, a ``with`` block on it is left, or the process ends.

    Parameters
    ----------
    server
        What listens already.
    name
        The name of the thread.
    """

    def __init__(self, server: Answering, name: str) -> None:
        self._server = server
        self._wake, self._awaken = socket.socketpair()
        self._is_closing = False
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        _services.add(self)

    @property
    def is_open(self) -> bool:
        """Whether it answers."""
        return self in _services.open

    def close(self) -> None:
        """Stop answering and free the address. Calling it again does nothing."""
        if not _services.discard(self):
            return
        self._is_closing = True
        self._awaken.close()
        self._server.interrupt()
        if self._thread is not current_thread():
            self._thread.join(_LAST_ANSWER)
        self._server.server_close()
        self._wake.close()

    def abandon(self) -> None:
        """Let go of it in a forked child: the thread and the address are the parent's."""
        self._server.abandon()
        self._wake.close()
        self._awaken.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        with _Selector() as selector:
            selector.register(self._server.socket, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                selector.select()
                if self._is_closing:
                    return
                self._server.handle_request()


class _Services:
    """What this process serves."""

    def __init__(self) -> None:
        self.open: tuple[Service, ...] = ()
        self._lock = RenewedLock()
        self._is_installed = False

    def guard(self) -> RLock:
        """Return the lock of this package's state; a forked child gets one of its own."""
        if not self._is_installed:
            with self._lock():
                self._install()
        return self._lock()

    def add(self, service: Service) -> None:
        """Note a service that is opened."""
        with self.guard():
            self.open = (*self.open, service)

    def discard(self, service: Service) -> bool:
        """Note that a service is closed; return whether it was open."""
        with self.guard():
            was_open = service in self.open
            self.open = tuple(other for other in self.open if other is not service)
            return was_open

    def close_all(self) -> None:
        """Close what is open: the process ends."""
        for service in self.open:
            service.close()

    def abandon_all(self) -> None:
        """Forget everything: this process is a forked child."""
        abandoned, self.open = self.open, ()
        for service in abandoned:
            service.abandon()

    def _install(self) -> None:
        if self._is_installed:
            return
        _process.on_shutdown(self.close_all)
        _process.on_renewal_in_child(self.abandon_all)
        self._is_installed = True


_services: Final = _Services()


def guard() -> RLock:
    """Return the lock of this package's state; a forked child gets one of its own."""
    return _services.guard()


def open_services() -> tuple[Service, ...]:
    """Return what this process serves."""
    return _services.open
