"""Every error and warning that Allotment raises.

Each error has the standard exception that fits as its second parent, keeps the raw facts in fields, and builds its text
from them in one order: what failed, on what, the cause, what is possible here, what to do. Errors can be pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from allotment._wording import amount, listed, nearest, sentence

if TYPE_CHECKING:
    from collections.abc import Callable


class AllotmentError(Exception):
    """The root of all errors of Allotment.

    A subclass lists its facts in ``fields``, takes them as keyword arguments, and says its text in ``describe``.

    Attributes
    ----------
    message
        The text, of an error that has no other facts.
    """

    fields: ClassVar[tuple[str, ...]] = ("message",)

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        if message is not None:
            facts["message"] = message
        for name in self.fields:
            setattr(self, name, facts.pop(name, None))
        if facts:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(facts)}")
        super().__init__(self.describe())

    def describe(self) -> str:
        """Return the text of the error."""
        return str(getattr(self, "message", None) or "")

    def __reduce__(self) -> tuple[Callable[..., AllotmentError], tuple[Any, ...], dict[str, Any]]:
        # The third part carries what was added later, such as notes.
        return _rebuild, (type(self), {name: getattr(self, name) for name in self.fields}), self.__dict__


def _rebuild(error: type[AllotmentError], facts: dict[str, Any]) -> AllotmentError:
    return error(**facts)


# ---- Memory ----------------------------------------------------------------------------------------------------------


class OutOfMemoryError(AllotmentError, MemoryError):
    """A request could not be met.

    Attributes
    ----------
    requested
        The size that was asked for, in bytes.
    in_use, reserved
        What the allocator had handed out, and what it held of the device, in bytes; the latter ``None`` where the
        allocator could not say.
    free, total
        The device's memory in bytes; ``None`` where the platform could not say.
    limit
        The limit in force in bytes, ``None`` if there is none.
    device, allocator
        The names of both.
    tried
        What was done to get memory all the same, in order; ``None`` if nothing was.
    holders
        Who holds most of the device's memory, if the layer ``track`` knows; see `memory_holders`.
    hint
        What to do, where there is something particular to say.
    largest_free
        The largest idle block of what is reserved; ``None`` where the allocator could not say.
    """

    fields: ClassVar[tuple[str, ...]] = ("requested", "in_use", "reserved", "free", "total", "limit", "device")
    fields += ("allocator", "tried", "holders", "hint", "largest_free")
    requested: int
    in_use: int
    reserved: int | None
    free: int | None
    total: int | None
    limit: int | None
    device: str
    allocator: str
    tried: tuple[str, ...] | None
    holders: tuple[object, ...] | None
    hint: str | None
    largest_free: int | None

    @property
    def is_fragmented(self) -> bool:
        """Whether what is idle would be enough, and only lies in pieces that are too small."""
        return (
            self.largest_free is not None and self.largest_free < self.requested <= (self.reserved or 0) - self.in_use
        )

    def describe(self) -> str:
        """Return the text of the error."""
        idle = "" if self.largest_free is None else f"largest idle block {amount(self.largest_free)}, "
        return (
            f"out of memory: {amount(self.requested)} asked of allocator {self.allocator!r} on {self.device!r}. "
            f"In use {amount(self.in_use)}, reserved {amount(self.reserved)}, {idle}device free {amount(self.free)} "
            f"of {amount(self.total)}, limit {amount(self.limit, 'none')}. "
            + ("What is idle would be enough, but it is fragmented. " if self.is_fragmented else "")
            + (f"Tried in vain: {listed(self.tried)}. " if self.tried else "")
            + (f"Largest holders: {'; '.join(map(str, self.holders))}. " if self.holders else "")
            + (self.hint or "Free arrays that are no longer needed, trim the allocators, or ask for less.")
        )


class InvalidPointerError(AllotmentError, ValueError):
    """A pointer was given back that the allocator cannot take: unknown, freed already, or owned by another.

    Attributes
    ----------
    pointer
        The address.
    allocator
        The name of the allocator that refused.
    owner
        The name of the allocator that has it live, if one has.
    history
        Where the last block at the address was allocated and freed, if the layer ``track`` knows.
    """

    fields = ("pointer", "allocator", "owner", "history")
    pointer: int
    allocator: str
    owner: str | None
    history: str | None

    def describe(self) -> str:
        """Return the text of the error."""
        text = f"allocator {self.allocator!r} cannot free {self.pointer:#x}: "
        if self.owner is not None:
            return text + f"the block is live in allocator {self.owner!r}. Free it there."
        text += "it is not live here. It was freed before, is inside a block, or came from somewhere else."
        return f"{text} {self.history}" if self.history else text


class SizeMismatchError(AllotmentError, ValueError):
    """A block was given back with another size than it was asked for with. The block stays live.

    Attributes
    ----------
    pointer
        The address.
    allocator
        The name of the allocator that refused.
    allocated, given
        The size in bytes that was asked for, and the one that was given back.
    """

    fields = ("pointer", "allocator", "allocated", "given")
    pointer: int
    allocator: str
    allocated: int
    given: int

    def describe(self) -> str:
        """Return the text of the error."""
        return (
            f"allocator {self.allocator!r} cannot free {self.pointer:#x} with size {self.given:,}: "
            f"it was allocated with {self.allocated:,} bytes. It stays live; free it with that size."
        )


class AllocatorContractError(AllotmentError, RuntimeError):
    """An allocator broke a numbered rule of the allocator contract.

    Attributes
    ----------
    allocator
        Its name.
    rule
        The rule's number on the contract page, such as ``"A3"``.
    problem
        What it did.
    """

    fields = ("allocator", "rule", "problem")
    allocator: str
    rule: str
    problem: str

    def describe(self) -> str:
        """Return the text of the error."""
        return f"allocator {self.allocator!r} broke rule {self.rule} of the allocator contract: {self.problem}."


class GuardError(AllotmentError, RuntimeError):
    """The layer ``guard`` found that memory was written that is not the writer's.

    Attributes
    ----------
    problem
        What was done.
    pointer, nbytes, device, allocator
        The block, and the names of its device and allocator.
    offset
        Which byte was changed, counted from the block's first one: of several the nearest to the block, or the first.
    sites
        Where the block was allocated and freed, if the layer ``track`` is there too.
    """

    fields = ("problem", "pointer", "nbytes", "device", "allocator", "offset", "sites")

    def describe(self) -> str:
        """Return the text of the error."""
        facts: dict[str, Any] = vars(self)
        return (
            "{problem}: byte {offset:,} of the block of {nbytes:,} bytes at {pointer:#x}, of allocator {allocator!r} "
            "on {device!r}."
        ).format_map(facts) + (f" {facts['sites']}" if facts["sites"] else "")


class OutOfBoundsError(GuardError):
    """Memory before or behind a block was written."""


class UseAfterFreeError(GuardError):
    """A block was written after it was freed."""


class ClosedError(AllotmentError, ValueError):
    """Something was used after it was closed."""


# ---- Platform and devices --------------------------------------------------------------------------------------------


class PlatformError(AllotmentError, RuntimeError):
    """A call to the platform failed.

    Attributes
    ----------
    call
        What was called, in CUDA's name for it.
    code
        CUDA's name for the error, such as ``"cudaErrorInvalidValue"``.
    detail
        What more is known.
    """

    fields = ("call", "code", "detail")
    call: str
    code: str
    detail: str | None

    def describe(self) -> str:
        """Return the text of the error."""
        return f"{self.call} failed: {self.code}" + (f". {self.detail}" if self.detail else "")

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the platform refused because memory ran out."""
        return self.code in ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")


class PlatformUnavailableError(AllotmentError, RuntimeError):
    """The platform that was asked for is not to be had here.

    Attributes
    ----------
    platform
        What was asked for.
    reason
        Why it is not to be had.
    remedy
        What to do, where there is something particular to say.
    """

    fields = ("platform", "reason", "remedy")
    platform: str
    reason: str
    remedy: str | None

    def describe(self) -> str:
        """Return the text of the error."""
        return sentence(f"platform {self.platform!r} is not available: {self.reason}") + (
            f" {self.remedy}" if self.remedy else ""
        )


class DeviceNotFoundError(AllotmentError, ValueError):
    """No such device.

    Attributes
    ----------
    device
        What was asked for.
    existing
        The devices that exist.
    platform
        The platform in force, and why it was chosen.
    remedy
        What to do.
    """

    fields = ("device", "existing", "platform", "remedy")
    device: str
    existing: tuple[str, ...]
    platform: str
    remedy: str | None

    def describe(self) -> str:
        """Return the text of the error."""
        return (
            f"no device {self.device!r} on platform {self.platform}. Devices here: {listed(self.existing)}."
            + nearest(str(self.device), self.existing)
            + (f" {self.remedy}" if self.remedy else "")
        )


class UnsupportedError(AllotmentError, RuntimeError):
    """A device, platform or allocator cannot do what was asked."""


class ShuttingDownError(AllotmentError, RuntimeError):
    """Memory was asked for after the interpreter began to shut down."""

    def describe(self) -> str:
        """Return the text of the error."""
        return "the interpreter is shutting down: no memory can be allocated any more"


class ForkedProcessError(AllotmentError, RuntimeError):
    """CUDA was used in a process forked after its parent had initialised it."""

    def describe(self) -> str:
        """Return the text of the error."""
        return (
            "this process was forked after its parent had initialised the GPU platform, and CUDA cannot be used in "
            "such a child. Start workers with multiprocessing.get_context('spawn'), or fork before the first use."
        )


class CaptureError(AllotmentError, RuntimeError):
    """Something cannot be done while a graph is captured, or with what was captured."""


class AccessError(AllotmentError, RuntimeError):
    """A launch was refused because its device cannot touch an array, or because the array is of another device.

    Attributes
    ----------
    kernel, argument
        What was launched, and the name or path of the argument.
    device
        The device of the launch.
    array_device, memory_kind
        Where the array is.
    rule, reason, remedy
        What decided; see `allotment.access`.
    """

    fields = ("kernel", "argument", "device", "array_device", "memory_kind", "rule", "reason", "remedy")
    kernel: str
    argument: str
    device: str
    array_device: str
    memory_kind: str
    rule: str
    reason: str
    remedy: str | None

    def describe(self) -> str:
        """Return the text of the error."""
        return (
            f"kernel {self.kernel!r} cannot be launched on {self.device!r}: argument {self.argument!r} is on "
            f"{self.array_device!r} (memory_kind={self.memory_kind}), and {self.reason} (rule {self.rule})."
            + (f" {self.remedy}" if self.remedy else "")
        )


# ---- Plugins ---------------------------------------------------------------------------------------------------------


class PluginError(AllotmentError):
    """Something is wrong with an allocator plugin.

    Attributes
    ----------
    allocator
        The name that was asked for.
    distribution
        The distribution that provides it, with its version, where known.
    cause, remedy
        What went wrong, and what to do.
    usable
        Names that can be used here.
    """

    fields: ClassVar[tuple[str, ...]] = ("allocator", "distribution", "cause", "usable", "remedy")
    verb: ClassVar[str] = "cannot be used"
    allocator: str
    distribution: str | None
    cause: str | None
    usable: tuple[str, ...] | None
    remedy: str | None

    def describe(self) -> str:
        """Return the text of the error."""
        origin = f" ({self.distribution})" if self.distribution else ""
        cause = f": {self.cause}" if self.cause else ""
        remedy = f" {self.remedy}" if self.remedy else ""
        usable = f" Usable here: {listed(self.usable)}." if self.usable is not None else ""
        return sentence(f"allocator {self.allocator!r}{origin} {self.verb}{cause}") + f"{remedy}{usable}"


class UnknownAllocatorError(PluginError, LookupError):
    """No installed plugin has this name.

    Attributes
    ----------
    unusable
        What is installed and cannot be used, each with the reason.
    """

    fields = (*PluginError.fields, "unusable")
    verb = "is not installed"
    unusable: tuple[str, ...] | None

    def describe(self) -> str:
        """Return the text of the error."""
        unusable = f" Installed but not usable: {listed(self.unusable)}." if self.unusable else ""
        return super().describe() + nearest(self.allocator, self.usable or ()) + unusable


class PluginConflictError(PluginError, LookupError):
    """Several distributions provide the name."""

    verb = "is ambiguous"


class PluginLoadError(PluginError, ImportError):
    """The plugin failed to import."""

    verb = "failed to load"


class PluginIncompatibleError(PluginError, RuntimeError):
    """The plugin was made for another version of Allotment."""

    verb = "is not compatible"


class PluginDisabledError(PluginError, RuntimeError):
    """The plugin was switched off by an allow or deny list."""

    verb = "is disabled"


class PluginUnavailableError(PluginError, RuntimeError):
    """The plugin says that it cannot work here."""

    verb = "is not available"


class ObserverError(AllotmentError, ValueError):
    """An observer cannot be registered or taken away.

    Attributes
    ----------
    observer
        What it is called.
    problem
        What is wrong with it.
    hook
        The hook that it has and that does not exist, if that is wrong.
    accepted
        The hooks that exist, where that helps.
    """

    fields = ("observer", "problem", "hook", "accepted")
    observer: str
    problem: str
    hook: str | None
    accepted: tuple[str, ...] | None

    def describe(self) -> str:
        """Return the text of the error."""
        known = self.accepted or ()
        hooks = f" Hooks: {listed(known)}.{nearest(self.hook or '', known)}" if self.accepted is not None else ""
        return f"observer {self.observer!r} was refused: {self.problem}.{hooks}"


# ---- Configuration, traces, other processes --------------------------------------------------------------------------


class ConfigError(AllotmentError, ValueError):
    """A setting cannot be read or cannot take effect.

    Attributes
    ----------
    origin
        Where it was said: a file, a variable, a call.
    key
        The full key, dotted.
    problem
        What is wrong with it.
    accepted
        The keys accepted in that place, if the key is unknown.
    """

    fields = ("origin", "key", "problem", "accepted")
    origin: str
    key: str
    problem: str
    accepted: tuple[str, ...] | None

    def describe(self) -> str:
        """Return the text of the error."""
        text = sentence(": ".join(filter(None, (self.origin, self.key, self.problem))))
        if self.accepted is None:
            return text
        last = (self.key or "").rpartition(".")[2]
        return f"{text} Accepted here: {listed(self.accepted)}.{nearest(last, self.accepted)}"


class TraceError(AllotmentError, ValueError):
    """A trace cannot be read or replayed.

    Attributes
    ----------
    origin
        The file; ``"the trace"`` where the events came from somewhere else.
    line
        The line that is wrong, counted from 1; ``None`` if it is the file as a whole.
    problem
        What is wrong with it.
    """

    fields = ("origin", "line", "problem")
    origin: str
    line: int | None
    problem: str

    def describe(self) -> str:
        """Return the text of the error."""
        return sentence(f"{self.origin}{'' if self.line is None else f', line {self.line}'}: {self.problem}")


class BridgeError(AllotmentError, RuntimeError):
    """A library cannot be made to draw from Allotment, or not be given its own allocator back.

    Attributes
    ----------
    bridge
        The library's name.
    cause, remedy
        Why not, and what to do.
    """

    fields = ("bridge", "cause", "remedy")
    bridge: str
    cause: str
    remedy: str | None

    def describe(self) -> str:
        """Return the text of the error."""
        text = sentence(f"the bridge to {self.bridge!r} cannot be used so: {self.cause}")
        return f"{text} {self.remedy}" if self.remedy else text


class ServingError(AllotmentError, OSError):
    """How memory stands cannot be told to other processes, or asked of one."""


# ---- Warnings --------------------------------------------------------------------------------------------------------


class AllotmentWarning(UserWarning):
    """The root of all warnings of Allotment."""


class FreeFailedWarning(AllotmentWarning, ResourceWarning):
    """A block could not be freed in a finaliser; it is on the allocator's list of lost blocks."""


class AccessWarning(AllotmentWarning):
    """A launch goes ahead though nobody knows whether its device can touch an array."""


class ConfigWarning(AllotmentWarning):
    """A setting looks like a mistake."""


class ObserverWarning(AllotmentWarning):
    """An observer failed while it was told what had happened."""


class LeakWarning(AllotmentWarning):
    """Blocks are live that should be freed."""
