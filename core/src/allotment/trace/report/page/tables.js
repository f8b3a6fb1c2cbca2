// Tables: live blocks, who holds them, what grew, what ran out of memory.

import { bytes, count, counted, duration, frameText, percent, sourceText } from "./format.js";
import { element } from "./elements.js";
import { THE_PROGRAM } from "./trace.js";

const FIRST_ROWS = 100;
const MORE_ROWS = 400;

/**
 * Return a table with as many rows as a person may read, and a button for more.
 *
 * A column has a title, whether its cells are numbers, and the cell of a row: text or an element.
 */
export function table(caption, columns, rows) {
  const body = element("tbody");
  const head = columns.map(({ title, number, sorted }) =>
    element("th", { scope: "col", class: number && "number", "aria-sort": sorted && "descending" }, title),
  );
  const made = element(
    "table",
    {},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head)),
    body,
  );
  const more = element("button", { type: "button", class: "more", click: () => add(MORE_ROWS) });
  const add = (many) => {
    const shown = body.rows.length;
    body.append(...rows.slice(shown, shown + many).map((row) => tableRow(columns, row)));
    more.hidden = body.rows.length >= rows.length;
    more.textContent = `Show more: ${count(body.rows.length)} of ${count(rows.length)} are shown`;
  };
  add(FIRST_ROWS);
  return element("div", { class: "table", role: "region", "aria-label": caption, tabindex: "0" }, made, more);
}

function tableRow(columns, row) {
  return element(
    "tr",
    {},
    ...columns.map(({ number, cell }) => element("td", { class: number && "number" }, cell(row))),
  );
}

/** Return a button that goes to a moment. */
export function momentButton(trace, moment, go) {
  const time = trace.time ? [element("span", { class: "soft" }, ` ${duration(trace.time[moment - 1])}`)] : [];
  const attributes = { type: "button", class: "jump", title: "Go to this moment", click: () => go(moment) };
  return element("button", attributes, `event ${count(moment)}`, ...time);
}

/** Return a cell with a call site: its innermost frame, which opens to all of them. */
export function siteCell(site) {
  if (!site?.frames.length) return element("span", { class: "none" }, site ? "unknown place" : "not told");
  if (site.frames.length === 1)
    return element("span", { class: "site", title: fullFrame(site.frames[0]) }, frameText(site.frames[0]));
  const frames = site.frames.map((frame) => element("li", {}, fullFrame(frame)));
  return element(
    "details",
    { class: "site" },
    element("summary", { title: fullFrame(site.frames[0]) }, frameText(site.frames[0])),
    element("ol", {}, ...frames),
  );
}

function fullFrame({ file, line, name }) {
  return `${name} (${file}:${line})`;
}

/** Return the columns that say who an origin is, those alone that the trace tells. */
export function originColumns(trace, originOf) {
  const told = (part) => trace.origins.some((origin) => origin[part] !== null && origin[part] !== THE_PROGRAM);
  const text = (title, textOf) => ({
    title,
    cell: (row) => element("span", { class: "plain" }, textOf(originOf(row)) ?? "–"),
  });
  return [
    told("label") && { title: "Label", cell: (row) => originOf(row).label ?? "–" },
    (told("allocator") || told("device")) && text("Allocator", sourceText),
    told("library") && text("Library", (origin) => origin.library),
    told("site") && { title: "Call site", cell: (row) => siteCell(originOf(row).site) },
  ].filter(Boolean);
}

/** Return a bar behind a number: what part it is of the largest. */
export function barCell(size, largest, text = bytes(size)) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${largest > 0 ? (100 * size) / largest : 0}%`;
  return element("span", { class: "barred", title: `${count(size)} bytes` }, bar, element("span", {}, text));
}

/** Return the table of blocks, the largest first. */
export function blocksTable(trace, blocks, moment, swatchOf, go) {
  const rows = blocks.toSorted((a, b) => trace.size[b] - trace.size[a] || a - b);
  const largest = rows.length ? trace.size[rows[0]] : 0;
  const several = (of) => new Set(trace.origins.map(of)).size > 1;
  const columns = [
    { title: "", cell: swatchOf },
    { title: "Size", number: true, sorted: true, cell: (block) => barCell(trace.size[block], largest) },
    ...originColumns(trace, (block) => trace.origins[trace.origin[block]]),
    several((origin) => origin.stream) && {
      title: "Stream",
      number: true,
      cell: (block) => count(trace.origins[trace.origin[block]].stream),
    },
    { title: "Allocated", cell: (block) => birthCell(trace, block, go) },
    { title: "Freed", cell: (block) => deathCell(trace, block, go) },
    { title: "Block", number: true, cell: (block) => count(trace.number[block]) },
  ].filter(Boolean);
  const total = blocks.reduce((sum, block) => sum + trace.size[block], 0);
  const held = `${bytes(total)} live in ${counted(blocks.length, "block")}`;
  const caption = `${held} after event ${count(moment)}, the largest first`;
  return table(caption, columns, rows);
}

function birthCell(trace, block, go) {
  const button = momentButton(trace, trace.begin[block] + 1, go);
  return trace.held[block] ? element("span", {}, "before ", button) : button;
}

function deathCell(trace, block, go) {
  if (trace.end[block] === trace.events) return element("span", { class: "none" }, "never");
  const site = trace.sites[trace.freedAt[block] - 1];
  const button = momentButton(trace, trace.end[block] + 1, go);
  return site?.frames.length
    ? element("span", {}, button, element("span", { class: "freed-at" }, siteCell(site)))
    : button;
}

/** Return what each holder has of some blocks, the most bytes first. */
export function byHolder(trace, blocks) {
  const sums = new Map();
  for (const block of blocks) {
    const holder = trace.holder[block];
    if (!sums.has(holder)) sums.set(holder, { holder: trace.holders[holder], bytes: 0, blocks: 0, first: block });
    const sum = sums.get(holder);
    sum.bytes += trace.size[block];
    sum.blocks++;
  }
  return [...sums.values()].sort((a, b) => b.bytes - a.bytes || a.first - b.first);
}

/** Return the table of who holds some blocks. */
export function holdersTable(trace, blocks, caption, swatchOf, go) {
  const rows = byHolder(trace, blocks);
  const total = rows.reduce((sum, row) => sum + row.bytes, 0);
  const columns = [
    { title: "", cell: (row) => swatchOf(row.first) },
    { title: "Size", number: true, sorted: true, cell: (row) => barCell(row.bytes, rows[0].bytes) },
    { title: "Share", number: true, cell: (row) => percent(row.bytes, total) },
    { title: "Blocks", number: true, cell: (row) => count(row.blocks) },
    ...holderColumns(trace, (row) => row.holder),
    { title: "The oldest allocated", cell: (row) => birthCell(trace, row.first, go) },
  ];
  return table(caption(total, rows), columns, rows);
}

function holderColumns(trace, holderOf) {
  const sized = trace.holders.some((holder) => holder.size !== null);
  const size = { title: "Of size", number: true, cell: (row) => bytes(holderOf(row).size) };
  return [...(sized ? [size] : []), ...originColumns(trace, (row) => holderOf(row).origin)];
}

/** Return the table of holders that have more at one moment than at another. */
export function growersTable(trace, before, after, caption, swatchOf) {
  const earlier = new Map(byHolder(trace, before).map((row) => [row.holder, row]));
  const rows = byHolder(trace, after)
    .map((row) => ({
      ...row,
      growth: row.bytes - (earlier.get(row.holder)?.bytes ?? 0),
      more: row.blocks - (earlier.get(row.holder)?.blocks ?? 0),
    }))
    .filter((row) => row.growth > 0)
    .sort((a, b) => b.growth - a.growth || a.first - b.first);
  const columns = [
    { title: "", cell: (row) => swatchOf(row.first) },
    {
      title: "Grew by",
      number: true,
      sorted: true,
      cell: (row) => barCell(row.growth, rows[0].growth, `+${bytes(row.growth)}`),
    },
    { title: "To", number: true, cell: (row) => bytes(row.bytes) },
    { title: "Blocks", number: true, cell: (row) => `${row.more > 0 ? "+" : ""}${count(row.more)}` },
    ...holderColumns(trace, (row) => row.holder),
  ];
  return table(caption(rows), columns, rows);
}

/** Return the table of requests that were not met. */
export function unmetTable(trace, requests, totals, go) {
  const columns = [
    { title: "When", cell: (row) => momentButton(trace, row.moment, go) },
    { title: "Asked for", number: true, cell: (row) => bytes(row.size) },
    { title: "Live then", number: true, cell: (row) => bytes(totals[row.moment]) },
    ...originColumns(trace, (row) => row.origin),
  ];
  return table(`${counted(requests.length, "request")} ran out of memory`, columns, requests);
}
