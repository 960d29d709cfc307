// Sine positions, and their products, which depend only on the distance.
import { h, num, slider, svg } from "./dom.js";
import { heatColour } from "./matrix.js";
import { dot, sines } from "./numbers.js";
import { figure } from "./save.js";

const SHOWN = 96;

/** A table of numbers in −1 … 1 as a canvas: blue above zero, orange below. @param {number[][]} table @param {string} label */
function painted(table, label) {
  const canvas = h("canvas", { class: "map", role: "img", "aria-label": label, width: table[0].length, height: table.length });
  const context = canvas.getContext("2d");
  const image = context.createImageData(table[0].length, table.length);
  const cold = getComputedStyle(document.documentElement).getPropertyValue("--cold").trim().split(/\s+/).map(Number);
  const hot = heatColour();
  table.flat().forEach((value, p) => image.data.set([...(value >= 0 ? hot : cold), 255 * Math.min(1, Math.abs(value))], 4 * p));
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The canvas as an SVG. @param {HTMLCanvasElement} canvas */
function drawingOf(canvas) {
  const image = svg("image", { x: 10, y: 10, width: 480, height: 480, preserveAspectRatio: "none", href: canvas.toDataURL() });
  image.setAttribute("image-rendering", "pixelated");
  return svg("svg", { viewBox: "0 0 500 500" }, image);
}

/** @param {import("./learn.js").Kept} kept */
export function positionLesson(kept) {
  let width = 2 * Math.round(kept.number("width", 64, 4, 256) / 2);
  let place = Math.round(kept.number("place", 30, 0, SHOWN - 1));
  let step = Math.round(kept.number("step", 8, 0, 40));
  const maps = h("div", { class: "pair" });
  const curve = h("div", {});
  const says = h("p", { class: "says" });
  function draw() {
    const table = sines(SHOWN, width);
    const products = table.map((a) => table.map((b) => dot(a, b) / (width / 2)));
    const [waves, both] = [painted(table, "positions as waves"), painted(products, "products of positions")];
    maps.replaceChildren(
      figure({ title: "Positions as waves", node: waves, drawing: () => drawingOf(waves), rows: () => [["position", ...table[0].map((_, c) => `column ${c}`)], ...table.map((row, i) => [i, ...row])], says: "Rows are positions, columns are waves, from fast (left) to slow (right), like the digits of a number." }),
      figure({ title: "pe · pe", node: both, drawing: () => drawingOf(both), rows: () => [["i \\ j", ...products.map((_, j) => j)], ...products.map((row, i) => [i, ...row])], says: "The product of two positions depends only on their distance: bands parallel to the diagonal, largest at i = j." }));
    const row = products[place];
    const path = row.map((v, j) => `${j ? "L" : "M"}${(40 + (j * 590) / (SHOWN - 1)).toFixed(1)} ${(180 - 160 * v).toFixed(1)}`).join("");
    const x = 40 + (place * 590) / (SHOWN - 1);
    curve.replaceChildren(figure({ title: `Position ${place} · every position`, node: svg("svg", { viewBox: "0 0 640 220", class: "lesson-figure", role: "img", "aria-label": "product over position" },
      svg("path", { d: "M40 180H630", class: "axis" }), svg("path", { d: `M${x} 15V205`, class: "reference" }), svg("path", { d: path, class: "line look0" }),
      [0, 0.5, 1].map((v) => svg("text", { x: 34, y: 184 - 160 * v, class: "end soft", "font-size": 12 }, String(v))),
      [0, 20, 40, 60, 80].map((j) => svg("text", { x: 40 + (j * 590) / (SHOWN - 1), y: 200, class: "mid soft", "font-size": 12 }, j))), rows: () => [["position", "product"], ...row.map((v, j) => [j, v])] }));
    // Each pair (sin, cos) of frequency ω turns by ωδ: the same rotation at every position.
    const turned = table[place].map((value, c) => {
      const omega = 1 / 10000 ** ((2 * Math.floor(c / 2)) / width);
      const other = c % 2 ? -table[place][c - 1] : table[place][c + 1];
      return value * Math.cos(omega * step) + other * Math.sin(omega * step);
    });
    const wanted = sines(place + step + 1, width)[place + step];
    const off = Math.max(...turned.map((v, c) => Math.abs(v - wanted[c])));
    says.replaceChildren(`Position ${place}, each pair of columns rotated by ωδ for δ = ${step}, is position ${place + step}, with an error of at most `, h("b", {}, off === 0 ? "0" : off.toExponential(1)), ". The rotation does not depend on the position, so a linear layer can learn “eight words back”.");
  }
  draw();
  return h("div", {}, h("p", {}, "Attention treats its input as a set, so the order must be encoded. Sine positions encode position i as waves of many lengths."),
    h("div", { class: "card" }, h("div", { class: "row-of-fields" }, slider("Width", { min: 4, max: 256, step: 2, value: width, says: (v) => String(v) }, (v) => { width = v; kept.keep({ width }); draw(); }),
      slider("Position", { min: 0, max: SHOWN - 1, step: 1, value: place, says: (v) => String(v) }, (v) => { place = v; kept.keep({ place }); draw(); }), slider("δ", { min: 0, max: 40, step: 1, value: step, says: (v) => num(v, 0) }, (v) => { step = v; kept.keep({ step }); draw(); })), says), maps, curve);
}
