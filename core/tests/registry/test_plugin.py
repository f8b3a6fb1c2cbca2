"""A loaded plugin: availability and the making of allocators."""

from dataclasses import dataclass

import pytest

from allotment.allocator import AllocatorTraits, Availability
from allotment.errors import AllocatorContractError, UnsupportedError
from allotment.memory_kind import MemoryKind
from allotment.registry import PluginOrigin, PluginRecord, PluginStatus, availability, build, diagnosis
from allotment.registry._plugin import checked_plugin, load_plugin


class TwoMethods:
    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass


def record(name="mine", reference="test:it"):
    return PluginRecord(name=name, reference=reference, origin=PluginOrigin.RUNTIME)


def plugin(factory):
    return checked_plugin(record(), factory)


class Answering(TwoMethods):
    answer = Availability(ok=True)

    @classmethod
    def availability(cls, device):
        if isinstance(cls.answer, Exception):
            raise cls.answer
        return cls.answer


def answering(answer):
    return type("Answers", (Answering,), {"answer": answer})


def test_a_plugin_that_says_nothing_about_availability_can_be_used():
    assert availability(plugin(TwoMethods), "cuda:0").ok


def test_the_answer_of_the_class_is_given():
    assert availability(plugin(answering(Availability(False, "no pools here"))), "cuda:0").reason == "no pools here"


def test_an_availability_check_that_raises_means_unavailable():
    answer = availability(plugin(answering(RuntimeError("no driver"))), "cuda:0")

    assert answer == Availability(False, "its availability check raised RuntimeError: no driver")


@pytest.mark.parametrize("wrong", [None, True, "yes"])
def test_an_availability_check_that_answers_something_else_means_unavailable(wrong):
    answer = availability(plugin(answering(wrong)), "cuda:0")

    assert not answer.ok
    assert f"returned {wrong!r}" in answer.reason


def test_the_answer_is_asked_for_each_device():
    class OnlyFirst(TwoMethods):
        @classmethod
        def availability(cls, device):
            return Availability(device == "cuda:0", "second")

    only_first = plugin(OnlyFirst)

    assert availability(only_first, "cuda:0").ok
    assert not availability(only_first, "cuda:1").ok
    assert availability(only_first, "cuda:0").ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    size: int = 7


class Taking(TwoMethods):
    Options = Options

    def __init__(self, options, device):
        self.options = options
        self.device = device


def test_a_factory_gets_options_and_device_if_it_accepts_them():
    allocator = build(plugin(Taking), Options(size=9), "cuda:1")

    assert (allocator.options, allocator.device) == (Options(size=9), "cuda:1")


def test_without_options_a_factory_gets_the_defaults_it_declares():
    assert build(plugin(Taking), None, "cuda:1").options == Options()


def test_a_factory_that_accepts_neither_gets_neither():
    assert isinstance(build(plugin(TwoMethods), None, "cuda:0"), TwoMethods)


def test_options_for_a_plugin_that_takes_none_are_refused():
    with pytest.raises(UnsupportedError, match="allocator 'mine' takes no options"):
        build(plugin(TwoMethods), Options(), "cuda:0")


def test_a_factory_that_returns_no_allocator_breaks_the_contract():
    with pytest.raises(AllocatorContractError, match="allocator 'mine' broke rule A1"):
        build(plugin(lambda: object()), None, "cuda:0")


def test_what_a_factory_raises_reaches_the_caller():
    def refuse():
        raise OSError("no such pool")

    with pytest.raises(OSError, match="no such pool"):
        build(plugin(refuse), None, "cuda:0")


def test_a_class_without_declarations_has_the_default_traits_and_no_options():
    assert plugin(TwoMethods).traits == AllocatorTraits()
    assert plugin(TwoMethods).options_type is None


def test_what_a_class_declares_is_read_from_the_class(site):
    _, good = load_plugin(record("good-one", "fake_good:GoodAllocator"))

    assert good.traits.memory_kind is MemoryKind.HOST
    assert good.options_type.__qualname__ == "GoodAllocator.Options"
    assert good.keywords == {"options", "device"}


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("an_instance", "name its class"),
        ("NoMethods", "has no method allocate"),
        ("OneMethod", "has no method deallocate"),
        ("WrongArity", "is called as (ptr, size_in_bytes)"),
        ("NeedsMore", "missing a required argument: 'pool'"),
        ("BadTraits", "not an AllocatorTraits"),
        ("BadOptions", "not a dataclass"),
        ("DeafToOptions", "does not accept options="),
        ("BadAvailability", "its availability is not callable"),
    ],
)
def test_a_plugin_of_the_wrong_shape_is_broken_when_it_is_loaded(site, attribute, reason):
    broken, nothing = load_plugin(record("wrong", f"fake_wrong:{attribute}"))

    assert nothing is None
    assert broken.status is PluginStatus.BROKEN
    assert reason in broken.error
    assert isinstance(broken.exception, AllocatorContractError)


def test_a_module_in_place_of_a_class_is_broken(site):
    broken, _ = load_plugin(record("wrong", "fake_wrong"))

    assert broken.error == "fake_wrong is not a class or function that makes an allocator"


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [("NewerMinor", "version 1.99"), ("OtherMajor", "version 2.0"), ("OddVersion", "its api_version is '1.0'")],
)
def test_a_plugin_for_another_contract_is_incompatible(site, attribute, reason):
    incompatible, nothing = load_plugin(record("wrong", f"fake_wrong:{attribute}"))

    assert nothing is None
    assert incompatible.status is PluginStatus.INCOMPATIBLE
    assert reason in incompatible.error


# What options change, and what there is to know


@dataclass(frozen=True, kw_only=True)
class KindOfMemory:
    managed: bool = False


class OfEitherKind(TwoMethods):
    Options = KindOfMemory
    traits = AllocatorTraits(memory_kind=MemoryKind.CUDA_DEVICE)

    def __init__(self, *, options=None):
        pass

    @classmethod
    def traits_for(cls, options):
        return AllocatorTraits(memory_kind=MemoryKind.CUDA_MANAGED) if options.managed else cls.traits


def test_traits_are_those_of_the_class_whatever_the_options():
    assert plugin(TwoMethods).traits_for(None) == AllocatorTraits()


def test_a_class_may_say_which_traits_hold_with_certain_options():
    loaded = plugin(OfEitherKind)

    assert loaded.traits_for(None) == loaded.traits
    assert loaded.traits_for(KindOfMemory(managed=True)).memory_kind is MemoryKind.CUDA_MANAGED


class Telling(TwoMethods):
    answer = None

    @classmethod
    def diagnosis(cls):
        if isinstance(cls.answer, Exception):
            raise cls.answer
        return cls.answer


def telling(answer):
    return plugin(type("Tells", (Telling,), {"answer": answer}))


@pytest.mark.parametrize("answer", [None, "its compiled part is missing"])
def test_what_a_class_has_to_tell_is_told(answer):
    assert diagnosis(telling(answer)) == answer
    assert diagnosis(plugin(TwoMethods)) is None


@pytest.mark.parametrize(
    ("answer", "told"), [(OSError("no file"), "raised OSError: no file"), (3, "returned 3, which is no text")]
)
def test_a_diagnosis_that_fails_is_told_as_such(answer, told):
    assert diagnosis(telling(answer)) == f"its diagnosis {told}"
