// One head step by step: q, k, v, scores, mask, weights and output of a short sentence, in numbers.
import { choice, h, num } from "./dom.js";
import { dot, normal, seeded, softmax, times } from "./numbers.js";
import { csv, fileName } from "./save.js";

const WIDTH = 4;
const LONGEST = 8;

/** Return the vector of a word, seeded by its letters. @param {string} word */
function vectorOf(word) {
  let seed = 7;
  for (const sign of word.toLowerCase()) seed = (Math.imul(seed, 31) + /** @type {number} */ (sign.codePointAt(0))) >>> 0;
  const random = seeded(seed);
  return Array.from({ length: WIDTH }, () => Math.round(10 * normal(random)) / 10);
}

/** @param {number} seed */
function matrixOf(seed) {
  const random = seeded(seed);
  return Array.from({ length: WIDTH }, () => Array.from({ length: WIDTH }, () => Math.round(10 * normal(random) * 0.6) / 10));
}

const [W_Q, W_K, W_V] = [matrixOf(11), matrixOf(22), matrixOf(33)];

/** @param {string} text */
function wordsOf(text) {
  return text.trim().split(/\s+/).filter(Boolean).slice(0, LONGEST);
}

/** @param {import("./learn.js").Kept} kept */
export function stepLesson(kept) {
  let words = wordsOf(kept.word("sentence", "").slice(0, 80));
  if (!words.length) words = ["the", "cat", "sat", "down"];
  let mask = ["causal", "window"].find((name) => name === kept.word("mask", "")) ?? "none";
  let scaled = kept.word("scaled", "yes") !== "no";
  let step = Math.round(kept.number("step", 0, 0, 5));
  let row = Math.round(kept.number("row", 1, 0, words.length - 1));
  const place = h("div", {});
  const field = h("input", { type: "text", value: words.join(" "), "aria-label": "Sentence", maxlength: 80, oninput: () => {
    const found = wordsOf(field.value);
    if (!found.length) return;
    words = found;
    kept.keep({ sentence: field.value });
    row = Math.min(row, words.length - 1);
    draw();
  } });

  /** @param {string} title @param {number[][]} table @param {string[]} rows @param {string[]} columns @param {any} [more] */
  function shownTable(title, table, rows, columns, more) {
    const most = Math.max(...table.flat().map(Math.abs), 1e-9);
    const cell = (/** @type {number} */ v) => h("td", { class: `h${Math.round(8 * Math.abs(v) / most)} ${v < 0 ? "below" : ""}` }, v === -Infinity ? "−∞" : num(v, 2));
    const name = `${fileName(title)}.csv`;
    const numbers = csv([["", ...columns], ...table.map((r, i) => [rows[i], ...r])]);
    return h("div", { class: "step-table" }, h("h4", {}, title), more, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), columns.map((c) => h("th", { scope: "col" }, c)))),
        h("tbody", {}, table.map((r, i) => h("tr", { class: i === row ? "now" : "" }, h("th", { scope: "row" }, h("button", { type: "button", class: "quiet", onclick: () => { row = i; kept.keep({ row }); draw(); } }, rows[i])), r.map(cell)))))),
      h("a", { class: "quiet", download: name, href: `data:text/csv;charset=utf-8,${encodeURIComponent(numbers)}` }, "CSV"));
  }

  function draw() {
    const x = words.map(vectorOf);
    const [q, k, v] = [W_Q, W_K, W_V].map((w) => times(x, w));
    const n = words.length;
    const allowed = words.map((_, i) => words.map((__, j) => mask === "none" || (mask === "causal" ? j <= i : Math.abs(i - j) <= 1)));
    const scores = q.map((a) => k.map((b) => dot(a, b) / (scaled ? Math.sqrt(WIDTH) : 1)));
    const masked = scores.map((r, i) => r.map((s, j) => (allowed[i][j] ? s : -Infinity)));
    const weights = scores.map((r, i) => softmax(r, allowed[i]));
    const output = times(weights, v);
    const columns = Array.from({ length: WIDTH }, (_, c) => String(c + 1));
    const terms = weights[row].map((w, j) => `${num(w, 2)}·v(${words[j]})`).join(" + ");
    /** @type {[string, () => any][]} */
    const steps = [
      ["1. Each word is a vector", () => shownTable("x, a vector for each word", x, words, columns)],
      ["2. Three projections", () => [shownTable("queries q = x W_Q: what a word looks for", q, words, columns), shownTable("keys k = x W_K: what it is found by", k, words, columns), shownTable("values v = x W_V: what it passes on", v, words, columns)]],
      [scaled ? "3. Scores q·k / √4" : "3. Scores q·k", () => shownTable("scores: rows are queries, columns keys", scores, words, words, h("p", { class: "note" }, `score(${words[row]}, ${words[0]}) = ${q[row].map((a, c) => `${num(a, 2)}·${num(k[0][c], 2)}`).join(" + ")}${scaled ? ", divided by 2" : ""} = ${num(scores[row][0], 2)}`))],
      ["4. The mask", () => shownTable("scores after the mask", masked.map((r) => r), words, words, h("p", { class: "note" }, mask === "none" ? "Every word may look at every word." : "−∞ marks hidden pairs: their weight is exactly 0."))],
      ["5. Softmax, row by row", () => shownTable("weights: each row adds up to 1", weights, words, words)],
      ["6. The output", () => shownTable("output = weights × values", output, words, columns, h("p", { class: "note" }, `output(${words[row]}) = ${terms}`))],
    ];
    step = Math.max(0, Math.min(steps.length - 1, step));
    place.replaceChildren(
      h("div", { class: "stepper", role: "group", "aria-label": "Steps" }, steps.map(([title], i) => h("button", { type: "button", "aria-current": i === step ? "step" : null, onclick: () => { step = i; kept.keep({ step }); draw(); } }, title))),
      h("div", { class: "card step" }, steps[step][1](), n === LONGEST && h("p", { class: "note" }, `The first ${LONGEST} words.`)),
      h("div", { class: "row-of-fields" }, h("button", { type: "button", disabled: step === 0, onclick: () => { step -= 1; kept.keep({ step }); draw(); } }, "← Back"),
        h("button", { type: "button", class: "main", disabled: step === steps.length - 1, onclick: () => { step += 1; kept.keep({ step }); draw(); } }, "Next →")));
  }
  draw();
  return h("div", {}, h("p", {}, "Every number that one head computes for your sentence. Word vectors are random, seeded by their letters; so are the three matrices. Press a word to highlight its row."),
    h("div", { class: "card" }, h("div", { class: "row-of-fields" }, h("label", { class: "field grow" }, h("span", {}, "Sentence"), field),
      choice("Mask", [["none", "none"], ["causal", "causal"], ["window", "window of one"]], mask, (m) => { mask = m; kept.keep({ mask }); draw(); }),
      h("label", { class: "field check" }, h("input", { type: "checkbox", checked: scaled, onchange: (/** @type {any} */ e) => { scaled = e.target.checked; kept.keep({ scaled: scaled ? "yes" : "no" }); draw(); } }), "divide by √d"))), place);
}
