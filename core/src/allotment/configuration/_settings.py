"""Settings as attributes, the form in which the guides write them: ``al.config.enable_mempools_at_init = False``."""

from __future__ import annotations

from typing import Any, Final

from allotment._wording import nearest
from allotment.configuration._current import current
from allotment.configuration._origin import call_origin
from allotment.configuration._schema import LaunchArrayAccessMode, Values, defaults, keys

_ASSIGNABLE: Final = tuple(key[0] for key in defaults() if len(key) == 1)


class Settings:
    """The configuration in force, an attribute a key.

    Reading an attribute gives the effective value. Assigning one is a call of `configure` with that key, so
    ``None`` takes back what was assigned. Tables (``devices``, ``allocators``, ``plugins``) can only be read here.
    """

    __slots__ = ()
    LaunchArrayAccessMode = LaunchArrayAccessMode

    def __getattr__(self, key: str) -> Any:
        if key not in keys(Values):
            raise AttributeError(_unknown(key), name=key, obj=self)
        return getattr(current().values, key)

    def __setattr__(self, key: str, value: Any) -> None:
        if key not in keys(Values):
            raise AttributeError(_unknown(key), name=key, obj=self)
        if key not in _ASSIGNABLE:
            text = f"the table {key!r} cannot be assigned: use configure({key}=...), which adds to it"
            raise AttributeError(text, name=key, obj=self)
        current().say({key: value}, call_origin(f"config.{key}"))

    def __dir__(self) -> list[str]:
        return list(keys(Values))

    def __repr__(self) -> str:
        return "Settings(" + ", ".join(f"{key}={getattr(self, key)!r}" for key in keys(Values)) + ")"


def _unknown(key: str) -> str:
    return f"there is no setting {key!r}.{nearest(key, keys(Values))}"


settings: Final = Settings()
"""The one object that ``allotment.config`` is."""
