"""What a test sees and steers of a simulation, beside the calls of `Platform`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from allotment.errors import PlatformError
from allotment.platform.simulated._access import Access
from allotment.platform.simulated._calls import CallLog, Journal
from allotment.platform.simulated._capture import Captures
from allotment.platform.simulated._errors import INVALID_HANDLE, Refused
from allotment.platform.simulated._graph import Graphs
from allotment.platform.simulated._ipc import Exchange
from allotment.platform.simulated._memory import Memory
from allotment.platform.simulated._profile import as_simulated_here
from allotment.platform.simulated._stream import Handles, Stream, Streams
from allotment.platform.simulated._transfer import Transfers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from allotment.platform._values import StridedMemory
    from allotment.platform.simulated._pointer import ManagedState
    from allotment.platform.simulated._profile import Profile
    from allotment.platform.simulated._stream import Work


class Simulation:
    """The state of a simulated machine, with what a test may do to it.

    Parameters
    ----------
    profile
        What to simulate.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile = as_simulated_here(profile)
        self._journal = Journal()
        self._contexts: set[int] = set()
        handles = Handles()
        self._streams = Streams(len(profile.devices), handles)
        self._memory = Memory(profile, self._streams, handles)
        self._access = Access(profile, self._memory.allocations, self._memory.contains)
        self._transfers = Transfers(profile, self._memory, self._access, self._streams, self._launch)
        self._captures = Captures(self._journal.thread)
        self._graphs = Graphs(self._memory, handles, self._launch)
        self._exchange = Exchange(self, self._memory)

    @property
    def calls(self) -> CallLog:
        """The latest calls."""
        return self._journal.log

    @property
    def calls_made(self) -> int:
        """The number of all calls so far, without those that ask for the current device or set it."""
        return self._journal.made

    def fail(self, call_name: str, nth: int = 1, code: str = "cudaErrorMemoryAllocation", times: int = 1) -> None:
        """Make calls fail.

        Parameters
        ----------
        call_name
            A method of `Platform`, such as ``"malloc"``.
        nth
            The first call to fail, counted from 1 from now on.
        code
            CUDA's name for the error.
        times
            How many calls fail, one after the other.
        """
        with self._journal.lock():
            self._journal.fail(call_name, nth, code, times)

    def stop_failing(self) -> None:
        """Forget the failures that were asked for and did not come yet."""
        with self._journal.lock():
            self._journal.stop_failing()

    def contexts(self) -> frozenset[int]:
        """Return the ordinals of the devices that have a context."""
        return frozenset(self._contexts)

    def mark_shutdown(self, tell: Callable[[str], None] | None = None) -> None:
        """Log later calls as made after the process began to shut down.

        Parameters
        ----------
        tell
            It is called with the name of each later call before anything is done: when the interpreter is nearly
            gone, a call may get no further, and nobody is left to read the log.
        """
        self._journal.shut_down = True
        if tell is not None:
            self._journal.tell(tell)

    def hold(self, stream: int, ordinal: int | None = None) -> None:
        """Keep later work of a stream in its queue until it is released or synchronised with."""
        with self._journal.lock():
            self._streams.hold(self._stream(stream, ordinal))

    def release(self, stream: int, ordinal: int | None = None) -> None:
        """Stop keeping work of a stream, and do what was kept."""
        with self._journal.lock():
            self._streams.release(self._stream(stream, ordinal))

    @contextmanager
    def delayed(self, stream: int, ordinal: int | None = None) -> Iterator[None]:
        """Hold a stream in the body of a ``with`` statement."""
        self.hold(stream, ordinal)
        try:
            yield
        finally:
            self.release(stream, ordinal)

    def check_kernel_access(self, ordinal: int, ptr: int, nbytes: int) -> None:
        """Fault as a kernel of device ``ordinal`` that touches a range would.

        Raises
        ------
        PlatformError
            ``cudaErrorIllegalAddress``, with which every later call that needs the GPU fails too.
        """
        with self._journal.lock():
            try:
                self._access.check_ordinal(ordinal)
                self._access.check_kernel(ordinal, ptr, nbytes)
            except Refused as refused:
                self._fault(refused)
                raise self._journal.error("kernel", refused) from None

    def check_host_access(self, ptr: int, nbytes: int) -> None:
        """Refuse an access by host code that would end the process on the hardware.

        Raises
        ------
        PlatformError
            ``SIGSEGV``. Nothing is remembered.
        """
        with self._journal.lock():
            try:
                self._access.check_host(ptr, nbytes, any_device_works=self._streams.has_work)
            except Refused as refused:
                raise PlatformError(call="host access", code=refused.code, detail=refused.detail) from None

    def launch(
        self, work: Callable[[], None], stream: int, ordinal: int, touches: Sequence[StridedMemory] = ()
    ) -> None:
        """Do work in the order of a stream of device ``ordinal``, as a kernel, or capture it if the stream is captured.

        Before the work is done, the kernel is taken to touch all of ``touches``. That it may not, and what
        `check_kernel_access` raises inside ``work``, is the kernel's fault: later calls meet it, not this one. Any
        other exception leaves the call in which the work is done.

        Raises
        ------
        PlatformError
            If the stream belongs to another device, a capture rules it out, or an earlier kernel faulted. As a call of
            the driver, it leaves `peek_last_error` as it is.
        """
        with self._journal.lock():
            try:
                self._journal.admit("launch", after_fault=False)
                queue = self._kernel_stream(stream, ordinal)
                check = self._transfers.touch(touches, queue) if touches else None
                self._launch(self._transfers.guarded(work, touches, queue), queue, check)
            except Refused as refused:
                raise PlatformError(call="cuLaunchKernel", code=refused.code, detail=refused.detail) from None

    def managed_state(self, ptr: int) -> ManagedState | None:
        """Return what was advised about the managed memory at an address; ``None`` for other addresses."""
        with self._journal.lock():
            block = self._memory.allocations.around(ptr)
            return None if block is None else block.managed

    def peek_last_error(self) -> str:
        """Return the error that this thread's last failing call left behind."""
        return self._journal.thread.last_error

    def get_last_error(self) -> str:
        """Return the error that this thread's last failing call left behind, and forget it."""
        error, self._journal.thread.last_error = self._journal.thread.last_error, "cudaSuccess"
        return error

    def close(self) -> None:
        """Give the host memory behind all addresses back. Nothing may be used afterwards."""
        with self._journal.lock():
            self._streams.abandon()
            self._exchange.close()
            self._memory.close()

    # How it is done

    def _open(self, ordinal: int) -> None:
        self._access.check_ordinal(ordinal)
        self._contexts.add(ordinal)

    def _current(self) -> int:
        ordinal = self._journal.thread.device
        if ordinal not in self._contexts:
            self._open(ordinal)
        return ordinal

    def _stream(self, handle: int, ordinal: int | None) -> Stream:
        if ordinal is None:
            ordinal = self._journal.thread.device
        else:
            self._access.check_ordinal(ordinal)
        stream = self._streams.get(handle, ordinal)
        self._contexts.add(stream.ordinal)
        return stream

    def _work_stream(self, handle: int, ordinal: int | None) -> Stream:
        """Return the stream of a handle for work on it, which a capture may rule out."""
        stream = self._stream(handle, ordinal)
        self._captures.check_work(stream)
        return stream

    def _kernel_stream(self, handle: int, ordinal: int) -> Stream:
        stream = self._work_stream(handle, ordinal)
        if stream.ordinal != ordinal:
            raise Refused(INVALID_HANDLE, f"a kernel of device {ordinal} on a stream of device {stream.ordinal}")
        return stream

    def _launch(self, work: Work, stream: Stream, check: Work | None = None) -> None:
        if stream.capture is not None:
            stream.capture.add(stream, work, check)
            return

        def kernel() -> None:
            try:
                if check is not None:
                    check()
                with self._journal.outside():
                    work()
            except Refused as refused:
                self._fault(refused)
            except PlatformError:
                if self._journal.fault is None:
                    raise

        self._streams.submit(stream, kernel)

    def _fault(self, refused: Refused) -> None:
        self._journal.break_down(refused.code)
        self._streams.abandon()
