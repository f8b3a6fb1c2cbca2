"""What a suite is, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".suites"
"""Where `tests.suites.prepare` puts what wheels leave out; it is no part of the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A difference that is no fault, and why.

    Parameters
    ----------
    tests
        A pattern of test names; ``[`` stands for itself.
    becomes
        What becomes of them with the bridge.
    why
        The reason.
    allocators
        With which allocators; all if empty.
    """

    tests: str
    becomes: str
    why: str
    allocators: tuple[str, ...] = ()

    def explains(self, test: str, outcome: str, allocator: str) -> bool:
        """Return whether it is about a test that ended so."""
        pattern = self.tests.replace("[", "[[]")
        return (
            outcome == self.becomes
            and (not self.allocators or allocator in self.allocators)
            and fnmatchcase(test, pattern)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to run a suite.

    Parameters
    ----------
    allocator
        The allocator that the library draws from; ``None`` for its own, without Allotment.
    files
        Patterns of the files that are run so; all of the suite if empty.
    """

    allocator: str | None = None
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called."""
        return self.allocator or "without"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite of tests of somebody else.

    Parameters
    ----------
    library
        The library, as bridges are named.
    distribution
        What brings it, for its version.
    folder
        Given a scratch folder, return where the files are, after preparing what is needed there.
    files
        Patterns of the files below, relative to the folder.
    left_out
        Patterns of files, or of names of tests, that are not run in any way.
    why_left_out
        The reason.
    ways
        With which allocators it is run, beside without.
    arguments
        What pytest is told.
    ini
        The content of pytest's configuration, or the file below the folder that has it.
    environment
        What is set in each way.
    with_bridge
        What is set in addition with the bridge. If nothing is, `allotment.install` is called.
    paths
        Given the scratch folder, what modules are found in first.
    shards
        How many processes a way is spread over.
    divided
        Files that take longer than all that a process runs else: over how many processes their tests are spread.
    known
        The differences that are no faults.
    """

    library: str
    distribution: str
    folder: Callable[[Path], Path]
    files: tuple[str, ...]
    ways: tuple[Way, ...]
    left_out: tuple[str, ...] = ()
    why_left_out: str = ""
    arguments: tuple[str, ...] = ()
    ini: str = "[pytest]\n"
    environment: Mapping[str, str] = field(default_factory=dict)
    with_bridge: Mapping[str, str] = field(default_factory=dict)
    paths: Callable[[Path], tuple[Path, ...]] = lambda _: ()
    shards: int = 4
    divided: Mapping[str, int] = field(default_factory=dict)
    known: tuple[Known, ...] = ()

    def select(self, folder: Path, way: Way) -> list[Path]:
        """Return the files that a way runs, the largest first."""
        chosen = {file for pattern in self.files for file in folder.glob(pattern)}
        left = {file for pattern in self.left_out if pattern.endswith(".py") for file in folder.glob(pattern)}
        if way.files:
            chosen &= {file for pattern in way.files for file in folder.glob(pattern)}
        return sorted(chosen - left, key=lambda file: (-file.stat().st_size, file))

    def parts(self, folder: Path, way: Way) -> Iterator[tuple[tuple[Path, ...], tuple[int, int]]]:
        """Yield the files of each process that runs a part of a way, and which of how many with these files it is."""
        divided = {folder / name: number for name, number in self.divided.items()}
        files = self.select(folder, way)
        for file in filter(divided.__contains__, files):
            yield from (((file,), (turn, divided[file])) for turn in range(divided[file]))
        whole = [file for file in files if file not in divided]
        yield from ((tuple(whole[start :: self.shards]), (0, 1)) for start in range(min(self.shards, len(whole))))

    @property
    def tests_left_out(self) -> tuple[str, ...]:
        """Patterns of the tests that are not run."""
        return tuple(pattern for pattern in self.left_out if not pattern.endswith(".py"))

    def reason(self, test: str, outcome: str, allocator: str) -> str | None:
        """Return why a test ends otherwise with the bridge; ``None`` if that is not known."""
        return next((known.why for known in self.known if known.explains(test, outcome, allocator)), None)
