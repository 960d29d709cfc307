// A text as highlighted tokens: the weights of a query or those on a key.
import { h, shown } from "./dom.js";

const LEVELS = 12;
const FULL = 16; // multiple of the average weight with the full colour, as in reports

/** Return a token with visible spaces and line breaks. @param {string} token */
export function readable(token) {
  return shown(token).replace(/\n/g, "⏎").replace(/^\s+|\s+$/g, (space) => "·".repeat(space.length)) || "∅";
}

/** Return readable tokens; those that occur several times have their position, from 1. @param {string[]} tokens @returns {string[]} */
export function apart(tokens) {
  return tokens.map((token, i) => (tokens.indexOf(token) === tokens.lastIndexOf(token) ? readable(token) : `${readable(token)} (${i + 1})`));
}

/**
 * Return the shade of each token, 0 … 12: 0 up to the average weight, 12 at sixteen times it.
 * @param {ArrayLike<number>} weights
 * @returns {Uint8Array}
 */
export function levels(weights) {
  const n = weights.length;
  let total = 0;
  for (let i = 0; i < n; i++) total += weights[i];
  const full = Math.log(Math.max(2, Math.min(FULL, n)));
  const found = new Uint8Array(n);
  if (!(total > 0)) return found;
  for (let i = 0; i < n; i++) {
    const lift = (weights[i] / total) * n;
    if (lift > 1) found[i] = Math.max(1, Math.min(LEVELS, Math.round((LEVELS * Math.log(lift)) / full)));
  }
  return found;
}

/** A row of tokens; one can be selected by mouse, touch or arrow keys. */
export class Tokens {
  /**
   * @param {string} label
   * @param {string[]} tokens
   * @param {{hover?: (place: number) => void, pick?: (place: number) => void, leave?: () => void}} [on]
   * @param {number} [read] number of input tokens; the rest was written by the model
   */
  constructor(label, tokens, on = {}, read = tokens.length) {
    this.on = on;
    this.tokens = tokens;
    /** @type {HTMLElement[]} */
    this.spans = tokens.map((token, i) => h("span", { role: "option", "data-i": i, "aria-selected": "false", class: i >= read && "own" }, readable(token)));
    /** @type {Uint8Array} */
    this.shades = new Uint8Array(tokens.length);
    this.chosen = this.next = -1; // the marked token, and the one that arrow keys move from
    const letters = tokens.filter((token) => [...token].length <= 1).length;
    const signs = letters > 0.8 * tokens.length && tokens.includes(" "); // tokens are characters, not words
    const spaced = signs ? this.spans : tokens.flatMap((_, i) => [this.spans[i], " "]);
    this.node = h("div", { class: signs ? "tokens signs" : "tokens", role: "listbox", "aria-label": label, tabindex: "0" }, spaced);
    const place = (/** @type {any} */ event) => event.target.closest?.("[data-i]")?.dataset.i;
    this.node.addEventListener("mouseover", (/** @type {any} */ event) => {
      const found = place(event);
      if (found !== undefined) on.hover?.(+found);
    });
    this.node.addEventListener("mouseleave", () => on.leave?.());
    this.node.addEventListener("click", (/** @type {any} */ event) => {
      const found = place(event);
      if (found !== undefined) on.pick?.(+found);
    });
    this.node.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const last = this.tokens.length - 1;
    const to = /** @type {Record<string, number>} */ ({ ArrowRight: this.next + 1, ArrowDown: this.next + 1,
      ArrowLeft: this.next - 1, ArrowUp: this.next - 1, Home: 0, End: last })[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.next = Math.max(0, Math.min(last, to));
      this.on.pick?.(this.next);
    } else if (event.key === "Escape") this.on.pick?.(-1);
  }

  /** Shade every token by its weight; null removes the shading. @param {ArrayLike<number> | null} weights */
  shade(weights) {
    const next = weights ? levels(weights) : new Uint8Array(this.tokens.length);
    for (let i = 0; i < next.length; i++) {
      if (next[i] === this.shades[i]) continue;
      if (this.shades[i]) this.spans[i].classList.remove(`w${this.shades[i]}`);
      if (next[i]) this.spans[i].classList.add(`w${next[i]}`);
    }
    this.shades = next;
  }

  /** Mark the selected token; −1 for none. @param {number} place */
  mark(place) {
    this.next = place;
    if (place === this.chosen) return;
    this.spans[this.chosen]?.classList.remove("asked");
    this.spans[this.chosen]?.setAttribute("aria-selected", "false");
    this.chosen = place;
    const span = this.spans[place];
    this.node.removeAttribute("aria-activedescendant");
    if (!span) return;
    span.classList.add("asked");
    span.setAttribute("aria-selected", "true");
    span.id ||= `token-${Math.random().toString(36).slice(2)}`;
    this.node.setAttribute("aria-activedescendant", span.id);
  }
}
