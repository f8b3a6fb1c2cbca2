"""Classes that are installed in a group of entry points, and the one that a name means."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from allotment._locks import RenewedLock
from allotment.registry._compatibility import CORE, running_version
from allotment.registry._discovery import discover
from allotment.registry._loading import load_object
from allotment.registry._policy import PluginPolicy, chooses
from allotment.registry._record import PluginOrigin, PluginRecord, PluginStatus
from allotment.registry._resolution import apply_policy, holders, mark_conflicts, usable_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allotment.registry._record import PluginKey


class NotUsable(Exception):
    """Why a name cannot be used, for whoever asked to put into words.

    Parameters
    ----------
    problem
        The reason, without the name.
    accepted
        The names that can be used, if it is unknown.
    remedy
        What to do, where there is something particular to say.
    """

    def __init__(self, problem: str, accepted: tuple[str, ...] = (), remedy: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.accepted, self.remedy = problem, accepted, remedy


class Catalogue:
    """What can be asked for by name in one group of entry points. Nothing is imported before it is chosen.

    Parameters
    ----------
    group
        The group; an entry point's name is what a user types.
    noun
        What its members are called.
    problem_of
        Returns why an object is certainly no such member, or ``None``.
    builtin
        The members that core brings: name to ``"module:attribute"``.
    policy
        Returns the allow and deny lists in force.
    core_version
        The version of core that installed members are held against; by default the installed one.
    """

    __slots__ = ("_builtin", "_core_version", "_found", "_group", "_lock", "_noun", "_policy", "_problem_of", "_tried")

    def __init__(
        self,
        group: str,
        noun: str,
        problem_of: Callable[[object], str | None],
        builtin: Mapping[str, str],
        policy: Callable[[], PluginPolicy] = PluginPolicy,
        core_version: str | None = None,
    ) -> None:
        self._group, self._noun, self._problem_of, self._builtin = group, noun, problem_of, builtin
        self._policy, self._core_version = policy, core_version
        self._lock = RenewedLock()
        self._found: tuple[PluginRecord, ...] | None = None
        self._tried: dict[PluginKey, PluginRecord] = {}
        """The records of members that were asked for."""

    def survey(self) -> tuple[PluginRecord, ...]:
        """Return the record of every member, with what became of those that were asked for. Imports nothing."""
        return mark_conflicts(tuple(map(self._after_trial, self.records())))

    def _after_trial(self, record: PluginRecord) -> PluginRecord:
        return self._tried.get(record.key, record) if record.status is PluginStatus.AVAILABLE else record

    def records(self) -> tuple[PluginRecord, ...]:
        """Return the record of every member as metadata and lists have it. Imports nothing."""
        with self._lock():
            if self._found is None:
                version = running_version() if self._core_version is None else self._core_version
                own = (self._own_record(name, version) for name in self._builtin)
                self._found = (*discover(self._group, version), *own)
        return apply_policy(self._found, self._policy())

    def _own_record(self, name: str, version: str | None) -> PluginRecord:
        return PluginRecord(
            name=name, reference=self._builtin[name], origin=PluginOrigin.BUILTIN, distribution=CORE, version=version
        )

    def names(self) -> tuple[str, ...]:
        """Return the names that can be asked for."""
        return tuple(sorted(usable_names(self.records())))

    def refresh(self) -> None:
        """Scan the metadata again when it is next needed."""
        self._found = None
        self._tried = {key: record for key, record in self._tried.items() if record.error is None}

    def load(self, name: str) -> Any:
        """Return the member of a name, or of ``"distribution:name"``, imported and checked.

        Raises
        ------
        NotUsable
            If there is none, several distributions provide it, it may not be used, or it is broken.
        """
        matches = [record for record in self.records() if chooses(name, record)]
        if not matches:
            raise NotUsable(f"unknown {self._noun}", self.names())
        chosen = holders(matches)
        if len(chosen) != 1:
            raise NotUsable(self._not_one(matches, chosen))
        record, member = load_object(chosen[0])
        if record.error is None:
            record = self._judged(record, member)
        self._tried[record.key] = record
        problem = record.error
        if problem is not None:
            cause = f"the {self._noun} of {record.provider} cannot be used: {problem}"
            raise NotUsable(cause, remedy=record.remedy) from record.exception
        return member

    def _judged(self, record: PluginRecord, member: object) -> PluginRecord:
        problem = self._problem_of(member)
        return record.become(PluginStatus.LOADED if problem is None else PluginStatus.BROKEN, problem)

    def _not_one(self, matches: list[PluginRecord], chosen: list[PluginRecord]) -> str:
        if not chosen:
            return f"the {self._noun} of {matches[0].provider} cannot be used: {matches[0].error}"
        forms = " or ".join(repr(record.qualified_name) for record in chosen)
        return f"several distributions have a {self._noun} of this name. Ask for one of them as {forms}"


def options_problem(member: type) -> str | None:
    """Return why a class has not the name and the options that config needs, or ``None``."""
    options = getattr(member, "Options", None)
    if not (isinstance(options, type) and is_dataclass(options)):
        return f"its Options are {options!r}, not a dataclass"
    return None if isinstance(getattr(member, "name", None), str) else "it has no name"


def making_problem(member: type, arguments: str, *given: object) -> str | None:
    """Return why a class cannot be made from these arguments, or ``None``."""
    try:
        inspect.signature(member).bind(*given)
    except TypeError as error:
        return f"it cannot be made from {arguments}: {error}"
    return None
