// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with three significant digits: 9437184 is "9.00 MiB". */
export function bytes(amount) {
  const size = Math.abs(amount);
  if (size < 1024) return `${amount} B`;
  const power = Math.min(Math.floor(Math.log2(size) / 10), UNITS.length - 1);
  const value = amount / 1024 ** power;
  const digits = Math.abs(value) < 9.995 ? 2 : Math.abs(value) < 99.95 ? 1 : 0;
  return `${value.toFixed(digits)} ${UNITS[power]}`;
}

/** Bytes for the ticks of an axis, where the steps are powers of two: "1.5 GiB", "512 MiB", "0". */
export function tickBytes(amount) {
  if (amount === 0) return "0";
  const power = Math.min(Math.floor(Math.log2(amount) / 10), UNITS.length - 1);
  return `${+(amount / 1024 ** power).toFixed(3)} ${UNITS[power]}`;
}

/** A whole number with separators: "1,460,558". */
export function count(number) {
  return number.toLocaleString("en-US");
}

/** A number and what is counted: "1 block", "2 blocks". */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

const SECOND = 1e9;
const DURATIONS = [
  [3600 * SECOND, "h"],
  [60 * SECOND, "min"],
  [SECOND, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** Nanoseconds in the largest fitting unit: "12.3 ms". `step` is the difference that must stay visible. */
export function duration(nanoseconds, step = nanoseconds / 1000) {
  if (nanoseconds === 0) return "0";
  const [unit, name] = DURATIONS.find(([length]) => Math.abs(nanoseconds) >= length) ?? DURATIONS.at(-1);
  const digits = step > 0 ? Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9)) : 3;
  return `${+(nanoseconds / unit).toFixed(Math.min(digits, 9))} ${name}`;
}

/** A part of a whole: "12.3%". */
export function percent(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)}%` : "0%";
}

/** The last two parts of a path, which tell files apart in little space. */
export function shortPath(path) {
  const parts = path.split(/[\\/]/);
  return parts.length > 2 ? parts.slice(-2).join("/") : path;
}

/** A frame of a call site as a line. */
export function frameText({ file, line, name }) {
  return `${name} (${shortPath(file)}:${line})`;
}

/** Return the allocator and the device of an origin as text: "caching on cuda:0"; null for none. */
export function sourceText({ allocator, device }) {
  return allocator && device ? `${allocator} on ${device}` : (allocator ?? device);
}

/** Return who asked for memory, to be put behind what was asked for. */
export function originText(origin) {
  const { label, site } = origin;
  const source = sourceText(origin);
  const place = site?.frames.length ? frameText(site.frames[0]) : null;
  const parts = [label !== null && `labelled ${label}`, source && `of ${source}`, place && `at ${place}`].filter(
    Boolean,
  );
  return parts.length ? `, ${parts.join(", ")}` : "";
}
