// The trace: its columns as they are in the page, and questions that are asked of them.
//
// A moment is a number from 0 to the number of events: so many events have happened. Block b is live at moment m if
// begin[b] < m <= end[b]; end is the number of events for a block that nothing freed.

const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float64: Float64Array };

/** Who asked where no library did. */
export const THE_PROGRAM = "the program";

/** Return the trace of this page. */
export async function readTrace() {
  const about = JSON.parse(document.getElementById("about").textContent);
  const content = await decompressed(decoded(document.getElementById("columns").textContent.trim()));
  return new Trace(about, (name) => unpacked(content, about.columns[name]));
}

function decoded(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const content = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) content[i] = binary.charCodeAt(i);
  return content;
}

function decompressed(content) {
  const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function unpacked(content, layout) {
  if (!layout) return null;
  const stored = new ARRAYS[layout.type](content, layout.begin, layout.count);
  if (!layout.differences) return stored;
  const values = new Float64Array(layout.count);
  let value = 0;
  for (let i = 0; i < stored.length; i++) values[i] = value += stored[i];
  return values;
}

export class Trace {
  constructor(about, column) {
    this.about = about;
    this.events = about.events;
    this.time = column("time");
    this.begin = Uint32Array.from(column("begin"));
    this.end = Uint32Array.from(column("life"), (life, block) => life + this.begin[block]);
    this.size = Float64Array.from(column("size"));
    this.number = column("number");
    this.held = column("held");
    this.freedAt = column("freedAt");
    this.origin = Uint32Array.from(column("origin"));
    this.blocks = this.begin.length;
    this.frames = about.frames.map(([file, line, name]) => ({ file, line, name }));
    this.sites = about.sites.map((site) => ({
      frames: site.frames.map((frame) => this.frames[frame]),
      library: site.library,
    }));
    this.origins = about.origins.map((origin) => this.readOrigin(origin));
    this.unmet = about.unmet.map(([event, size, origin]) => ({
      moment: event + 1,
      size,
      origin: this.origins[origin],
    }));
    this.changes = this.listChanges();
    this.findHolders();
  }

  /** An origin is who asked: label, device, allocator, library, call site, stream; null is what a trace leaves out. */
  readOrigin([label, source, site, stream]) {
    return {
      label: this.about.labels[label] ?? null,
      device: this.about.sources[source]?.device || null,
      allocator: this.about.sources[source]?.allocator || null,
      site: this.sites[site] ?? null,
      library: this.sites[site] ? (this.sites[site].library ?? THE_PROGRAM) : null,
      stream,
    };
  }

  /** For each event: block + 1 if it brings one, -(block + 1) if it frees one, 0 for a request that was not met. */
  listChanges() {
    const changes = new Int32Array(this.events);
    for (let block = 0; block < this.blocks; block++) {
      changes[this.begin[block]] = block + 1;
      if (this.end[block] < this.events) changes[this.end[block]] = -(block + 1);
    }
    return changes;
  }

  /** A holder is who holds memory: origins without their streams, or blocks of one size if no more is told. */
  findHolders() {
    const bySize = !this.origins.some((origin) => origin.label !== null || origin.site);
    const numbers = new Map();
    this.holders = [];
    this.holder = new Uint32Array(this.blocks);
    const sites = new Map(this.sites.map((site, index) => [site, index]));
    const ofOrigin = this.origins.map((o) => JSON.stringify([o.label, o.device, o.allocator, sites.get(o.site)]));
    for (let block = 0; block < this.blocks; block++) {
      const key = bySize ? `${this.size[block]} ${ofOrigin[this.origin[block]]}` : ofOrigin[this.origin[block]];
      let number = numbers.get(key);
      if (number === undefined) {
        numbers.set(key, (number = this.holders.length));
        this.holders.push({ origin: this.origins[this.origin[block]], size: bySize ? this.size[block] : null });
      }
      this.holder[block] = number;
    }
  }

  /** Where each moment is on the horizontal axis, by "time" or by "events". */
  positions(axis) {
    const places = new Float64Array(this.events + 1);
    for (let moment = 1; moment <= this.events; moment++)
      places[moment] = axis === "time" ? this.time[moment - 1] : moment;
    if (axis === "time" && this.events) places[0] = Math.min(0, this.time[0]);
    return places;
  }

  isLive(block, moment) {
    return this.begin[block] < moment && this.end[block] >= moment;
  }

  /** The block that the last event before a moment brought or freed; -1 for none. */
  blockAt(moment) {
    return moment > 0 ? Math.abs(this.changes[moment - 1]) - 1 : -1;
  }
}

/** Return the last moment that is not after a place on the axis. */
export function momentAt(positions, place) {
  let low = 0;
  let high = positions.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (positions[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}
