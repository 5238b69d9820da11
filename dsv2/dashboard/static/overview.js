// The graph of the job, and the chosen operator.

import { h } from "./dom.js";
import { bytes, count, duration, NONE, plural, rate, share } from "./format.js";
import { graph, legend } from "./graph.js";
import { table } from "./table.js";
import { inspection } from "./watermarks.js";

export function overview(state, act) {
  if (!state.plan) return h("p", { class: "empty" }, state.planError ?? "The plan is not known yet.");
  return h(
    "div",
    { class: "overview" },
    h(
      "section",
      { class: "card", "aria-label": "Graph" },
      h("header", {}, h("h2", {}, "Operators"), h("span", { class: "soft" }, state.plan.headline)),
      graph({ plan: state.plan, operators: state.page.operators, selected: state.operator, choose: act.choose }),
      legend(),
    ),
    h(
      "section",
      { class: "card details", id: "details", "aria-label": "Chosen operator", "aria-live": "polite" },
      state.operator === null ? nothingChosen(state, act) : details(state, act),
    ),
  );
}

function nothingChosen(state, act) {
  const found = state.plan.operators
    .map((operator) => ({ operator, numbers: state.page.operators[operator.id] }))
    .filter(({ operator, numbers }) => numbers?.reasons.length || operator.findings.length);
  const held = (state.watermarks?.operators ?? []).filter((one) => !one.is_fine);
  const troubled = state.page.splits.filter((split) => split.trouble);
  return [
    h("h2", {}, "What to look at"),
    state.page.error && h("p", { class: "bad" }, "The job has failed: see Errors."),
    troubled.map((split) =>
      h("p", {}, button(split.source, () => act.choose(split.operator)), ` split ${split.split} ${split.trouble}.`),
    ),
    held.slice(-1).map((one) => h("p", {}, button(one.title, () => act.choose(one.operator)), ` ${one.sentence}`)),
    found.map(({ operator, numbers }) =>
      h(
        "p",
        {},
        button(operator.title, () => act.choose(operator.id)),
        ` ${[...(numbers?.reasons ?? []), ...operator.findings.map((finding) => finding.message)].join("; ")}`,
      ),
    ),
    !found.length && !held.length && !troubled.length && !state.page.error && h("p", {}, "Nothing stands out."),
    h("p", { class: "soft" }, "Choose an operator to see its numbers, its subtasks and its event time."),
  ];
}

function button(text, onclick) {
  return h("button", { type: "button", class: "link", onclick }, text);
}

function details(state, act) {
  const operator = state.plan.operators[state.operator];
  const numbers = state.page.operators[state.operator];
  const held = state.watermarks?.operators.find((one) => one.operator === state.operator);
  return [
    h(
      "header",
      {},
      h("h2", {}, operator.title),
      h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => act.choose(null) }, "×"),
    ),
    h("p", { class: "soft" }, `${operator.about} · ×${operator.parallelism}`, h("br"), operator.location),
    numbers?.reasons.map((reason) => h("p", { class: "warn" }, `${reason[0].toUpperCase()}${reason.slice(1)}.`)),
    operator.findings.map((finding) => h("p", { class: "warn" }, `${finding.message} ${finding.advice}`)),
    numbers ? figures(numbers) : h("p", { class: "empty" }, "It reports no numbers."),
    held && h("section", {}, h("h3", {}, "Event time"), inspection(held, act)),
    operator.facts.length > 0 && h("ul", { class: "facts" }, operator.facts.map((fact) => h("li", {}, fact))),
    numbers && counters(numbers),
    state.subtasks?.uid === operator.uid && subtasks(state.subtasks),
  ];
}

function figures(numbers) {
  const shown = {
    "records in": `${count(numbers.records_in)} (${rate(numbers.in_rate)})`,
    "records out": `${count(numbers.records_out)} (${rate(numbers.out_rate)})`,
    busy: share(numbers.busy),
    "event time": numbers.event_time || NONE,
    lag: count(numbers.lag),
    state: bytes(numbers.state_bytes),
    keys: count(numbers.keys),
    timers: count(numbers.timers),
    held: count(numbers.held),
    late: count(numbers.late),
    errors: count(numbers.errors),
  };
  return h("dl", { class: "figures" }, Object.entries(shown).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function counters(numbers) {
  const own = [...Object.entries(numbers.counters), ...Object.entries(numbers.gauges)];
  if (!own.length) return null;
  return h(
    "section",
    {},
    h("h3", {}, "Metrics of the function"),
    h("dl", { class: "figures" }, own.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, count(value))))),
  );
}

function subtasks(page) {
  return h(
    "section",
    {},
    h("h3", {}, "Subtasks"),
    table({
      caption: "Subtasks",
      rows: page.subtasks,
      key: (row) => row.subtask,
      empty: "No subtask has reported.",
      columns: [
        { name: "#", cell: (row) => row.subtask, numeric: true },
        { name: "in", cell: (row) => count(row.records_in), numeric: true },
        { name: "out", cell: (row) => count(row.records_out), numeric: true },
        { name: "time", cell: (row) => duration(row.user_time_ms), numeric: true },
        { name: "keys", cell: (row) => count(row.keys), numeric: true },
        { name: "state", cell: (row) => bytes(row.state_bytes), numeric: true },
        { name: "held", cell: (row) => count(row.held), numeric: true },
        { name: "event time (UTC)", cell: (row) => (row.ended ? "ended" : row.event_time || NONE) },
      ],
    }),
    page.more > 0 && h("p", { class: "soft" }, `${plural(page.more, "more subtask")} not shown.`),
  );
}
