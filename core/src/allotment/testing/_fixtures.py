"""What every test of the kit stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from allotment import platform as platforms
from allotment import registry
from allotment.errors import PlatformUnavailableError
from allotment.testing._isolation import isolation, simulation
from allotment.testing._rule import check_of
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
        profiles = cls.profiles and (cls.profiles if check.profiles is None else check.profiles)
        if not check.on_cuda:  # it needs what only a simulation has
            profiles = tuple(name for name in profiles if name != HOST)
        found: list[Any] = [pytest.param(name, id=name if name == HOST else f"sim:{name}") for name in profiles]
        if check.on_cuda:
            marks = [pytest.mark.gpu] if check.devices == 1 else [pytest.mark.gpu, pytest.mark.multi_gpu]
            found.append(pytest.param(CUDA, id=CUDA, marks=marks))
        return found

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
        with isolation():
            if request.param in (CUDA, HOST):
                check = check_of(request.function)
                platform = platforms.choose(HOST) if request.param == HOST else _real_devices(check)
                platforms.use(platform)
                yield platform
            else:
                with simulation(request.param) as simulated:
                    yield simulated

    @pytest.fixture
    def plugin(self, platform: Platform) -> Plugin:  # noqa: ARG002 - it is in force first
        """Return the plugin under test."""
        current = registry.current()
        if self.allocator_factory is not None:
            current.register(self.allocator_name, type(self).allocator_factory, replace=True)  # type: ignore[arg-type]
        return current.get(self.allocator_name)

    @pytest.fixture
    def subject(self, plugin: Plugin, platform: Platform) -> Iterator[Subject]:
        """Make the device of the allocator under test current."""
        subject = Subject(plugin, platform, self.options, self.layers)
        if not subject.devices:
            pytest.skip(f"{plugin.name} is not available on {platform.name}: {subject.refusals}")
        subject.enter()
        yield subject
        subject.leave()


def _real_devices(check: Check | None) -> Platform:
    """Return the platform of the real devices, or skip the test where there are too few."""
    needed = 1 if check is None else check.devices
    try:
        platform = platforms.choose(CUDA)
    except PlatformUnavailableError as unavailable:
        pytest.skip(f"no CUDA device: {unavailable.reason}")
    if platform.device_count() < needed:
        pytest.skip(f"needs {needed} CUDA devices, found {platform.device_count()}")
    return platform
