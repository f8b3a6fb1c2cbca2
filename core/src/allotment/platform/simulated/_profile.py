"""Profiles: which devices are simulated, and what they can do."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from allotment._names import normalise_name
from allotment._wording import listed, nearest
from allotment.errors import ConfigError, PlatformUnavailableError
from allotment.platform._values import DeviceProperties
from allotment.platform.simulated import _host_mapping

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.resources.abc import Traversable

_WHERE = re.compile(r" - at `\$\.?(?P<key>[^`]*)`$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is simulated.

    Parameters
    ----------
    description
        What it is, in one line.
    runtime_version, driver_version
        The CUDA versions, as 1000 × major + 10 × minor.
    host_memory
        The host's memory in bytes: what pinned and managed memory may take together.
    peers
        For each device, which devices it can be given access to.
    devices
        The devices.
    """

    description: str
    runtime_version: int
    driver_version: int
    host_memory: int
    peers: tuple[tuple[bool, ...], ...]
    devices: tuple[DeviceProperties, ...]


def as_simulated_here(profile: Profile) -> Profile:
    """Return a profile without what this host cannot stand in for."""
    if _host_mapping.IS_AVAILABLE:
        return profile
    return replace(profile, devices=tuple(replace(device, virtual_memory=False) for device in profile.devices))


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that come with Allotment."""
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if _is_toml(entry.name)))


def load_profile(name_or_path: str | Path) -> Profile:
    """Return a profile by its name, or from a TOML file.

    Raises
    ------
    PlatformUnavailableError
        If there is no such profile or file.
    ConfigError
        If the file does not say what a profile says; the error names file and key.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or _is_toml(text):
        return _decode(_read(Path(text).expanduser(), text), text)
    name = normalise_name(text)
    if name not in profile_names():
        raise PlatformUnavailableError(
            platform=f"sim:{text}",
            reason="there is no such profile",
            remedy=f"Profiles: {listed(profile_names())}; or give the path of a TOML file."
            + nearest(name, profile_names()),
        )
    return _decode((_folder() / f"{name}.toml").read_text(encoding="utf-8"), f"profile {name}")


def _folder() -> Traversable:
    return files("allotment.platform.simulated") / "profiles"


def _is_toml(name: str) -> bool:
    return name.lower().endswith(".toml")


def _read(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlatformUnavailableError(
            platform=f"sim:{name}",
            reason=f"its profile cannot be read: {error}",
            remedy=f"Profiles that come with Allotment: {listed(profile_names())}.",
        ) from error


def _decode(text: str, origin: str) -> Profile:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(origin=origin, problem=f"it is not TOML: {error}") from error
    _check_keys(table, _names(Profile), (), origin, "")
    devices = table["devices"]
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        raise ConfigError(origin=origin, key="devices", problem="it is written as [[devices]] tables")
    for index, device in enumerate(devices):
        _check_keys(device, _names(DeviceProperties), ("ipc",), origin, f"devices[{index}].")
        device.setdefault("ipc", None)
    try:
        profile = msgspec.convert(table, Profile)
    except msgspec.ValidationError as error:
        where = _WHERE.search(str(error))
        problem = _WHERE.sub("", str(error)).removesuffix(".")
        raise ConfigError(origin=origin, key=where["key"] if where else "", problem=problem) from error
    _check_figures(profile, origin)
    return profile


def _names(data: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(data))


def _check_keys(
    table: dict[str, object], known: Sequence[str], optional: Sequence[str], origin: str, prefix: str
) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(origin=origin, key=prefix + key, problem="no such key", accepted=tuple(known))
    for key in known:
        if key not in table and key not in optional:
            raise ConfigError(origin=origin, key=prefix + key, problem="it is missing")


def _check_figures(profile: Profile, origin: str) -> None:
    count = len(profile.devices)
    if len(profile.peers) != count or any(len(row) != count for row in profile.peers):
        raise ConfigError(
            origin=origin, key="peers", problem=f"it has one row and one column for each of {count} devices"
        )
    if any(profile.peers[ordinal][ordinal] for ordinal in range(count)):
        raise ConfigError(origin=origin, key="peers", problem="a device is not its own peer")
    for index, device in enumerate(profile.devices):
        if device.total_memory <= 0:
            raise ConfigError(origin=origin, key=f"devices[{index}].total_memory", problem="it must be above 0")
    if profile.host_memory <= 0:
        raise ConfigError(origin=origin, key="host_memory", problem="it must be above 0")
