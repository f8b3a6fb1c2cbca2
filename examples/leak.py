"""A leak: a list that is never emptied keeps the activations of each step.

`allotment.expect_no_leaks` names the blocks, their label and the line that allocated them. On simulated GPUs:

    ALLOTMENT_PLATFORM=sim:2xh200 python examples/leak.py
"""

from __future__ import annotations

import allotment as al

history: list[al.Array] = []


def forward() -> al.Array:
    """Return the activations of one step."""
    with al.label("activations"):
        return al.zeros((256, 1024), device="cuda:0")


def train(steps: int) -> None:
    """Run some steps, and keep by mistake what each has made."""
    history.extend(forward() for _ in range(steps))


if __name__ == "__main__":
    al.configure(layers=["track"])
    with al.expect_no_leaks("cuda:0"):
        train(steps=3)
