"""The compiled ledger calls the driver itself for a pool, and makes the usual call where that does not work."""

import ctypes

import pytest

import allotment as al
from allotment.layers.ledger import IS_COMPILED
from allotment.stream import stream_in_force, stream_scopes

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="the compiled ledger was not built here")

POOL, BLOCK = 0x7F00_0000_1234, 0x7F12_3456_7000
PLACE = ctypes.POINTER(ctypes.c_ulonglong)


class Driver:
    """The three functions of the driver, with what they answer and what they were asked."""

    def __init__(self):
        self.calls, self.device, self.result, self.no_context = [], 0, 0, 0
        malloc = ctypes.CFUNCTYPE(ctypes.c_int, PLACE, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
        free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulonglong, ctypes.c_void_p)
        current = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
        self.functions = malloc(self.malloc), free(self.free), current(self.current_device)

    def malloc(self, place, size, pool, stream):
        self.calls.append(("malloc", size, pool, stream or 0))
        place[0] = BLOCK
        return self.result

    def free(self, ptr, stream):
        self.calls.append(("free", ptr, stream or 0))
        return self.result

    def current_device(self, place):
        place[0] = self.device
        return self.no_context

    @property
    def addresses(self):
        return [ctypes.cast(function, ctypes.c_void_p).value for function in self.functions]


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def account(sim, driver):
    """Return an account that draws from a pool, of a platform with this driver; its usual calls are noted too."""
    found = al.get_allocator("mempool", "cuda:0")
    found._malloc_from_pool, found._free_async, found._current_device = driver.addresses
    found._stream_scopes, found._find_stream = stream_scopes, stream_in_force
    found._put(POOL, lambda *asked: driver.calls.append(("usual malloc", *asked)) or BLOCK + 512, driver.calls.append)
    return found


def test_a_block_comes_from_the_pool_and_goes_back_on_its_stream(account, driver):
    stream = al.Stream("cuda:0")
    with al.ScopedStream(stream):
        ptr = account.allocate(1000)
    account.deallocate(ptr, 1000)

    assert ptr == BLOCK
    assert driver.calls == [("malloc", 1000, POOL, stream.handle), ("free", BLOCK, stream.handle)]
    assert account.statistics().frees == 1


@pytest.mark.parametrize("trouble", [{"device": 1}, {"no_context": 201}, {"result": 2}])
def test_what_the_driver_does_not_do_is_done_in_the_usual_way(account, driver, trouble):
    vars(driver).update(trouble)
    ptr = account.allocate(1000)

    assert ptr == BLOCK + 512
    assert driver.calls[-1] == ("usual malloc", 1000, POOL, 0)


def test_a_free_that_the_driver_refuses_is_made_in_the_usual_way(account, driver):
    ptr = account.allocate(1000)
    driver.result = 1
    freed = []
    account._deallocate = lambda *asked: freed.append(asked)
    account.deallocate(ptr, 1000)

    assert freed == [(BLOCK, 0)]


def test_the_driver_is_not_called_once_the_account_is_retired(account, driver):
    account.retire(al.ShuttingDownError)
    with pytest.raises(al.ShuttingDownError):
        account.allocate(1000)

    assert driver.calls == []


def test_the_driver_is_not_called_while_something_stands_before_the_allocator(account, driver):
    account._put(POOL, None, None)
    with al.measure("step"):
        account.deallocate(account.allocate(1000), 1000)

    assert driver.calls == []


@pytest.mark.parametrize("missing", ["cuMemFreeAsync", None])
def test_a_platform_without_these_functions_makes_the_calls_itself(sim, monkeypatch, missing):
    def entry_point(name):
        if missing is None:
            raise al.PlatformError(call="cuGetProcAddress", code="cudaErrorSymbolNotFound")
        return 0 if name == missing else 1

    monkeypatch.setattr(sim, "driver_entry_point", entry_point, raising=False)
    account = al.get_allocator("mempool", "cuda:0")
    account.deallocate(account.allocate(1000), 1000)

    assert account.statistics().frees == 1
