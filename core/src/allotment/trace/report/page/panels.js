// The panels below the time line: each returns its content for what is chosen on the page.

import { bytes, count, counted } from "./format.js";
import { byId, element, fillSelect } from "./elements.js";
import { matches } from "./grouping.js";
import { liveBlocks } from "./samples.js";
import { blocksTable, growersTable, holdersTable, unmetTable } from "./tables.js";
import { FlameGraph, flameKinds, flameTree } from "./flame.js";

/** Return a choice between ways to show a panel. */
function choice(title, options, chosen, choose) {
  const select = element("select", { change: (event) => choose(event.target.value) });
  fillSelect(select, options, chosen);
  return element("label", { class: "choice" }, `${title} `, select);
}

/** The panels in the order of their tabs: each has a key, the title of its tab and its content. */
export const PANELS = [
  { key: "live", title: () => "Live at the moment", content: livePanel },
  { key: "flame", title: () => "Flame graph", content: flamePanel },
  { key: "growers", title: () => "Top growers", content: growersPanel },
  { key: "leaks", title: () => "Live at the end", content: leaksPanel },
  { key: "unmet", title: (trace) => `Out of memory (${count(trace.unmet.length)})`, content: unmetPanel },
];

function livePanel(page) {
  const { trace, group, moment } = page;
  const blocks = liveBlocks(trace, group, moment);
  const choose = (key) => {
    page.liveAs = key;
    page.tellPanel();
    byId("panel").querySelector("select").focus();
  };
  const as = choice(
    "Show",
    [
      ["blocks", "each block"],
      ["holders", "blocks of one holder together"],
    ],
    page.liveAs,
    choose,
  );
  const swatchOf = (block) => page.swatchOf(block);
  const go = (at) => page.goTo(at);
  if (page.liveAs === "blocks") return [as, blocksTable(trace, blocks, moment, swatchOf, go)];
  const after = `after event ${count(moment)}`;
  const caption = (total, rows) =>
    [bytes(total), "live in", counted(blocks.length, "block"), "of", counted(rows.length, "holder"), after].join(" ");
  return [as, holdersTable(trace, blocks, caption, swatchOf, go)];
}

function flamePanel(page) {
  const { trace, group, moment } = page;
  const choose = (key) => {
    page.flameAs = key;
    page.tellPanel();
    byId("panel").querySelector("select").focus();
  };
  const as = choice("Split by", flameKinds(trace), page.flameAs, choose);
  const blocks = liveBlocks(trace, group, moment);
  const detail = element(
    "p",
    { class: "detail soft", role: "status" },
    `What is live after event ${count(moment)}. Click a cell, or press Enter on it, to give it the whole width.`,
  );
  return [as, new FlameGraph(flameTree(trace, blocks, page.flameAs), detail).host, detail];
}

function growersPanel(page) {
  const { trace, group, moment, mark } = page;
  const [before, after] = [Math.min(mark, moment), Math.max(mark, moment)];
  const hint =
    "Who holds more at the chosen moment than at the mark. To move the mark, choose a moment and press Mark.";
  const told = (at) => `event ${count(at)} (${bytes(page.totals[at])})`;
  const caption = (rows) => `${counted(rows.length, "holder")} grew from ${told(before)} to ${told(after)}`;
  const blocks = [before, after].map((at) => liveBlocks(trace, group, at));
  return [
    element("p", { class: "soft" }, hint),
    growersTable(trace, ...blocks, caption, (block) => page.swatchOf(block)),
  ];
}

function leaksPanel(page) {
  const { trace, group } = page;
  const blocks = liveBlocks(trace, group, trace.events);
  const hint = "What nothing had freed when the trace ended: leaks, and what the program meant to keep.";
  const caption = (total, rows) =>
    `${bytes(total)} in ${counted(blocks.length, "block")} of ${counted(rows.length, "holder")}`;
  return [
    element("p", { class: "soft" }, hint),
    holdersTable(
      trace,
      blocks,
      caption,
      (block) => page.swatchOf(block),
      (at) => page.goTo(at),
    ),
  ];
}

function unmetPanel(page) {
  const requests = matchingUnmet(page);
  if (!requests.length) return [element("p", { class: "soft" }, "No request of this trace ran out of memory.")];
  return [unmetTable(page.trace, requests, page.totals, (moment) => page.goTo(moment))];
}

/** Return the requests of origins that the filter shows. */
function matchingUnmet({ trace, filter }) {
  const visible = matches(trace, filter);
  return trace.unmet.filter((request) => visible[trace.origins.indexOf(request.origin)]);
}
