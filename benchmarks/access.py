"""The budgets of the access engine: what asking costs, and that a launch in the mode RELAXED costs nothing more."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import allotment as al
from allotment.device import find_device
from allotment.launching import _launch as steps
from benchmarks.measurement import Budget, Comparison, Within, compare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allotment.device import DeviceLike

Mode = al.config.LaunchArrayAccessMode


def comparisons() -> Iterator[Comparison]:
    """Run all comparisons: on two CUDA devices where there are, else on two simulated ones."""
    if al.get_cuda_device_count() >= 2:
        yield from _on_two_devices("two real devices")
        return
    with al.simulate("2xh200"):
        yield from _on_two_devices("two simulated devices")


def _on_two_devices(where: str) -> Iterator[Comparison]:
    yield questions(where)
    yield launches(where)


def questions(where: str) -> Comparison:
    """Measure `can_access` and `explain_access`."""
    here, other = al.get_cuda_devices()[:2]
    array, refused = al.zeros(4, device=here), al.zeros(4, device=other)
    budgets = {"can_access, same device": (Budget(at_most=300),), "can_access, other device": (Budget(at_most=1000),)}
    with al.ScopedMempoolAccess(here, other, True):
        contenders = {
            "can_access, same device": partial(al.can_access, here, array),
            "can_access, other device": partial(al.can_access, other, array),
            "can_access, other device, refused": partial(al.can_access, here, refused),
            "explain_access, other device": partial(al.explain_access, other, array),
        }
        return compare(f"questions about access, {where}", contenders, budgets)


class _Kernel:
    """A kernel that does nothing."""


class _EmptyAdapter:
    """Launches `_Kernel`, which costs nothing, so that what is left is the launch itself."""

    kernels = "kernels that do nothing"

    def accepts(self, kernel: object) -> bool:
        """Accept such a kernel."""
        return type(kernel) is _Kernel

    def launch(self, request: al.LaunchRequest) -> None:
        """Do nothing."""


def launches(where: str) -> Comparison:
    """Measure a launch in each mode, and the same steps of one that knows no modes."""
    device = al.get_cuda_devices()[0]
    kernel, inputs = _Kernel(), [al.zeros(4, device=device), al.zeros(4, device=device), 3]
    launch = partial(al.launch, kernel, 4, inputs, device=device)
    remove = al.register_kernel_adapter(_EmptyAdapter())
    try:
        return compare(
            f"launch of a kernel that does nothing, {where}",
            {
                "no modes": partial(_launch_without_modes, kernel, 4, inputs, device=device),
                **{mode.name: Within(partial(_mode, mode), launch) for mode in Mode},
            },
            {"RELAXED": (Budget(at_most=1.05, reference="no modes"),)},
        )
    finally:
        remove()


def _launch_without_modes(
    kernel: object, dim: int, inputs: Sequence[Any], outputs: Sequence[Any] = (), device: DeviceLike = None
) -> None:
    """Take the steps that `launch` takes, without asking for the mode."""
    stream = None
    where = find_device(device) if device is not None or stream is None else stream.device
    adapter = steps.adapters.find(kernel)
    order = steps._stream_on(where, stream)
    request = al.LaunchRequest(kernel, steps.read_dim(dim), tuple(inputs), tuple(outputs), where, order)
    if 0 in request.shape:
        return
    if stream is None:
        steps._perform(adapter.launch, request)


@contextmanager
def _mode(mode: Any) -> Iterator[None]:
    before = al.config.launch_array_access_mode
    al.config.launch_array_access_mode = mode
    try:
        yield
    finally:
        al.config.launch_array_access_mode = before
