// Tables that scroll sideways on small screens.

import { h } from "./dom.js";

/** columns: [{name, cell(row), numeric}]. key(row): identifies a row. mark(row): a class, or "". */
export function table({ caption, columns, rows, key, mark = () => "", empty = "None." }) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.numeric && "number" }, column.name)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            { "data-key": key(row), class: mark(row) || null },
            columns.map((column) => h("td", { class: column.numeric && "number" }, column.cell(row))),
          ),
        ),
      ),
    ),
  );
}
