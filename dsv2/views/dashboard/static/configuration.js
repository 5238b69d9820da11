// The configuration of the job. The server has hidden secrets.

import { h } from "./dom.js";

export function configuration(state) {
  const sections = state.configuration;
  if (!sections) return h("p", { class: "empty" }, "Loading …");
  if (!sections.length) return h("p", { class: "empty" }, "The configuration was not recorded.");
  return h(
    "div",
    { class: "stack" },
    sections.map((section) =>
      h(
        "section",
        { class: "card", "data-key": section.title },
        h("h2", {}, section.title),
        h(
          "dl",
          { class: "settings" },
          section.settings.map((setting) => h("div", {}, h("dt", {}, setting.name), h("dd", {}, setting.value))),
        ),
      ),
    ),
    h("p", { class: "soft" }, "Passwords and other secrets are shown as ***."),
  );
}
