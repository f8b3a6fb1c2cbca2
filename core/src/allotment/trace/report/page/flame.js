// The flame graph: live memory by the calls that led to it, outermost above. A cell is as wide as what it holds.

import { bytes, counted, frameText, percent, tickBytes } from "./format.js";
import { element } from "./elements.js";

const ROW = 24;
/** Cells narrower than this part of the graph are left out. */
const LEAST_PART = 0.0015;
const COLOURS = 6;

const PATHS = {
  site: { title: "call site", of: ({ origin }) => sitePath(origin) },
  label: { title: "label", of: ({ origin }) => (origin.label === null ? ["no label"] : origin.label.split("/")) },
  size: {
    title: "size",
    of: (_, size) => [`up to ${tickBytes(2 ** Math.ceil(Math.log2(size || 1)))}`, `blocks of ${bytes(size)}`],
  },
};

function sitePath({ site }) {
  if (!site) return ["no call site"];
  const frames = site.frames.map(frameText).toReversed();
  return site.library === null ? frames : [...frames, `(${site.library})`];
}

/** Return the kinds of paths that tell something of a trace, each a key and a title. */
export function flameKinds(trace) {
  const kinds = [];
  if (trace.origins.some((origin) => origin.site)) kinds.push("site");
  if (trace.origins.some((origin) => origin.label !== null)) kinds.push("label");
  return [...kinds, "size"].map((key) => [key, PATHS[key].title]);
}

/** Return a tree of what holds some blocks: nodes with a name, bytes, blocks, the parent and the children. */
export function flameTree(trace, blocks, kind) {
  const root = { name: "all live memory", bytes: 0, blocks: 0, parent: null, depth: 0, children: new Map() };
  const paths = new Map();
  for (const block of blocks) {
    const key = kind === "size" ? trace.size[block] : trace.holder[block];
    if (!paths.has(key)) paths.set(key, PATHS[kind].of(trace.holders[trace.holder[block]], trace.size[block]));
    addToPath(root, paths.get(key), trace.size[block]);
  }
  return root;
}

function addToPath(root, path, size) {
  let node = root;
  node.bytes += size;
  node.blocks++;
  for (const name of path) {
    let child = node.children.get(name);
    if (!child) {
      child = { name, bytes: 0, blocks: 0, parent: node, depth: node.depth + 1, children: new Map() };
      node.children.set(name, child);
    }
    child.bytes += size;
    child.blocks++;
    node = child;
  }
}

/** A graph that a person walks with the arrow keys and opens with Enter or a click. */
export class FlameGraph {
  constructor(root, detail) {
    this.root = root;
    this.detail = detail;
    this.host = element("div", {
      class: "flame",
      role: "tree",
      "aria-label": "Live memory by where it was asked for",
      keydown: (event) => this.pressed(event),
    });
    this.open(root);
  }

  /** Give a node the whole width, under its parents. */
  open(node, focus = false) {
    this.cells = new Map();
    this.host.replaceChildren();
    for (let parent = node.parent; parent; parent = parent.parent) this.place(parent, 0, 1, "above");
    this.placeAll(node, 0, 1);
    this.opened = node;
    const deepest = Math.max(...[...this.cells.keys()].map((each) => each.depth));
    this.host.style.height = `${(deepest + 1) * ROW}px`;
    this.point(node, focus);
  }

  placeAll(node, left, width) {
    this.place(node, left, width);
    for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
      const part = node.bytes > 0 ? (width * child.bytes) / node.bytes : 0;
      if (part >= LEAST_PART) this.placeAll(child, left, part);
      left += part;
    }
  }

  place(node, left, width, kind = "") {
    const attributes = {
      class: `cell flame-${node.parent ? 1 + (hash(node.name) % COLOURS) : 0} ${kind}`,
      role: "treeitem",
      tabindex: "-1",
      "aria-level": node.depth + 1,
      "aria-expanded": node.children.size ? "true" : null,
      "aria-label": this.describe(node),
      click: () => this.open(node, true),
      mouseenter: () => (this.detail.textContent = this.describe(node)),
      focus: () => (this.detail.textContent = this.describe(node)),
    };
    const cell = element("div", attributes, node.name);
    Object.assign(cell.style, { left: `${100 * left}%`, width: `${100 * width}%`, top: `${node.depth * ROW}px` });
    this.cells.set(node, cell);
    this.host.append(cell);
  }

  describe(node) {
    const part = percent(node.bytes, this.root.bytes);
    return `${node.name}: ${bytes(node.bytes)} in ${counted(node.blocks, "block")}, ${part} of all`;
  }

  /** Make a cell the one that Tab reaches. */
  point(node, focus) {
    this.cells.get(this.pointed)?.setAttribute("tabindex", "-1");
    this.pointed = node;
    const cell = this.cells.get(node);
    cell.setAttribute("tabindex", "0");
    if (focus) cell.focus();
  }

  pressed(event) {
    const target = this.targetOf(event.key);
    if (event.key === "Enter" || event.key === " ") this.open(this.pointed, true);
    else if (event.key === "Escape") this.open(this.root, true);
    else if (target) this.point(target, true);
    else return;
    event.preventDefault();
  }

  targetOf(key) {
    const shown = (nodes) => nodes.filter((node) => this.cells.has(node)).sort((a, b) => b.bytes - a.bytes);
    const node = this.pointed;
    const siblings = node.parent ? shown([...node.parent.children.values()]) : [node];
    if (key === "ArrowUp") return node.parent;
    if (key === "ArrowDown") return shown([...node.children.values()])[0];
    if (key === "ArrowLeft") return siblings[siblings.indexOf(node) - 1];
    if (key === "ArrowRight") return siblings[siblings.indexOf(node) + 1];
    return null;
  }
}

/** A number from a name, always the same one. */
function hash(name) {
  let number = 0;
  for (let i = 0; i < name.length; i++) number = (number * 31 + name.charCodeAt(i)) >>> 0;
  return number;
}
