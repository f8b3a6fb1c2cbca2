"""What can be configured about shared memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHostOptions:
    """Options of the ``shared-host`` allocator.

    Parameters
    ----------
    folder
        Where the names are: a folder of a file system in memory. ``/dev/shm``, or else the folder for temporary files,
        if empty.
    reserve
        Take the memory when it is asked for, so that a lack of it is an error then. ``False``: when it is touched,
        where a lack of it ends the process.
    huge_pages
        Ask the system for huge pages, which blocks are then rounded up to.
    """

    folder: str = ""
    reserve: bool = True
    huge_pages: bool = False
