// The graph of operators: cards as buttons over lines. Arrow keys move along the edges.

import { h, svg } from "./dom.js";
import { count, plural, rate, share } from "./format.js";

const WORDS = { unknown: "not measured", idle: "no records", low: "low pressure", busy: "busy", high: "high pressure" };

/** plan: the plan. operators: the numbers by id. selected: an id or null. choose: called with an id or null. */
export function graph({ plan, operators, selected, choose }) {
  const { picture } = plan;
  const first = selected ?? picture.cards[0]?.operator;
  return h(
    "div",
    { class: "graph", role: "group", "aria-label": "Operators. Arrow keys move along the edges, Enter chooses." },
    h(
      "div",
      { class: "plane", style: { width: `${picture.width}px`, height: `${picture.height}px` } },
      svg(
        "svg",
        { width: picture.width, height: picture.height, "aria-hidden": "true" },
        picture.edges.map((edge) => drawnEdge(edge)),
      ),
      picture.cards.map((card) => {
        const operator = plan.operators[card.operator];
        const numbers = operators[card.operator];
        return cardOf({ card, operator, numbers, picture, selected, choose, inOrder: card.operator === first });
      }),
    ),
  );
}

function drawnEdge(edge) {
  const [x, y] = edge.end;
  return svg(
    "g",
    { class: edge.chained ? "edge chained" : "edge" },
    svg("path", { d: edge.path }),
    svg("polygon", { points: `${x},${y} ${x - 4},${y - 7} ${x + 4},${y - 7}` }),
    edge.label && svg("text", { x: edge.label_at[0], y: edge.label_at[1], "text-anchor": "middle" }, shortened(edge.label)),
  );
}

function shortened(text) {
  return text.length > 34 ? `${text.slice(0, 33)}…` : text;
}

function cardOf({ card, operator, numbers, picture, selected, choose, inOrder }) {
  const level = numbers?.level ?? "unknown";
  const move = (event) => {
    const next = target(event.key, card);
    if (next === undefined && event.key !== "Escape") return;
    event.preventDefault();
    if (event.key === "Escape") choose(null);
    else event.currentTarget.parentElement.querySelector(`[data-operator="${next}"]`)?.focus();
  };
  return h(
    "button",
    {
      type: "button",
      class: `operator ${level}`,
      "data-key": String(card.operator),
      "data-operator": String(card.operator),
      tabindex: inOrder ? "0" : "-1",
      "aria-pressed": String(selected === card.operator),
      "aria-label": spoken(operator, numbers, level),
      onclick: () => choose(selected === card.operator ? null : card.operator),
      onkeydown: move,
      style: {
        left: `${card.x}px`,
        top: `${card.y}px`,
        width: `${picture.card_width}px`,
        height: `${picture.card_height}px`,
      },
    },
    h(
      "span",
      { class: "name" },
      h("b", { title: operator.title }, operator.title),
      operator.findings.length > 0 && h("span", { class: "sign", title: "The plan has a warning or note" }, "⚠"),
      h("span", { class: "soft" }, `×${operator.parallelism}`),
    ),
    h("span", { class: "rates" }, ...rates(operator, numbers)),
    h(
      "span",
      { class: "state" },
      (numbers?.busy ?? null) !== null && h("span", { class: "meter" }, h("span", { style: { width: `${Math.round((numbers?.busy ?? 0) * 100)}%` } })),
      h("span", { class: "word" }, word(operator, numbers, level)),
    ),
  );
}

function rates(operator, numbers) {
  if (!numbers) return [h("span", { class: "soft" }, operator.about)];
  const parts = [];
  if (operator.kind !== "source") parts.push(h("span", {}, `${rate(numbers.in_rate)} in`));
  if (operator.kind !== "sink") parts.push(h("span", {}, `${rate(numbers.out_rate)} out`));
  return parts;
}

function word(operator, numbers, level) {
  if (!numbers) return operator.kind === "sink" ? "sink" : WORDS.unknown;
  if (numbers.errors) return plural(numbers.errors, "error");
  if (numbers.held) return `holds ${count(numbers.held)}`;
  if (numbers.lag) return `lag ${count(numbers.lag)}`;
  return numbers.busy === null ? WORDS[level] : `busy ${share(numbers.busy)}`;
}

function spoken(operator, numbers, level) {
  const parts = [`${operator.kind === "source" ? "Source" : operator.kind === "sink" ? "Sink" : "Operator"} ${operator.title}`];
  if (numbers) {
    parts.push(`${rate(numbers.in_rate)} in`, `${rate(numbers.out_rate)} out`, WORDS[level], ...numbers.reasons);
  }
  return parts.join(", ");
}

function target(key, card) {
  const place = card.beside.indexOf(card.operator);
  switch (key) {
    case "ArrowUp":
      return card.upstream[0];
    case "ArrowDown":
      return card.downstream[0];
    case "ArrowLeft":
      return card.beside[place - 1];
    case "ArrowRight":
      return card.beside[place + 1];
    default:
      return undefined;
  }
}

/** What the colours mean. */
export function legend() {
  return h(
    "ul",
    { class: "legend levels" },
    ["idle", "low", "busy", "high"].map((level) => h("li", {}, h("span", { class: `swatch ${level}` }), WORDS[level])),
    h("li", {}, h("span", { class: "thick" }), "in one subtask"),
  );
}
