"""Which platform is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from allotment import configuration
from allotment._locks import RenewedLock
from allotment.errors import ConfigError, PlatformUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from allotment.platform._protocol import Platform

SIMULATED_PREFIX: Final = "sim:"
ACCEPTED: Final = ("auto", "cuda", "host", "sim:<profile or file>")
"""What a platform may be called."""


def choose(spec: str, origin: str = "the call") -> Platform:
    """Make the platform that is asked for.

    Parameters
    ----------
    spec
        ``"auto"`` (CUDA where a driver and a device answer, else the host), ``"cuda"``, ``"host"``, or
        ``"sim:<profile>"`` with the name of a profile or the path of a file.
    origin
        Who asks: a variable, a file, a call. It is named in `Platform.why` and in errors.

    Raises
    ------
    ConfigError
        If no platform is called so.
    PlatformUnavailableError
        If CUDA is asked for and no driver with a device answers.
    """
    kind = spec.strip()
    if kind.lower() == "auto":
        return _first_that_answers()
    if kind.lower() == "cuda":
        return _cuda(f"asked for by {origin}")
    if kind.lower() == "host":
        return _host(f"asked for by {origin}")
    if kind.lower().startswith(SIMULATED_PREFIX) and len(kind) > len(SIMULATED_PREFIX):
        return _simulated(kind[len(SIMULATED_PREFIX) :].strip(), f"asked for by {origin}")
    problem = f"{spec!r} is not a platform; a simulated one is written 'sim:2xh200'"
    raise ConfigError(origin=origin, key="platform", problem=problem, accepted=ACCEPTED)


def _first_that_answers() -> Platform:
    try:
        return _cuda("a CUDA driver with a device answers")
    except PlatformUnavailableError as unavailable:
        return _host(f"no CUDA here: {unavailable.reason}")


def _cuda(why: str) -> Platform:
    from allotment.platform.cuda import CudaPlatform

    return CudaPlatform(why)


def _host(why: str) -> Platform:
    from allotment.platform.host import HostPlatform

    return HostPlatform(why)


def _simulated(profile: str, why: str) -> Platform:
    from allotment.platform.simulated import SimulatedPlatform

    platform: Platform = SimulatedPlatform.from_profile(profile)
    platform.why = why
    return platform


class PlatformToken:
    """What `use` returns and `reset` takes."""

    __slots__ = ("platform",)

    def __init__(self, platform: Platform) -> None:
        self.platform = platform


def configured_platform() -> tuple[str, str]:
    """Return which platform is configured, and where that was said."""
    setting = configuration.current().value("platform")
    return setting.value, str(setting.origin)


class Choice:
    """The platform in force in this process, chosen when it is first asked for.

    It belongs to the process and not to a context: worker threads must see the devices that the main thread sees.

    Parameters
    ----------
    source
        Returns what to choose, and who asks for it.
    """

    def __init__(self, source: Callable[[], tuple[str, str]] = configured_platform) -> None:
        self._source = source
        self.in_force: Platform | None = None
        self._lock = RenewedLock()
        self._chosen: Platform | None = None
        self._uses: list[PlatformToken] = []

    def current(self) -> Platform:
        """Return the platform in force: the last one in use, else the one that is configured."""
        platform = self.in_force
        return self._choose_once() if platform is None else platform

    def _choose_once(self) -> Platform:
        with self._lock():
            if self.in_force is None:
                self._chosen = self.in_force = choose(*self._source())
            return self.in_force

    def use(self, platform: Platform) -> PlatformToken:
        """Put a platform in force until the token goes to `reset`."""
        token = PlatformToken(platform)
        with self._lock():
            self._uses.append(token)
            self.in_force = platform
        return token

    def reset(self, token: PlatformToken) -> None:
        """End a use, whatever uses began since.

        Raises
        ------
        ValueError
            If it has ended before.
        """
        with self._lock():
            if token not in self._uses:
                raise ValueError("this use of a platform has ended already")
            self._uses.remove(token)
            self.in_force = self._uses[-1].platform if self._uses else self._chosen

    def close(self) -> None:
        """Forget the platform that was chosen and all uses; the next call chooses anew."""
        with self._lock():
            self._uses.clear()
            self._chosen = self.in_force = None


_choice: Final = Choice()

current: Final = _choice.current
use: Final = _choice.use
reset: Final = _choice.reset
close: Final = _choice.close
