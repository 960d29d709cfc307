// Download figures as SVG or PNG and their numbers as CSV.
import { h, shown } from "./dom.js";

const KEPT_LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity",
  "stroke-linecap", "stroke-linejoin", "paint-order", "font-size", "font-weight", "font-family", "text-anchor", "dominant-baseline"];

/** @param {string} name @param {Blob} blob */
function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Turn a title into a file name of letters and digits. @param {string} title */
export function fileName(title) {
  return shown(title).normalize("NFKD").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "figure";
}

/**
 * Serialise an SVG that looks the same without this page's style sheet.
 * @param {SVGSVGElement} drawn
 * @returns {string}
 */
export function standalone(drawn) {
  const copy = /** @type {SVGSVGElement} */ (drawn.cloneNode(true));
  const before = [drawn, ...drawn.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
    const look = getComputedStyle(before[i]);
    for (const key of KEPT_LOOKS) {
      const value = look.getPropertyValue(key);
      if (value) node.setAttribute(key, value);
    }
    for (const name of ["class", "style", "tabindex"]) node.removeAttribute(name);
  });
  const [x, y, width, height] = (drawn.getAttribute("viewBox") ?? "0 0 640 360").split(" ").map(Number);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const colour = getComputedStyle(document.documentElement).backgroundColor;
  Object.entries({ x, y, width, height, fill: colour }).forEach(([k, v]) => ground.setAttribute(k, String(v)));
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy);
}

/** @param {string} text an SVG @param {number} width @param {number} height @returns {Promise<Blob>} */
async function painted(text, width, height) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = h("canvas", { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

/**
 * Format rows as CSV. Cells that a spreadsheet would read as formulas get a leading apostrophe.
 * @param {(string | number)[][]} rows
 */
export function csv(rows) {
  const cell = (/** @type {string | number} */ value) => {
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/**
 * Buttons to download a figure as SVG, as PNG and as CSV.
 * @param {string} title @param {(() => SVGSVGElement | Promise<SVGSVGElement>) | null} draw @param {() => (string | number)[][]} [rows]
 */
export function downloadButtons(title, draw, rows) {
  const name = fileName(title);
  /** @returns {Promise<[string, number, number]>} */
  const text = async () => {
    const drawn = await /** @type {any} */ (draw)();
    const [, , width, height] = (drawn.getAttribute("viewBox") ?? "0 0 640 360").split(" ").map(Number);
    if (drawn.isConnected) return [standalone(drawn), width, height];
    drawn.classList.add("aside"); // computed styles need an element in the page
    document.body.append(drawn);
    const found = standalone(drawn);
    drawn.remove();
    return [found, width, height];
  };
  const button = (/** @type {string} */ word, /** @type {string} */ what, /** @type {() => any} */ act) =>
    h("button", { type: "button", class: "quiet", "aria-label": `${word} of ${title}`, title: what, onclick: act }, word);
  return h("span", { class: "tools" },
    draw && button("SVG", "Download as SVG", async () => download(`${name}.svg`, new Blob([(await text())[0]], { type: "image/svg+xml" }))),
    draw && button("PNG", "Download as PNG", async () => download(`${name}.png`, await painted(...(await text())))),
    rows && button("CSV", "Download the numbers as CSV", () => download(`${name}.csv`, new Blob(["\ufeff", csv(rows())], { type: "text/csv" }))));
}

/**
 * A figure: title, drawing, caption and download buttons.
 * @param {{title: string, says?: any, node: Element, drawing?: () => SVGSVGElement | Promise<SVGSVGElement>, rows?: () => (string | number)[][]}} given
 */
export function figure({ title, says, node, drawing, rows }) {
  const draw = drawing ?? (() => /** @type {SVGSVGElement} */ (node.matches("svg") ? node : node.querySelector("svg")));
  return h("figure", { class: "card" }, h("div", { class: "figure-head" }, h("h3", {}, title), downloadButtons(title, draw, rows)),
    node, says && h("figcaption", {}, says));
}
