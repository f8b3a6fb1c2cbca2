"""The rules of the allocator contract, and how a test says which of them it checks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final, NoReturn, ParamSpec

import pytest

from allotment._wording import listed
from allotment.errors import AllocatorContractError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTRACT_PAGE: Final = "docs/reference/allocator-contract.md"

RULES: Final = {
    "A1": "There are two methods, called by position",
    "A2": "A returned pointer is a plain int above 0",
    "A3": "An address is never handed out while it is live",
    "A4": "Memory that was freed is used again",
    "S1": "Zero bytes never reach the allocator",
    "S2": "Sizes are checked before the allocator is called, and arrive as plain ints",
    "S3": "Every size is served or out of memory",
    "O1": "A wrong free is refused and changes nothing",
    "O2": "A foreign pointer is refused with its owner's name",
    "O3": "A block goes back to the allocator that made it",
    "M1": "The memory is of the declared kind",
    "M2": "Every block has the declared alignment",
    "M3": "Every byte of a block is its own",
    "M4": "Memory declared host-accessible is",
    "M5": "Memory declared shareable with other processes is",
    "M6": "Memory of an allocator that names a pool is that pool's",
    "D1": "The memory is the device's, and no other device is woken",
    "D2": "The current device is afterwards what it was before",
    "D3": "A block can be freed while another device is current",
    "D4": "Memory follows peer access where the allocator offers it",
    "W1": "Stream-ordered memory is reused in the order of streams, without waiting",
    "W2": "A recorded use keeps a freed block from reuse",
    "W3": "Memory that knows no streams is reused after all work",
    "C1": "What is declared capturable can be captured",
    "C2": "In a capture, what cannot be captured is not called, and frees wait",
    "C3": "No question ends a capture",
    "C4": "Memory that is set apart for a graph serves nobody else",
    "T1": "Any thread may allocate and free at any time",
    "T2": "A call that fails keeps no lock",
    "T3": "A finaliser may free in the middle of a call",
    "R1": "The accounts are exact",
    "R2": "What is held is at least what is handed out",
    "R3": "Trimming gives idle memory back, and only that",
    "R4": "Limits are kept",
    "R5": "What is said to be free at once is",
    "E1": "Out of memory is one typed error, after which everything works",
    "E2": "A call that fails leaves nothing behind",
    "E3": "A free that fails says so, and the block stays live",
    "L1": "The allocator outlives its arrays",
    "L2": "Closing gives everything back",
    "L3": "Nothing is called once shutdown has begun",
    "L4": "A forked child gets an error and calls nothing",
    "P1": "What is declared is well-formed and whole",
    "P2": "Options are a frozen value with defaults",
    "P3": "Asking for availability has no effect",
    "P4": "Availability is kept",
    "P5": "Importing the plugin is cheap",
    "P6": "Options survive pickling",
    "F1": "Functions in C serve like the methods",
}
"""The title of each rule by its id, as on the contract page."""

P = ParamSpec("P")

_BROKEN: Final = "broken_rule"
"""The attribute of an exception that says which rule it breaks."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a test of the kit checks, and where it runs.

    Parameters
    ----------
    rules
        The ids of the rules, the one first that a failure breaks unless the test says otherwise.
    profiles
        The simulated machines it runs on; the suite's own choice if not given.
    on_cuda
        Whether it runs on real devices too.
    devices
        How many CUDA devices it needs.
    """

    rules: tuple[str, ...]
    profiles: tuple[str, ...] | None = None
    on_cuda: bool = True
    devices: int = 1


def rule(
    *ids: str, profiles: tuple[str, ...] | None = None, on_cuda: bool = True, devices: int = 1
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return a decorator that says which rules a test checks, and adds them to the message of its failure.

    Parameters
    ----------
    *ids
        The ids of the rules.
    profiles
        The simulated machines to run it on; by default those of the suite.
    on_cuda
        Whether real devices can show it.
    devices
        How many CUDA devices it needs.

    Raises
    ------
    ValueError
        For an id that no rule has.
    """
    if unknown := [number for number in ids if number not in RULES] or not ids:
        raise ValueError(f"there is no rule {unknown}; there are {listed(tuple(RULES))}")
    check = Check(ids, profiles, on_cuda, devices)

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @wraps(test)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                test(*args, **kwargs)
            except pytest.skip.Exception:
                raise
            except BaseException as error:
                number = broken_rule(error) or ids[0]
                error.__dict__[_BROKEN] = number
                error.add_note(
                    f"rule {number} ({RULES[number]}) of the allocator contract: {CONTRACT_PAGE}#rule-{number.lower()}"
                )
                raise

        checked.__dict__["check"] = check
        return checked

    return decorate


EXEMPT: Final = "exempt: "
"""How the reason of a skipped test begins whose rule the allocator says that it cannot keep."""
NOT_CHECKED: Final = "not checked: "
"""How the reason of a skipped test begins that says nothing about the allocator, but what is missing to try it."""


def cannot_check(because: str) -> NoReturn:
    """Skip a test for want of something around the allocator, not of a duty of the allocator."""
    pytest.skip(f"{NOT_CHECKED}{because}")


def check_of(test: Callable[..., object]) -> Check | None:
    """Return what a test checks; ``None`` for a test that is none of the kit's."""
    found: Check | None = getattr(test, "check", None)
    return found


@contextmanager
def concerning(number: str) -> Iterator[None]:
    """Let what fails in a ``with`` block break this rule, one of several that a test checks."""
    try:
        yield
    except BaseException as error:
        error.__dict__.setdefault(_BROKEN, number)
        raise


def broken_rule(error: BaseException) -> str | None:
    """Return the rule that a failure breaks; ``None`` if nothing says which.

    Where core has refused what an allocator did, that is the rule which core names, whatever the test was about.
    """
    if isinstance(error, AllocatorContractError):
        return error.rule
    if isinstance(error, BaseExceptionGroup):  # of a sequence of calls that fails differently when it is repeated
        return next(filter(None, map(broken_rule, error.exceptions)), None)
    found: str | None = error.__dict__.get(_BROKEN)
    if found is None and error.__context__ is not None:  # what cleaning up after a failure runs into
        return broken_rule(error.__context__)
    return found
