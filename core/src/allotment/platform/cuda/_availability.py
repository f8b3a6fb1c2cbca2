"""Whether CUDA can be used here, and what stands in the way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from allotment.allocator import Availability
from allotment.platform.cuda._errors import platform_error

if TYPE_CHECKING:
    from allotment.errors import PlatformError

VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
EXTRAS: Final = "Install allotment[cuda13], or allotment[cuda12] for a driver of CUDA 12."


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why CUDA cannot be used.

    Parameters
    ----------
    reason
        What was found, without a full stop.
    remedy
        What to do, as a sentence.
    """

    reason: str
    remedy: str


def availability() -> Availability:
    """Return whether a driver and a device answer. Opens no context and raises nothing."""
    obstacle = find_obstacle()
    return Availability(True) if obstacle is None else Availability(False, f"{obstacle.reason}. {obstacle.remedy}")


def find_obstacle() -> Obstacle | None:
    """Return what keeps CUDA from being used, ``None`` if nothing does. Opens no context and raises nothing.

    An empty ``CUDA_VISIBLE_DEVICES``, or one that begins with -1, settles it before anything is imported. What any
    other value means is left to the driver, whose rules know identifiers, MIG instances and the first invalid entry.
    """
    visible = os.environ.get(VISIBLE_DEVICES)
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return Obstacle(f"{VISIBLE_DEVICES} is {visible!r}, which hides every device", "Unset it, or list devices.")
    try:
        import cupy

        runtime = cupy.cuda.runtime
    except ModuleNotFoundError as error:
        return _not_importable(error) if error.name != "cupy" else Obstacle("CuPy is not installed", EXTRAS)
    except Exception as error:  # noqa: BLE001 - any failure of another package is an answer here
        return _not_importable(error)
    return _ask_driver(runtime)


def _not_importable(error: Exception) -> Obstacle:
    cause = str(error).strip() or "no message"
    return Obstacle(f"CuPy cannot be imported: {type(error).__name__}: {cause.rstrip('.')}", "Repair its installation.")


def _ask_driver(runtime: Any) -> Obstacle | None:
    if runtime.is_hip:
        return Obstacle("the CuPy installed here was built for ROCm", EXTRAS)
    try:
        if runtime.driverGetVersion() == 0:
            return Obstacle("no CUDA driver is installed", "Install NVIDIA's driver.")
        count = runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001 - a broken driver is an answer too
        return _refused(error, runtime)
    return _no_device() if count == 0 else None


def _refused(error: Exception, runtime: Any) -> Obstacle:
    refusal = platform_error(error)
    if refusal is None:
        return Obstacle(f"the CUDA driver cannot be asked: {error}", "Repair its installation.")
    if refusal.code == "cudaErrorNoDevice":
        return _no_device()
    if refusal.code == "cudaErrorInsufficientDriver":
        return _too_old(runtime)
    return _not_initialised(refusal)


def _no_device() -> Obstacle:
    visible = os.environ.get(VISIBLE_DEVICES)
    if visible is None:
        return Obstacle("a CUDA driver answers, but it has no device", "Check that `nvidia-smi` lists one.")
    return Obstacle(
        f"a CUDA driver answers, but {VISIBLE_DEVICES}={visible!r} leaves no device", "Correct it, or unset it."
    )


def _too_old(runtime: Any) -> Obstacle:
    driver, needed = (version_text(number) for number in (runtime.driverGetVersion(), runtime.runtimeGetVersion()))
    return Obstacle(
        f"the driver supports CUDA {driver}, and the CuPy installed here was built for CUDA {needed}",
        f"Update the driver, or install allotment[cuda{driver.partition('.')[0]}].",
    )


def version_text(number: int) -> str:
    """Return a version of CUDA, which is 1000 × major + 10 × minor, as people write it."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _not_initialised(refusal: PlatformError) -> Obstacle:
    return Obstacle(
        f"the CUDA driver fails: {refusal.code}" + (f" ({refusal.detail})" if refusal.detail else ""),
        "Check that `nvidia-smi` works, and that this process was not forked from one that had used CUDA.",
    )
