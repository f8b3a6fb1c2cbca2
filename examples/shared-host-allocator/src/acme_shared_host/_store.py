"""Folders of shared memory: one for each allocator, with a file for each block, and a lock that lives as long as it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Final

try:
    import fcntl
except ImportError:  # this system has no such locks, and the allocator is not available there
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS: Final = fcntl is not None
_MEMORY_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - what is made there is the user's alone
_PREFIX: Final = "acme-shared-host"
_OWNER: Final = "owner"
"""The file that the owner of a folder has locked. The system lets go of the lock however the owner ends."""


def place_of(folder: str) -> Path:
    """Return where this user's folders are."""
    base = Path(folder) if folder else _MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else Path(tempfile.gettempdir())
    return base / f"{_PREFIX}-{os.getuid()}"


def remove_stale(folder: str = "") -> list[str]:
    """Remove what processes left behind that ended without cleaning up; return the names of their folders.

    Parameters
    ----------
    folder
        Where to look, as in `SharedHostOptions`.
    """
    place = place_of(folder)
    if not place.is_dir():
        return []
    return [found.name for found in sorted(place.iterdir()) if _remove_if_stale(found)]


def _remove_if_stale(folder: Path) -> bool:
    try:
        lock = os.open(folder / _OWNER, os.O_RDWR)
    except OSError:  # it is just being made, or removed
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        _remove(folder)
        return True
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder and its files, the lock last: until then it says whose they are."""
    with suppress(FileNotFoundError):
        for file in sorted(folder.iterdir(), key=lambda file: file.name == _OWNER):
            file.unlink(missing_ok=True)
        folder.rmdir()


def _locked(path: Path) -> int:
    """Make a file that is locked before anybody finds it; return its descriptor."""
    before = path.with_suffix(".new")
    lock = os.open(before, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    before.rename(path)
    return lock


class Store:
    """A folder for the blocks of one allocator. It goes with the process at the latest, unless that crashes.

    Parameters
    ----------
    folder
        Where to put it, as in `SharedHostOptions`.

    Attributes
    ----------
    folder : pathlib.Path
        The folder.
    """

    def __init__(self, folder: str) -> None:
        remove_stale(folder)
        self._process, self._numbers = os.getpid(), count(1)
        self.folder = place_of(folder) / f"{self._process}-{token_hex(4)}"
        self.folder.mkdir(mode=0o700, parents=True)
        self._lock = _locked(self.folder / _OWNER)

    @property
    def is_own(self) -> bool:
        """Whether this process made it, and not the one that this one was forked from."""
        return os.getpid() == self._process

    def create(self, nbytes: int, *, reserve: bool) -> tuple[Path, int]:
        """Return a new file of so many bytes and its descriptor, which the caller closes.

        Raises
        ------
        MemoryError
            If there is no room for it.
        """
        path = self.folder / f"{os.getpid()}-{next(self._numbers)}"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            if reserve:
                os.posix_fallocate(descriptor, 0, nbytes)
            else:
                os.ftruncate(descriptor, nbytes)
        except (OSError, OverflowError) as error:
            os.close(descriptor)
            path.unlink()
            raise MemoryError(f"{self.folder.parent} has no room for {nbytes:,} bytes: {error}") from error
        return path, descriptor

    def close(self) -> None:
        """Remove the folder, if this process made it."""
        if self._lock >= 0 and self.is_own:
            _remove(self.folder)
            os.close(self._lock)
            self._lock = -1
