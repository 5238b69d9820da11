// The splits of the sources.

import { h } from "./dom.js";
import { ago, count, NONE, plural } from "./format.js";
import { table } from "./table.js";

const MOST = 500;

export function sources(state, act) {
  const splits = [...state.page.splits].sort((one, other) => rank(one) - rank(other));
  const troubled = splits.filter((split) => split.trouble);
  return h(
    "div",
    { class: "stack" },
    troubled.length > 0 &&
      h(
        "section",
        { class: "card stuck", role: "status" },
        h("h2", {}, troubled.length === 1 ? "One split needs attention" : `${troubled.length} splits need attention`),
        troubled.slice(0, 5).map((split) => h("p", {}, h("b", {}, `${split.source}, split ${split.split}`), ` ${split.trouble}.`)),
      ),
    h(
      "section",
      { class: "card" },
      h("header", {}, h("h2", {}, "Splits"), h("span", { class: "soft" }, plural(splits.length, "split"))),
      table({
        caption: "Splits of the sources",
        rows: splits.slice(0, MOST),
        key: (row) => `${row.operator} ${row.split}`,
        mark: (row) => (row.trouble ? "marked" : ""),
        empty: "No source of this job has reported splits.",
        columns: [
          { name: "source", cell: (row) => row.source },
          { name: "split", cell: (row) => row.split },
          { name: "status", cell: (row) => h("span", { class: `pill ${row.trouble ? "warn" : row.status}` }, row.trouble ? "stands still" : row.status) },
          { name: "lag", cell: (row) => count(row.lag), numeric: true },
          { name: "event time (UTC)", cell: (row) => row.event_time || NONE },
          { name: "moved", cell: (row) => ago(row.moved_at_ms, state.now) },
          { name: "position", cell: (row) => row.position || NONE },
          { name: "reader", cell: (row) => row.subtask, numeric: true },
        ],
      }),
      splits.length > MOST && h("p", { class: "soft" }, `${plural(splits.length - MOST, "more split")} not shown.`),
    ),
  );
}

function rank(split) {
  if (split.trouble) return 0;
  return split.status === "ended" ? 2 : 1;
}
