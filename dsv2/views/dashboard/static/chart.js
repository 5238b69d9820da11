// Charts over the micro-batches of a job: lines, or areas on top of each other.

import { h, svg } from "./dom.js";
import { clock, plural } from "./format.js";

const HEIGHT = 170;
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;

/** The width, in the units of the drawing: smaller on small screens, where text would otherwise be too small. */
const width = () => Math.max(260, Math.min(560, innerWidth - 56));

const places = new Map(); // the micro-batch that the user points at, by chart
let dragged = null; // {title, from}: the chart, and the micro-batch, at which the user has pressed

/**
 * A chart.
 * title: what it shows. unknown: what to say if there are no values. batches: the micro-batches. format: a value as text. stacked: whether series add up.
 * series: [{name, color (a number), values}], with a value or null for each micro-batch.
 * choose: called with the first and the last micro-batch that the user has chosen, or with nothing for all of them.
 */
export function chart({ title, about, unknown = "No data yet.", batches, series, format, stacked = false, redraw, choose }) {
  const shown = series.filter((one) => one.values.some((value) => value !== null && value !== undefined));
  const last = batches.length - 1;
  if (!shown.length || last < 0) {
    return h("section", { class: "chart card", "data-key": title }, h("h3", {}, title), h("p", { class: "empty" }, unknown));
  }
  const place = Math.min(places.get(title) ?? last, last);
  const pointed = places.has(title);
  const layers = stacked ? stack(shown) : shown.map((one) => ({ ...one, lows: null, highs: one.values }));
  const highs = batches.map((_, number) => Math.max(...layers.map((one) => one.highs[number] ?? 0)));
  const most = niceCeiling(usual(highs));
  const x = scaleX(batches);
  const y = (value) => HEIGHT - BOTTOM - (Math.min(value, most) / most) * (HEIGHT - TOP - BOTTOM);
  const beyond = highs.map((_, number) => number).filter((number) => highs[number] > most);
  const point = (to) => {
    places.set(title, Math.max(0, Math.min(last, to)));
    redraw();
  };
  const leave = () => {
    dragged = null;
    places.delete(title);
    redraw();
  };
  const keys = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 };
  const zooms = { "+": 4, "-": 0, Escape: 0 }; // into this part of the micro-batches
  const zoom = (part) => {
    places.delete(title);
    const first = Math.max(0, Math.min(last - 1, place - Math.ceil(last / part / 2)));
    choose(...(part ? [batches[first], batches[Math.min(last, first + Math.max(1, Math.ceil(last / part)))]] : []));
  };
  const drop = (event) => {
    const from = dragged?.title === title ? dragged.from : null;
    dragged = null;
    const to = nearest(event, batches, x);
    if (from === null || from === to) return;
    places.delete(title);
    choose(batches[Math.min(from, to)], batches[Math.max(from, to)]);
  };
  const drawing = svg(
    "svg",
    {
      viewBox: `0 0 ${width()} ${HEIGHT}`,
      role: "img",
      tabindex: "0",
      "aria-label": spoken(title, batches[place], shown, place, format),
      onpointermove: (event) => point(nearest(event, batches, x)),
      onpointerdown: (event) => (dragged = { title, from: nearest(event, batches, x) }),
      onpointerup: drop,
      ondblclick: () => choose(),
      onpointerleave: leave,
      onblur: leave,
      onkeydown: (event) => {
        if (!(event.key in keys) && !(event.key in zooms)) return;
        event.preventDefault();
        if (event.key in zooms) zoom(zooms[event.key]);
        else point(place + keys[event.key]);
      },
    },
    [0, 0.5, 1].map((part) => [
      svg("line", { class: "grid", x1: LEFT, x2: width() - RIGHT, y1: y(most * part), y2: y(most * part) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" }, format(most * part)),
    ]),
    ticks(batches).map(([number, anchor]) =>
      svg("text", { class: "tick", x: x(number), y: HEIGHT - 5, "text-anchor": anchor }, clock(batches[number].started_at_ms)),
    ),
    layers.map((layer) => drawn(layer, x, y, stacked)),
    dragged?.title === title && svg("rect", { class: "range", ...span(x(dragged.from), x(place)), y: TOP, height: HEIGHT - TOP - BOTTOM }),
    beyond.map((number) => svg("path", { class: "beyond", d: `M${x(number) - 4} ${TOP + 6}l4 -6l4 6Z` })),
    pointed && svg("line", { class: "pointer", x1: x(place), x2: x(place), y1: TOP, y2: HEIGHT - BOTTOM }),
  );
  const when = `micro-batch ${batches[place].batch_id}, ${clock(batches[place].started_at_ms)}`;
  return h(
    "section",
    { class: "chart card", "data-key": title },
    h("header", {}, h("h3", {}, title), h("span", { class: "when" }, pointed ? when : "latest")),
    h("p", { class: "about" }, about, beyond.length > 0 && ` ${plural(beyond.length, "value")} beyond the scale, up to ${format(Math.max(...highs))}: ▲.`),
    drawing,
    h(
      "ul",
      { class: "legend" },
      shown.map((one) =>
        h(
          "li",
          {},
          h("span", { class: `swatch series-${one.color}` }),
          `${one.name} `,
          h("b", {}, one.values[place] === null || one.values[place] === undefined ? "–" : format(one.values[place])),
        ),
      ),
    ),
  );
}

/** Horizontal places by time, or by number if the times do not increase. */
function scaleX(batches) {
  const start = batches[0].started_at_ms;
  const span = batches[batches.length - 1].started_at_ms - start;
  const room = width() - LEFT - RIGHT;
  if (batches.length === 1) return () => LEFT + room / 2;
  return (number) => LEFT + room * (span > 0 ? (batches[number].started_at_ms - start) / span : number / (batches.length - 1));
}

function stack(series) {
  const sums = series[0].values.map(() => 0);
  return series.map((one) => {
    const lows = [...sums];
    one.values.forEach((value, number) => (sums[number] += value ?? 0));
    return { ...one, lows, highs: [...sums] };
  });
}

function drawn(layer, x, y, stacked) {
  const points = layer.highs.map((value, number) => (value === null || value === undefined ? null : [x(number), y(value)]));
  const known = points.filter((point) => point !== null);
  const line = known.map(([across, down], number) => `${number ? "L" : "M"}${across.toFixed(1)} ${down.toFixed(1)}`).join("");
  if (known.length === 1) return svg("circle", { class: `dot series-${layer.color}`, cx: known[0][0], cy: known[0][1], r: 4 });
  if (!stacked) return svg("path", { class: `line series-${layer.color}`, d: line });
  const back = layer.lows.map((value, number) => `L${x(number).toFixed(1)} ${y(value).toFixed(1)}`).reverse().join("");
  return svg("path", { class: `area series-${layer.color}`, d: `${line}${back}Z` });
}

function ticks(batches) {
  const last = batches.length - 1;
  if (last === 0) return [[0, "middle"]];
  return last < 4 ? [[0, "start"], [last, "end"]] : [[0, "start"], [Math.round(last / 2), "middle"], [last, "end"]];
}

function nearest(event, batches, x) {
  const box = event.currentTarget.getBoundingClientRect();
  const wanted = ((event.clientX - box.left) / box.width) * width();
  let best = 0;
  for (let number = 1; number < batches.length; number += 1) {
    if (Math.abs(x(number) - wanted) < Math.abs(x(best) - wanted)) best = number;
  }
  return best;
}

/** The left edge and the width of what lies between two places. */
function span(one, other) {
  return { x: Math.min(one, other), width: Math.abs(one - other) };
}

/** The greatest of the values, without a few that are much greater than the others and would flatten them. */
function usual(values) {
  const sorted = [...values].sort((one, other) => one - other);
  const most = sorted[sorted.length - 1];
  const often = sorted[Math.floor((sorted.length - 1) * 0.9)];
  return sorted.length >= 8 && most > 4 * often && often > 0 ? 1.5 * often : most;
}

/** The next number that is 1, 2 or 5 times a power of ten. */
function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= value * 0.999);
}

function spoken(title, batch, series, place, format) {
  const values = series.map((one) => `${one.name} ${one.values[place] == null ? "unknown" : format(one.values[place])}`);
  return `${title}, micro-batch ${batch.batch_id}: ${values.join(", ")}`;
}
