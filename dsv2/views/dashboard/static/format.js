// Numbers, sizes and times for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const NONE = "–";

/** A count: 12,345, or 1.23M when it is large. */
export function count(number) {
  if (number === null || number === undefined) return NONE;
  return Math.abs(number) < 100_000 ? whole.format(number) : compact.format(number);
}

/** A rate: 1,234/s. */
export function rate(number) {
  if (number === null || number === undefined) return NONE;
  const text = number > 0 && number < 10 ? String(Math.round(number * 10) / 10) : count(number);
  return `${text}/s`;
}

/** A size in bytes. */
export function bytes(number) {
  if (number === null || number === undefined) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (number >= 1000 && place < units.length - 1) {
    number /= 1000;
    place += 1;
  }
  return `${place && number < 100 ? number.toPrecision(3) : whole.format(number)} ${units[place]}`;
}

/** A duration in ms. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 1) return `${ms.toFixed(ms ? 1 : 0)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
  return `${Math.floor(ms / 86_400_000)} d ${Math.round((ms % 86_400_000) / 3_600_000)} h`;
}

/** How long ago a time was. */
export function ago(ms, now) {
  if (ms === null || ms === undefined) return NONE;
  const passed = Math.max(0, now - ms);
  return passed < 2000 ? "just now" : `${duration(passed)} ago`;
}

/** The time of day of the browser, with the date if it is another day. */
export function clock(ms) {
  const time = new Date(ms);
  const text = time.toLocaleTimeString("en-GB");
  return time.toDateString() === new Date().toDateString() ? text : `${time.toLocaleDateString("en-CA")} ${text}`;
}

/** A share as a percentage. */
export function share(number) {
  return number === null || number === undefined ? NONE : `${Math.round(number * 100)} %`;
}

/** "1 record", "2 records". */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
