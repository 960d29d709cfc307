// The playground: attention that is trained in this browser while one looks.
import { choice, h, num, slider, svg } from "./dom.js";
import { MASKS, NORMALIZERS, POSITIONS, SCORES } from "./layers.js";
import { heatColour } from "./matrix.js";
import { figure } from "./save.js";
import { TASKS } from "./train-tasks.js";

/** @typedef {import("./train-tasks.js").Settings} Settings @typedef {import("./train-tasks.js").Picture} Picture */

const [WIDE, HIGH, LEFT, FOOT] = [640, 260, 48, 28];
const SEEDS = 10;
/** The 97.5 % quantile of Student's t for 1 … 9 degrees of freedom. */
const QUANTILES = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/** The worker: a module beside the page, or the code that a page without a server carries. */
function startWorker() {
  const carried = document.getElementById("train-worker");
  if (!carried) return new Worker("static/train-worker.js", { type: "module" });
  const url = URL.createObjectURL(new Blob([carried.textContent ?? ""], { type: "text/javascript" }));
  const worker = new Worker(url);
  URL.revokeObjectURL(url);
  return worker;
}

/** The mean of paired differences and its 95 % interval. @param {number[][]} pairs @returns {{mean: number, low: number, high: number}} */
export function interval(pairs) {
  const gaps = pairs.map(([a, b]) => b - a);
  const n = gaps.length;
  const mean = gaps.reduce((sum, x) => sum + x, 0) / n;
  if (n < 2) return { mean, low: -Infinity, high: Infinity };
  const half = QUANTILES[n - 2] * Math.sqrt(gaps.reduce((sum, x) => sum + (x - mean) ** 2, 0) / (n - 1) / n);
  return { mean, low: mean - half, high: mean + half };
}

/** A line over steps. @param {string} label @param {number[][]} points step and value @param {number} look */
function chart(label, points, look) {
  const seen = points.filter(([, y]) => Number.isFinite(y));
  const [least, most] = [Math.min(0, ...seen.map(([, y]) => y)), Math.max(look ? 1 : 0.1, ...seen.map(([, y]) => y))];
  const last = Math.max(1, ...seen.map(([x]) => x));
  const px = (/** @type {number} */ x) => LEFT + (x / last) * (WIDE - LEFT - 12);
  const py = (/** @type {number} */ y) => 18 + ((most - y) / (most - least)) * (HIGH - FOOT - 18);
  return svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "lesson-figure", role: "img", "aria-label": `${label} over steps, now ${num(seen.at(-1)?.[1] ?? Number.NaN)}` },
    svg("path", { d: `M${LEFT} ${py(0)}H${WIDE - 12}`, class: "axis" }),
    [least, (least + most) / 2, most].map((y) => svg("text", { x: LEFT - 6, y: py(y) + 4, class: "end soft", "font-size": 12 }, num(y, 2))),
    [0, last].map((x) => svg("text", { x: px(x), y: HIGH - 6, class: x ? "end soft" : "soft", "font-size": 12 }, x)),
    svg("path", { class: `line look${look}`, d: seen.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("") }));
}

/** Points and the fitted curve. @param {Picture} picture */
function curveOf({ points = [], curve = [] }) {
  const all = [...points.map((p) => p.y), ...curve];
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const px = (/** @type {number} */ x) => 12 + (x / 5) * (WIDE - 24);
  const py = (/** @type {number} */ y) => 12 + ((most - y) / (most - least || 1)) * (HIGH - 24);
  return svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "lesson-figure", role: "img", "aria-label": `${points.length} points and the fitted curve` },
    points.map((p) => svg("circle", { r: 4, cx: px(p.x), cy: py(p.y), class: "dot look0" })),
    svg("path", { class: "line look1", d: curve.map((y, i) => `${i ? "L" : "M"}${px((5 * i) / (curve.length - 1)).toFixed(1)} ${py(y).toFixed(1)}`).join("") }));
}

/** The weights of each head, queries in rows and keys in columns. @param {Picture} picture */
function mapsOf({ weights, rows, columns }) {
  const named = columns.length <= 16;
  const [side, top] = named ? [84, 72] : [8, 8];
  const cell = Math.min(30, 340 / columns.length);
  const [red, green, blue] = heatColour();
  return h("div", { class: "beside" }, weights.map((head, k) => {
    const [wide, high] = [side + cell * columns.length + 8, top + cell * rows.length + 8];
    return svg("svg", { viewBox: `0 0 ${wide.toFixed(0)} ${high.toFixed(0)}`, class: "train-map", role: "img", "aria-label": `weights of head ${k + 1}: queries in rows, keys in columns` },
      named && rows.map((word, i) => svg("text", { x: side - 6, y: top + cell * (i + 0.68), class: "end", "font-size": 13 }, word)),
      named && columns.map((word, j) => svg("text", { transform: `translate(${side + cell * (j + 0.7)} ${top - 6}) rotate(-60)`, "font-size": 13 }, word)),
      head.flatMap((row, i) => row.map((w, j) => w > 0.004 && svg("rect", { x: side + cell * j, y: top + cell * i, width: cell, height: cell, fill: `rgb(${red} ${green} ${blue})`, "fill-opacity": Math.sqrt(Math.min(1, w)).toFixed(3) }))),
      svg("rect", { x: side, y: top, width: cell * columns.length, height: cell * rows.length, class: "frame" }));
  }));
}

/** @param {number[][]} pairs @param {string[]} names @param {string} unit */
function verdict(pairs, names, unit) {
  if (!pairs.length) return h("p", { class: "says", "aria-live": "polite" }, "Training the first pair…");
  const { mean, low, high } = interval(pairs);
  const known = pairs.length > 1;
  const none = !known || (low <= 0 && high >= 0);
  const reach = Math.max(0.02, ...(known ? [Math.abs(low), Math.abs(high)] : [Math.abs(mean)])) * 1.1;
  const px = (/** @type {number} */ x) => WIDE / 2 + (Math.max(-reach, Math.min(reach, x)) / reach) * (WIDE / 2 - 30);
  return h("div", {},
    h("p", { class: "says", "aria-live": "polite" }, `${pairs.length} of ${SEEDS} seeds: ${unit} of B − A = ${num(mean, 3)}${known ? `, 95 % interval ${num(low, 3)} to ${num(high, 3)}` : ""}. `,
      h("b", {}, none ? "No evidence of a difference." : `${mean > 0 ? names[1] : names[0]} is better.`)),
    svg("svg", { viewBox: `0 0 ${WIDE} 90`, class: "lesson-figure", role: "img", "aria-label": "paired differences by seed and their interval" },
      svg("path", { d: `M${WIDE / 2} 8V70`, class: "reference" }), svg("text", { x: WIDE / 2, y: 86, class: "mid soft", "font-size": 12 }, "0"),
      pairs.map(([a, b]) => svg("circle", { cx: px(b - a), cy: 24, r: 4, class: "dot look0" })),
      known && svg("path", { d: `M${px(low)} 52H${px(high)}`, class: "line look0" }), svg("circle", { cx: px(mean), cy: 52, r: 5, class: "dot look1" })));
}

/** @param {import("./learn.js").Kept} kept */
export function trainLesson(kept) {
  const worker = startWorker();
  const first = kept.word("task", "regression");
  let task = first in TASKS ? first : "regression";
  /** @type {any} */
  let settings = restored();
  /** The settings that B is compared with. @type {any} */
  let other = null;
  let playing = false;
  /** How many trainings and comparisons were begun; late messages of earlier ones are left out. */
  const begun = { seen: 0, pair: 0 };
  /** @type {number[][]} */
  let losses = [];
  /** @type {number[][]} */
  let scores = [];
  /** @type {number[][]} */
  let pairs = [];
  /** @type {Picture | null} */
  let picture = null;
  const fields = h("div", { class: "row-of-fields" });
  const says = h("p", {});
  const told = h("p", { class: "says" });
  const solved = h("p", { class: "status", role: "status" });
  const place = h("div", { class: "pair two" });
  const against = h("div", {});
  const button = h("button", { type: "button", class: "main", onclick: () => run(!playing) }, "Train");

  /** The settings of the task, with what the URL says of them. */
  function restored() {
    const usual = /** @type {Record<string, any>} */ ({ network: TASKS[task].networks[0] ?? "", seed: 1, points: 40, noise: 0.3, ...TASKS[task].usual, task });
    const allowed = /** @type {Record<string, string[]>} */ ({ score: scoresOf(), normalize: Object.keys(NORMALIZERS), mask: Object.keys(MASKS), position: POSITIONS, network: TASKS[task].networks });
    for (const [key, names] of Object.entries(allowed)) if (names.includes(kept.word(key, ""))) usual[key] = kept.word(key, "");
    usual.seed = Math.round(kept.number("seed", usual.seed, 1, 1e6));
    usual.rate = kept.number("rate", usual.rate, 0.001, 0.3);
    usual.heads = [1, 2, 4].includes(kept.number("heads", 1, 1, 4)) && task !== "regression" ? kept.number("heads", 1, 1, 4) : 1;
    usual.points = Math.round(kept.number("points", usual.points, 5, 80));
    usual.noise = kept.number("noise", usual.noise, 0, 1);
    return usual;
  }

  /** Scores that can be used here: a kernel for the regression, any other for vectors. */
  function scoresOf() {
    const kernels = ["gaussian", "epanechnikov", "boxcar"];
    return task === "regression" ? kernels : Object.keys(SCORES).filter((name) => name !== "boxcar");
  }

  function set(/** @type {Record<string, any>} */ changes) {
    settings = { ...settings, ...changes };
    if (changes.score && task === "regression") settings.normalize = changes.score === "gaussian" ? "softmax" : "sum";
    kept.keep({ ...changes, normalize: settings.normalize });
    compared();
    reset();
  }

  function pick(/** @type {string} */ name) {
    task = name;
    settings = { network: TASKS[task].networks[0] ?? "", seed: 1, points: 40, noise: 0.3, ...TASKS[task].usual, task };
    other = null;
    kept.keep({ ...settings });
    controls();
    reset();
  }

  function run(/** @type {boolean} */ on) {
    playing = on;
    button.textContent = on ? "Pause" : "Train";
    worker.postMessage({ kind: on ? "play" : "pause" });
  }

  function reset() {
    run(false);
    [losses, scores, picture] = [[], [], null];
    solved.textContent = "";
    begun.pair += 1;
    worker.postMessage({ kind: "begin", settings, number: ++begun.seen });
  }

  function controls() {
    const names = (/** @type {string[]} */ all) => /** @type {[string, string][]} */ (all.map((name) => [name, name]));
    const select = (/** @type {string} */ label, /** @type {string} */ key, /** @type {string[]} */ all) => choice(label, names(all), String(settings[key]), (value) => {
      set({ [key]: key === "heads" ? +value : value });
      if (key === "score" || key === "network") controls();
    });
    const { networks } = TASKS[task];
    says.textContent = TASKS[task].says;
    fields.replaceChildren(
      choice("Task", Object.entries(TASKS).map(([name, { title }]) => [name, title]), task, pick),
      ...(networks.length ? [select("Network", "network", networks)] : []),
      select("Score", "score", scoresOf()), select("Normaliser", "normalize", Object.keys(NORMALIZERS)),
      ...(task === "regression" ? [
        slider("Points", { min: 5, max: 80, step: 1, value: settings.points, says: (v) => String(v) }, (v) => set({ points: v })),
        slider("Noise", { min: 0, max: 1, step: 0.05, value: settings.noise, says: (v) => v.toFixed(2) }, (v) => set({ noise: v })),
      ] : [...(settings.network === "recurrent" ? [] : [select("Mask", "mask", Object.keys(MASKS))]), select("Position", "position", POSITIONS), select("Heads", "heads", ["1", "2", "4"])]),
      slider("Rate", { min: -3, max: -0.5, step: 0.05, value: Math.log10(settings.rate), says: (v) => (10 ** v).toPrecision(2) }, (v) => set({ rate: +(10 ** v).toPrecision(2) })),
      slider("Seed", { min: 1, max: 50, step: 1, value: settings.seed, says: (v) => String(v) }, (v) => set({ seed: v })));
    compared();
  }

  /** What A and B differ in. @param {any} a @param {any} b */
  function names(a, b) {
    const keys = ["network", "score", "normalize", "mask", "position", "heads", "rate", "points", "noise"].filter((key) => a[key] !== b[key]);
    return [a, b].map((each, i) => `${"AB"[i]}${keys.length ? ` (${keys.map((key) => `${key} ${each[key]}`).join(", ")})` : ""}`);
  }

  function compared() {
    const [a, b] = other ? names(other, settings) : ["", ""];
    against.replaceChildren(
      h("p", {}, other ? `Now change a control: that is B. ${a} against ${b}.` : "Keep the settings as A, change a control for B, and train both with the same ten seeds."),
      h("div", { class: "row-of-fields" },
        h("button", { type: "button", onclick: () => { other = { ...settings }; pairs = []; begun.pair += 1; compared(); } }, "Keep these settings as A"),
        h("button", { type: "button", disabled: !other, onclick: () => { run(false); pairs = []; worker.postMessage({ kind: "compare", settings: [other, settings], seeds: SEEDS, number: ++begun.pair }); against.lastChild.replaceWith(verdict(pairs, [a, b], TASKS[task].unit)); } }, "Compare A and B over ten seeds")),
      h("div", {}));
  }

  function draw() {
    if (!picture) return;
    const now = picture;
    const [step, loss] = losses.at(-1) ?? [0, 0];
    told.textContent = `step ${step}${step ? `: loss ${num(loss)}, ${TASKS[task].unit} ${num(scores.at(-1)?.[1] ?? Number.NaN)}` : ""}. ${now.says}`;
    place.replaceChildren(
      ...(now.curve ? [figure({ title: "Points and prediction", node: curveOf(now), rows: () => [["x", "y"], ...(now.points ?? []).map((p) => [p.x, p.y])] })] : []),
      figure({ title: "Weights", node: mapsOf(now), says: "Queries in rows, keys in columns; the square root of each weight.", rows: () => [["head", "query", ...now.columns], ...now.weights.flatMap((head, k) => head.map((row, i) => [k + 1, now.rows[i], ...row]))] }),
      figure({ title: "Loss", node: chart("loss", losses, 0), rows: () => [["step", "loss"], ...losses] }),
      figure({ title: TASKS[task].unit, node: chart(TASKS[task].unit, scores, 1), rows: () => [["step", TASKS[task].unit], ...scores] }));
  }

  worker.onmessage = ({ data }) => {
    if (!place.isConnected && picture) return worker.terminate(); // another lesson is shown
    if (data.number !== begun[/** @type {"seen" | "pair"} */ (data.kind)]) return undefined;
    if (data.kind === "pair") {
      pairs = [...pairs, data.scores];
      against.lastChild.replaceWith(verdict(pairs, names(other, settings), TASKS[task].unit));
      return undefined;
    }
    picture = data.picture;
    if (Number.isFinite(data.loss)) losses.push([data.steps, data.loss]);
    if (Number.isFinite(data.score)) scores.push([data.steps, data.score]);
    if (playing && data.score >= TASKS[task].solved && !solved.textContent) {
      solved.textContent = `Solved after ${data.steps} steps and ${data.seconds.toFixed(1)} s of training.`;
      run(false);
    }
    return draw();
  };
  controls();
  reset();
  return h("div", {}, says,
    h("div", { class: "card" }, fields, h("div", { class: "row-of-fields buttons" }, button,
      h("button", { type: "button", onclick: () => { run(false); worker.postMessage({ kind: "step" }); } }, "One step"),
      h("button", { type: "button", onclick: reset }, "Reset")), told, solved), place,
    h("section", { class: "card" }, h("h2", {}, "Two settings, ten seeds"), against));
}
