"""Calls that go straight to an allocator, by each of the twins: while it is in force and nothing is in between."""

import ctypes
from dataclasses import dataclass

import pytest

import allotment as al
from allotment._allocator_scopes import allocator_scopes
from allotment.bridges import _express

try:
    from allotment.bridges import _express_native
except ImportError:
    _express_native = None


@pytest.fixture(params=["python", "compiled"])
def express(request):
    if request.param == "compiled" and _express_native is None:
        pytest.skip("the compiled twin was not built here")
    return (_express if request.param == "python" else _express_native).express


@dataclass(frozen=True)
class Made:
    """What a call made."""

    ptr: int
    way: str = "straight"


class Road:
    """Two devices, the first with a lane to `caching`."""

    def __init__(self, express, sim):
        self.sim, self.device, self.answer = sim, al.get_device("cuda:0"), Made(8)
        self.account = al.get_allocator("caching", self.device)
        self.lanes = [(self.device, self.account, self.straight, ("given", 7), lambda made, offset: made)]
        self.make = express

    def straight(self, size, *given):
        assert given == ("given", 7)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def allocate(self, size=100, *, follows_settings=True, function=0):
        scopes = allocator_scopes.variable if follows_settings else None
        return self.make(self.lanes, scopes, self.sim.current_device, function, lambda size: Made(size, "otherwise"))(
            size
        )


@pytest.fixture
def road(express, sim):
    road = Road(express, sim)
    al.set_device_allocator(road.device, road.account)
    al.get_allocator(None, road.device)
    return road


def test_an_allocator_in_force_is_called_straight(road):
    assert road.allocate() == Made(8)


def test_on_a_device_without_a_lane_it_is_the_general_way(road):
    with al.ScopedDevice("cuda:1"):
        assert road.allocate().way == "otherwise"
        road.lanes.append(None)
        assert road.allocate().way == "otherwise"


def test_without_a_block_the_general_way_is_asked(road):
    road.answer = Made(0)

    assert road.allocate(100) == Made(100, "otherwise")


@pytest.mark.parametrize("allocator", ["mempool", None])
def test_another_allocator_in_force_closes_the_lane(road, allocator):
    al.set_device_allocator(road.device, allocator)
    assert road.allocate().way == "otherwise"
    al.get_allocator(None, road.device)
    assert road.allocate().way == "otherwise"

    assert road.allocate(follows_settings=False).way == "straight"


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_a_scope_closes_the_lane(road, device):
    with al.ScopedAllocator(device, "mempool"):
        assert road.allocate().way == "otherwise"
        assert road.allocate(follows_settings=False).way == "straight"

    assert road.allocate().way == "straight"


@pytest.mark.parametrize("interposed", [lambda: al.measure(), lambda: al.ScopedCapture("cuda:0")])
def test_whoever_stands_in_between_closes_the_lane(road, interposed):
    with interposed():
        assert road.allocate().way == "otherwise"

    assert road.allocate().way == "straight"


def test_an_error_is_passed_on(road):
    road.answer = ValueError("no")

    with pytest.raises(ValueError, match="no"):
        road.allocate()


def test_an_error_about_the_current_device_is_passed_on(road):
    road.sim.fail("current_device")

    with pytest.raises(al.PlatformError):
        road.allocate()


@pytest.mark.skipif(_express_native is None, reason="the compiled twin was not built here")
def test_a_function_in_c_tells_the_device_at_less_cost(sim):
    road = Road(_express_native.express, sim)
    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda _: 1)
    address = ctypes.cast(function, ctypes.c_void_p).value

    assert road.allocate(function=address).way == "otherwise"
    assert sim.calls.named("current_device") == []


@pytest.mark.parametrize("arguments", [(), ([], None, None, 0)])
def test_too_few_arguments_are_refused(express, arguments):
    with pytest.raises(TypeError):
        express(*arguments)


def test_a_delivery_opens_lanes(sim):
    delivery, account = al.Delivery("library", "caching"), al.get_allocator("caching", "cuda:1")
    allocate = delivery.express(lambda size: Made(size, "otherwise"), sim.current_device)
    assert (allocate(100).way, delivery.has_lane(account)) == ("otherwise", False)
    delivery.open_lane(account, Made, ("straight",), lambda made, offset: made)

    assert (allocate(100).way, delivery.has_lane(account)) == ("otherwise", True)
    with al.ScopedDevice("cuda:1"):
        assert allocate(100).way == "straight"
