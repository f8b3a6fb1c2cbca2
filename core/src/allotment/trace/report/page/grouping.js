// What memory is stacked by: each block is put into one of a few groups, or is hidden by the filter.

import { frameText, tickBytes } from "./format.js";

/** The group of a block that is not shown. */
export const HIDDEN = 255;
/** The most groups that are told apart; what is beyond is in one group of others. */
const MOST_GROUPS = 10;

const CATEGORY_COLOURS = 10;
const SIZE_COLOURS = 9;

const GROUPINGS = [
  { key: "label", title: "label", of: (origin) => origin.label },
  { key: "library", title: "library", of: (origin) => origin.library },
  { key: "allocator", title: "allocator", of: (origin) => origin.allocator },
  { key: "site", title: "call site", of: (origin) => siteName(origin.site) },
  { key: "device", title: "device", of: (origin) => origin.device },
  { key: "stream", title: "stream", of: (origin) => `stream ${origin.stream}` },
];
const BY_SIZE = { key: "size", title: "size of block" };

function siteName(site) {
  if (!site) return null;
  return site.frames.length ? frameText(site.frames[0]) : "unknown place";
}

/** Return the groupings that tell something of a trace; size always does. The first one tells most. */
export function groupingsOf(trace) {
  const names = (grouping) => new Set(trace.origins.map(grouping.of));
  const told = GROUPINGS.filter((grouping) => [...names(grouping)].some((name) => name !== null));
  const telling = told.filter((grouping) => names(grouping).size > 1);
  return [...telling, BY_SIZE, ...told.filter((grouping) => !telling.includes(grouping))];
}

/** Return whether each origin matches a filter: each word of it must be somewhere in what is told of the origin. */
export function matches(trace, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return trace.origins.map((origin) => {
    const text = searchText(origin).toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

function searchText({ label, device, allocator, library, site, stream }) {
  const frames = site ? site.frames.map(({ file, line, name }) => `${file}:${line} ${name}`) : [];
  return [label, device, allocator, library, `stream ${stream}`, ...frames].filter((part) => part !== null).join("\n");
}

/**
 * Return the groups of a grouping in the order in which they are stacked, and the group of each block.
 *
 * `visible` says for each origin whether it is shown.
 */
export function groupBlocks(trace, grouping, visible) {
  const { names, of } = grouping.key === "size" ? bySize(trace) : byOrigin(trace, grouping);
  const order = grouping.key === "size" ? names.map((_, index) => index) : stackingOrder(trace, of, names.length);
  const place = new Uint8Array(names.length).fill(Math.min(names.length, MOST_GROUPS) - 1);
  order.slice(0, MOST_GROUPS).forEach((name, index) => (place[name] = index));
  const group = new Uint8Array(trace.blocks);
  for (let block = 0; block < trace.blocks; block++) {
    group[block] = visible[trace.origin[block]] ? place[of[block]] : HIDDEN;
  }
  return { group, groups: describe(order, names, grouping) };
}

function describe(order, names, grouping) {
  const ordered = grouping.key === "size";
  const groups = order.slice(0, MOST_GROUPS).map((name, index) => ({
    name: names[name],
    colour: ordered ? `size-${Math.min(SIZE_COLOURS, index + 1)}` : `group-${(index % CATEGORY_COLOURS) + 1}`,
  }));
  const beyond = names.length - MOST_GROUPS;
  if (beyond > 0) groups[MOST_GROUPS - 1] = { name: `${beyond + 1} others`, colour: "group-others" };
  return groups;
}

/** Names of the origins that have blocks, and the number of the name of each block. */
function byOrigin(trace, grouping) {
  const numbers = new Map();
  const ofOrigin = new Int32Array(trace.origins.length).fill(-1);
  const of = Uint32Array.from(trace.origin, (origin) => {
    if (ofOrigin[origin] < 0) {
      const name = grouping.of(trace.origins[origin]) ?? `no ${grouping.title}`;
      if (!numbers.has(name)) numbers.set(name, numbers.size);
      ofOrigin[origin] = numbers.get(name);
    }
    return ofOrigin[origin];
  });
  return { names: [...numbers.keys()], of };
}

/** Classes of size: each a factor of eight wide, from 4 KiB to 8 GiB. */
function bySize(trace) {
  const classes = Uint32Array.from(trace.size, (size) => Math.max(0, Math.ceil((Math.log2(size || 1) - 12) / 3)));
  const present = [...new Set(classes)].sort((a, b) => a - b);
  const numbers = new Map(present.map((each, index) => [each, index]));
  const upTo = (each) => 2 ** (12 + 3 * each);
  const name = (each) =>
    each === 0 ? `up to ${tickBytes(upTo(0))}` : `${tickBytes(upTo(each - 1))} to ${tickBytes(upTo(each))}`;
  return { names: present.map(name), of: classes.map((each) => numbers.get(each)) };
}

/** Return the numbers of names as they are stacked: those with the highest peaks, the steadiest first, then others. */
function stackingOrder(trace, of, names) {
  const { peak, held } = lives(trace, of, names);
  const order = [...peak.keys()].sort((a, b) => peak[b] - peak[a]);
  const apart = names > MOST_GROUPS ? MOST_GROUPS - 1 : names;
  const steadiness = (name) => (peak[name] > 0 ? held[name] / peak[name] : 0);
  return [...order.slice(0, apart).sort((a, b) => steadiness(b) - steadiness(a)), ...order.slice(apart)];
}

/** Return of each name its own peak, and its bytes times the events for which they were held. */
function lives(trace, of, names) {
  const [live, peak, held] = [0, 1, 2].map(() => new Float64Array(names));
  for (const change of trace.changes) {
    const block = Math.abs(change) - 1;
    if (block < 0) continue;
    const name = of[block];
    live[name] += change > 0 ? trace.size[block] : -trace.size[block];
    if (live[name] > peak[name]) peak[name] = live[name];
    if (change > 0) held[name] += trace.size[block] * (trace.end[block] - trace.begin[block]);
  }
  return { peak, held };
}
