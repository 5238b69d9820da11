// The graph of operators that the server has drawn, with numbers. Arrow keys move along the edges.

import { filled, h, svg } from "./dom.js";
import { count, plural, rate, share } from "./format.js";

const WORDS = { unknown: "not measured", idle: "no records", low: "low pressure", busy: "busy", high: "high pressure" };

const drawn = new WeakMap(); // by plan: its graph, as the server has drawn it

/** plan: the plan. operators: the numbers by id. selected: an id or null. choose: called with an id or null. */
export function graph({ plan, operators, selected, choose }) {
  if (!drawn.has(plan)) drawn.set(plan, new DOMParser().parseFromString(plan.svg, "image/svg+xml").documentElement);
  const picture = document.importNode(drawn.get(plan), true);
  const cards = [...picture.querySelectorAll("[data-operator]")];
  for (const card of cards) {
    const operator = plan.operators[Number(card.dataset.operator)];
    const numbers = operators[operator.id];
    filled(card, {
      class: `operator ${numbers?.level ?? "unknown"}`,
      role: "button",
      tabindex: card.dataset.operator === String(selected ?? cards[0].dataset.operator) ? "0" : "-1",
      "aria-pressed": String(selected === operator.id),
      "aria-label": spoken(operator, numbers),
      onclick: () => choose(selected === operator.id ? null : operator.id),
      onkeydown: move,
    });
    card.append(live(card, operator, numbers));
  }
  return h(
    "div",
    { class: "graph", role: "group", "aria-label": "Operators. Arrow keys move along the edges, Enter chooses." },
    picture,
  );

  function move(event) {
    const card = event.currentTarget;
    if (event.key === "Escape") choose(null);
    else if (event.key === "Enter" || event.key === " ") card.onclick();
    else {
      const next = neighbour(event.key, card, plan);
      if (!next) return;
      next.focus();
    }
    event.preventDefault();
  }
}

/** The numbers of an operator, in the free lines of its card. */
function live(card, operator, numbers) {
  const { x, y, width, height } = placeOf(card);
  const busy = numbers?.busy ?? null;
  return svg(
    "foreignObject",
    { x: x + 10, y: y + 25, width: width - 20, height: height - 29 },
    h("p", { class: "rates" }, ...rates(operator, numbers)),
    h(
      "p",
      { class: "state" },
      busy !== null && h("span", { class: "meter" }, h("span", { style: { width: `${Math.round(busy * 100)}%` } })),
      h("span", { class: "word" }, word(operator, numbers)),
    ),
  );
}

function placeOf(card) {
  const frame = card.querySelector(".card");
  return Object.fromEntries(["x", "y", "width", "height"].map((name) => [name, Number(frame.getAttribute(name))]));
}

function rates(operator, numbers) {
  if (!numbers) return [h("span", { class: "soft" }, operator.about)];
  const parts = [];
  if (operator.kind !== "source") parts.push(h("span", {}, `${rate(numbers.in_rate)} in`));
  if (operator.kind !== "sink") parts.push(h("span", {}, `${rate(numbers.out_rate)} out`));
  return parts;
}

function word(operator, numbers) {
  if (!numbers) return operator.kind === "sink" ? "sink" : WORDS.unknown;
  if (numbers.errors) return plural(numbers.errors, "error");
  if (numbers.held) return `holds ${count(numbers.held)}`;
  if (numbers.lag) return `lag ${count(numbers.lag)}`;
  return numbers.busy === null ? WORDS[numbers.level] : `busy ${share(numbers.busy)}`;
}

function spoken(operator, numbers) {
  const parts = [`${operator.kind === "source" ? "Source" : operator.kind === "sink" ? "Sink" : "Operator"} ${operator.title}`];
  if (numbers) {
    parts.push(`${rate(numbers.in_rate)} in`, `${rate(numbers.out_rate)} out`, WORDS[numbers.level], ...numbers.reasons);
  }
  return parts.join(", ");
}

/** The card to which an arrow key leads: along an edge, or to the nearest one on the left or right. */
function neighbour(key, card, plan) {
  const id = Number(card.dataset.operator);
  const cards = [...card.ownerSVGElement.querySelectorAll("[data-operator]")];
  const along = {
    ArrowUp: plan.operators[id].upstream[0],
    ArrowDown: plan.operators.find((other) => other.upstream.includes(id))?.id,
  };
  if (key in along) return cards.find((other) => other.dataset.operator === String(along[key]));
  const side = { ArrowLeft: -1, ArrowRight: 1 }[key];
  const here = placeOf(card);
  const away = (other) => {
    const { x, y, width } = placeOf(other);
    const across = side * (x + width / 2 - here.x - here.width / 2);
    return across > here.width / 2 ? across + 3 * Math.abs(y - here.y) : Infinity;
  };
  const next = side && cards.reduce((one, other) => (away(other) < away(one) ? other : one));
  return next && away(next) < Infinity ? next : undefined;
}

/** What the colours mean. */
export function legend() {
  return h(
    "ul",
    { class: "legend levels" },
    ["idle", "low", "busy", "high"].map((level) => h("li", {}, h("span", { class: `swatch ${level}` }), WORDS[level])),
    h("li", {}, h("span", { class: "box" }), "in one subtask"),
  );
}
