"""What the caching allocator holds for the recorded traces, against what PyTorch held when they were recorded."""

import pytest
from benchmarks.allocators.catalogue import TRACES

import allotment as al
from allotment.trace import read, replay, shipped_trace

PYTORCH = {"resnet50_train": 1.018, "gpt2_train": 1.032, "two_stream_pipeline": 1.553}
"""Reserved / requested of PyTorch 2.11 on an H200: the better of its default and of expandable segments."""


@pytest.mark.parametrize("name", PYTORCH)
@pytest.mark.parametrize("engine", ["auto", "python"])
def test_less_is_held_than_pytorch_held(name, engine):
    path = shipped_trace() if name == "resnet50_train" else TRACES / f"{name}.csv.gz"
    with al.simulate("2xh200"):
        result = replay(read(path), al.get_allocator("caching", "cuda:0", engine=engine), "cuda:0")

    assert result.failures == 0
    assert result.peak_reserved / result.peak_requested < PYTORCH[name]
