// Why the job failed, what error policies have handled, and dead letters.

import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { table } from "./table.js";

export function errors(state) {
  const rows = (state.plan?.operators ?? [])
    .map((operator) => ({ operator, numbers: state.page.operators[operator.id] }))
    .filter(({ numbers }) => numbers && (numbers.errors || numbers.late));
  return h(
    "div",
    { class: "stack" },
    state.page.error && h("section", { class: "card failed" }, h("h2", {}, "The job has failed"), h("pre", {}, state.page.error)),
    h(
      "section",
      { class: "card" },
      h("h2", {}, "Errors and late records"),
      table({
        caption: "Errors and late records by operator",
        rows,
        key: (row) => row.operator.id,
        empty: "No operator has had an error or dropped a late record.",
        columns: [
          { name: "operator", cell: (row) => row.operator.title },
          { name: "errors handled", cell: (row) => count(row.numbers.errors), numeric: true },
          { name: "late records dropped", cell: (row) => count(row.numbers.late), numeric: true },
        ],
      }),
    ),
    letters(state.letters),
  );
}

function letters(page) {
  const found = page?.letters ?? [];
  return h(
    "section",
    { class: "card" },
    h("header", {}, h("h2", {}, "Dead letters"), page && h("span", { class: "soft" }, `${plural(page.batches, "micro-batch")} with letters`.replace("batchs", "batches"))),
    !page && h("p", { class: "empty" }, "Loading …"),
    page && !found.length && h("p", { class: "empty" }, "There are no stored dead letters."),
    found.map((letter) =>
      h(
        "details",
        { class: "letter", "data-key": letter.id },
        h("summary", {}, h("b", {}, letter.operator), letter.count > 1 && h("span", { class: "badge" }, `${count(letter.count)} ×`), ` ${letter.error} `, h("span", { class: "soft" }, letter.time)),
        h(
          "dl",
          {},
          [["record", letter.record], ["position", letter.position], ["callback", letter.callback], ["id", letter.id]]
            .filter(([, value]) => value)
            .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
        ),
        letter.traceback && h("pre", {}, letter.traceback),
      ),
    ),
    page?.note && h("p", { class: "soft" }, page.note),
  );
}
