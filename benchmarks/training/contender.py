"""Where PyTorch's memory comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contender:
    """A supplier of PyTorch's memory.

    Parameters
    ----------
    name
        What it is called.
    mode, allocator
        The mode of the bridge and the allocator that it draws from; without them PyTorch allocates for itself.
    """

    name: str
    mode: str | None = None
    allocator: str | None = None


OWN = Contender("PyTorch")
CONTENDERS = (
    OWN,
    Contender("pool, al mempool", "pool", "mempool"),
    Contender("pool, al caching", "pool", "caching"),
    Contender("pool, al rmm", "pool", "rmm"),
    Contender("pool, al managed", "pool", "managed"),
    Contender("replace, al caching", "replace", "caching"),
)


def find(name: str) -> Contender:
    """Return the contender of a name."""
    return next(contender for contender in CONTENDERS if contender.name == name)
