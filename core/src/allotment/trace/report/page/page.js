// The page: what a person has chosen, and what is drawn again when that changes.

import { bytes, count, counted, duration, originText, percent } from "./format.js";
import { byId, element, fillSelect, oncePerFrame, swatch } from "./elements.js";
import { momentAt, readTrace } from "./trace.js";
import { groupBlocks, groupingsOf, HIDDEN, matches } from "./grouping.js";
import { liveBlocks, liveByGroup, peakOf, totalsOf } from "./samples.js";
import { blockInHeap } from "./heap.js";
import { Timeline } from "./timeline.js";
import { flameKinds } from "./flame.js";
import { PANELS } from "./panels.js";

const NARROWEST = { events: 4, time: 100 }; // windows, in events and in nanoseconds
const TYPING_PAUSE = 150; // milliseconds

class Page {
  constructor(trace) {
    this.trace = trace;
    this.groupings = groupingsOf(trace);
    this.grouping = this.groupings[0];
    this.axis = trace.time ? "time" : "events";
    this.drawing = "areas";
    this.filter = "";
    this.alone = null; // the group that is shown alone
    this.mark = 0;
    this.panel = PANELS[0];
    this.liveAs = "blocks";
    this.flameAs = flameKinds(trace)[0][0];
    this.timeline = new Timeline(byId("timeline"), byId("overview"), {
      choose: (moment) => this.choose(moment),
      zoom: (window) => this.zoom(window),
      whole: () => this.zoom(this.whole),
      hover: (moment, height) => this.hoverText(moment, height),
      resize: oncePerFrame(() => this.redraw()),
    });
    this.redraw = oncePerFrame(() => this.timeline.draw(this));
    this.retell = oncePerFrame(() => this.tellMoment());
  }

  start() {
    this.measure();
    this.regroup();
    this.moment = this.peak;
    this.tellSummary();
    this.connect();
    this.rebuild();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  /** What the time line draws by; the rest of the page knows the same. */
  get heap() {
    return this.drawing === "heap";
  }

  /** Place all moments on the chosen axis, and show the whole. */
  measure() {
    this.positions = this.trace.positions(this.axis);
    const [first, last] = [this.positions[0], this.positions.at(-1)];
    this.whole = [first, last > first ? last : first + 1];
    this.window = this.whole;
  }

  /** Put each block into a group by the chosen grouping, filter and group alone. */
  regroup() {
    const { group, groups } = groupBlocks(this.trace, this.grouping, matches(this.trace, this.filter));
    this.groups = groups;
    this.unaloneGroup = group;
    this.group = this.alone === null ? group : group.map((each) => (each === this.alone ? each : HIDDEN));
    this.totals = totalsOf(this.trace, this.group);
    this.peak = peakOf(this.totals);
  }

  rebuild() {
    this.timeline.rebuild(this);
    this.tellMoment();
  }

  choose(moment) {
    this.moment = Math.max(0, Math.min(this.trace.events, moment));
    this.follow();
    this.timeline.placeLines(this);
    this.retell();
  }

  /** Move the window where the chosen moment is out of it. */
  follow() {
    const [left, right] = this.window;
    const place = this.positions[this.moment];
    if (place < left || place > right) this.zoom([place - (right - left) / 2, place + (right - left) / 2]);
  }

  /** Go to a moment from somewhere else on the page, and say where it is. */
  goTo(moment) {
    this.choose(moment);
    byId("timeline").scrollIntoView({ block: "nearest" });
    byId("timeline").focus();
  }

  /** Show a window, within the trace and not too narrow to tell anything. */
  zoom([left, right]) {
    const [first, last] = this.whole;
    const width = Math.min(last - first, Math.max(right - left, NARROWEST[this.axis]));
    const start = Math.max(first, Math.min(last - width, (left + right - width) / 2));
    this.window = [start, start + width];
    this.redraw();
  }

  /** Zoom by a factor, around the chosen moment if it is in sight. */
  zoomBy(factor) {
    const [left, right] = this.window;
    const place = this.positions[this.moment];
    const middle = place >= left && place <= right ? place : (left + right) / 2;
    this.zoom([middle - (middle - left) * factor, middle + (right - middle) * factor]);
  }

  setMark() {
    this.mark = this.moment;
    this.timeline.placeLines(this);
    this.tellMoment();
  }

  showAlone(group) {
    this.alone = this.alone === group ? null : group;
    this.regroup();
    this.rebuild();
  }

  // What the controls do

  connect() {
    fillSelect(
      byId("grouping"),
      this.groupings.map(({ key, title }) => [key, title]),
      this.grouping.key,
    );
    byId("axis").value = this.axis;
    byId("axis-label").hidden = !this.trace.time;
    byId("filter").placeholder = "label, call site, allocator, stream 0 …";
    this.connectControls();
    byId("timeline").addEventListener("keydown", (event) => this.pressed(event));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.matches("input, select")) return;
      event.preventDefault();
      byId("filter").focus();
    });
    this.connectTabs();
  }

  connectControls() {
    const onChange = (id, run) => byId(id).addEventListener("change", (event) => run(event.target.value));
    onChange("grouping", (key) => this.groupBy(key));
    onChange("axis", (axis) => this.measureBy(axis));
    onChange("drawing", (drawing) => this.draw(drawing));
    let typing = 0;
    byId("filter").addEventListener("input", (event) => {
      clearTimeout(typing);
      typing = setTimeout(() => this.filterBy(event.target.value), TYPING_PAUSE);
    });
    const onClick = (id, run) => byId(id).addEventListener("click", run);
    onClick("zoom-in", () => this.zoomBy(0.5));
    onClick("zoom-out", () => this.zoomBy(2));
    onClick("zoom-whole", () => this.zoom(this.whole));
    onClick("step-back", () => this.choose(this.moment - 1));
    onClick("step-on", () => this.choose(this.moment + 1));
    onClick("to-peak", () => this.choose(this.peak));
    onClick("set-mark", () => this.setMark());
  }

  groupBy(key) {
    this.grouping = this.groupings.find((grouping) => grouping.key === key);
    this.alone = null;
    this.regroup();
    this.rebuild();
  }

  measureBy(axis) {
    const edges = this.window.map((place) => momentAt(this.positions, place));
    this.axis = axis;
    this.measure();
    this.zoom(edges.map((moment) => this.positions[moment]));
    this.rebuild();
  }

  draw(drawing) {
    this.drawing = drawing;
    this.rebuild();
  }

  filterBy(text) {
    this.filter = text;
    this.regroup();
    this.rebuild();
    const shown = this.group.reduce((sum, group) => sum + (group !== HIDDEN), 0);
    byId("filtered").textContent = text.trim() ? `${count(shown)} of ${counted(this.trace.blocks, "block")}` : "";
  }

  pressed(event) {
    if (event.altKey || event.metaKey || (event.ctrlKey && event.key !== "Home" && event.key !== "End")) return;
    const run = this.actionOf(event.key.length === 1 ? event.key.toLowerCase() : event.key, event.shiftKey);
    if (!run) return;
    event.preventDefault();
    run();
  }

  actionOf(key, shift) {
    const [left, right] = this.window;
    const stride = (right - left) / (key.startsWith("Page") ? 5 : 20);
    const strides = shift || key.startsWith("Page");
    return {
      ArrowLeft: () => (strides ? this.chooseFurther(-stride) : this.choose(this.moment - 1)),
      ArrowRight: () => (strides ? this.chooseFurther(stride) : this.choose(this.moment + 1)),
      PageDown: () => this.chooseFurther(-stride),
      PageUp: () => this.chooseFurther(stride),
      Home: () => this.choose(momentAt(this.positions, left)),
      End: () => this.choose(momentAt(this.positions, right)),
      "+": () => this.zoomBy(0.5),
      "=": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      _: () => this.zoomBy(2),
      0: () => this.zoom(this.whole),
      p: () => this.choose(this.peak),
      m: () => this.setMark(),
    }[key];
  }

  /** Choose the moment a stretch of the axis further on, at least the next one. */
  chooseFurther(stretch) {
    const found = momentAt(this.positions, this.positions[this.moment] + stretch);
    this.choose(stretch > 0 ? Math.max(found, this.moment + 1) : Math.min(found, this.moment - 1));
  }

  connectTabs() {
    const tabs = PANELS.map((panel) => this.tab(panel));
    byId("tabs").replaceChildren(...tabs);
    byId("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (PANELS.indexOf(this.panel) + step + PANELS.length) % PANELS.length;
      this.show(PANELS[next]);
      tabs[next].focus();
    });
  }

  tab(panel) {
    const title = panel.title(this.trace);
    return element(
      "button",
      { type: "button", id: `tab-${panel.key}`, role: "tab", "aria-controls": "panel", click: () => this.show(panel) },
      title,
    );
  }

  show(panel) {
    this.panel = panel;
    this.tellPanel();
  }

  // What the page tells

  tellSummary() {
    const { trace, totals } = this;
    const live = liveBlocks(trace, this.group, trace.events).length;
    const freed = trace.end.reduce((sum, end) => sum + (end < trace.events), 0);
    const rows = [
      ["Peak", bytes(totals[this.peak])],
      ["Live at the end", `${bytes(totals.at(-1))} in ${counted(live, "block")}`],
      ["Allocations", count(trace.blocks)],
      ["Frees", count(freed)],
      ["Out of memory", count(trace.unmet.length), trace.unmet.length ? "alarm" : ""],
    ];
    if (trace.time) rows.push(["Time", duration(trace.time.at(-1))]);
    byId("summary").replaceChildren(
      ...rows.map(([title, text, kind]) =>
        element("div", { class: kind }, element("dt", {}, title), element("dd", {}, text)),
      ),
    );
    byId("version").textContent = trace.about.version;
  }

  tellMoment() {
    const { trace, moment } = this;
    const time = trace.time && moment ? `, ${duration(trace.time[moment - 1])}` : "";
    const where = `event ${count(moment)} of ${count(trace.events)}${time}`;
    byId("moment").replaceChildren(
      element("b", {}, bytes(this.totals[moment])),
      ` live after ${where}: ${this.eventText(moment)}`,
    );
    const slider = byId("timeline");
    slider.setAttribute("aria-valuemin", "0");
    slider.setAttribute("aria-valuemax", trace.events);
    slider.setAttribute("aria-valuenow", moment);
    slider.setAttribute("aria-valuetext", `${where}, ${bytes(this.totals[moment])} live`);
    this.tellLegend();
    this.tellPanel();
  }

  /** Say what the last event before a moment was. */
  eventText(moment) {
    const { trace } = this;
    if (moment === 0) return "nothing has happened yet";
    const block = trace.blockAt(moment);
    if (block < 0) {
      const request = trace.unmet.find((each) => each.moment === moment);
      return `a request of ${bytes(request.size)} ran out of memory${originText(request.origin)}`;
    }
    const brought = trace.begin[block] === moment - 1;
    const what = brought ? (trace.held[block] ? "was live before" : "was allocated") : "was freed";
    const origin = originText(trace.origins[trace.origin[block]]);
    return `block ${count(trace.number[block])} of ${bytes(trace.size[block])} ${what}${origin}`;
  }

  tellLegend() {
    const live = liveByGroup(this.trace, this.unaloneGroup, this.groups.length, this.moment);
    const buttons = this.groups.map((group, index) => {
      const amount = element("span", { class: "amount" }, bytes(live[index]));
      const attributes = {
        type: "button",
        "aria-pressed": String(this.alone === index),
        title: group.name,
        click: () => this.showAlone(index),
      };
      return element(
        "li",
        {},
        element("button", attributes, swatch(group.colour), element("span", { class: "name" }, group.name), amount),
      );
    });
    const focused = [...byId("legend").children].findIndex((item) => item.contains(document.activeElement));
    byId("legend").replaceChildren(...buttons);
    if (focused >= 0) buttons[focused]?.firstChild.focus();
  }

  tellPanel() {
    for (const panel of PANELS) {
      const tab = byId(`tab-${panel.key}`);
      tab.setAttribute("aria-selected", String(panel === this.panel));
      tab.tabIndex = panel === this.panel ? 0 : -1;
    }
    byId("panel").setAttribute("aria-labelledby", `tab-${this.panel.key}`);
    byId("panel").replaceChildren(...this.panel.content(this));
  }

  hoverText(moment, height) {
    const { trace } = this;
    const time = trace.time && moment ? `, ${duration(trace.time[moment - 1])}` : "";
    const head = `${bytes(this.totals[moment])} after event ${count(moment)}${time}`;
    const block = this.heap ? blockInHeap(trace, this.group, moment, height) : -1;
    if (block >= 0) {
      const origin = originText(trace.origins[trace.origin[block]]);
      return `${head}\nblock ${count(trace.number[block])}, ${bytes(trace.size[block])}${origin}`;
    }
    const group = this.heap ? null : this.groupAt(moment, height);
    return group === null ? head : `${head}\n${group}`;
  }

  groupAt(moment, height) {
    const live = liveByGroup(this.trace, this.group, this.groups.length, moment);
    let top = 0;
    for (let group = 0; group < live.length; group++) {
      top += live[group];
      if (height < top)
        return `${this.groups[group].name}: ${bytes(live[group])}, ${percent(live[group], this.totals[moment])}`;
    }
    return null;
  }

  swatchOf(block) {
    return swatch(this.groups[this.group[block]].colour);
  }
}

async function begin() {
  const trace = await readTrace();
  byId("state").hidden = true;
  if (!trace.events) return;
  byId("report").hidden = false;
  new Page(trace).start();
}

begin().catch((error) => {
  byId("state").hidden = false;
  byId("state").textContent =
    typeof DecompressionStream === "undefined"
      ? "This browser is too old for this page: it cannot decompress (Chrome 111, Firefox 115 and Safari 16.4 can)."
      : `The page cannot be drawn: ${error.message}`;
});
