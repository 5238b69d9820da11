// The watermarks of each operator, and what holds them back.

import { h } from "./dom.js";
import { clock, NONE } from "./format.js";
import { table } from "./table.js";

export function watermarks(state, act) {
  const page = state.watermarks;
  if (!page) return h("p", { class: "empty" }, "Loading …");
  if (!page.identifiers.length) return h("p", { class: "empty" }, "No operator of this job receives a watermark.");
  return h(
    "div",
    { class: "stack" },
    page.identifiers.length > 1 && choice(page, act),
    page.operators.length === 0 && h("p", { class: "empty" }, "No operator has reported this watermark yet."),
    page.operators.map((one) =>
      h(
        "section",
        { class: `card watermark ${one.is_fine ? "fine" : "stuck"}`, "data-key": String(one.operator) },
        h(
          "header",
          {},
          h("h2", {}, one.title),
          h("span", { class: `pill ${tone(one)}` }, one.cause),
        ),
        inspection(one, act),
        channels(one),
      ),
    ),
  );
}

function tone(one) {
  if (!one.is_fine) return "warn";
  return one.cause === "unknown" ? "" : "good";
}

function choice(page, act) {
  return h(
    "label",
    { class: "choice" },
    "Watermark ",
    h(
      "select",
      { onchange: (event) => act.identifier(event.currentTarget.value) },
      page.identifiers.map((name) => h("option", { value: name, selected: name === page.identifier }, name)),
    ),
  );
}

/** The value in one operator, why it is not greater, and the way to the cause. */
export function inspection(one, act) {
  return h(
    "div",
    { class: "inspection" },
    h(
      "p",
      { class: "value" },
      h("b", {}, one.value || "none yet"),
      h("span", { class: "soft" }, ` in subtask ${one.subtask}`),
      one.highest && one.highest !== one.value && h("span", { class: "soft" }, `, up to ${one.highest} in others`),
    ),
    one.sentence && h("p", {}, one.sentence),
    one.advice && h("p", { class: "advice" }, one.advice),
    !one.is_fine && one.path.length > 0 && way(one, act),
  );
}

function way(one, act) {
  const steps = one.path.map((step) =>
    h("li", {}, h("button", { type: "button", class: "link", onclick: () => act.choose(step.operator) }, step.text)),
  );
  if (one.split) steps.push(h("li", { class: "cause" }, `split ${one.split}`));
  return h("ol", { class: "path", "aria-label": "The way to the cause" }, steps);
}

function channels(one) {
  if (!one.channels.length) return null;
  const held = one.channels.some((row) => row.blocked_since_ms !== null || row.records_held > 0) && [
    { name: "blocked since", cell: (row) => (row.blocked_since_ms === null ? NONE : clock(row.blocked_since_ms)) },
    { name: "held", cell: (row) => row.records_held, numeric: true },
  ];
  return h(
    "details",
    {},
    h("summary", {}, `Channels of subtask ${one.subtask}`),
    table({
      caption: `Channels of subtask ${one.subtask}`,
      rows: one.channels,
      key: (row) => `${row.input}-${row.channel}`,
      mark: (row) => (row.holds_back ? "marked" : ""),
      columns: [
        { name: "input", cell: (row) => row.input + 1, numeric: true },
        { name: "from", cell: (row) => row.sender },
        { name: "channel", cell: (row) => row.channel, numeric: true },
        { name: "value", cell: (row) => row.value || NONE },
        { name: "status", cell: (row) => (row.holds_back ? `${row.status}, holds back` : row.status) },
        { name: "moved", cell: (row) => (row.moved_at_ms === null ? NONE : clock(row.moved_at_ms)) },
        ...(held || []),
      ],
    }),
  );
}
