// The time line: memory over time, stacked by group or as a heap map, and below it the whole trace with the window.

import { count, duration, tickBytes } from "./format.js";
import { colour, element } from "./elements.js";
import { paintHeap } from "./heap.js";
import { bytesByGroup, highestMoments, pickMoments } from "./samples.js";
import { momentAt } from "./trace.js";

const AXIS_WIDTH = 76;
const HEIGHT = 300;
const OVERVIEW_HEIGHT = 58;
const BYTE_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);
const EVENT_STEPS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const HEADROOM = 1.06;

export class Timeline {
  /**
   * `listeners` are called with what a person does: choose(moment), zoom(window), whole(), hover(moment, bytes) whose
   * answer is the text to show, and resize().
   */
  constructor(host, overviewHost, listeners) {
    this.host = host;
    this.overviewHost = overviewHost;
    this.listeners = listeners;
    this.moment = element("div", { class: "moment-line" });
    this.mark = element("div", { class: "mark-line" });
    this.tip = element("div", { class: "tip", hidden: true });
    new ResizeObserver(() => this.resized()).observe(host);
    host.addEventListener("wheel", (event) => this.turned(event), { passive: false });
  }

  /** How many pixels wide the plot is. */
  get columns() {
    return Math.max(100, Math.round(this.host.clientWidth - AXIS_WIDTH - 16));
  }

  resized() {
    if (!this.chart || this.host.clientWidth === this.chart.width) return;
    this.chart.setSize({ width: this.host.clientWidth, height: HEIGHT });
    this.overview.setSize({ width: this.host.clientWidth, height: OVERVIEW_HEIGHT });
    this.listeners.resize();
  }

  /** Begin anew: another trace, grouping, axis or colour scheme. `view` is what `draw` takes. */
  rebuild(view) {
    this.chart?.destroy();
    this.overview?.destroy();
    this.view = view;
    this.chart = new uPlot(this.options(), [[0], ...this.bands().map(() => [0])], this.host);
    this.chart.over.append(this.moment, this.mark, this.tip);
    this.overview = new uPlot(this.overviewOptions(), this.overviewData(), this.overviewHost);
    this.draw(view);
  }

  /**
   * Draw a window: `trace`, `group` of each block, `groups`, `totals` and `positions` of each moment, `axis`, `window`,
   * `whole`, `heap` for a heap map, `moment` and `mark`.
   */
  draw(view) {
    this.view = view;
    const [left, right] = view.window;
    const moments = pickMoments(view.totals, view.positions, view.window, this.columns);
    const top = moments.reduce((most, moment) => Math.max(most, view.totals[moment]), 0) * HEADROOM || 1;
    this.heap = view.heap ? this.heapImage(top) : null;
    this.chart.batch(() => {
      this.chart.setData(this.data(moments), false);
      this.chart.setScale("x", { min: left, max: right });
      this.chart.setScale("y", { min: 0, max: top });
    });
    this.placeLines(view);
    this.placeWindow();
  }

  /** The series from the top of the stack down: each one has the bytes of its group and of all below it. */
  data(moments) {
    const { trace, group, groups, totals, positions, window, heap } = this.view;
    const places = moments.map((moment) => Math.max(window[0], positions[moment]));
    const closed = (values) => [...values, values.at(-1)]; // what is live last is live until the window ends
    const x = [...places, window[1]];
    if (heap) return [x, closed(moments.map((moment) => totals[moment]))];
    const stacks = bytesByGroup(trace, group, groups.length, moments);
    for (let each = 1; each < stacks.length; each++) {
      stacks[each] = stacks[each].map((value, index) => value + stacks[each - 1][index]);
    }
    return [x, ...stacks.reverse().map((values) => closed(Array.from(values)))];
  }

  heapImage(top) {
    const { trace, group, groups, totals, positions, window } = this.view;
    const [width, height] = [this.chart.bbox.width, this.chart.bbox.height].map((side) =>
      Math.max(1, Math.round(side)),
    );
    const moments = highestMoments(totals, positions, window, width);
    const image = paintHeap(
      trace,
      group,
      groups.map((each) => channels(colour(each.colour))),
      moments,
      top,
      height,
    );
    const canvas = element("canvas", { width: image.width, height: image.height });
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  /** Move the lines of the chosen moment and of the mark. */
  placeLines({ moment, mark }) {
    Object.assign(this.view, { moment, mark });
    this.placeLine(this.moment, moment);
    this.placeLine(this.mark, mark || null); // the beginning needs no line
  }

  placeLine(line, moment) {
    const { positions, window } = this.view;
    const place = moment === null ? NaN : positions[moment];
    line.hidden = !(place >= window[0] && place <= window[1]);
    if (!line.hidden) line.style.left = `${this.chart.valToPos(place, "x")}px`;
  }

  /** Show the window in the picture of the whole. */
  placeWindow() {
    if (this.overview.status !== 1) return; // its hook `ready` does it
    const { window, whole } = this.view;
    this.overviewHost.classList.toggle("whole", window[0] === whole[0] && window[1] === whole[1]);
    const [left, right] = window.map((place) => this.overview.valToPos(place, "x"));
    this.overview.setSelect(
      { left, width: Math.max(2, right - left), top: 0, height: this.overview.over.clientHeight },
      false,
    );
  }

  bands() {
    const { groups, heap } = this.view;
    const paths = uPlot.paths.stepped({ align: 1 });
    if (heap) return [{ stroke: () => colour("ink"), width: 1, paths, points: { show: false } }];
    return groups.toReversed().map((group) => ({ ...painted(group.colour), width: 1, paths, points: { show: false } }));
  }

  options() {
    return {
      width: this.host.clientWidth,
      height: HEIGHT,
      padding: [14, 16, 0, 0],
      legend: { show: false },
      drawOrder: ["series", "axes"],
      scales: { x: { time: false, auto: false }, y: { auto: false } },
      axes: [this.horizontalAxis(), verticalAxis()],
      series: [{}, ...this.bands()],
      cursor: {
        y: this.view.heap,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => this.listeners.whole() },
      },
      hooks: {
        ready: [(chart) => chart.over.addEventListener("click", () => this.clicked())],
        drawClear: [(chart) => this.drawHeap(chart)],
        draw: [(chart) => this.drawUnmet(chart)],
        setCursor: [(chart) => this.hovered(chart)],
        setSelect: [(chart) => this.selected(chart)],
      },
    };
  }

  horizontalAxis() {
    const time = this.view.axis === "time";
    return {
      stroke: () => colour("ink-soft"),
      grid: { stroke: () => colour("grid"), width: 1 },
      ticks: { stroke: () => colour("grid"), width: 1 },
      font: "12px system-ui, sans-serif",
      size: 34,
      space: 110,
      ...(time ? {} : { incrs: EVENT_STEPS }),
      values: (_, places, __, ___, step) => places.map((place) => (time ? duration(place, step) : count(place))),
    };
  }

  overviewOptions() {
    return {
      width: this.overviewHost.clientWidth,
      height: OVERVIEW_HEIGHT,
      padding: [4, 16, 4, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: () => this.view.whole },
        y: { range: (_, __, top) => [0, top * HEADROOM || 1] },
      },
      axes: [{ show: false }, { size: AXIS_WIDTH, values: () => [], grid: { show: false }, ticks: { show: false } }],
      series: [
        {},
        { ...painted("overview"), width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      hooks: {
        ready: [(chart) => this.overviewReady(chart)],
        setSelect: [(chart) => this.listeners.zoom(selectedPlaces(chart))],
      },
    };
  }

  overviewData() {
    const { totals, positions, whole } = this.view;
    const moments = pickMoments(totals, positions, whole, this.columns);
    return [
      [...moments.map((moment) => positions[moment]), whole[1]],
      [...moments.map((moment) => totals[moment]), totals.at(-1)],
    ];
  }

  drawHeap({ ctx, bbox }) {
    if (this.heap) ctx.drawImage(this.heap, bbox.left, bbox.top, bbox.width, bbox.height);
  }

  /** Mark the requests that were not met: a line, and a flag above the plot. */
  drawUnmet(chart) {
    const { trace, positions, window } = this.view;
    const { ctx, bbox } = chart;
    const size = 6 * devicePixelRatio;
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle = colour("alarm");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    const places = trace.unmet
      .map(({ moment }) => positions[moment])
      .filter((place) => place >= window[0] && place <= window[1]);
    for (const x of new Set(places.map((place) => Math.round(chart.valToPos(place, "x", true))))) {
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(x - size, bbox.top - 1.6 * size);
      ctx.lineTo(x + size, bbox.top - 1.6 * size);
      ctx.lineTo(x, bbox.top);
      ctx.fill();
    }
    ctx.restore();
  }

  /** The moment and the bytes under the pointer. */
  pointed(chart) {
    const place = chart.posToVal(chart.cursor.left, "x");
    return [momentAt(this.view.positions, place), chart.posToVal(chart.cursor.top, "y")];
  }

  clicked() {
    if (this.chart.cursor.left >= 0) this.listeners.choose(...this.pointed(this.chart));
  }

  overviewReady(chart) {
    chart.over.addEventListener("click", () => this.overviewClicked());
    this.overview = chart;
    this.placeWindow();
  }

  overviewClicked() {
    const [left, right] = this.view.window;
    const middle = this.overview.posToVal(this.overview.cursor.left, "x");
    this.listeners.zoom([middle - (right - left) / 2, middle + (right - left) / 2]);
  }

  selected(chart) {
    if (chart.select.width < 3) return;
    const places = selectedPlaces(chart);
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.listeners.zoom(places);
  }

  hovered(chart) {
    const { left, top } = chart.cursor;
    this.tip.hidden = left < 0;
    if (this.tip.hidden) return;
    this.tip.textContent = this.listeners.hover(...this.pointed(chart));
    const beside = left > chart.over.clientWidth / 2 ? -this.tip.offsetWidth - 12 : 12;
    this.tip.style.transform = `translate(${left + beside}px, ${Math.max(0, Math.min(top, 220))}px)`;
  }

  /** Zoom by the wheel with Ctrl held, which is what a pinch sends; move by a sideways wheel. */
  turned(event) {
    const sideways = event.deltaX || (event.shiftKey ? event.deltaY : 0);
    if (!this.chart || !(event.ctrlKey || sideways)) return;
    event.preventDefault();
    const [left, right] = this.view.window;
    if (event.ctrlKey) {
      const middle = this.chart.posToVal(event.clientX - this.chart.over.getBoundingClientRect().left, "x");
      const factor = 1.002 ** event.deltaY;
      this.listeners.zoom([middle - (middle - left) * factor, middle + (right - middle) * factor]);
    } else {
      const shift = (sideways * (right - left)) / this.columns;
      this.listeners.zoom([left + shift, right + shift]);
    }
  }
}

function selectedPlaces(chart) {
  const { left, width } = chart.select;
  return [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")];
}

/** An area with an edge of its colour, so that it is seen however short it lasts. */
function painted(name) {
  return { fill: () => colour(name), stroke: () => colour(name) };
}

function verticalAxis() {
  return {
    stroke: () => colour("ink-soft"),
    grid: { stroke: () => colour("grid"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
    size: AXIS_WIDTH,
    space: 44,
    incrs: BYTE_STEPS,
    values: (_, places) => places.map(tickBytes),
  };
}

/** The red, green and blue of a colour as the style sheet writes it: "#1f77b4". */
function channels(hex) {
  return [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
}
