"""What every test of the kit stands on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from allotment import platform as platforms
from allotment import registry
from allotment.errors import PlatformUnavailableError
from allotment.testing._child_process import factory_reference
from allotment.testing._isolation import SharedScan, isolation, simulation
from allotment.testing._rule import EXEMPT, NOT_CHECKED, cannot_check, check_of
from allotment.testing._subject import Subject
from allotment.testing._watchdog import watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from allotment.platform import Platform
    from allotment.registry import Plugin
    from allotment.testing._rule import Check

CUDA: Final = "cuda"
HOST: Final = "host"
"""The machine without a CUDA device, among profiles."""
SIMULATED: Final = "sim:"
"""How the name of a simulated platform begins; its profile follows."""


class AllocatorFixtures:
    """What a plugin says about itself to adopt tests of the kit, and the fixtures of these tests.

    Attributes
    ----------
    allocator_name : str
        What a user types to choose it.
    options : mapping
        What configuration says about it in these tests, in types that a file can hold.
    layers : sequence
        The layers before it in these tests, as configuration has them.
    allocator_factory : callable, optional
        The class or function that makes it, if no installed distribution provides it.
    expected_failures : mapping of str to str
        The tests that it is known to fail, each with the reason. One that passes is a failure.
    profiles : tuple of str
        The simulated machines on which tests run that name none themselves; empty for an allocator that needs real
        devices.
    platforms : tuple of str, optional
        The only platforms to run on, whatever tests name themselves: ``"cuda"``, ``"host"``, ``"sim:gb10"``.
    examples : int
        How many random sequences of calls are tried.
    deadline : float
        The seconds after which a thread counts as stuck.
    """

    allocator_name: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    layers: ClassVar[Sequence[Any]] = ()
    allocator_factory: ClassVar[Callable[..., Any] | None] = None
    expected_failures: ClassVar[Mapping[str, str]] = {}
    profiles: ClassVar[tuple[str, ...]] = ("2xh200",)
    platforms: ClassVar[tuple[str, ...] | None] = None
    examples: ClassVar[int] = 15
    deadline: ClassVar[float] = 20.0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if unknown := [name for name in cls.expected_failures if check_of(getattr(cls, name, len)) is None]:
            raise TypeError(f"{cls.__name__} expects failures of tests that the kit does not have: {unknown}")

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Run each test of the kit on its platforms."""
        check = check_of(metafunc.function)
        if check is not None and "platform" in metafunc.fixturenames:
            metafunc.parametrize("platform", cls._platforms(check), indirect=True)

    @classmethod
    def _platforms(cls, check: Check) -> list[Any]:
        if cls.platforms is not None:
            return [_only_on(name, check) for name in cls.platforms]
        profiles = cls.machines(check)
        found: list[Any] = [pytest.param(name, id=name if name == HOST else f"sim:{name}") for name in profiles]
        return [*found, _on_cuda(check)] if check.on_cuda else found

    @classmethod
    def machines(cls, check: Check) -> tuple[str, ...]:
        """Return the simulated machines that a test of this class runs on, and the host where that is one."""
        profiles = cls.profiles and (cls.profiles if check.profiles is None else check.profiles)
        if not check.on_cuda:  # it needs what only a simulation has
            profiles = tuple(name for name in profiles if name != HOST)
        return profiles

    @pytest.fixture(autouse=True)
    def _watchdog(self) -> Iterator[None]:
        """Fail a test, or its end, that is stuck in a lock."""
        with watchdog(3 * self.deadline):
            yield

    @pytest.fixture(autouse=True)
    def _as_declared(self, request: pytest.FixtureRequest) -> None:
        """Note the rules in the test's report, and expect the failures that are declared."""
        check = check_of(request.function)
        if check is not None:
            request.node.user_properties.extend(("rule", number) for number in check.rules)
        reason = self.expected_failures.get(request.function.__name__)
        if reason is not None:
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))

    @pytest.fixture
    def platform(self, request: pytest.FixtureRequest) -> Iterator[Platform]:
        """Put a platform in force: a simulated machine or the real devices."""
        with platform_in_force(request.param, check_of(request.function)) as platform:
            yield platform

    @pytest.fixture
    def plugin(self, request: pytest.FixtureRequest, platform: Platform) -> Plugin:  # noqa: ARG002 - in force first
        """Return the plugin under test; skip a test of what it declares itself exempt from."""
        plugin = self.find_plugin()
        if (check := check_of(request.function)) and (reason := exempt_from(plugin).get(check.rules[0])):
            pytest.skip(f"{EXEMPT}{reason}")
        return plugin

    @classmethod
    def find_plugin(cls) -> Plugin:
        """Return the plugin under test from the registry in force."""
        current = registry.current()
        if cls.allocator_factory is not None:
            current.register(cls.allocator_name, cls.allocator_factory, replace=True)
        return current.get(cls.allocator_name)

    @pytest.fixture
    def subject(self, plugin: Plugin, platform: Platform) -> Iterator[Subject]:
        """Make the device of the allocator under test current."""
        with self.subject_on(plugin, platform) as subject:
            yield subject

    @classmethod
    @contextmanager
    def subject_on(cls, plugin: Plugin, platform: Platform) -> Iterator[Subject]:
        """Make the device of the allocator under test current inside a ``with`` block; skip the test if it has none."""
        subject = cls.find_subject(plugin, platform)
        subject.enter()
        yield subject
        subject.leave()

    @classmethod
    def find_subject(cls, plugin: Plugin, platform: Platform) -> Subject:
        """Return the allocator under test on a platform; skip the test where it serves no device."""
        subject = Subject(plugin, platform, cls.options, cls.layers)
        if not subject.devices:
            cannot_check(f"{plugin.name} is not available on {platform.name}: {subject.refusals}")
        return subject

    @classmethod
    def told_of(cls, subject: Subject) -> dict[str, Any]:
        """Return what another process is told of the allocator under test, as JSON has it."""
        factory = subject.plugin.factory
        return {
            "name": cls.allocator_name,
            "options": dict(cls.options),
            "registers": cls.allocator_factory is not None,
            "reference": factory_reference(factory),
            "platform": subject.platform.name,
            "device": subject.device.alias,
        }


def exempt_from(plugin: Plugin) -> Mapping[str, str]:
    """Return the rules that a plugin says it cannot keep, each with the reason."""
    found: Mapping[str, str] = getattr(plugin.factory, "exempt_from", {})
    return found


@contextmanager
def platform_in_force(name: str, check: Check | None) -> Iterator[Platform]:
    """Put a platform in force, in a test's own world: a simulated machine by its profile, the host or real devices."""
    with isolation(SharedScan):
        if name not in (CUDA, HOST):
            with simulation(name) as simulated:
                yield simulated
            return
        platform = platforms.choose(HOST) if name == HOST else _real_devices(check)
        platforms.use(platform)
        yield platform


def _on_cuda(check: Check) -> Any:
    marks = [pytest.mark.gpu] if check.devices == 1 else [pytest.mark.gpu, pytest.mark.multi_gpu]
    return pytest.param(CUDA, id=CUDA, marks=marks)


def _only_on(name: str, check: Check) -> Any:
    """Return the platform of that name as a parameter; one that cannot show what is checked is skipped."""
    if name in (CUDA, HOST) and not check.on_cuda:
        reason = f"{NOT_CHECKED}only a simulated machine can show it, and {name!r} is none"
        return pytest.param(name, id=name, marks=pytest.mark.skip(reason=reason))
    return _on_cuda(check) if name == CUDA else pytest.param(name.removeprefix(SIMULATED), id=name)


def _real_devices(check: Check | None) -> Platform:
    """Return the platform of the real devices, or skip the test where there are too few."""
    needed = 1 if check is None else check.devices
    try:
        platform = platforms.choose(CUDA)
    except PlatformUnavailableError as unavailable:
        cannot_check(f"no CUDA device: {unavailable.reason}")
    if platform.device_count() < needed:
        cannot_check(f"needs {needed} CUDA devices, found {platform.device_count()}")
    return platform
