// The last micro-batches as charts.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { bytes, clock, count, duration, rate } from "./format.js";

const LAST = { "all": null, "the last minute": 60_000, "the last 5 minutes": 300_000, "the last 30 minutes": 1_800_000, "the last 3 hours": 10_800_000 };
let last = "all";
let range = null; // {from, to}: the times, in ms, that the user has chosen in a chart

export function timeline(state, act) {
  if (!state.history.length) return h("p", { class: "empty" }, "No micro-batch has been recorded yet.");
  const batches = shown(state.history);
  const choose = (first, final) => {
    range = first ? { from: first.started_at_ms, to: final.started_at_ms } : null;
    act.render();
  };
  const draw = (options) => chart({ batches, redraw: act.render, choose, ...options });
  const phases = [...new Set(batches.flatMap((batch) => Object.keys(batch.phases)))];
  const charts = h(
    "div",
    { class: "charts" },
    draw({
      title: "Throughput",
      about: "Records per second of the clock, from the sources and to the sinks.",
      format: rate,
      series: [
        { name: "in", color: 0, values: batches.map((batch) => batch.in_rate) },
        { name: "out", color: 1, values: batches.map((batch) => batch.out_rate) },
      ],
    }),
    draw({
      title: "Latency",
      about: "The duration of a micro-batch. A record waits for one or two of them.",
      format: duration,
      series: [{ name: "micro-batch", color: 2, values: batches.map((batch) => batch.duration_ms) }],
    }),
    draw({
      title: "Phases",
      about: "What a micro-batch spends its time on.",
      format: duration,
      stacked: true,
      series: phases.map((name, color) => ({ name, color: color % 8, values: batches.map((batch) => batch.phases[name] ?? 0) })),
    }),
    draw({
      title: "State",
      about: "The size of all state, as far as operators report it.",
      unknown: "No operator reports the size of its state. Jobs on Spark do.",
      format: bytes,
      stacked: true,
      series: [{ name: "state", color: 3, values: batches.map((batch) => batch.state_bytes) }],
    }),
    draw({
      title: "Lag",
      about: "Records that are available and not read, as far as sources know it.",
      unknown: "No source of this job knows its lag.",
      format: count,
      series: [{ name: "lag", color: 4, values: batches.map((batch) => batch.lag) }],
    }),
  );
  return h("div", { class: "stack" }, choice(batches, act, choose), charts);
}

function shown(history) {
  const newest = history[history.length - 1].started_at_ms;
  const { from, to } = range ?? { from: newest - (LAST[last] ?? Infinity), to: Infinity };
  const found = history.filter((batch) => batch.started_at_ms >= from && batch.started_at_ms <= to);
  return found.length ? found : history; // the range is older than what is known
}

function choice(batches, act, choose) {
  const set = (event) => {
    last = event.currentTarget.value;
    choose();
  };
  return h(
    "div",
    { class: "choice" },
    h("label", {}, "Show ", h("select", { onchange: set }, Object.keys(LAST).map((name) => h("option", { value: name, selected: name === last }, name)))),
    range
      ? h("button", { type: "button", onclick: () => choose() }, `Leave ${clock(range.from)} to ${clock(range.to)}`)
      : h("span", { class: "soft" }, "Drag over a chart to zoom. With the keyboard: + and −."),
  );
}
