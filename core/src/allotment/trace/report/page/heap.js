// The heap map: each block as a band over time, on top of the older ones that are live, as in PyTorch's memory viewer.
//
// It is painted pixel by pixel from all blocks, so that none is left out for being small: a column of pixels shows the
// blocks that are live at its highest moment, and a pixel the block that covers it.

import { HIDDEN } from "./grouping.js";

/** The most steps from block to block that a picture may take; beyond it, columns are painted in twos, threes, … */
const MOST_STEPS = 4e7;
const SHADES = 3;

/**
 * Return the heap map of some moments, one a column of pixels, as an image.
 *
 * `colours` has the red, green and blue of each group; `top` is the number of bytes at the image's upper edge.
 */
export function paintHeap(trace, group, colours, moments, top, height) {
  const image = new ImageData(moments.length, height);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = colours.map(shadesOf);
  const live = new LiveList(trace, group, moments[0]);
  const stride = Math.max(1, Math.ceil((live.largest(moments) * moments.length) / MOST_STEPS));
  for (let column = 0; column < moments.length; column += stride) {
    live.advance(moments[column]);
    paintColumn(live, palette, pixels, column, moments.length, top, height);
    for (let copy = column + 1; copy < Math.min(column + stride, moments.length); copy++) {
      for (let row = 0; row < height; row++)
        pixels[row * moments.length + copy] = pixels[row * moments.length + column];
    }
  }
  return image;
}

function paintColumn(live, palette, pixels, column, width, top, height) {
  const { trace, group, next } = live;
  const scale = height / top;
  let bytes = 0;
  let row = 0; // the first one that is not painted, counted from below
  for (let block = live.oldest; block >= 0; block = next[block]) {
    bytes += trace.size[block];
    const until = Math.min(height, Math.round(bytes * scale));
    const shades = palette[group[block]];
    const edge = until - row >= 4 ? until - 1 : until;
    for (; row < until; row++)
      pixels[(height - 1 - row) * width + column] = shades[row < edge ? block % SHADES : SHADES];
  }
}

/** Return shades of a colour as pixels: some to tell neighbours apart, and a darker one for edges. */
function shadesOf([red, green, blue]) {
  return [1, 0.92, 0.84, 0.6].map((shade) => {
    const [r, g, b] = [red, green, blue].map((part) => Math.round(part * shade));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
}

/** Return the block at a height of the heap map at a moment; -1 for none. */
export function blockInHeap(trace, group, moment, bytes) {
  let top = 0;
  for (let block = 0; block < trace.blocks && trace.begin[block] < moment; block++) {
    if (trace.end[block] < moment || group[block] === HIDDEN) continue;
    top += trace.size[block];
    if (top > bytes) return block;
  }
  return -1;
}

/** The blocks that are live at a moment which moves forward, the oldest first: a linked list. */
class LiveList {
  constructor(trace, group, moment) {
    this.trace = trace;
    this.group = group;
    this.next = new Int32Array(trace.blocks).fill(-1);
    this.previous = new Int32Array(trace.blocks).fill(-1);
    this.oldest = this.newest = -1;
    this.moment = moment;
    this.length = 0;
    for (let block = 0; block < trace.blocks && trace.begin[block] < moment; block++) {
      if (trace.end[block] >= moment && group[block] !== HIDDEN) this.append(block);
    }
  }

  /** Return the most blocks that are live at once from now to the last of some moments. */
  largest(moments) {
    let [length, most] = [this.length, this.length];
    for (let event = this.moment; event < moments.at(-1); event++) {
      const change = this.trace.changes[event];
      if (change !== 0 && this.group[Math.abs(change) - 1] !== HIDDEN) length += Math.sign(change);
      if (length > most) most = length;
    }
    return most;
  }

  advance(moment) {
    for (; this.moment < moment; this.moment++) {
      const change = this.trace.changes[this.moment];
      const block = Math.abs(change) - 1;
      if (block < 0 || this.group[block] === HIDDEN) continue;
      if (change > 0) this.append(block);
      else this.remove(block);
    }
  }

  append(block) {
    this.previous[block] = this.newest;
    if (this.newest >= 0) this.next[this.newest] = block;
    else this.oldest = block;
    this.newest = block;
    this.length++;
  }

  remove(block) {
    const [before, after] = [this.previous[block], this.next[block]];
    if (before >= 0) this.next[before] = after;
    else this.oldest = after;
    if (after >= 0) this.previous[after] = before;
    else this.newest = before;
    this.next[block] = this.previous[block] = -1;
    this.length--;
  }
}
