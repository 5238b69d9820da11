// The last micro-batches as charts.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, duration, rate } from "./format.js";

export function timeline(state, act) {
  const batches = state.history;
  if (!batches.length) return h("p", { class: "empty" }, "No micro-batch has been recorded yet.");
  const draw = (options) => chart({ batches, redraw: act.render, ...options });
  const phases = [...new Set(batches.flatMap((batch) => Object.keys(batch.phases)))];
  return h(
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
}
