import numpy as np
import pytest

from allotment.platform.simulated import SimulatedPlatform


@pytest.fixture
def platform():
    with_two = SimulatedPlatform.from_profile("2xh200")
    yield with_two
    with_two.close()


@pytest.fixture
def read(platform):
    """Read bytes of simulated memory, whoever owns them, by a copy on the owner's null stream."""

    def read_bytes(ptr, nbytes):
        out = np.empty(nbytes, np.uint8)
        ordinal = max(0, platform.pointer_attributes(ptr).device)
        platform.copy(out.ctypes.data, ptr, nbytes, 0, ordinal)
        platform.synchronize_stream(0, ordinal)
        return out

    return read_bytes
