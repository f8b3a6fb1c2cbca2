"""The report of a trace in a browser: what it draws, what clicks and keys do, and that a trace cannot take it over."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from allotment.errors import TraceError
from allotment.layers.call_site import Frame
from allotment.trace import EventKind, TraceEvent, TraceSite, TraceSource, read

ROOT = Path(__file__).parents[2]
GPT2 = ROOT / "benchmarks/traces/gpt2_train.csv.gz"
HOW_TO = ROOT / "docs/how-to"

ALLOCATE, FREE, HELD, OUT_OF_MEMORY = EventKind
CACHING, MEMPOOL = TraceSource("cuda:0", "caching"), TraceSource("cuda:0", "mempool")
MAIN = Frame("/home/ann/train.py", 88, "main")
MIB = 2**20


def site(file, line, function, library=None):
    return TraceSite((Frame(f"/home/ann/{file}", line, function), MAIN), library)


FORWARD, BUILD, LOAD = (
    site("model.py", 40, "forward", "torch"),
    site("model.py", 7, "build"),
    site("data.py", 3, "load"),
)


def training(steps=6, leaks=True):
    """Return a trace like that of a training: weights that stay, activations that come and go, and a leak."""
    numbers = random.Random(7)
    events, live, time = [], [], 0

    def happen(kind, number, size, **told):
        nonlocal time
        time += numbers.randint(1_000, 50_000)
        events.append(TraceEvent(kind, number, size, time=time, **told))

    def allocate(size, kind=ALLOCATE, **told):
        live.append((number := sum(event.kind in (ALLOCATE, HELD) for event in events), size))
        happen(kind, number, size, **told)
        return live[-1]

    for index in range(8):
        allocate(16 * MIB, HELD if index < 2 else ALLOCATE, source=CACHING, label="weights", site=BUILD)
    for step in range(steps):
        batch = allocate(40 * MIB, source=MEMPOOL, label="data", site=LOAD)
        blocks = [
            allocate(numbers.randint(1, 20) * MIB, source=CACHING, label="step/activations", site=FORWARD)
            for _ in range(20)
        ]
        if leaks:
            allocate(3 * MIB, source=CACHING, label="history", site=site("log.py", 9, "append"))
        if step == 3:
            happen(OUT_OF_MEMORY, -1, 2**40, source=CACHING, label="step/activations", site=FORWARD)
        for number, size in [*reversed(blocks), batch]:
            happen(FREE, number, size)
    return events


def live_set(events, moment):
    """Return the numbers of the blocks that are live after so many events, the largest first, the older before."""
    live = {}
    for event in events[:moment]:
        if event.kind is FREE:
            del live[event.id]
        elif event.kind is not OUT_OF_MEMORY:
            live[event.id] = event.size
    return sorted(live, key=lambda number: (-live[number], number))


def live_bytes(events):
    """Return the bytes that are live after each number of events."""
    totals = [0]
    for event in events:
        change = {FREE: -event.size, OUT_OF_MEMORY: 0}.get(event.kind, event.size)
        totals.append(totals[-1] + change)
    return totals


def test_the_time_line_is_drawn_with_an_area_for_each_group(show):
    page = show(training())

    assert set(page.swatches()) == {"weights", "data", "step/activations", "history"}
    assert all(page.pixels_of(*colour) > 100 for colour in page.swatches().values())


@pytest.mark.parametrize(
    ("grouping", "groups"),
    [
        ("allocator", {"caching", "mempool"}),
        ("library", {"torch", "the program"}),
        ("call site", {f"{name} (ann/{file}.py:{line})" for name, file, line in
                       [("forward", "model", 40), ("build", "model", 7), ("load", "data", 3), ("append", "log", 9)]}),
        ("size of block", {"256 KiB to 2 MiB", "2 MiB to 16 MiB", "16 MiB to 128 MiB"}),
    ],
)  # fmt: skip
def test_what_memory_is_stacked_by_can_be_switched(show, grouping, groups):
    page = show(training())
    page.page.get_by_label("Stack by").select_option(label=grouping)
    page.settle()

    assert set(page.swatches()) == groups
    assert all(page.pixels_of(*colour) for colour in page.swatches().values())


def test_the_page_opens_at_the_peak(show):
    totals = live_bytes(events := training())
    page = show(events)

    assert page.moment == totals.index(max(totals))


@pytest.mark.parametrize("part", [0.1, 0.35, 0.77, 0.99])
def test_a_click_chooses_a_moment_and_its_live_set_is_that_of_a_walk(show, part):
    page = show(events := training())
    page.click_at(part)

    assert 0 < page.moment < len(events)
    assert page.live_blocks() == live_set(events, page.moment)


def test_a_click_chooses_the_moment_that_is_drawn_there(show):
    page = show(events := training())
    page.click_at(0.5)
    middle = events[-1].time / 2

    assert abs(events[page.moment - 1].time - middle) < events[-1].time / 200


def test_the_live_set_has_labels_allocators_and_call_sites(show):
    page = show(training())
    page.click_at(0.99)
    rows = set(zip(page.column("Label"), page.column("Allocator"), page.column("Library"), strict=True))

    assert ("history", "caching on cuda:0", "the program") in rows
    assert any("append (/home/ann/log.py:9)" in cell for cell in page.column("Call site"))


def test_blocks_of_one_holder_can_be_shown_together(show):
    page = show(training())
    page.page.locator("#panel select").select_option("holders")

    assert dict(zip(page.column("Label"), page.column("Blocks"), strict=True))["weights"] == "8"


def test_the_arrow_keys_move_the_moment_by_one_event(show):
    page = show(events := training())
    peak = page.moment
    page.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert page.moment == peak + 3
    assert page.live_blocks() == live_set(events, peak + 3)
    page.press("ArrowLeft")
    assert page.moment == peak + 2


def test_home_and_end_go_to_the_ends_and_p_to_the_peak(show):
    page = show(events := training())
    peak = page.moment
    page.press("End")
    assert page.moment == len(events)
    page.press("Home")
    assert page.moment == 0
    page.press("p")
    assert page.moment == peak


def test_plus_and_minus_zoom_and_zero_shows_the_whole(show):
    page = show(training())

    def window():
        return page.page.locator("#overview .u-select").bounding_box()["width"] / page.plot["width"]

    assert window() == pytest.approx(1, abs=0.02)
    page.press("+", "+")
    assert window() == pytest.approx(1 / 4, abs=0.02)
    page.press("-")
    assert window() == pytest.approx(1 / 2, abs=0.02)
    page.press("0")
    assert window() == pytest.approx(1, abs=0.02)


def test_dragging_over_the_time_line_zooms_and_a_click_then_chooses_within_the_window(show):
    page = show(events := training())
    box = page.plot
    page.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
    page.page.mouse.up()
    page.settle()
    page.click_at(0.5)

    assert abs(events[page.moment - 1].time / events[-1].time - 0.55) < 0.01
    assert page.live_blocks() == live_set(events, page.moment)


def test_the_window_follows_the_moment(show):
    page = show(events := training())
    page.press("Home", "+", "+", "+", "End", "ArrowRight", "ArrowRight")
    box, line = page.plot, page.page.locator(".moment-line").bounding_box()

    assert 0 < page.moment < len(events)
    assert box["x"] <= line["x"] <= box["x"] + box["width"]


def test_every_control_is_reached_by_tab_and_shows_its_focus(show):
    page = show(training())
    reached = []
    for _ in range(60):
        page.page.keyboard.press("Tab")
        reached.append(
            page.page.evaluate(
                "() => [document.activeElement.id || document.activeElement.getAttribute('role') || "
                "document.activeElement.textContent, getComputedStyle(document.activeElement).outlineStyle]"
            )
        )
    names = [name for name, _ in reached]

    for wanted in ("drawing", "grouping", "axis", "filter", "zoom-in", "timeline", "to-peak", "set-mark", "tab-live"):
        assert wanted in names
    assert all(outline != "none" for name, outline in reached if name not in ("", "drawing"))


def test_the_filter_narrows_the_whole_page_to_what_matches(show):
    page = show(events := training())
    page.filter("history")

    assert page.page.locator("#filtered").text_content() == f"6 of {sum(e.kind is not FREE for e in events) - 1} blocks"
    assert page.moment > 0
    page.press("End")
    assert set(page.column("Label")) == {"history"}
    assert len(page.live_blocks()) == 6
    assert not page.pixels_of(*page.swatches()["weights"])
    page.filter("")
    assert "weights" in page.column("Label")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("mempool", {"data"}),
        ("model.py:40", {"step/activations"}),
        ("torch", {"step/activations"}),
        ("CACHING build", {"weights"}),
    ],
)
def test_the_filter_looks_at_labels_allocators_libraries_and_call_sites(show, text, labels):
    page = show(training())
    page.filter(text)
    page.press("p")

    assert set(page.column("Label")) == labels


def test_a_filter_that_nothing_matches_shows_nothing(show):
    page = show(training())
    page.filter("nobody")

    assert page.live_blocks() == []


def test_a_group_can_be_shown_alone(show):
    page = show(training())
    page.click("#legend button", has_text="history")
    page.press("End")
    assert set(page.column("Label")) == {"history"}
    page.click("#legend button", has_text="history")
    assert len(set(page.column("Label"))) > 1


def test_what_is_live_at_the_end_is_told_by_holder(show):
    page = show(training())
    page.show("Live at the end")

    assert dict(zip(page.column("Label"), page.column("Size"), strict=True)) == {
        "weights": "128 MiB",
        "history": "18.0 MiB",
    }


def test_growers_are_who_holds_more_than_at_the_mark(show):
    page = show(training())
    page.press("Home", *["ArrowRight"] * 8, "m", "End")
    page.show("Top growers")

    assert page.column("Label") == ["history"]
    assert page.column("Grew by") == ["+18.0 MiB"]


def test_requests_that_ran_out_of_memory_are_marked_listed_and_gone_to(show):
    page = show(events := training())
    alarm = (194, 24, 43)
    assert page.pixels_of(*alarm) > 10
    page.show("Out of memory (1)")
    assert page.column("Asked for") == ["1.00 TiB"]
    page.click("#panel .jump")
    place = next(place for place, event in enumerate(events) if event.kind is OUT_OF_MEMORY)
    assert page.moment == place + 1
    assert "a request of 1.00 TiB ran out of memory" in page.page.locator("#moment").text_content()


def test_the_flame_graph_has_calls_as_wide_as_what_they_hold(show):
    page = show(training())
    page.press("End")
    page.show("Flame graph")
    cells = page.page.get_by_role("treeitem")
    widths = {cell.text_content(): cell.bounding_box()["width"] for cell in cells.all()}

    assert widths["build (ann/model.py:7)"] / widths["main (ann/train.py:88)"] == pytest.approx(128 / 146, abs=0.01)
    assert widths["append (ann/log.py:9)"] / widths["main (ann/train.py:88)"] == pytest.approx(18 / 146, abs=0.01)


def test_the_flame_graph_is_walked_by_keys_and_opened_by_enter(show):
    page = show(training())
    page.press("End")
    page.show("Flame graph")
    page.page.locator("[role=treeitem][tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.page.keyboard.press(key)
    opened = page.page.locator("[role=treeitem]:focus")

    assert opened.text_content() == "append (ann/log.py:9)"
    assert opened.bounding_box()["width"] == pytest.approx(page.page.locator(".flame").bounding_box()["width"], abs=2)


def test_the_tabs_are_walked_by_arrow_keys(show):
    page = show(training())
    page.page.get_by_role("tab", name="Live at the moment").focus()
    page.page.keyboard.press("ArrowRight")

    assert page.page.locator("[role=tab][aria-selected=true]").text_content() == "Flame graph"
    assert page.page.get_by_role("tree").is_visible()


def test_the_heap_map_draws_each_block_and_tells_which_is_under_the_pointer(show):
    page = show(
        [
            TraceEvent(ALLOCATE, 0, MIB),
            TraceEvent(ALLOCATE, 1, MIB),
            TraceEvent(FREE, 0, MIB),
            TraceEvent(ALLOCATE, 2, 1),
        ]
    )
    page.page.get_by_label("Draw").select_option("heap")
    page.settle()

    def told_at(x, y):
        box = page.plot
        page.page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * (1 - y))
        return page.page.locator(".tip").text_content().splitlines()[-1].partition(",")[0]

    after_one, after_two, after_three = 1.5 / 4, 2.5 / 4, 3.5 / 4
    assert told_at(after_one, 0.25) == "block 0"
    assert told_at(after_one, 0.75).endswith("after event 1")  # nothing is there
    assert (told_at(after_two, 0.25), told_at(after_two, 0.75)) == ("block 0", "block 1")
    assert told_at(after_three, 0.25) == "block 1"  # it lies lower when the older one is freed
    assert page.pixels_of(*page.swatches()["256 KiB to 2 MiB"]) > 1000


EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


def test_labels_paths_and_names_of_a_trace_are_text_and_nothing_else(show):
    source, evil_site = TraceSource(EVIL, EVIL), TraceSite((Frame(f"/{EVIL}.py", 1, EVIL), MAIN), EVIL)
    events = [
        TraceEvent(ALLOCATE, 0, MIB, source=source, label=EVIL, site=evil_site),
        TraceEvent(ALLOCATE, 1, MIB, label="plain"),
        TraceEvent(OUT_OF_MEMORY, -1, MIB, source=source, label=EVIL, site=evil_site),
    ]
    page = show(events, title=EVIL, problems=[TraceError(origin=EVIL, line=1, problem=EVIL)])

    assert EVIL in page.column("Label")
    for tab in ("Flame graph", "Top growers", "Live at the end", "Out of memory"):
        page.show(tab)
        assert "onerror" in page.page.locator("#panel").text_content()
    page.click_at(0.5)
    assert page.page.locator("img").count() == 0
    assert page.page.locator("script").count() == 4
    assert page.page.title() == f"{EVIL} – memory over time"


def test_an_empty_trace_says_so_and_shows_nothing_else(show):
    page = show([])

    assert page.page.get_by_text("This trace is empty").is_visible()
    assert not page.page.locator("#report").is_visible()


def test_what_was_left_out_is_said(show):
    page = show(training(), problems=[TraceError(origin="run.csv", line=7, problem="it is bad")])
    page.page.get_by_text("1 part of the trace could not be read").click()

    assert page.page.get_by_text("run.csv, line 7: it is bad.").is_visible()


def a_million_events():
    """Yield blocks of 64 KiB of which 100 are live, and once, for the length of one event, a large one."""
    for number in range(500_000):
        yield TraceEvent(ALLOCATE, number, 2**16, label="steady")
        if number == 230_000:
            yield TraceEvent(ALLOCATE, 10**6, 2**30, label="spike")
            yield TraceEvent(FREE, 10**6, 2**30)
        if number >= 100:
            yield TraceEvent(FREE, number - 100, 2**16)


def test_a_trace_of_a_million_events_opens_and_shows_a_peak_of_one_event(show):
    page = show(a_million_events())

    assert page.pixels_of(*page.swatches()["spike"]) > 100
    assert page.page.locator("#summary dd").first.text_content() == "1.01 GiB"
    assert len(page.live_blocks()) == 102
    page.press("+", "+", "ArrowRight")
    assert len(page.live_blocks()) == 101
    page.filter("spike")
    page.press("p")
    assert page.live_blocks() == [10**6]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(show, scheme):
    page = show(training())
    page.page.emulate_media(color_scheme=scheme)
    contrast = page.page.evaluate(
        """() => {
            const style = getComputedStyle(document.documentElement);
            const light = (name) => {
                const hex = style.getPropertyValue(`--${name}`).trim();
                const linear = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
                    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
                return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
            };
            const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
            const worst = (name) => Math.min(ratio(name, "card"), ratio(name, "paper"));
            return ["ink", "ink-soft", "accent", "alarm"].map(worst);
        }"""
    )

    assert min(contrast) >= 4.5  # WCAG 2.2, level AA


@pytest.fixture
def picture(tmp_path):
    """Return what takes a picture of a page; with PICTURES set it is the one that the documentation shows."""

    def take(page, name):
        path = (HOW_TO if os.environ.get("PICTURES") else tmp_path) / name
        page.page.screenshot(path=path)
        return path

    return take


def test_the_report_of_a_real_trace(show, picture):
    """The training of GPT-2 that was recorded on an H200, as the documentation shows it."""
    events = list(read(GPT2))
    page = show(events, title="gpt2_train.csv.gz")
    totals = live_bytes(events)

    assert picture(page, "memory-report.png").stat().st_size > 10_000
    assert page.moment == totals.index(max(totals))
    assert page.live_blocks() == live_set(events, page.moment)


@pytest.fixture
def recorded_training(tmp_path):
    """Return the trace of the program that the documentation shows, recorded by the command line on a simulated GPU."""
    page = (HOW_TO / "see-memory-over-time.md").read_text()
    program, trace = tmp_path / "project" / "training.py", tmp_path / "run.jsonl.gz"
    program.parent.mkdir()
    program.write_text(re.search(r"^```python\n(# training\.py\n.*?)^```", page, re.MULTILINE | re.DOTALL)[1])
    command = [sys.executable, "-m", "allotment", "trace", "record", "-o", trace, program]
    subprocess.run(command, env={**os.environ, "ALLOTMENT_PLATFORM": "sim:2xh200"}, check=True)
    return trace


def test_the_report_of_a_recorded_program(show, recorded_training, picture):
    """From the call in the program to the page: labels and call sites arrive, and what grows is found."""
    page = show(read(recorded_training), title=recorded_training.name)
    page.page.get_by_label("Across").select_option("events")
    page.show("Flame graph")
    page.settle()
    page.page.evaluate("scrollTo(0, 0)")

    assert set(page.swatches()) == {"weights", "step/activations", "step/gradients", "step/history"}
    assert page.page.get_by_role("treeitem", name="forward (").count() == 1
    assert picture(page, "memory-report-labels.png").stat().st_size > 10_000
