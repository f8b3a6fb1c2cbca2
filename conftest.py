"""What holds for every test of the workspace: one that needs CUDA devices says why it is skipped without them."""

from __future__ import annotations

from functools import cache

import pytest


@cache
def cuda_devices() -> tuple[int, str]:
    """Return how many CUDA devices answer, and what they are or why there is none. Opens no context."""
    from allotment.errors import PlatformUnavailableError
    from allotment.platform import choose

    try:
        platform = choose("cuda")
    except PlatformUnavailableError as unavailable:
        return 0, f"no CUDA device: {unavailable.reason}"
    count = platform.device_count()
    return count, f"{count} × {platform.device_properties(0).name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine has too few devices for."""
    for item in items:
        needed = devices_needed(item)
        if item.get_closest_marker("gpu") is None and needed:
            item.add_marker(pytest.mark.gpu)
        if needed and cuda_devices()[0] < needed:
            item.add_marker(pytest.mark.skip(reason=shortage(needed)))


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str:
    """Say, before the first test, what becomes of those that need a device."""
    needs = [needed for item in items if (needed := devices_needed(item))]
    if not needs:
        return "gpu tests: none selected"
    count, answer = cuda_devices()
    skipped = sum(needed > count for needed in needs)
    return f"gpu tests: {len(needs) - skipped} to run, {skipped} skipped ({answer})"


def devices_needed(item: pytest.Item) -> int:
    """Return the number of CUDA devices that a test is marked to need."""
    if item.get_closest_marker("multi_gpu"):
        return 2
    return 1 if item.get_closest_marker("gpu") else 0


def shortage(needed: int) -> str:
    """Return why a test is skipped."""
    count, answer = cuda_devices()
    return answer if count == 0 else f"needs {needed} CUDA devices, found {answer}"
