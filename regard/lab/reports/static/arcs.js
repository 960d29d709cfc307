// One head as arcs over a text or lines between two texts: the strongest pairs, those of the hovered word on top.
import { svg } from "./dom.js";
import { readable } from "./tokens.js";

const MOST = 260; // pairs drawn faintly
const OWN = 60; // pairs of the hovered word
const LABELLED = 64; // most words for which labels are drawn
const WIDE = 1000;

/** Return the positions of the largest weights: at most `most`, none below a hundredth of the largest. */
export function strongestPairs(/** @type {import("./packed.js").Head} */ head, most = MOST) {
  /** @type {number[]} */
  const counts = new Array(256).fill(0);
  const level = new Uint8Array(head.bytes.length);
  for (let i = 0, p = 0; i < head.rows; i++) {
    const factor = head.scales[i] / head.most;
    for (let j = 0; j < head.columns; j++, p++) counts[(level[p] = Math.round(factor * head.bytes[p]))]++;
  }
  let least = 255;
  for (let total = counts[255]; least > 3 && total + counts[least - 1] <= most; total += counts[--least]);
  /** @type {[number, number, number][]} */
  const found = [];
  for (let p = 0; p < level.length && found.length < 4 * most; p++) {
    if (level[p] >= least) found.push([Math.floor(p / head.columns), p % head.columns, level[p] / 255]);
  }
  found.forEach((pair) => { pair[2] *= head.most / head.full; });
  return found.sort((a, b) => b[2] - a[2]).slice(0, most);
}

/** Font size of the words. @param {string[]} words */
function sizeOf(words) {
  return Math.max(8, Math.min(15, (WIDE - 28) / words.length / 1.15));
}

/** Return whether words must be rotated to fit. @param {string[]} words */
function turned(words) {
  return words.reduce((n, word) => n + Math.min(14, word.length) + 1.5, 0) * sizeOf(words) * 0.6 > WIDE;
}

/** Arcs of a text over itself, or lines between two. */
export class Arcs {
  /**
   * @param {string} label @param {string[]} queries @param {string[]} keys @param {boolean} same true for self-attention
   */
  constructor(label, queries, keys, same) {
    this.queries = queries;
    this.keys = keys;
    this.same = same;
    this.faint = svg("g", { class: "faint" });
    this.own = svg("g", { class: "own" });
    this.names = svg("g", { class: "names" });
    const most = Math.max(queries.length, keys.length);
    this.labelled = most <= LABELLED;
    const [above, below] = [queries, keys].map((words) => this.labelled && turned(words));
    this.turned = { above, below };
    this.foot = !this.labelled ? 42 : below ? 100 : 32; // below the line that arcs and lines stand on
    this.top = above ? 106 : 54; // above the line from which lines to another text begin
    this.high = same ? 230 + this.foot : this.top + 150 + this.foot;
    this.node = svg("svg", { viewBox: `0 0 ${WIDE} ${this.high}`, class: "arcs", role: "img", "aria-label": label }, this.faint, this.own, this.names);
    this.label();
  }

  /** @param {number} place @param {number} n */
  x(place, n) {
    return 14 + ((place + 0.5) * (WIDE - 28)) / n;
  }

  label() {
    if (!this.labelled) {
      const line = (/** @type {number} */ y) => svg("path", { d: `M14 ${y}H${WIDE - 14}`, class: "axis" });
      this.names.append(...(this.same ? [line(this.high - this.foot + 2)] : [line(this.top - 4), line(this.high - this.foot + 4)]));
      return;
    }
    const put = (/** @type {string[]} */ words, /** @type {number} */ y, /** @type {boolean} */ up) =>
      words.map((word, i) => {
        const x = this.x(i, words.length);
        const slant = up ? this.turned.above : this.turned.below;
        return svg("text", { transform: `translate(${x} ${y})${slant ? ` rotate(${up ? -55 : 55})` : ""}`, "font-size": sizeOf(words),
          "text-anchor": slant ? "start" : "middle", "data-word": i }, [...readable(word)].slice(0, 14).join(""));
      });
    if (this.same) this.names.append(...put(this.queries, this.high - this.foot + 16, false));
    else this.names.append(...put(this.queries, this.top - 8, true), ...put(this.keys, this.high - this.foot + 16, false));
  }

  /** @param {number} i @param {number} j */
  path(i, j) {
    if (!this.same) {
      const [from, to] = [this.x(i, this.queries.length), this.x(j, this.keys.length)];
      const [top, bottom] = [this.top, this.high - this.foot];
      const middle = (top + bottom) / 2;
      return `M${from.toFixed(1)} ${top}C${from.toFixed(1)} ${middle} ${to.toFixed(1)} ${middle} ${to.toFixed(1)} ${bottom}`;
    }
    const ground = this.high - this.foot;
    const [from, to] = [this.x(i, this.keys.length), this.x(j, this.keys.length)];
    if (i === j) return `M${(from - 3).toFixed(1)} ${ground}a3 7 0 1 1 6 0`;
    const high = Math.min((ground - 8) / 0.98, 18 + Math.abs(to - from) * 0.36);
    return `M${from.toFixed(1)} ${ground}C${from.toFixed(1)} ${(ground - 1.3 * high).toFixed(1)} ${to.toFixed(1)} ${(ground - 1.3 * high).toFixed(1)} ${to.toFixed(1)} ${ground}`;
  }

  /** @param {import("./packed.js").Head} head */
  paint(head) {
    this.head = head;
    this.pairs = strongestPairs(head);
    this.faint.replaceChildren(...this.pairs.map(([i, j, share]) =>
      svg("path", { d: this.path(i, j), "stroke-opacity": (0.12 + 0.55 * share).toFixed(2), "stroke-width": (0.6 + 2.2 * share).toFixed(2) })));
    this.mark(-1, -1);
  }

  /** Draw the weights of query i and those on key j; −1 for neither. @param {number} i @param {number} j */
  mark(i, j) {
    const head = /** @type {import("./packed.js").Head} */ (this.head);
    this.faint.classList.toggle("dim", i >= 0 || j >= 0);
    /** @type {[number, number, number][]} */
    const pairs = [];
    if (i >= 0) for (let k = 0; k < head.columns; k++) pairs.push([i, k, head.at(i, k)]);
    if (j >= 0) for (let k = 0; k < head.rows; k++) if (k !== i) pairs.push([k, j, head.at(k, j)]);
    const most = pairs.reduce((m, p) => Math.max(m, p[2]), 0);
    const kept = pairs.filter((p) => p[2] > most / 50).sort((a, b) => b[2] - a[2]).slice(0, OWN);
    this.own.replaceChildren(...kept.map(([a, b, w]) => svg("path", { d: this.path(a, b), class: a === i ? "out" : "in",
      "stroke-opacity": (0.25 + 0.75 * Math.sqrt(w / most)).toFixed(2), "stroke-width": (0.8 + 3.4 * (w / most)).toFixed(2) })));
  }

  /** Rows of the CSV: the drawn pairs. */
  rows() {
    const head = /** @type {import("./packed.js").Head} */ (this.head);
    return [["query", "position", "key", "position", "weight"],
      ...(this.pairs ?? []).map(([i, j]) => [this.queries[i], i, this.keys[j], j, +head.at(i, j).toFixed(5)])];
  }
}
