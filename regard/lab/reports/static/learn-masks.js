// Masks: paint which query may see which key, and see the resulting softmax weights.
import { choice, h, num, svg } from "./dom.js";
import { normal, seeded, softmax } from "./numbers.js";
import { figure } from "./save.js";

const N = 10;
/** @type {[string, string, (i: number, j: number) => boolean, string][]} */
const PRESETS = [
  ["all", "everything", () => true, "Mask: none"], ["causal", "causal", (i, j) => j <= i, "causal()"],
  ["window", "window of 2", (i, j) => Math.abs(i - j) <= 2, "window(2)"], ["both", "causal & window", (i, j) => j <= i && i - j <= 2, "causal() & window(2)"],
  ["lengths", "padding after 7", (_, j) => j < 7, "lengths(7)"], ["prefix", "prefix of 4", (i, j) => j < 4 || j <= i, "causal() | prefix(4)"],
  ["others", "leave one out", (i, j) => i !== j, "others()"], ["none", "nothing", () => false, ""],
];

/** Draw a board as SVG. @param {number[][]} shares @param {string} label */
function drawn(shares, label) {
  return svg("svg", { viewBox: "0 0 320 320", "aria-label": label }, shares.flatMap((row, i) => row.map((share, j) => [
    svg("rect", { x: 10 + 30 * j, y: 10 + 30 * i, width: 28, height: 28, rx: 3, class: "heat", "fill-opacity": share.toFixed(3) }),
    svg("rect", { x: 10 + 30 * j, y: 10 + 30 * i, width: 28, height: 28, rx: 3, class: "frame" })])));
}

/** @param {boolean[][]} allowed four cells a digit */
function digits(allowed) {
  const cells = allowed.flat();
  return Array.from({ length: cells.length / 4 }, (_, i) => cells.slice(4 * i, 4 * i + 4).reduce((n, on) => 2 * n + Number(on), 0).toString(16)).join("");
}

/** @param {string} said @returns {boolean[][] | null} */
function cellsOf(said) {
  if (!/^[0-9a-f]{25}$/.test(said)) return null;
  const cells = [...said].flatMap((digit) => [8, 4, 2, 1].map((bit) => Boolean(Number.parseInt(digit, 16) & bit)));
  return Array.from({ length: N }, (_, i) => cells.slice(N * i, N * i + N));
}

/** @param {import("./learn.js").Kept} kept */
export function maskLesson(kept) {
  const random = seeded(5);
  const scores = Array.from({ length: N }, () => Array.from({ length: N }, () => 1.5 * normal(random)));
  let preset = "causal";
  let allowed = cellsOf(kept.word("cells", "")) ?? fill(preset);
  let painting = /** @type {boolean | null} */ (null);
  const says = h("p", { class: "says", "aria-live": "polite" });
  const weightCells = grid((i, j) => h("div", { class: "cell", role: "img", "aria-label": `${i + 1} ${j + 1}` }));
  const maskCells = grid((i, j) => h("button", { type: "button", class: "cell", tabindex: i || j ? "-1" : "0", "data-i": i, "data-j": j }));
  const board = h("div", { class: "board", role: "group", "aria-label": "The mask: rows are queries, columns are keys" }, maskCells.flat());
  const result = h("div", { class: "board", "aria-hidden": "true" }, weightCells.flat());

  const heading = ["looks \\ is looked at", ...Array.from({ length: N }, (_, j) => j + 1)];
  const weights = () => scores.map((row, i) => softmax(row, allowed[i]));

  function fill(/** @type {string} */ name) {
    const rule = /** @type {any} */ (PRESETS.find((p) => p[0] === name))[2];
    return Array.from({ length: N }, (_, i) => Array.from({ length: N }, (__, j) => rule(i, j)));
  }

  function grid(/** @type {(i: number, j: number) => any} */ make) {
    return Array.from({ length: N }, (_, i) => Array.from({ length: N }, (__, j) => make(i, j)));
  }

  function draw() {
    let empty = 0;
    weights().forEach((row, i) => {
      empty += allowed[i].some(Boolean) ? 0 : 1;
      row.forEach((w, j) => {
        maskCells[i][j].classList.toggle("on", allowed[i][j]);
        maskCells[i][j].setAttribute("aria-pressed", String(allowed[i][j]));
        maskCells[i][j].setAttribute("aria-label", `${i + 1} ${allowed[i][j] ? "may" : "may not"} look at ${j + 1}`);
        weightCells[i][j].style.setProperty("--level", w.toFixed(3));
        weightCells[i][j].title = num(w, 2);
      });
    });
    const known = PRESETS.find(([name]) => fill(name).flat().every((may, p) => may === allowed.flat()[p]));
    const seen = allowed.flat().filter(Boolean).length;
    says.replaceChildren(`${seen} of ${N * N} pairs are visible. `, ...(known?.[3] ? ["In regard: ", h("code", {}, known[3]), ". "] : []), ...(empty ? [h("b", {}, `${empty} row${empty > 1 ? "s" : ""} may see nothing: `), "weights, output and gradients are exactly 0 there."] : []));
  }

  function set(/** @type {number} */ i, /** @type {number} */ j, /** @type {boolean} */ may) {
    allowed[i][j] = may;
    kept.keep({ cells: digits(allowed) });
    draw();
  }
  const place = (/** @type {any} */ event) => {
    const cell = document.elementFromPoint(event.clientX, event.clientY)?.closest?.(".board [data-i]");
    return cell && board.contains(cell) ? [+(/** @type {any} */ (cell).dataset.i), +(/** @type {any} */ (cell).dataset.j)] : null;
  };
  board.addEventListener("pointerdown", (/** @type {any} */ event) => {
    const at = place(event);
    if (!at) return;
    event.preventDefault();
    painting = !allowed[at[0]][at[1]];
    maskCells[at[0]][at[1]].focus();
    set(at[0], at[1], painting);
  });
  board.addEventListener("pointermove", (/** @type {any} */ event) => {
    const at = painting === null || !event.buttons ? null : place(event);
    if (at && painting !== null) set(at[0], at[1], painting);
  });
  addEventListener("pointerup", () => { painting = null; });
  board.addEventListener("keydown", (/** @type {any} */ event) => {
    const [i, j] = [+event.target.dataset.i, +event.target.dataset.j];
    if (event.key === " " || event.key === "Enter") {
      event.preventDefault();
      return set(i, j, !allowed[i][j]);
    }
    const to = /** @type {Record<string, number[]>} */ ({ ArrowRight: [i, j + 1], ArrowLeft: [i, j - 1], ArrowDown: [i + 1, j], ArrowUp: [i - 1, j] })[event.key];
    const next = to && maskCells[to[0]]?.[to[1]];
    if (!next) return undefined;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    return next.focus();
  });
  draw();
  return h("div", {}, h("p", {}, "A mask defines which query may see which key. Press or drag to paint cells; the weights are updated."),
    h("div", { class: "card" }, h("div", { class: "row-of-fields" }, choice("Begin with", PRESETS.map(([name, words]) => [name, words]), preset, (name) => { preset = name; allowed = fill(name); kept.keep({ cells: digits(allowed) }); draw(); })), says),
    h("div", { class: "pair" },
      figure({ title: "The mask", node: board, drawing: () => drawn(allowed.map((row) => row.map(Number)), "the mask"), says: "A filled cell: the row’s query may see the column’s key.",
        rows: () => [heading, ...allowed.map((row, i) => [i + 1, ...row.map(Number)])] }),
      figure({ title: "The weights", node: result, drawing: () => drawn(weights(), "the weights"), says: "Softmax of random scores over the keys each row may see: every row adds up to 1 or is all zeros.",
        rows: () => [heading, ...weights().map((row, i) => [i + 1, ...row])] })));
}
