"""The layers that are asked for: reading the list, holding it to its order, and making them for an account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from allotment import registry as registries
from allotment.configuration import Setting, decode_options
from allotment.errors import ConfigError
from allotment.layers.layer import UsesAllocators

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allotment.device import Device
    from allotment.layers.layer import FindAllocator, Layer


@dataclass(frozen=True, slots=True)
class LayerRequest:
    """A layer that is asked for.

    Parameters
    ----------
    kind
        Its class.
    options
        An instance of the class's ``Options``.
    origin
        Where it was said.
    """

    kind: type[Any]
    options: Any
    origin: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """What a user types."""
        return str(self.kind.name)

    def __str__(self) -> str:
        said = [item for item in fields(self.options) if getattr(self.options, item.name) != item.default]
        told = ", ".join(f"{item.name} = {_told(getattr(self.options, item.name))}" for item in said)
        return f"{self.name} ({told})" if told else self.name


def _told(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_told, value))}]"
    return str(value.value if isinstance(value, Enum) else value)


def read_layers(setting: Setting) -> tuple[LayerRequest, ...]:
    """Return the layers that a setting asks for, the nearest to the user first.

    Raises
    ------
    ConfigError
        For a layer that is not installed or is asked for twice, an unknown or ill-typed option, and a wrong order.
    """
    requests = tuple(_read_layer(item, setting) for item in setting.value)
    _refuse_twice(requests, setting)
    _refuse_order(requests, setting)
    return requests


def _read_layer(item: str | Mapping[str, Any], setting: Setting) -> LayerRequest:
    name, said = (item, {}) if isinstance(item, str) else next(iter(item.items()))
    origin = str(setting.origin)
    kind = registries.current().layers.get(name, origin, setting.key)
    if not isinstance(said, Mapping):
        said = {_main_option(kind, setting, name): said}
    settings = [Setting(f"{setting.key}.{name}.{option}", value, setting.origin) for option, value in said.items()]
    try:
        options = decode_options(name, kind.Options, settings, table=setting.key)
    except ConfigError as error:
        # What is missing was said nowhere in particular, but it was here that the layer was asked for.
        raise ConfigError(origin=origin, key=error.key, problem=error.problem, accepted=error.accepted) from error
    return LayerRequest(kind, options, origin)


def _main_option(kind: type[Any], setting: Setting, name: str) -> str:
    for option in fields(kind.Options):
        return option.name
    raise ConfigError(
        origin=str(setting.origin), key=f"{setting.key}.{name}", problem="there is nothing to say about it"
    )


def _refuse_twice(requests: tuple[LayerRequest, ...], setting: Setting) -> None:
    names = [request.name for request in requests]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(origin=str(setting.origin), key=setting.key, problem=f"it has the layer {twice!r} twice")


def _refuse_order(requests: tuple[LayerRequest, ...], setting: Setting) -> None:
    right = sorted(requests, key=lambda request: request.kind.place)
    if right == list(requests):
        return
    first = next(request for request, other in zip(requests, right, strict=True) if request is not other)
    names = ", ".join(repr(request.name) for request in right)
    raise ConfigError(
        origin=str(setting.origin),
        key=setting.key,
        problem=f"the layer {first.name!r} is in the wrong place. The one nearest to the user comes first: [{names}]",
    )


def build_layers(requests: Iterable[LayerRequest], device: Device, find: FindAllocator) -> tuple[Layer, ...]:
    """Make the layers of an account.

    Parameters
    ----------
    requests
        What was asked for.
    device
        The device of the account.
    find
        What returns other allocators by name.

    Raises
    ------
    ConfigError
        If a layer refuses its options on this device.
    """
    return tuple(_build(request, device, find) for request in requests)


def _build(request: LayerRequest, device: Device, find: FindAllocator) -> Layer:
    try:
        layer: Layer = request.kind(request.options, device)
    except (TypeError, ValueError) as error:
        raise ConfigError(origin=request.origin, key=f"layers.{request.name}", problem=str(error)) from error
    if isinstance(layer, UsesAllocators):
        layer.connect(find)
    return layer
