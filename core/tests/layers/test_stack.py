"""Layers as they are asked for: where they can be said, what is refused, what an account is with and without them."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import pytest

import allotment as al
from allotment import configuration, registry
from allotment.configuration import Configuration, read_sources
from allotment.layers.account import OwnAccount, StreamOrderedAccount
from allotment.layers.layer import Place
from allotment.layers.ledger import IS_COMPILED


def names(account):
    return [layer.name for layer in account.layers]


def refusal(*layers, name="mempool"):
    with pytest.raises(al.ConfigError) as caught:
        al.get_allocator(name, "cuda:0", layers=list(layers))
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------
# Where they are said


def test_a_call_gives_the_layers_of_an_allocator(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=["ladder", {"limit": "1 GiB"}])

    assert names(account) == ["ladder", "limit"]
    assert account.layers[1].limit == 2**30


def test_the_same_layers_give_the_same_allocator_and_others_another(sim):
    first, again, other = (al.get_allocator("mempool", "cuda:0", layers=[{"limit": n}]) for n in ("1 GiB", 2**30, 5))

    assert first is again
    assert first is not other
    assert al.get_allocator("mempool", "cuda:0").layers == ()


def test_configuration_gives_the_layers_of_all_cuda_devices_and_of_one(sim):
    al.configure(layers=["ladder"], devices={"cuda:1": {"layers": [{"limit": "1 GiB"}]}})

    arrays = [al.empty(8, device=device) for device in ("cuda:0", "cuda:1", "cpu")]

    assert [names(array.allocator) for array in arrays] == [["ladder"], ["limit"], []]


def test_the_host_has_the_layers_that_are_said_for_it(sim):
    al.configure(devices={"cpu": {"layers": [{"limit": "1 MiB"}]}})

    with pytest.raises(al.OutOfMemoryError, match=r"limit 1,048,576 bytes \(1 MiB\)"):
        al.empty(2**21, "uint8", "cpu")


def test_a_change_concerns_allocators_that_are_made_later(sim):
    before = al.empty(8)
    al.configure(layers=["ladder"])
    during = al.empty(8)
    al.configure(layers=None)

    assert [names(array.allocator) for array in (before, during, al.empty(8))] == [[], ["ladder"], []]
    assert al.empty(8).allocator is before.allocator


def test_an_object_of_the_user_has_layers_too(sim, recording):
    al.configure(layers=[{"limit": "1 MiB"}])
    al.set_device_allocator("cuda:0", recording())

    with pytest.raises(al.OutOfMemoryError, match="limit 1,048,576 bytes"):
        al.empty(2**21, "uint8", "cuda:0")


@pytest.mark.parametrize("value", ["ladder,limit=60 GiB", '["ladder", { limit = "60 GiB" }]'])
def test_the_environment_gives_layers(sim, tmp_path, value):
    with configuration.use(Configuration(lambda: read_sources({"ALLOTMENT_LAYERS": value}, tmp_path, tmp_path))):
        account = al.empty(8).allocator

        assert (names(account), account.layers[1].limit) == (["ladder", "limit"], 60 * 2**30)


def test_a_file_gives_layers_and_an_error_names_file_key_and_what_is_accepted(sim, tmp_path):
    path = tmp_path / "allotment.toml"
    path.write_text('layers = ["ladder", { limit = { amout = "60 GiB" } }]')
    with (
        configuration.use(Configuration(lambda: read_sources({}, tmp_path, tmp_path / "user"))),
        pytest.raises(al.ConfigError) as caught,
    ):
        al.empty(8)

    assert str(caught.value) == (
        f"{path}: layers.limit.amout: unknown key. Accepted here: amount, shared. Did you mean 'amount'?"
    )


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


def test_an_unknown_layer_is_refused_with_the_nearest(sim):
    assert "layers.lader: unknown layer. Accepted here: fallback, fault, " in refusal("lader")
    assert "Did you mean 'ladder'?" in refusal("lader")


@pytest.mark.parametrize(
    "layers",
    [
        [{"limit": "1 GiB"}, "ladder"],
        ["ladder", {"fallback": "managed"}],
        [{"fault": 1}, {"limit": "1 GiB"}],
        ["ladder", {"limit": 5}, {"fallback": "managed"}],
    ],
)
def test_a_wrong_order_is_refused_with_the_right_one(sim, layers):
    text = refusal(*layers)
    right = sorted(
        (layer if isinstance(layer, str) else next(iter(layer)) for layer in layers),
        key=["fallback", "ladder", "limit", "prefetch", "fault"].index,
    )

    assert text.endswith(f"is in the wrong place. The one nearest to the user comes first: {right}.")


def test_a_layer_twice_is_refused(sim):
    assert "it has the layer 'ladder' twice" in refusal("ladder", "ladder")


def test_a_main_option_that_must_be_said_is_missed_where_the_layer_is_asked_for(sim):
    assert refusal("limit").endswith("layers.limit.amount: it has no default and must be said.")
    assert refusal("limit").startswith("call at ")


def test_an_ill_typed_option_is_refused(sim):
    assert "layers.ladder.rungs: expected one of 'observers', " in refusal({"ladder": ["trimm"]})


def test_a_refused_layer_leaves_no_pool_behind(sim):
    with pytest.raises(al.UnsupportedError, match="'prefetch' moves managed memory, and allocator 'mempool'"):
        al.get_allocator("mempool", "cuda:0", layers=["prefetch"])

    calls = [call.name for call in sim.calls]
    assert calls.count("create_pool") == calls.count("destroy_pool")


# ---------------------------------------------------------------------------------------------------------------------
# An account with and without


def test_without_layers_the_ledger_calls_the_allocator_itself():
    with al.simulate("h200"):
        plain, pool = (al.get_allocator(name, "cuda:0") for name in ("default", "mempool"))

        assert (plain._allocate, plain._deallocate) == (plain.allocator.allocate, plain.allocator.deallocate)
        assert not IS_COMPILED or pool._pool == pool.allocator.pool_handle


def test_the_calls_are_composed_once(sim):
    account = al.get_allocator("default", "cuda:0", layers=["ladder"])

    assert account.own_calls() is account.own_calls()


def test_with_layers_the_pool_is_not_drawn_from_past_them(sim):
    assert al.get_allocator("mempool", "cuda:0", layers=["ladder"])._pool is None


def test_layers_stand_before_an_allocator_that_keeps_its_own_accounts(sim):
    caching = pytest.importorskip("allotment_caching")
    assert isinstance(al.get_allocator("caching", "cuda:0"), OwnAccount)
    account = al.get_allocator("caching", "cuda:0", layers=[{"limit": "1 MiB"}])

    ptr = account.allocate(1000)
    with pytest.raises(al.OutOfMemoryError):
        account.allocate(2**20)
    account.deallocate(ptr, 1000)

    assert isinstance(account, StreamOrderedAccount)
    assert isinstance(account.allocator, caching.CachingAllocator)


def test_an_account_with_layers_is_collected(sim):
    account = al.get_allocator("default", "cuda:0", layers=["ladder"])
    device = account.device
    key = next(key for key, made in device.named_accounts.items() if made is account)
    device.named_accounts.clear()
    del account
    gc.collect()

    assert key not in device.accounts


def test_memory_that_a_graph_allocates_goes_past_the_layers(sim):
    al.configure(layers=[{"limit": "1 MiB"}])
    stream = al.Stream("cuda:0", non_blocking=True)
    al.empty(1)
    with al.ScopedStream(stream), al.ScopedCapture("cuda:0") as capture:
        inside = al.empty(2**21, "uint8", "cuda:0")
        (limit,) = inside.account.layers
    capture.graph.launch(stream)

    assert limit.budget.used == 0
    del inside
    capture.graph.close()
    assert limit.budget.used == 0


def test_one_array_in_flight_before_a_capture_is_counted_off_after_it(sim):
    al.configure(layers=[{"limit": "1 MiB"}])
    array = al.empty(1000, "uint8", "cuda:0")
    (limit,) = array.account.layers
    with al.ScopedStream(al.Stream("cuda:0", non_blocking=True)), al.ScopedCapture("cuda:0"):
        del array
        during = limit.budget.used

    assert (during, limit.budget.used) == (1000, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Layers of others


class Doubling:
    """A layer that asks for twice the size, to see where a third party's stands."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        by: int = 2

    name = "doubling"
    place = Place.LIMIT + 5

    def __init__(self, options, device):
        self.options = options

    def wrap(self, calls, account):
        by = self.options.by
        return calls._replace(
            allocate=lambda size, *stream: calls.allocate(by * size, *stream),
            deallocate=lambda ptr, size, *stream: calls.deallocate(ptr, by * size, *stream),
        )


def test_a_layer_of_another_distribution_stands_where_it_says(sim, monkeypatch, recording):
    found = registry.PluginRecord(
        name="doubling", reference="other:Doubling", origin=registry.PluginOrigin.ENTRY_POINT, distribution="other"
    )
    monkeypatch.setattr("allotment.registry._catalogue.discover", lambda *_: (found,))
    load = registry._catalogue.load_object
    monkeypatch.setattr(
        "allotment.registry._catalogue.load_object",
        lambda record: (record, Doubling) if record is found else load(record),
    )
    al.configure(layers=[{"limit": 500}, "doubling"])
    user = recording()
    al.set_device_allocator("cuda:0", user)

    array = al.empty(400, "uint8", "cuda:0")
    assert (user.allocated[0][1], array.account.layers[0].budget.used) == (800, 400)
    del array

    assert user.freed[0][1] == 800
    assert "wrong place" in refusal("doubling", {"limit": 500})
