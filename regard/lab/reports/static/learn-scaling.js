// Why q·k is divided by √d: scores of random vectors and their softmax.
import { h, num, slider, svg } from "./dom.js";
import { dot, entropyOf, normal, seeded, softmax } from "./numbers.js";
import { figure } from "./save.js";

const KEYS = 24;
const WIDE = 640;

const DRAWS = 300;
const TYPICAL = 143; // a draw near the median of the derivative at each d from 32 on
const POWERS = Array.from({ length: 12 }, (_, i) => i + 1); // d = 2 … 4096

/** ‖∂w/∂s‖ of softmax: the Frobenius norm of diag(w) − wwᵀ. @param {number[]} w */
function slope(w) {
  const squares = w.reduce((sum, a) => sum + a * a, 0);
  return Math.sqrt(Math.max(0, squares - 2 * w.reduce((sum, a) => sum + a ** 3, 0) + squares ** 2));
}

/** For each d, over the same draws without √d and with it: the two mean slopes, and the share of draws where it is smaller without. q·k of a drawn q is normal with variance ‖q‖² ≈ d + √(2d) z. */
function slopes() {
  const random = seeded(9);
  const rows = POWERS.map((power) => {
    const d = 2 ** power;
    const sums = [0, 0, 0];
    for (let t = 0; t < DRAWS; t++) {
      const size = Math.sqrt(Math.max(0.05 * d, d + Math.sqrt(2 * d) * normal(random)));
      const scores = Array.from({ length: KEYS }, () => size * normal(random));
      const both = [slope(softmax(scores)), slope(softmax(scores.map((s) => s / Math.sqrt(d))))];
      [...both, Number(both[0] < both[1])].forEach((value, i) => { sums[i] += value; });
    }
    return sums.map((sum) => sum / DRAWS);
  });
  return { lines: [0, 1].map((k) => rows.map((row) => row[k])), smaller: rows.map((row) => row[2]) };
}

/** Say what these vectors show, and why, if it is not what most draws show. @param {number[]} without @param {number[]} scaled @param {number} smaller */
function shownBy(without, scaled, smaller) {
  const less = slope(without) < slope(scaled);
  const share = Math.round(100 * (less ? smaller : 1 - smaller));
  const most = num(Math.max(...without), 2);
  const why = less ? `one key has most of the weight (${most})` : `the largest weight is ${most}, so that no key has won alone`;
  return `For these vectors the derivative is ${less ? "smaller" : "larger"} without √d: ${why}. So it is in ${share} % of ${DRAWS} draws at this d.`;
}

/** @param {number[][]} lines @param {number} power */
function slopeChart(lines, power) {
  const most = Math.max(...lines.flat());
  const x = (/** @type {number} */ p) => 40 + ((p - 1) * (WIDE - 170)) / 11;
  const y = (/** @type {number} */ v) => 180 - (150 * v) / most;
  return svg("svg", { viewBox: `0 0 ${WIDE} 220`, class: "lesson-figure", role: "img", "aria-label": "Mean norm of softmax’s derivative for random vectors, over d" },
    svg("path", { d: `M40 180H${WIDE - 120}`, class: "axis" }), svg("path", { d: `M${x(power)} 20V180`, class: "reference" }),
    [1, 3, 5, 7, 9, 11].map((p) => svg("text", { x: x(p), y: 200, class: "mid soft", "font-size": 12 }, 2 ** p)),
    [0, 0.1, 0.2, 0.3, 0.4].filter((v) => v <= most).map((v) => svg("text", { x: 34, y: y(v) + 4, class: "end soft", "font-size": 12 }, num(v, 1))),
    svg("text", { x: WIDE - 120, y: 214, class: "end soft", "font-size": 12 }, "d"), svg("text", { x: 8, y: 12, class: "soft", "font-size": 12 }, "‖∂w/∂s‖"),
    lines.map((line, k) => [svg("path", { class: `line look${1 - k}`, d: line.map((v, i) => `${i ? "L" : "M"}${x(POWERS[i]).toFixed(1)} ${y(v).toFixed(1)}`).join("") }),
      svg("text", { x: WIDE - 114, y: y(line[11]) + 4, class: `ink${1 - k}`, "font-size": 14 }, k ? "with √d" : "without")]));
}

/** @param {number[]} weights @param {string} title */
function barsOf(weights, title) {
  const drawn = svg("svg", { viewBox: `0 0 ${WIDE} 190`, class: "lesson-figure", role: "img", "aria-label": `${title}: the largest weight is ${num(Math.max(...weights))}` },
    svg("path", { d: `M10 160H${WIDE - 10}`, class: "axis" }),
    weights.map((w, i) => svg("rect", { x: 14 + (i * (WIDE - 28)) / KEYS, width: (WIDE - 28) / KEYS - 4, y: 160 - 145 * w, height: Math.max(0.5, 145 * w), class: "heat", rx: 2 })),
    svg("text", { x: 10, y: 181, class: "soft", "font-size": 13 }, `${KEYS} keys; largest weight ${num(Math.max(...weights))}`));
  return drawn;
}

/** @param {import("./learn.js").Kept} kept */
export function scalingLesson(kept) {
  const power = Math.round(kept.number("power", 6, 2, 12));
  let d = 2 ** power;
  let seed = Math.round(kept.number("seed", TYPICAL, 1, 1e6));
  const place = h("div", { class: "pair two" });
  const { lines, smaller } = slopes();
  const from = 2 ** POWERS[POWERS.findIndex((_, i) => lines[0].slice(i).every((v, k) => v < lines[1][i + k]))];
  const says = h("p", { class: "says", "aria-live": "polite" });
  const facts = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "numbers" });
  function draw() {
    const random = seeded(seed);
    const vector = () => Array.from({ length: d }, () => normal(random));
    const query = vector();
    const scores = Array.from({ length: KEYS }, () => dot(query, vector()));
    const both = [softmax(scores), softmax(scores.map((s) => s / Math.sqrt(d)))];
    const row = (/** @type {string} */ says, /** @type {(w: number[]) => string} */ of) => h("tr", {}, h("th", { scope: "row" }, says), both.map((w) => h("td", {}, of(w))));
    facts.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), h("th", {}, "q·k"), h("th", {}, "q·k / √d"))), h("tbody", {},
      h("tr", {}, h("th", { scope: "row" }, "standard deviation of the scores (theory)"), h("td", {}, num(Math.sqrt(d), 2)), h("td", {}, "1")),
      row("entropy of the weights, at most ln 24 = 3.18", (w) => num(entropyOf(w), 2)), row("size of softmax’s derivative, these vectors", (w) => num(slope(w), 3)),
      h("tr", {}, h("th", { scope: "row" }, `the same, mean of ${DRAWS} draws`), lines.map((line) => h("td", {}, num(line[Math.log2(d) - 1], 3)))))));
    says.replaceChildren(shownBy(both[0], both[1], smaller[Math.log2(d) - 1]));
    place.replaceChildren(...["Weights without √d", "Weights with √d"].map((title, k) => figure({ title, node: barsOf(both[k], title), rows: () => [["key", "score", "weight"], ...scores.map((s, i) => [i, k ? s / Math.sqrt(d) : s, both[k][i]])] })),
      h("div", { class: "whole" }, figure({ title: "The derivative over d", node: slopeChart(lines, Math.log2(d)), says: `The mean over ${DRAWS} draws. Without √d it is smaller from d = ${from} on and shrinks as d grows, and so do the gradients through softmax. With √d it hardly depends on d.`,
        rows: () => [["d", "without", "with", "share of draws where it is smaller without"], ...POWERS.map((p, i) => [2 ** p, lines[0][i], lines[1][i], smaller[i]])] })));
  }
  draw();
  return h("div", {}, h("p", {}, "The product of two random vectors of d numbers has variance d. In most draws, softmax of large scores puts nearly all weight on one key, where its derivative vanishes and nothing is learned. Dividing by √d keeps the variance at 1 for every d."),
    h("div", { class: "card" }, h("div", { class: "row-of-fields" }, slider("d", { min: 2, max: 12, step: 1, value: power, says: (v) => String(2 ** v) }, (v) => { d = 2 ** v; kept.keep({ power: v }); draw(); }),
      h("button", { type: "button", onclick: () => { seed += 1; kept.keep({ seed }); draw(); } }, "Draw other vectors")), facts, says), place);
}
