"""Each code block of the guides does what the guide says of it."""

from __future__ import annotations

import pytest

from .access_blocks import ACCESS_BLOCKS
from .allocator_blocks import ALLOCATOR_BLOCKS
from .block import ACCESS, ALLOCATORS
from .conftest import LEFT, RAN
from .pool_blocks import POOL_BLOCKS

BLOCKS = [*POOL_BLOCKS, *ALLOCATOR_BLOCKS, *ACCESS_BLOCKS]
TO_RUN = [block for block in BLOCKS if not block.later]
TO_COME = [block for block in BLOCKS if block.later]


def on_simulated_machines():
    return [
        pytest.param(block, f"sim:{profile}", id=f"{block.name}-{profile}")
        for block in TO_RUN
        for profile in block.profiles
    ]


def on_real_devices():
    marks = {1: pytest.mark.gpu, 2: pytest.mark.multi_gpu}
    return [pytest.param(block, "cuda", id=f"{block.name}-cuda", marks=marks[block.devices]) for block in TO_RUN]


@pytest.mark.parametrize(("block", "machine"), [*on_simulated_machines(), *on_real_devices()], indirect=["machine"])
def test_a_block_does_what_the_guide_says(block, machine, names, record_property):
    exec(compile(block.before, f"<before {block.name}>", "exec"), names)
    exec(compile(block.code, f"<{block.name}>", "exec"), names)
    block.check(names)
    for guide in block.guides:
        record_property(RAN, (guide, block.name))


@pytest.mark.parametrize("block", TO_COME, ids=lambda block: block.name)
def test_a_block_that_is_not_run_yet_has_a_reason(block, record_property):
    assert "issue 5" in block.later
    for guide in block.guides:
        record_property(LEFT, (guide, block.name, block.later))


def test_every_block_of_both_guides_is_here():
    """As counted in their text."""
    counts = {guide: len([block for block in BLOCKS if guide in block.guides]) for guide in (ALLOCATORS, ACCESS)}

    assert counts == {ALLOCATORS: 27, ACCESS: 38}


def test_no_block_is_here_twice():
    assert len({block.name for block in BLOCKS}) == len(BLOCKS)
