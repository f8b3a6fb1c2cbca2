"""Where the sockets of processes that can be watched are: a folder that is the user's alone."""

from __future__ import annotations

import os
import socket
import stat
import warnings
from typing import TYPE_CHECKING, Final

from allotment.errors import ServingError, UnsupportedError
from allotment.serving._refusal import refusal

if TYPE_CHECKING:
    from pathlib import Path

_SUFFIX: Final = ".sock"
_FOR_ALL: Final = stat.S_IRWXG | stat.S_IRWXO
_OWN: Final = "Set XDG_RUNTIME_DIR to a folder of the user's own with a short path."
_MAX_PATH: Final = 103
"""Bytes that the address of a Unix socket can have on every system; Linux takes a few more."""


def check_system() -> None:
    """Raise where there are no Unix sockets."""
    if not hasattr(socket, "AF_UNIX"):
        raise UnsupportedError(
            "a process cannot be watched on this system: Python has no Unix domain sockets here. "
            "Use allotment.serve_metrics(), which works everywhere."
        )


def socket_folder() -> Path:
    """Return the folder of the sockets, whether it exists or not."""
    from platformdirs import user_runtime_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the folder that it falls back to, which is looked at below
        return user_runtime_path("allotment", appauthor=False)


def socket_path(pid: int) -> Path:
    """Return the socket of a process, whether it exists or not."""
    return socket_folder() / f"{pid}{_SUFFIX}"


def prepared_path(pid: int, what: str) -> Path:
    """Return the path at which a process can open its socket.

    Parameters
    ----------
    pid
        The process.
    what
        What cannot be done without it, for the error.

    Raises
    ------
    ServingError
        If there is no folder that is the user's alone.
    """
    path = socket_path(pid)
    try:
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(path.parent, what)
        path.unlink(missing_ok=True)  # of a dead process that had the same number
    except ServingError:
        raise
    except OSError as error:
        raise refusal(what, f"{error.strerror or error} ({path})", _OWN) from error
    if len(os.fsencode(path)) > _MAX_PATH:
        raise refusal(what, f"the path of the socket is too long ({path})", _OWN)
    return path


def check_folder(folder: Path, what: str) -> None:
    """Raise `ServingError`, of what cannot be done then, for a folder in which others could put a socket of theirs."""
    for place in (folder, folder.parent):
        facts = place.lstat()
        is_shared = facts.st_mode & stat.S_ISVTX  # as /tmp is, where nobody can replace what is another's
        owners = (os.getuid(),) if place == folder else (os.getuid(), 0)
        forbidden = _FOR_ALL if place == folder else (stat.S_IWGRP | stat.S_IWOTH) * (not is_shared)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in owners:
            raise refusal(what, f"{place} is not a folder of this user", _OWN)
        if facts.st_mode & forbidden:
            remedy = f"Run: chmod go-rwx {place}"
            raise refusal(what, f"other users have access to {place}", remedy)


def remove_stale_sockets(folder: Path) -> None:
    """Remove the sockets of processes that ended without doing so."""
    for path in folder.glob(f"*{_SUFFIX}"):
        if path.stem.isdigit() and not is_alive(int(path.stem)) and not _is_answered(path):
            path.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Return whether there is a process of this number, whosever it is."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _is_answered(path: Path) -> bool:
    """Return whether somebody listens: a process of another container may have the folder, and its own numbers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
        except OSError as error:
            return isinstance(error, TimeoutError)
        return True
