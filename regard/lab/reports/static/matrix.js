// One head as a matrix of queries (rows) and keys (columns), with the hovered pair on top.
import { h, num, svg } from "./dom.js";
import { readable } from "./tokens.js";

const SIDE = 520; // maximum CSS pixels of the longer side
const LABELLED = 40; // most tokens for which labels are drawn
const LINE = 11; // CSS pixels of a label, the minimum size of a labelled cell

/** Return the page's heat colour as numbers. @returns {[number, number, number]} */
export function heatColour() {
  const found = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim().split(/\s+/).map(Number);
  return /** @type {any} */ (found.length === 3 ? found : [11, 92, 160]);
}

/**
 * Paint weights as a heat map: the square root of each weight relative to the largest.
 * @param {HTMLCanvasElement} canvas @param {import("./packed.js").Head} head
 */
export function paintHead(canvas, head) {
  const { rows, columns, scales, bytes, full } = head;
  canvas.width = columns;
  canvas.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(columns, rows);
  const words = new Uint32Array(image.data.buffer);
  const [red, green, blue] = heatColour();
  const colour = (blue << 16) | (green << 8) | red;
  const alpha = new Uint32Array(256);
  for (let i = 0, place = 0; i < rows; i++) {
    const share = scales[i] / full / 255;
    for (let b = 0; b < 256; b++) alpha[b] = ((Math.round(255 * Math.sqrt(share * b)) << 24) | colour) >>> 0;
    for (let j = 0; j < columns; j++, place++) words[place] = alpha[bytes[place]];
  }
  context.putImageData(image, 0, 0);
}

/** The matrix of a head, with a cross that follows the pointer. */
export class Matrix {
  /**
   * @param {string} label @param {string[]} queries @param {string[]} keys
   * @param {{hover: (i: number, j: number) => void, leave: () => void, pick: (i: number, j: number) => void}} on
   */
  constructor(label, queries, keys, on) {
    this.queries = queries;
    this.keys = keys;
    const long = (/** @type {string[]} */ words) => Math.max(24, Math.min(34, SIDE / words.length) * words.length);
    this.width = long(keys);
    this.height = long(queries);
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.cross = h("div", { class: "cross", hidden: true });
    this.upright = h("div", { class: "cross", hidden: true });
    const sides = Math.max(queries.length, keys.length) <= LABELLED;
    const side = (/** @type {string[]} */ words, /** @type {string} */ look) =>
      h("div", { class: look, "aria-hidden": "true" }, words.map((word) => h("span", {}, readable(word))));
    this.box = h("div", { class: "painted", style: { "aspect-ratio": `${this.width} / ${this.height}` } }, this.canvas, this.cross, this.upright);
    const longest = Math.max(...queries.map((word) => [...readable(word)].length), 1);
    const least = LINE * Math.max(keys.length, (queries.length * this.width) / this.height);
    const whole = h("div", { class: sides ? "matrix labelled" : "matrix", role: "img", "aria-label": label,
      style: { "--wide": `${this.width}px`, "--names": `${Math.min(96, 10 + 7 * longest)}px`, "--least": `${Math.ceil(sides ? Math.min(least, this.width) : 0)}px` } },
      sides && side(keys, "columns"), sides && side(queries, "rows"), this.box);
    this.node = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "matrix" }, whole);
    const place = (/** @type {PointerEvent} */ event) => {
      const box = this.box.getBoundingClientRect();
      const at = (/** @type {number} */ share, /** @type {number} */ n) => Math.max(0, Math.min(n - 1, Math.floor(share * n)));
      return [at((event.clientY - box.top) / box.height, queries.length), at((event.clientX - box.left) / box.width, keys.length)];
    };
    this.box.addEventListener("pointermove", (/** @type {any} */ e) => on.hover(.../** @type {[number, number]} */ (place(e))));
    this.box.addEventListener("pointerleave", () => on.leave());
    this.box.addEventListener("click", (/** @type {any} */ e) => on.pick(.../** @type {[number, number]} */ (place(e))));
  }

  /** @param {import("./packed.js").Head} head */
  paint(head) {
    this.head = head;
    paintHead(this.canvas, head);
  }

  /** Highlight a row and a column; −1 for neither. @param {number} i @param {number} j */
  mark(i, j) {
    const rows = this.queries.length;
    const columns = this.keys.length;
    this.cross.hidden = i < 0;
    this.upright.hidden = j < 0;
    const place = (/** @type {any} */ node, /** @type {number[]} */ [left, top, width, height]) => {
      Object.entries({ left, top, width, height }).forEach(([k, v]) => node.style.setProperty(k, `${100 * v}%`));
    };
    if (i >= 0) place(this.cross, [0, i / rows, 1, 1 / rows]);
    if (j >= 0) place(this.upright, [j / columns, 0, 1 / columns, 1]);
  }

  /** Return the matrix as an SVG, with labels if they fit. @returns {SVGSVGElement} */
  drawing() {
    const named = Math.max(this.queries.length, this.keys.length) <= 80;
    const scale = Math.max(this.width, this.height) < 240 ? 240 / Math.max(this.width, this.height) : 1;
    const [width, height, side] = [this.width * scale, this.height * scale, named ? 110 : 30];
    const image = svg("image", { x: side, y: side, width, height, preserveAspectRatio: "none", href: this.canvas.toDataURL(), style: { "image-rendering": "pixelated" } });
    image.setAttribute("image-rendering", "pixelated");
    const size = Math.min(13, (height / this.queries.length) * 0.9, (width / this.keys.length) * 0.9);
    const words = named ? [
      ...this.queries.map((word, i) => svg("text", { x: side - 6, y: side + ((i + 0.7) * height) / this.queries.length, "text-anchor": "end", "font-size": size }, readable(word))),
      ...this.keys.map((word, j) => svg("text", { transform: `translate(${side + ((j + 0.7) * width) / this.keys.length} ${side - 6}) rotate(-60)`, "font-size": size }, readable(word))),
    ] : [];
    return svg("svg", { viewBox: `0 0 ${Math.ceil(width + side + 20)} ${Math.ceil(height + side + 20)}` }, image, words,
      svg("rect", { x: side, y: side, width, height, class: "frame", fill: "none" }));
  }

  /** Rows of the CSV: every weight with its words. */
  rows() {
    const { head } = this;
    const heading = ["query \\ key", ...this.keys];
    return [heading, ...this.queries.map((word, i) => [word, ...Array.from(/** @type {any} */ (head).row(i), (w) => +(/** @type {number} */ (w)).toFixed(5))])];
  }
}

/** The colour scale from 0 to the largest weight. @param {number} most */
export function legend(most) {
  return h("p", { class: "legend" }, "weight 0", h("span", { class: "ramp", "aria-hidden": "true" }), num(most));
}
