// Thumbnails of all heads, one row per layer, searchable by pattern.
import { choice, h, percent, num } from "./dom.js";
import { heatColour } from "./matrix.js";
import { thumbsOf } from "./packed.js";

/** Searchable patterns: the name in the data and its description. @type {[string, string][]} */
export const PATTERNS = [
  ["previous", "look at the word before"], ["next", "look at the word after"], ["itself", "look at themselves"],
  ["same word", "look at the same word elsewhere"], ["separator", "look at separators and punctuation"],
  ["first", "look at the first token"], ["broad", "spread their weight evenly"], ["in order", "follow the text in order"],
  ["reversed", "read the text backwards"],
];

/**
 * Describe what a head does.
 * @param {import("./packed.js").PackedLayer} layer @param {number} head
 */
export function habitsInWords(layer, head) {
  const found = layer.habits;
  const words = [`weight spread over ${num(found.words[head], 1)} of ${layer.columns} tokens (perplexity)`];
  if (found.reach) words.push(`${num(found.reach[head], 1)} tokens away on average`);
  const best = PATTERNS.filter(([name]) => name in found && name !== "broad").map(([name, says]) => /** @type {[number, string]} */ ([found[name][head], says]))
    .sort((a, b) => b[0] - a[0])[0];
  if (best && best[0] >= 0.15) words.push(`${percent(best[0])}: ${best[1].replace(/^look/, "looks").replace(/^follow/, "follows").replace(/^read/, "reads").replace("themselves", "itself")}`);
  return words;
}

/** @param {HTMLCanvasElement} canvas @param {Uint8Array} cells @param {number[]} size */
function paintThumb(canvas, cells, [rows, columns]) {
  canvas.width = columns;
  canvas.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(columns, rows);
  const words = new Uint32Array(image.data.buffer);
  const [red, green, blue] = heatColour();
  for (let p = 0; p < words.length; p++) words[p] = ((cells[p] << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  context.putImageData(image, 0, 0);
}

/** The grid of all heads. */
export class Thumbs {
  /**
   * @param {import("./packed.js").Look} look @param {(layer: number, head: number) => void} pick
   * @param {string} find the selected pattern @param {(find: string) => void} sought
   */
  constructor(look, pick, find, sought) {
    this.look = look;
    this.pick = pick;
    /** @type {HTMLButtonElement[][]} */
    this.buttons = look.layers.map((layer, l) => thumbsOf(layer).map((cells, k) => {
      const canvas = h("canvas", {});
      paintThumb(canvas, cells, layer.thumb);
      return h("button", { type: "button", class: "thumb", tabindex: "-1", onclick: () => pick(l, k),
        "aria-label": `${layer.name}${layer.heads > 1 ? `, head ${k + 1}` : ""}: ${habitsInWords(layer, k).join("; ")}`,
        title: habitsInWords(layer, k).join("\n"), "aria-pressed": "false" }, canvas, h("span", { class: "meter", "aria-hidden": "true" }));
    }));
    this.grid = h("div", { class: "thumbs", role: "group", "aria-label": "All layers and heads", onkeydown: (/** @type {any} */ e) => this.key(e) },
      look.layers.map((layer, l) => h("div", { class: "thumb-row" }, h("span", { class: "soft" }, layer.name), h("div", { style: { "--heads": String(Math.min(16, Math.max(4, layer.heads))) } }, this.buttons[l]))));
    const here = PATTERNS.filter(([name]) => look.layers.some((layer) => name in layer.habits));
    this.best = h("p", { class: "best", "aria-live": "polite" });
    this.node = h("div", {}, choice("Find heads that", [["", "— any —"], ...here], find, (name) => {
      this.search(name);
      sought(name);
    }), this.best, this.grid);
    this.search(here.some(([name]) => name === find) ? find : "");
    this.at = [0, 0];
  }

  /** Show how strongly each head follows a pattern, and list the strongest. @param {string} name */
  search(name) {
    /** @type {[number, number, number][]} */
    const found = [];
    this.look.layers.forEach((layer, l) => this.buttons[l].forEach((button, k) => {
      const share = name ? Math.min(1, layer.habits[name]?.[k] ?? 0) : 1;
      /** @type {HTMLElement} */ (button.lastChild).style.setProperty("width", name ? `${100 * share}%` : "0");
      button.style.setProperty("opacity", name ? String(0.25 + 0.75 * share) : "1");
      if (name && name in layer.habits && layer.kind !== "rollout") found.push([share, l, k]);
    }));
    found.sort((a, b) => b[0] - a[0]);
    const chip = (/** @type {[number, number, number]} */ [share, l, k]) =>
      h("button", { type: "button", class: "chip", onclick: () => this.pick(l, k) },
        `${this.look.layers[l].name}${this.look.layers[l].heads > 1 ? `, head ${k + 1}` : ""}: ${percent(share)}`);
    this.best.replaceChildren(...(found.length ? ["strongest: ", ...found.slice(0, 4).map(chip)] : []));
  }

  /** @param {number} layer @param {number} head */
  mark(layer, head) {
    const [l, k] = this.at;
    const before = this.buttons[l]?.[k];
    before?.setAttribute("aria-pressed", "false");
    before?.setAttribute("tabindex", "-1");
    this.at = [layer, head];
    const button = this.buttons[layer][head];
    button.setAttribute("aria-pressed", "true");
    button.setAttribute("tabindex", "0");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const [l, k] = this.at;
    const to = /** @type {Record<string, number[]>} */ ({ ArrowRight: [l, k + 1], ArrowLeft: [l, k - 1], ArrowDown: [l + 1, k], ArrowUp: [l - 1, k] })[event.key];
    if (!to) return;
    event.preventDefault();
    const layer = Math.max(0, Math.min(this.buttons.length - 1, to[0]));
    const head = Math.max(0, Math.min(this.buttons[layer].length - 1, to[1]));
    this.pick(layer, head);
    this.buttons[layer][head].focus();
  }
}
