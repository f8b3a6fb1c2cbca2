"""Whether an object has the shape of an allocator, found once and never on the hot path."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Final

from allotment.allocator import AllocatorTraits
from allotment.errors import AllocatorContractError

if TYPE_CHECKING:
    from collections.abc import Callable

_ARGUMENTS: Final = {"allocate": ("size_in_bytes",), "deallocate": ("ptr", "size_in_bytes")}
"""The methods every allocator has, and what each is called with, by position."""

SHAPE_RULE: Final = "A1"
"""The rule of the allocator contract about the two methods and how they are called."""

OFFERED: Final = ("options", "device")
"""The keywords that core offers to a factory."""


def accepted_keywords(factory: Callable[..., Any]) -> frozenset[str]:
    """Return which of `OFFERED` a factory can be called with by keyword; none if it has no signature to read."""
    signature = _signature(factory)
    if signature is None:
        return frozenset()
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        return frozenset(OFFERED)
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(name for name in OFFERED if kinds.get(name) in by_keyword)


def factory_problem(factory: object) -> str | None:
    """Return why an object certainly makes no allocators, or ``None``.

    A class may give its instances their methods when it makes them, so an instance is checked again when it is made.
    """
    if not callable(factory):
        hint = ": name its class, or a function that returns it" if instance_problem(factory) is None else ""
        return f"{_named(factory)} is not a class or function that makes an allocator{hint}"
    accepted = accepted_keywords(factory)
    return (
        _call_problem(factory, accepted)
        or (_class_problem(factory) if isinstance(factory, type) else None)
        or _declaration_problem(factory, accepted)
    )


def instance_problem(allocator: object) -> str | None:
    """Return why an object is no allocator, or ``None``."""
    for name, arguments in _ARGUMENTS.items():
        method = getattr(allocator, name, None)
        if not callable(method):
            return f"{_named(allocator)} has no method {name}({', '.join(arguments)})"
        if problem := _arity_problem(method, len(arguments)):
            return f"{type(allocator).__name__}.{name} {problem}({', '.join(arguments)})"
    return None


def check_instance(allocator: object, name: str | None = None) -> None:
    """Check that an object has the two methods of an allocator, each callable as the contract says.

    Parameters
    ----------
    allocator
        The object.
    name
        What to call it in the error; the name of its type by default.

    Raises
    ------
    AllocatorContractError
        If a method is missing or takes other arguments.
    """
    if problem := instance_problem(allocator):
        raise shape_error(name or type(allocator).__name__, problem)


def shape_error(name: str, problem: str) -> AllocatorContractError:
    """Return the error for an object that has not the shape of an allocator."""
    return AllocatorContractError(allocator=name, rule=SHAPE_RULE, problem=problem)


def _class_problem(cls: type) -> str | None:
    for name, arguments in _ARGUMENTS.items():
        member = inspect.getattr_static(cls, name, None)
        if member is None and _makes_no_members(cls):
            return f"class {cls.__qualname__} has no method {name}({', '.join(arguments)})"
        bound = 1 if inspect.isfunction(member) else 0
        if isinstance(member, (classmethod, staticmethod)) or bound:
            problem = _arity_problem(member if bound else getattr(cls, name), len(arguments) + bound)
            if problem:
                return f"{cls.__qualname__}.{name} {problem}({', '.join(arguments)})"
    return None


def _makes_no_members(cls: type) -> bool:
    """Return whether instances have what the class has and no more, because no code of the class runs for them."""
    runs = ("__init__", "__new__", "__getattr__", "__getattribute__")
    return not any(name in vars(ancestor) for ancestor in cls.__mro__[:-1] for name in runs)


def _arity_problem(method: Callable[..., Any], count: int) -> str | None:
    signature = _signature(method)
    if signature is None:
        return None
    try:
        signature.bind(*range(count))
    except TypeError:
        return f"is declared as {signature}, and is called as "
    return None


def _call_problem(factory: Callable[..., Any], accepted: frozenset[str]) -> str | None:
    signature = _signature(factory)
    if signature is None:
        return None
    try:
        signature.bind(**dict.fromkeys(accepted))
    except TypeError as error:
        return f"{_named(factory)} cannot be called with {' and '.join(OFFERED)} alone: {error}"
    return None


def _declaration_problem(factory: Callable[..., Any], accepted: frozenset[str]) -> str | None:
    traits = getattr(factory, "traits", None)
    options = getattr(factory, "Options", None)
    if traits is not None and not isinstance(traits, AllocatorTraits):
        return f"its traits are {traits!r}, not an AllocatorTraits"
    if options is not None and not (isinstance(options, type) and is_dataclass(options)):
        return f"its Options are {options!r}, not a dataclass"
    if options is not None and "options" not in accepted:
        return f"it declares Options, and {_named(factory)} does not accept options="
    if not callable(getattr(factory, "availability", bool)):
        return "its availability is not callable"
    return None


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _named(thing: object) -> str:
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    return str(name) if name else f"an object of type {type(thing).__qualname__}"
