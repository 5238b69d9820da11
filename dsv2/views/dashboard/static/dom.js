// Elements from data. Everything is inserted as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "ondblclick", "onkeydown", "onchange", "onpointermove", "onpointerleave", "onpointerdown", "onpointerup", "onsubmit", "onblur"];
const OF_USER = new Set(["open", "style"]); // what the user has opened stays open

/** An element. Functions become handlers, `style` is an object, true and false set and omit an attribute. */
export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

/** Set properties of an element, and add children. */
export function filled(element, properties, children = []) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (typeof value === "function") element[name] = value;
    else if (name === "style") for (const [part, text] of Object.entries(value)) element.style.setProperty(part, text);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Make `old` equal to `next`, and keep its elements: focus, scroll position and what is open do not change. */
export function morph(old, next) {
  if (old.nodeName !== next.nodeName || old.nodeType !== next.nodeType || keyOf(old) !== keyOf(next)) {
    old.replaceWith(next);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const name of HANDLERS) old[name] = next[name];
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  for (const { name, value } of [...next.attributes]) {
    if (!OF_USER.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!OF_USER.has(name) && !next.hasAttribute(name)) old.removeAttribute(name);
  }
  const value = next.value;
  morphChildren(old, [...next.childNodes]);
  if (old.nodeName === "SELECT" && old.value !== value) old.value = value;
}

function morphChildren(parent, wanted) {
  const keys = new Set(wanted.map(keyOf));
  for (const node of [...parent.childNodes]) if (keyOf(node) && !keys.has(keyOf(node))) node.remove();
  const keyed = new Map([...parent.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  wanted.forEach((next, place) => {
    const here = parent.childNodes[place];
    const known = keyed.get(keyOf(next));
    if (known && known !== here) parent.insertBefore(known, here ?? null);
    const old = parent.childNodes[place];
    if (!old) parent.append(next);
    else if (!known && keyOf(next)) parent.insertBefore(next, old);
    else morph(old, next);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? (node.getAttribute("data-key") ?? undefined) : undefined;
}
