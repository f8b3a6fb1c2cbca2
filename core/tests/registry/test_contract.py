"""The shape of an allocator."""

import functools

import pytest

from allotment.errors import AllocatorContractError
from allotment.registry import check_instance
from allotment.registry._contract import accepted_keywords, factory_problem, instance_problem


class TwoMethods:
    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass


class Static:
    @staticmethod
    def allocate(size_in_bytes):
        return 4096

    @classmethod
    def deallocate(cls, ptr, size_in_bytes):
        pass


class Optional(TwoMethods):
    def allocate(self, size_in_bytes, stream=None):
        return 4096

    def deallocate(self, *args, **kwargs):
        pass


class BoundWhenMade:
    def __init__(self):
        self.allocate = TwoMethods().allocate
        self.deallocate = TwoMethods().deallocate


class Builtin:
    allocate = int
    deallocate = max


class Forwarding:
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(TwoMethods(), name)


WELL_FORMED = [TwoMethods, Static, Optional, BoundWhenMade, Builtin, Forwarding]


@pytest.mark.parametrize("cls", WELL_FORMED)
def test_every_way_to_have_the_two_methods_is_accepted(cls):
    assert factory_problem(cls) is None
    assert instance_problem(cls()) is None


@pytest.mark.parametrize("factory", [TwoMethods, lambda: TwoMethods(), functools.partial(TwoMethods)])
def test_a_class_a_function_and_a_partial_are_factories(factory):
    assert factory_problem(factory) is None


def test_what_is_missing_is_named():
    class OneMethod:
        def allocate(self, size_in_bytes):
            return 4096

    assert factory_problem(OneMethod).endswith("OneMethod has no method deallocate(ptr, size_in_bytes)")
    with pytest.raises(AllocatorContractError, match=r"has no method deallocate\(ptr, size_in_bytes\)"):
        check_instance(OneMethod())


def test_a_method_with_other_arguments_is_named_with_its_signature():
    class NoSize(TwoMethods):
        def deallocate(self, ptr):
            pass

    assert "deallocate is declared as (self, ptr), and is called as (ptr, size_in_bytes)" in factory_problem(NoSize)
    assert "deallocate is declared as (ptr), and is called as (ptr, size_in_bytes)" in instance_problem(NoSize())


def test_arguments_by_keyword_alone_do_not_do():
    class KeywordOnly(TwoMethods):
        def allocate(self, *, size_in_bytes):
            return 4096

    assert "is called as (size_in_bytes)" in factory_problem(KeywordOnly)


def test_a_static_method_with_other_arguments_is_refused():
    class NoSize(Static):
        @staticmethod
        def deallocate(ptr):
            pass

    assert "is called as (ptr, size_in_bytes)" in factory_problem(NoSize)


def test_a_method_that_is_not_callable_is_missing():
    class Nothing(TwoMethods):
        allocate = None

    assert "has no method allocate(size_in_bytes)" in factory_problem(Nothing)


def test_an_allocator_given_for_its_factory_is_recognised():
    assert factory_problem(TwoMethods()).endswith("name its class, or a function that returns it")


@pytest.mark.parametrize("thing", [None, 3, "text", functools])
def test_what_cannot_be_called_is_no_factory(thing):
    assert "is not a class or function that makes an allocator" in factory_problem(thing)


def test_a_factory_that_wants_more_than_core_gives_is_refused():
    assert "missing a required argument: 'pool'" in factory_problem(lambda pool: TwoMethods())


def test_the_error_names_the_allocator_and_the_rule():
    with pytest.raises(AllocatorContractError) as caught:
        check_instance(object(), "mine")

    assert caught.value.allocator == "mine"
    assert caught.value.rule == "A1"


@pytest.mark.parametrize(
    ("factory", "accepted"),
    [
        (lambda: None, set()),
        (lambda device: None, {"device"}),
        (lambda *, options: None, {"options"}),
        (lambda options=None, device=None: None, {"options", "device"}),
        (lambda **keywords: None, {"options", "device"}),
        (lambda device, /: None, set()),
        (lambda *device: None, set()),
        (int, set()),
    ],
)
def test_a_factory_is_offered_only_what_it_accepts(factory, accepted):
    assert accepted_keywords(factory) == accepted
