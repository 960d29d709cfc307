// Create elements from code: user input becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
// eslint-disable-next-line no-control-regex
const UNFIT = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/**
 * Make a text safe to display: bidirectional control characters become their code points.
 * @param {unknown} text
 * @returns {string}
 */
export function shown(text) {
  return String(text)
    .replace(UNFIT, "\ufffd")
    .replace(/[\u2028\u2029]/g, " ")
    .replace(TURNING, (sign) => `‹U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

/**
 * @param {Element} node
 * @param {Record<string, any>} given
 * @param {any[]} children
 */
function fill(node, given, children) {
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.entries(value).forEach(([k, v]) => /** @type {any} */ (node).style.setProperty(k, v));
    else if (key === "value") /** @type {any} */ (node).value = value;
    else node.setAttribute(key, value === true ? "" : shown(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : shown(child));
  }
}

/**
 * Create an HTML element: `h("p", {class: "note", onclick: f}, "text", another)`.
 * @param {string} name
 * @param {Record<string, any>} [given]
 * @param {...any} children
 * @returns {any}
 */
export function h(name, given = {}, ...children) {
  const node = document.createElement(name);
  fill(node, given, children);
  return node;
}

/**
 * Create an SVG element.
 * @param {string} name
 * @param {Record<string, any>} [given]
 * @param {...any} children
 * @returns {any}
 */
export function svg(name, given = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  fill(node, given, children);
  return node;
}

/**
 * Format a number in few digits: 0.123, 12.3, 1,234.
 * @param {number} value
 * @param {number} [digits]
 */
export function num(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  const places = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? Math.min(2, digits) : digits;
  return value.toFixed(places).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
}

/**
 * Format a share in per cent.
 * @param {number} share
 * @param {number} [places]
 */
export function percent(share, places = 0) {
  return `${(100 * share).toFixed(places)} %`.replace("-", "−");
}

/**
 * Debounce: call with the last arguments once no call came for a while.
 * @template {any[]} A
 * @param {(...given: A) => void} call
 * @param {number} pause milliseconds
 * @returns {(...given: A) => void}
 */
export function settled(call, pause) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), pause);
  };
}

/**
 * A labelled select element.
 * @param {string} label
 * @param {[string, string][]} options values and their labels
 * @param {string} value
 * @param {(value: string) => void} pick
 */
export function choice(label, options, value, pick) {
  const select = h("select", { "aria-label": label, onchange: () => pick(select.value) },
    options.map(([name, words]) => h("option", { value: name, selected: name === value }, words)));
  return h("label", { class: "field" }, h("span", {}, label), select);
}

/**
 * Say why a request failed, with a button to try again unless the request itself was wrong.
 * @param {any} error @param {() => void} [again]
 */
export function failure(error, again) {
  return h("div", { class: "failure" }, h("p", { class: "problem", role: "alert" }, error.message ?? error), again && !error.asked && h("button", { type: "button", onclick: again }, "Try again"));
}

/**
 * A labelled slider that shows its value.
 * @param {string} label
 * @param {{min: number, max: number, step?: number, value: number, says?: (v: number) => string}} range
 * @param {(value: number) => void} pick
 */
export function slider(label, range, pick) {
  const says = range.says ?? ((v) => num(v));
  const output = h("output", {}, says(range.value));
  const input = h("input", {
    type: "range", min: range.min, max: range.max, step: range.step ?? "any", "aria-label": label,
    oninput: () => {
      output.textContent = says(+input.value);
      input.setAttribute("aria-valuetext", output.textContent);
      pick(+input.value);
    },
  });
  input.value = range.value;
  input.setAttribute("aria-valuetext", output.textContent);
  return h("label", { class: "field slide" }, h("span", {}, label), input, output);
}
