"""Launching a kernel on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from allotment import configuration
from allotment._array import Array
from allotment._locks import RenewedLock
from allotment.access import CHECKS, arrays_in
from allotment.device import find_device
from allotment.launching._adapter import adapters
from allotment.launching._request import LaunchRequest, read_dim
from allotment.stream import ScopedStream, stream_in_force

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allotment.device import Device, DeviceLike
    from allotment.stream import Stream

    Work: TypeAlias = Callable[[LaunchRequest], None]
    Performance: TypeAlias = Callable[[Work, LaunchRequest], None]


def launch(
    kernel: Any,
    dim: int | Sequence[int],
    inputs: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    device: DeviceLike = None,
    stream: Stream | None = None,
) -> None:
    """Launch a kernel in the order of a stream.

    Parameters
    ----------
    kernel
        A Python function, which is called once with its arrays as NumPy arrays (on the host, and on simulated CUDA
        devices); a function compiled by Numba for the CPU or for CUDA; CuPy's ``RawKernel``, ``ElementwiseKernel``,
        ``ReductionKernel``, universal or fused function; a Warp kernel; or what `register_kernel_adapter` added.
    dim
        Over how many elements the kernel goes: a number, or one for each dimension. CUDA kernels get blocks of 256
        threads, enough to cover it. A Python function reads it with `launch_dim`, or has a parameter ``dim``. With an
        extent of 0 nothing is launched.
    inputs, outputs
        The arguments: arrays, objects of other libraries, numbers, and tuples or objects that hold them.
    device
        Where to launch; the device of ``stream``, or the default device, if not given.
    stream
        The stream; the one in force on the device if not given.

    Raises
    ------
    AccessError
        If ``config.launch_array_access_mode`` asks for a check and the device may not touch an array.
    UnsupportedError
        If such a kernel cannot run on the device.
    TypeError
        If nobody knows how to launch such a kernel.
    ValueError
        If ``stream`` is of another device, or ``dim`` is negative.
    """
    where = find_device(device) if device is not None or stream is None else stream.device
    adapter = adapters.find(kernel)
    order = _stream_on(where, stream)
    request = LaunchRequest(kernel, read_dim(dim), tuple(inputs), tuple(outputs), where, order)
    if 0 in request.shape:
        return
    if stream is None:
        _mode.perform(adapter.launch, request)
    else:
        with ScopedStream(stream, sync_enter=False):
            _mode.perform(adapter.launch, request)


def _stream_on(device: Device, stream: Stream | None) -> Stream | None:
    if stream is None and device.is_cpu:
        return None
    order = stream or stream_in_force(device)
    if order.device is not device:
        raise ValueError(f"a stream of {order.device.alias!r} cannot order a launch on {device.alias!r}")
    if device.captures.on_devices:
        device.captures.check_work(order)
    return order


def _perform(work: Work, request: LaunchRequest) -> None:
    """Launch, and let no memory of another device, such as page-locked memory, be reused before the work is done."""
    work(request)
    if request.stream is not None:
        for argument in request.arguments:
            if not (isinstance(argument, Array) and argument.device is request.device):
                _note_use(argument, request.device, request.stream)


def _note_use(argument: Any, device: Device, stream: Stream) -> None:
    for _, array in arrays_in(argument, ""):
        if array.account is None or array.device is device:
            continue
        capture = device.captures.covering(stream)
        if capture is None:
            array.record_use(stream)
        else:
            capture.keep(array)


class _Mode:
    """What a launch does under the ``launch_array_access_mode`` in force: found when the setting changed.

    In the mode ``RELAXED`` that is the launch itself, so that it costs nothing.
    """

    def __init__(self) -> None:
        self._lock = RenewedLock()
        self._is_subscribed = False
        self.perform: Performance = self._find_and_perform

    def _find_and_perform(self, work: Work, request: LaunchRequest) -> None:
        with self._lock():
            if not self._is_subscribed:
                configuration.subscribe(self._forget)
                self._is_subscribed = True
            perform = self.perform = self._performance()
        perform(work, request)

    def _performance(self) -> Performance:
        check = CHECKS[configuration.current().launch_array_access_mode]
        if check is None:
            return _perform

        def perform_checked(work: Work, request: LaunchRequest) -> None:
            check(request.name, request.device, request.named_arguments)
            _perform(work, request)

        return perform_checked

    def _forget(self, changed: frozenset[str]) -> None:
        if not changed or "launch_array_access_mode" in changed:
            with self._lock():
                self.perform = self._find_and_perform


_mode: Final = _Mode()
