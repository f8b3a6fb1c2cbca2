// Fewer points than events: what a window of the time line needs to look as if all of them were drawn.

import { HIDDEN } from "./grouping.js";
import { momentAt } from "./trace.js";

/** Return the bytes that are shown and live at each moment. */
export function totalsOf(trace, group) {
  const totals = new Float64Array(trace.events + 1);
  let total = 0;
  for (let event = 0; event < trace.events; event++) {
    const change = trace.changes[event];
    if (change > 0 && group[change - 1] !== HIDDEN) total += trace.size[change - 1];
    else if (change < 0 && group[-change - 1] !== HIDDEN) total -= trace.size[-change - 1];
    totals[event + 1] = total;
  }
  return totals;
}

/** Return the first moment at which the most bytes are live. */
export function peakOf(totals) {
  let peak = 0;
  for (let moment = 1; moment < totals.length; moment++) if (totals[moment] > totals[peak]) peak = moment;
  return peak;
}

/**
 * Return moments of a window that stand for all of it: of each column of pixels the first, the last, the lowest and the
 * highest one. The first moment is the one in force where the window begins.
 */
export function pickMoments(totals, positions, [left, right], columns) {
  const first = momentAt(positions, left);
  const last = momentAt(positions, right);
  if (last - first <= 4 * columns) return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  const picked = [];
  const scale = columns / (right - left);
  for (let moment = first; moment <= last;) {
    const column = Math.floor((positions[moment] - left) * scale);
    let [lowest, highest, end] = [moment, moment, moment];
    while (end + 1 <= last && Math.floor((positions[end + 1] - left) * scale) === column) {
      end++;
      if (totals[end] < totals[lowest]) lowest = end;
      if (totals[end] > totals[highest]) highest = end;
    }
    picked.push(...new Set([moment, Math.min(lowest, highest), Math.max(lowest, highest), end]));
    moment = end + 1;
  }
  return picked;
}

/** Return the bytes of each group at some moments, in rising order: an array for each group. */
export function bytesByGroup(trace, group, groups, moments) {
  const live = liveByGroup(trace, group, groups, moments[0]);
  const series = Array.from({ length: groups }, () => new Float64Array(moments.length));
  let event = moments[0];
  moments.forEach((moment, index) => {
    for (; event < moment; event++) {
      const change = trace.changes[event];
      if (change > 0 && group[change - 1] !== HIDDEN) live[group[change - 1]] += trace.size[change - 1];
      else if (change < 0 && group[-change - 1] !== HIDDEN) live[group[-change - 1]] -= trace.size[-change - 1];
    }
    for (let each = 0; each < groups; each++) series[each][index] = live[each];
  });
  return series;
}

/** Return the bytes of each group at one moment. */
export function liveByGroup(trace, group, groups, moment) {
  const live = new Float64Array(groups);
  for (let block = 0; block < trace.blocks; block++) {
    if (group[block] !== HIDDEN && trace.isLive(block, moment)) live[group[block]] += trace.size[block];
  }
  return live;
}

/** Return the blocks that are shown and live at a moment, in the order in which they came. */
export function liveBlocks(trace, group, moment) {
  const found = [];
  for (let block = 0; block < trace.blocks && trace.begin[block] < moment; block++) {
    if (trace.end[block] >= moment && group[block] !== HIDDEN) found.push(block);
  }
  return found;
}

/** Return for each column of pixels the moment with the most bytes, or the one in force where nothing happens. */
export function highestMoments(totals, positions, [left, right], columns) {
  const step = (right - left) / columns;
  const moments = new Uint32Array(columns);
  let moment = momentAt(positions, left);
  for (let column = 0; column < columns; column++) {
    const next = momentAt(positions, left + (column + 1) * step);
    let highest = next;
    for (let each = moment + 1; each < next; each++) if (totals[each] > totals[highest]) highest = each;
    moments[column] = highest;
    moment = next;
  }
  return moments;
}
