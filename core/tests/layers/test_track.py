"""The layer that knows who holds what: live blocks, leaks, and what errors say of holders."""

from __future__ import annotations

import inspect
import pickle

import pytest

import allotment as al

NAMES = ["default", "mempool", "managed", "caching"]


def line():
    """Return the line that calls this, as call sites have it."""
    return inspect.currentframe().f_back.f_lineno


def tracked(name="mempool", device="cuda:0", **options):
    return al.get_allocator(name, device, layers=[{"track": options}])


@pytest.mark.parametrize("name", NAMES)
def test_a_live_block_has_its_size_label_stream_and_call_site(sim, name):
    account, stream = tracked(name), al.Stream("cuda:0")
    with al.label("weights"), al.ScopedStream(stream):
        ptr, at = account.allocate(1000), line()
    (block,) = al.live_blocks()

    assert (block.ptr, block.nbytes, block.device, block.allocator) == (ptr, 1000, "cuda:0", name)
    assert block.label == "weights"
    assert block.stream == (stream.handle if account.takes_streams else None)
    assert block.call_site.frames[0][:2] == (__file__, at)
    assert f"{__file__}:{at} in test_a_live_block_has" in str(block)
    account.deallocate(ptr, 1000)
    assert al.live_blocks() == []


def test_arrays_are_tracked_without_the_frames_of_allotment(sim):
    al.configure(layers=["track"])
    array, at = al.zeros(1000, device="cuda:0"), line()
    (block,) = al.live_blocks("cuda:0")

    assert block.ptr == array.ptr
    assert block.call_site.frames[0].line == at
    assert all("allotment/layers" not in frame.file for frame in block.call_site.frames)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_call_site_has_as_many_frames_as_are_asked_for(sim, depth):
    account = tracked(depth=depth)
    account.allocate(8)

    assert len(al.live_blocks()[0].call_site.frames) == depth


def test_a_negative_depth_is_refused(sim):
    with pytest.raises(al.ConfigError, match="expected a number from 0, got -1"):
        tracked(depth=-1)


def test_live_blocks_come_by_size_and_can_be_asked_for_by_device_and_allocator(sim):
    first, second = tracked(), tracked("default", "cuda:1")
    for account, size in ((first, 100), (second, 300), (first, 200)):
        account.allocate(size)

    assert [block.nbytes for block in al.live_blocks()] == [300, 200, 100]
    assert [block.nbytes for block in al.live_blocks("cuda:0")] == [200, 100]
    assert [block.nbytes for block in al.live_blocks(allocator="Default")] == [300]
    assert first.layers[0].live_blocks()[0].number < first.layers[0].live_blocks()[1].number


def test_an_allocator_without_the_layer_is_not_tracked(sim):
    al.get_allocator("mempool", "cuda:0").allocate(100)

    assert al.live_blocks() == []


def test_holders_are_grouped_by_label_and_call_site(sim):
    account = tracked()
    for _ in range(3):
        with al.label("activations"):
            account.allocate(100)
    account.allocate(200)

    assert [(each.nbytes, each.blocks, each.label) for each in al.memory_holders()] == [
        (300, 3, "activations"),
        (200, 1, None),
    ]


def test_a_free_that_fails_leaves_the_block_tracked(sim):
    account = al.get_allocator("default", "cuda:0", layers=["track", {"fault": {"call": "deallocate", "at": 1}}])
    ptr = account.allocate(100)
    with pytest.raises(al.AllotmentError):
        account.deallocate(ptr, 100)

    assert [block.ptr for block in al.live_blocks()] == [ptr]
    account.deallocate(ptr, 100)
    assert al.live_blocks() == []


def test_the_memory_of_a_graph_is_not_tracked(sim):
    account, stream = tracked(), al.Stream("cuda:0", non_blocking=True)
    with al.ScopedStream(stream), al.ScopedCapture("cuda:0"):
        account.deallocate(account.allocate(500), 500)

    assert al.live_blocks() == []


# ---------------------------------------------------------------------------------------------------------------------
# Leaks


def test_blocks_that_a_scope_leaves_behind_are_named_with_their_call_site(sim):
    account = tracked()
    account.allocate(10)

    @al.expect_no_leaks()
    def step():
        with al.label("activations"):
            account.allocate(2000)
        account.deallocate(account.allocate(3000), 3000)

    at = line() - 3
    with pytest.warns(al.LeakWarning) as caught:
        step()

    text = str(caught[0].message)
    assert text.startswith("1 block is live at the end of the scope that made it, 2,000 bytes:\n")
    assert f"  2,000 bytes of 'mempool' on 'cuda:0' labelled 'activations' from {__file__}:{at} in " in text


def test_a_scope_that_frees_what_it_made_says_nothing(sim):
    account = tracked()
    with al.expect_no_leaks():
        account.deallocate(account.allocate(100), 100)


def test_an_allocator_that_is_made_in_the_scope_is_seen(sim):
    with pytest.warns(al.LeakWarning, match="100 bytes"), al.expect_no_leaks("cuda:0", "mempool"):
        tracked().allocate(100)


def test_garbage_is_no_leak(sim):
    al.configure(layers=["track"])
    with al.expect_no_leaks():
        circle = [al.zeros(10, device="cuda:0")]
        circle.append(circle)
        del circle


def test_a_report_names_the_ten_largest_blocks(sim):
    account = tracked()

    with pytest.warns(al.LeakWarning) as caught, al.expect_no_leaks():
        _ = [account.allocate(size) for size in range(1, 14)]

    lines = str(caught[0].message).splitlines()
    assert (len(lines), lines[0][:22], lines[-1]) == (12, "13 blocks are live at ", "  and 3 more")
    assert lines[1].startswith("  13 bytes of")
    assert caught[0].filename == __file__


def test_an_exception_is_let_through_without_a_report(sim):
    account = tracked()
    with pytest.raises(KeyError), al.expect_no_leaks():
        raise KeyError(account.allocate(100))


def test_nothing_can_be_said_where_nothing_is_tracked(sim):
    with pytest.raises(al.UnsupportedError, match=r"configure\(layers=\['track'\]\)"), al.expect_no_leaks():
        al.zeros(10, device="cuda:0")


@pytest.mark.parametrize(("is_on", "reports"), [("true", 1), ("false", 0)])
def test_live_blocks_are_reported_when_the_interpreter_exits(run_script, is_on, reports):
    layers = f"[{{ track = {{ report_at_exit = {is_on} }} }}]"
    done = run_script(
        "import allotment as al\nkept = al.zeros(100, device='cuda:0')",
        ALLOTMENT_PLATFORM="sim:h200",
        ALLOTMENT_LAYERS=layers,
    )

    assert done.returncode == 0
    assert done.stderr.count("LeakWarning: 1 block is live when the interpreter exits, 800 bytes:") == reports
    assert done.stderr.count("from <string>:2 in <module>") == reports


# ---------------------------------------------------------------------------------------------------------------------
# What errors say


def test_an_out_of_memory_error_says_who_holds_most(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=["track", {"limit": 10_000}])
    with al.label("activations"):
        for _ in range(2):
            account.allocate(2000)
    at = line() - 1
    account.allocate(1000)
    with pytest.raises(al.OutOfMemoryError) as caught:
        account.allocate(8000)

    name = "test_an_out_of_memory_error_says_who_holds_most"
    assert (
        f"limit 10,000 bytes (9.77 KiB). Largest holders: 4,000 bytes in 2 blocks of 'mempool' labelled 'activations' "
        f"from {__file__}:{at} in {name}; 1,000 bytes in 1 block of 'mempool' from {__file__}:{at + 2} in {name}. "
        "8,000 bytes would be added"
    ) in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.holders) == (str(caught.value), caught.value.holders)


def test_five_holders_at_most_are_named(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=["track", {"limit": 10_000}])
    for number in range(7):
        with al.label(str(number)):
            account.allocate(100 + number)
    with pytest.raises(al.OutOfMemoryError) as caught:
        account.allocate(10_000)

    assert [holder.label for holder in caught.value.holders] == ["6", "5", "4", "3", "2"]


def test_an_error_has_no_holders_where_nothing_is_tracked(sim):
    account = al.get_allocator("mempool", "cuda:0", layers=[{"limit": 10_000}])
    with pytest.raises(al.OutOfMemoryError) as caught:
        account.allocate(20_000)

    assert caught.value.holders is None
    assert "holders" not in str(caught.value)


def test_a_double_free_says_where_the_first_one_was(sim):
    account = tracked()
    ptr, made = account.allocate(100), line()
    account.deallocate(ptr, 100)
    freed = line() - 1
    with pytest.raises(al.InvalidPointerError) as caught:
        account.deallocate(ptr, 100)

    assert f"allocated at {__file__}:{made} in " in caught.value.history
    assert f"and freed at {__file__}:{freed} in " in str(caught.value)


def test_what_was_freed_long_ago_is_forgotten(sim):
    account = tracked(depth=1)
    ptr = account.allocate(2**21)
    account.deallocate(ptr, 2**21)
    account.allocate(8)
    for _ in range(1024):
        account.deallocate(account.allocate(100), 100)

    assert account.layers[0].history(ptr) is None
