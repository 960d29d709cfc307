// Kernel regression: draggable points, a width, and the weights of one query.
import { choice, h, num, slider, svg } from "./dom.js";
import { normal, seeded, softmax } from "./numbers.js";
import { figure } from "./save.js";

const [WIDE, HIGH, FOOT] = [680, 380, 70];
const [LEFT, RIGHT, TOP] = [44, 16, 16];
const SPAN = { x: [0, 5], y: [-1.6, 3.2] };
const px = (/** @type {number} */ x) => LEFT + ((x - SPAN.x[0]) / (SPAN.x[1] - SPAN.x[0])) * (WIDE - LEFT - RIGHT);
const py = (/** @type {number} */ y) => TOP + ((SPAN.y[1] - y) / (SPAN.y[1] - SPAN.y[0])) * (HIGH - TOP - FOOT);
const truth = (/** @type {number} */ x) => 2 * Math.sin(x) + x ** 0.8 - 1.2 * (x > 3.2 ? (x - 3.2) * 0.9 : 0) - 0.4;

/** The kernels: weights of the keys for one query; w is 1 / width. @type {Record<string, (gaps: number[], w: number) => number[]>} */
const KERNELS = {
  gaussian: (gaps, w) => softmax(gaps.map((gap) => -((w * gap) ** 2) / 2)),
  boxcar: (gaps, w) => shares(gaps.map((gap) => (Math.abs(w * gap) <= 1 ? 1 : 0))),
  epanechnikov: (gaps, w) => shares(gaps.map((gap) => Math.max(0, 1 - (w * gap) ** 2))),
};

/** Clip a point to the figure, rounded to 0.001. @param {number} x @param {number} y */
function inside(x, y) {
  const [place, height] = [Math.max(0, Math.min(5, x)), Math.max(SPAN.y[0], Math.min(SPAN.y[1], y))];
  return { x: Math.round(1000 * place) / 1000, y: Math.round(1000 * height) / 1000 };
}

/** @param {number[]} kernel */
function shares(kernel) {
  const total = kernel.reduce((a, b) => a + b, 0);
  return kernel.map((k) => (total > 0 ? k / total : 0));
}

/** @param {import("./learn.js").Kept} kept */
export function kernelLesson(kept) {
  const random = seeded(3);
  const points = Array.from({ length: 16 }, () => {
    const x = 0.1 + 4.8 * random();
    return { x, y: truth(x) + 0.35 * normal(random) };
  }).sort((p, q) => p.x - q.x);
  /** Indices of dragged points. @type {Set<number>} */
  const dragged = new Set();
  for (const said of kept.word("points", "").split("_")) {
    const [i, x, y] = said.split("~").map(Number.parseFloat);
    if (!points[i] || !Number.isFinite(x) || !Number.isFinite(y)) continue;
    Object.assign(points[i], inside(x, y));
    dragged.add(i);
  }
  let width = kept.number("width", 0.5, 0.05, 3);
  let kernel = kept.word("kernel", "gaussian") in KERNELS ? kept.word("kernel", "gaussian") : "gaussian";
  let query = kept.number("query", 2.5, 0, 5);
  const move = (/** @type {number} */ i, /** @type {{x: number, y: number}} */ to) => {
    Object.assign(points[i], to);
    dragged.add(i);
    kept.keep({ points: [...dragged].map((k) => `${k}~${points[k].x}~${points[k].y}`).join("_") });
    draw();
  };
  const line = svg("path", { class: "line look0" });
  const mean = svg("path", { class: "reference" });
  const asked = svg("path", { class: "line look1" });
  const answer = svg("circle", { r: 5.5, class: "dot look1" });
  const bars = svg("g", { class: "weights" });
  const dots = points.map((_, i) => svg("circle", { r: 7, class: "dot look0 drag", tabindex: "0", role: "slider", "aria-label": `Point ${i + 1}`, "aria-valuemin": SPAN.y[0], "aria-valuemax": SPAN.y[1] }));
  const ticks = [0, 1, 2, 3, 4, 5].map((x) => svg("text", { x: px(x), y: HIGH - 6, class: "mid soft", "font-size": 12 }, x));
  const drawn = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "lesson-figure", role: "group", "aria-label": "Points and the fitted curve" },
    svg("path", { d: `M${LEFT} ${HIGH - FOOT}H${WIDE - RIGHT}`, class: "axis" }), ticks, mean, [-1, 0, 1, 2, 3].map((y) => svg("text", { x: LEFT - 8, y: py(y) + 4, class: "end soft", "font-size": 12 }, num(y, 0))), bars, line, asked, answer, dots);
  const says = h("p", { class: "says", "aria-live": "polite" });
  const f = (/** @type {number} */ x, skip = -1) => {
    const used = points.filter((_, i) => i !== skip);
    const weights = KERNELS[kernel](used.map((p) => x - p.x), 1 / width);
    return { weights, y: weights.reduce((sum, w, i) => sum + w * used[i].y, 0) };
  };
  const heldOut = () => points.reduce((sum, p, i) => sum + (f(p.x, i).y - p.y) ** 2, 0) / points.length;

  function draw() {
    line.setAttribute("d", Array.from({ length: 201 }, (_, i) => {
      const x = (5 * i) / 200;
      return `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(f(x).y).toFixed(1)}`;
    }).join(""));
    const average = points.reduce((sum, p) => sum + p.y, 0) / points.length;
    mean.setAttribute("d", `M${px(0)} ${py(average).toFixed(1)}H${px(5)}`);
    const { weights, y } = f(query);
    asked.setAttribute("d", `M${px(query).toFixed(1)} ${HIGH - FOOT}V${py(y).toFixed(1)}`);
    answer.setAttribute("cx", px(query));
    answer.setAttribute("cy", py(y));
    bars.replaceChildren(...points.map((p, i) => svg("rect", { x: px(p.x) - 4, width: 8, y: HIGH - FOOT + 2, height: Math.max(0.5, 46 * Math.min(1, weights[i] * 2)), class: "heat" })));
    dots.forEach((dot, i) => {
      dot.setAttribute("cx", px(points[i].x));
      dot.setAttribute("cy", py(points[i].y));
      dot.setAttribute("aria-valuenow", points[i].y.toFixed(2));
      dot.setAttribute("aria-valuetext", `x ${points[i].x.toFixed(2)}, y ${points[i].y.toFixed(2)}, weight ${num(weights[i])}`);
      dot.style.setProperty("opacity", String(0.35 + 0.65 * Math.min(1, 3 * weights[i])));
    });
    const nearest = Math.max(...weights);
    says.replaceChildren(`At x = ${num(query, 2)} the prediction is `, h("b", {}, num(y, 2)), `; the largest weight is ${num(nearest, 2)}. Leave-one-out mean squared error: `, h("b", {}, num(heldOut(), 3)), ".");
  }

  const at = (/** @type {PointerEvent} */ event) => {
    const box = drawn.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDE;
    const y = ((event.clientY - box.top) / box.height) * HIGH;
    return inside(((x - LEFT) / (WIDE - LEFT - RIGHT)) * 5, SPAN.y[1] - ((y - TOP) / (HIGH - TOP - FOOT)) * (SPAN.y[1] - SPAN.y[0]));
  };
  dots.forEach((dot, i) => {
    dot.addEventListener("pointerdown", (/** @type {any} */ event) => {
      dot.setPointerCapture(event.pointerId);
      event.stopPropagation();
    });
    dot.addEventListener("pointermove", (/** @type {any} */ event) => {
      if (!dot.hasPointerCapture(event.pointerId)) return;
      move(i, at(event));
    });
    dot.addEventListener("keydown", (/** @type {any} */ event) => {
      const step = /** @type {Record<string, number[]>} */ ({ ArrowUp: [0, 0.1], ArrowDown: [0, -0.1], ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0] })[event.key];
      if (!step) return;
      event.preventDefault();
      move(i, inside(points[i].x + step[0], points[i].y + step[1]));
    });
  });
  drawn.addEventListener("pointermove", (/** @type {any} */ event) => {
    if (event.target.classList.contains("drag") || event.buttons) return;
    query = at(event).x;
    kept.keep({ query: query.toFixed(2) });
    draw();
  });
  const slide = slider("Width 1/w", { min: 0.05, max: 3, step: 0.01, value: width, says: (v) => v.toFixed(2) }, (v) => { width = v; kept.keep({ width: v }); draw(); });
  function best() {
    const widths = Array.from({ length: 120 }, (_, i) => 0.05 * 60 ** (i / 119));
    const errors = widths.map((w) => { width = w; return heldOut(); });
    width = widths[errors.indexOf(Math.min(...errors))];
    const input = slide.querySelector("input");
    input.value = width;
    slide.querySelector("output").textContent = width.toFixed(2);
    kept.keep({ width: width.toFixed(3) });
    draw();
  }
  draw();
  return h("div", {}, h("p", {}, "Attention before it had that name: the prediction at x is the mean of all y, weighted by how close their x are. Drag the points; move over the figure to choose x."),
    h("div", { class: "card" }, h("div", { class: "row-of-fields" }, slide,
      choice("Kernel", Object.keys(KERNELS).map((name) => [name, name]), kernel, (name) => { kernel = name; kept.keep({ kernel }); draw(); }),
      h("button", { type: "button", onclick: best }, "Find the best width")), says),
    figure({ title: "Nadaraya–Watson regression", node: h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "points and curve" }, drawn), rows: () => [["x", "y", "weight at the query"], ...points.map((p, i) => [p.x, p.y, f(query).weights[i]])],
      says: "The blue bars below are the weights for the orange query. With the Gaussian kernel the weights are softmax(−(w(x − xᵢ))² / 2): a small width copies the nearest point, a large one comes near the mean of all (dashed). The other kernels give 0 where no point is within the width." }));
}
