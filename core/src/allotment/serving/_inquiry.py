"""Asking another process of the user how its memory stands."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from allotment.errors import ServingError
from allotment.serving._place import check_folder, check_system, is_alive, remove_stale_sockets, socket_path
from allotment.serving._reading import ProcessStatus
from allotment.serving._refusal import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 5.0
"""Seconds that a process may take to answer; one that is busy in a library may hold the interpreter lock for long."""
_MAX_ANSWER: Final = 2**24
_HOW_TO_SERVE: Final = (
    "Start it with ALLOTMENT_WATCH=1, write watch = true into its allotment.toml, or call allotment.serve_status() "
    "in it."
)


def ask(pid: int, *, patience: float = PATIENCE) -> ProcessStatus:
    """Return how the memory of a process stands.

    Parameters
    ----------
    pid
        A process of this user that serves its status; see `serve_status`.
    patience
        Seconds to wait for its answer.

    Raises
    ------
    ServingError
        If there is no such process, it is another user's, it does not serve, or its answer cannot be read.
    TimeoutError
        If it does not answer in time: it is stopped, or busy in a call that keeps the interpreter lock.
    UnsupportedError
        Where there are no Unix domain sockets, as on Windows.
    """
    check_system()
    path = socket_path(pid)
    try:
        if path.parent.exists():
            check_folder(path.parent, _what(pid))
        answer = b"".join(_received(path, patience))
    except (TimeoutError, ServingError):
        raise
    except OSError as error:
        raise _refusal(pid, path, error) from error
    return _read(pid, answer)


def _received(path: Path, patience: float) -> Iterator[bytes]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(patience)
        client.connect(str(path))
        left = _MAX_ANSWER
        while left > 0 and (part := client.recv(min(left, 2**16))):
            left -= len(part)
            yield part


def _read(pid: int, answer: bytes) -> ProcessStatus:
    try:
        status = msgspec.json.decode(answer, type=ProcessStatus)
    except msgspec.DecodeError as error:
        if not answer:
            raise _refused(pid, "it ended, or ceased to serve, before it answered") from error
        raise _refused(pid, f"its answer cannot be read ({error})", "Use the same version of Allotment.") from error
    if status.pid != pid:
        raise _refused(pid, f"process {status.pid} answered, which calls itself so in another container")
    return status


def _refusal(pid: int, path: Path, error: OSError) -> ServingError:
    """Say what it means that a process cannot be reached."""
    if path.parent.exists():
        remove_stale_sockets(path.parent)
    if not is_alive(pid):
        return _refused(pid, "there is no such process")
    if isinstance(error, PermissionError) or _is_anothers(pid):
        return _refused(pid, "permission denied, it is another user's", "Watch it as the user who started it.")
    return _refused(pid, f"it does not serve its status (no answer at {path})", _HOW_TO_SERVE)


def _is_anothers(pid: int) -> bool:
    """Return whether it is a process of another user, as far as the system tells."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}").stat().st_uid != os.getuid()
    except PermissionError:
        return True
    except OSError:  # it has just ended, or there is no such folder on this system
        return False


def _refused(pid: int, problem: str, remedy: str | None = None) -> ServingError:
    return refusal(_what(pid), problem, remedy)


def _what(pid: int) -> str:
    return f"process {pid} cannot be watched"
