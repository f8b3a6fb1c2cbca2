"""Arrays go from each library to each other one without a copy, whichever allocator they came from."""

import json

import pytest

from .libraries import CLASSES, NAMES

pytestmark = pytest.mark.gpu

ALL = (*NAMES, "allotment")
PAIRS = [(one, other) for one in ALL for other in ALL if one != other]
WITH_DLPACK = [pair for pair in PAIRS if all(CLASSES[name].speaks_dlpack for name in pair)]

SCRIPT = """
import gc, json
import allotment as al
from tests.integration.libraries import CLASSES, let_go, used

al.install("cupy", "torch", "numba", "warp", allocator="caching")
libraries = {name: CLASSES[name]() for name in PAIRS_OF}
answers = {}

def hand_over(maker, taker, take):
    array = maker.full(1000, 3.0)
    maker.synchronize()
    pointer = maker.pointer(array)
    taken = take(array)
    if taker.pointer(taken) != pointer:
        return "copied"
    del array
    gc.collect()
    others = [maker.full(1000, 4.0), taker.full(1000, 5.0)]
    for library in (maker, taker):
        library.synchronize()
    values = taker.numpy(taken)
    return "right" if values.shape == (1000,) and (values == 3.0).all() else f"wrong: {values[:3]}"

for protocol, pairs in PAIRS.items():
    for one, other in pairs:
        maker, taker = libraries[one], libraries[other]
        take = getattr(taker, f"from_{protocol}")
        try:
            answers[f"{protocol} {one} {other}"] = hand_over(maker, taker, take)
        except Exception as error:
            answers[f"{protocol} {one} {other}"] = f"{type(error).__name__}: {error}"
        gc.collect()
let_go(*libraries.values())
answers["left"] = used()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(result_of):
    """What became of each hand-over, by protocol, maker and taker."""
    pairs = {"interface": PAIRS, "dlpack": WITH_DLPACK}
    return json.loads(result_of(f"PAIRS = {pairs!r}\nPAIRS_OF = {ALL!r}\n" + SCRIPT))


@pytest.mark.parametrize(("maker", "taker"), PAIRS)
def test_the_cuda_array_interface_hands_the_same_memory_over(answers, maker, taker):
    assert answers[f"interface {maker} {taker}"] == "right"


@pytest.mark.parametrize(("maker", "taker"), WITH_DLPACK)
def test_dlpack_hands_the_same_memory_over(answers, maker, taker):
    assert answers[f"dlpack {maker} {taker}"] == "right"


def test_nothing_is_left_behind(answers):
    assert answers["left"] == {}
