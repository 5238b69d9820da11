// The graph of the job, and the chosen operator.

import { h } from "./dom.js";
import { bytes, count, duration, NONE, plural, rate, share } from "./format.js";
import { graph, legend } from "./graph.js";
import { table } from "./table.js";
import { inspection } from "./watermarks.js";

export function overview(state, act) {
  if (!state.plan) return h("p", { class: "empty" }, "The checkpoint has no plan of its job yet.");
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
      { class: "card details", id: "details", "aria-label": "Chosen operator" },
      state.operator === null ? nothingChosen(state, act) : details(state, act),
    ),
  );
}

function nothingChosen(state, act) {
  const items = [...troubles(state), ...pressures(state), ...notes(state)];
  return [
    h("h2", {}, "What to look at"),
    state.page.error && h("p", { class: "bad" }, "The job has failed: see Errors."),
    items.length > 0 &&
      h(
        "ul",
        { class: "items" },
        items.map(({ operator, text, tone }) =>
          h("li", { class: tone }, button(operator.title, () => act.choose(operator.id)), h("p", {}, text)),
        ),
      ),
    !items.length && !state.page.error && h("p", {}, "Nothing stands out."),
    h("p", { class: "soft" }, "Choose an operator to see its numbers, its subtasks and its event time."),
  ];
}

/** Splits that stand still, and the operator furthest downstream whose event time is held back. */
function troubles(state) {
  const splits = state.page.splits.filter((split) => split.trouble);
  const held = (state.watermarks?.operators ?? []).filter((one) => !one.is_fine).slice(-1);
  const found = [
    ...splits.map((split) => [split.operator, `Split ${split.split} ${split.trouble}.`]),
    ...held.map((one) => [one.operator, one.sentence]),
  ];
  return found.map(([id, text]) => ({ operator: state.plan.operators[id], text, tone: "high" }));
}

function pressures(state) {
  return state.plan.operators
    .map((operator) => ({ operator, numbers: state.page.operators[operator.id] }))
    .filter(({ numbers }) => numbers?.reasons.length)
    .map(({ operator, numbers }) => ({ operator, text: sentence(numbers.reasons.join("; ")), tone: numbers.level }));
}

function notes(state) {
  return state.plan.operators.flatMap((operator) =>
    operator.findings.map((finding) => ({ operator, text: finding.message, tone: "note" })),
  );
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
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
    numbers?.reasons.map((reason) => h("p", { class: "warn" }, sentence(reason))),
    operator.findings.map((finding) => h("p", { class: "warn" }, `${finding.message} ${finding.advice}`)),
    numbers ? figures(operator, numbers) : h("p", { class: "empty" }, "It has not reported yet."),
    held && h("section", {}, h("h3", {}, "Event time (UTC)"), inspection(held, act)),
    !held && numbers?.event_time && h("section", {}, h("h3", {}, "Event time (UTC)"), h("p", {}, numbers.event_time)),
    operator.facts.length > 0 && h("ul", { class: "facts" }, operator.facts.map((fact) => h("li", {}, fact))),
    numbers && counters(numbers),
    state.subtasks?.uid === operator.uid && subtasks(state.subtasks),
  ];
}

function figures(operator, numbers) {
  const shown = {
    "records in": operator.kind !== "source" && count(numbers.records_in),
    "in per second": operator.kind !== "source" && rate(numbers.in_rate),
    "records out": operator.kind !== "sink" && count(numbers.records_out),
    "out per second": operator.kind !== "sink" && rate(numbers.out_rate),
    busy: numbers.busy !== null && share(numbers.busy),
    lag: numbers.lag !== null && count(numbers.lag),
    "records held": numbers.held > 0 && count(numbers.held),
    "late records": numbers.late > 0 && count(numbers.late),
    errors: numbers.errors > 0 && count(numbers.errors),
    keys: numbers.keys > 0 && count(numbers.keys),
    timers: numbers.timers > 0 && count(numbers.timers),
    state: numbers.state_bytes !== null && bytes(numbers.state_bytes),
  };
  const known = Object.entries(shown).filter(([, value]) => value !== false);
  return h("dl", { class: "figures" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
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
        { name: "timers", cell: (row) => count(row.timers), numeric: true },
        { name: "state", cell: (row) => bytes(row.state_bytes), numeric: true },
        { name: "held", cell: (row) => count(row.records_held), numeric: true },
        { name: "event time (UTC)", cell: (row) => (row.ended ? "ended" : row.event_time || NONE) },
      ],
    }),
    page.more > 0 && h("p", { class: "soft" }, `${plural(page.more, "more subtask")} not shown.`),
  );
}
