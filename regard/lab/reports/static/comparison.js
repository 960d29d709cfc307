// A comparison's table: arms with their intervals and costs, and the verdicts in words.
import { ask, readState, writeState } from "./ask.js";
import { choice, failure, h, num, shown, svg } from "./dom.js";
import { downloadButtons } from "./save.js";

/** Return the comparison whose folder contains both runs, or one of them; "" if none. @param {string[]} names @param {string} a @param {string} b */
export function comparisonOf(names, a, b) {
  const held = (/** @type {string} */ name) => [a, b].filter((run) => run.startsWith(`${name}/`)).length;
  return [...names].sort((p, q) => held(q) - held(p) || q.length - p.length).find(held) ?? "";
}

/**
 * Show the arms of a comparison with their intervals in a sortable table.
 * @param {string[]} names @param {string} name empty: only the selector @param {any} place
 * @param {(name: string, runs: string[]) => void} pick called with another comparison and the first run of each arm, best arm first
 */
export async function comparisonTable(names, name, place, pick) {
  const turn = place.turn = (place.turn ?? 0) + 1;
  const picker = (names.length > 1 || !name) && choice("Comparison", [...(name ? [] : [/** @type {[string, string]} */ (["", "— choose one —"])]), ...names.map((/** @type {string} */ n) => /** @type {[string, string]} */ ([n, n]))], name, async (chosen) => {
    try {
      pick(chosen, runsOf(await ask(`/comparison?name=${encodeURIComponent(chosen)}`)));
    } catch {
      pick(chosen, []); // its error is shown in its place
    }
  });
  if (!name) return place.replaceChildren(h("section", { class: "card" }, h("h2", {}, "The comparison"), h("p", { class: "soft" }, "These two models are not part of one comparison. Choose a comparison to see its table."), picker));
  let found;
  try {
    found = await ask(`/comparison?name=${encodeURIComponent(name)}`);
  } catch (error) {
    return turn === place.turn && place.replaceChildren(h("section", { class: "card" }, picker, failure(error, () => comparisonTable(names, name, place, pick))));
  }
  if (turn !== place.turn) return undefined; // another one was chosen meanwhile
  const state = readState();
  const metric = found.unit ? `${found.metric},${found.unit}` : found.metric;
  const score = (/** @type {number} */ v) => ((found.times ?? 100) * v).toFixed(found.digits ?? 1);
  const arms = found.arms.filter((/** @type {any} */ arm) => Number.isFinite(arm.mean));
  const low = Math.min(...arms.map((/** @type {any} */ arm) => arm.low));
  const high = Math.max(...arms.map((/** @type {any} */ arm) => arm.high));
  const x = (/** @type {number} */ v) => 6 + (148 * (v - low)) / (high - low || 1);
  const interval = (/** @type {any} */ arm) => svg("svg", { viewBox: "0 0 160 18", class: "interval", role: "img", "aria-label": `${score(arm.low)} to ${score(arm.high)}${found.unit}` },
    svg("path", { d: `M${x(arm.low).toFixed(1)} 9H${x(arm.high).toFixed(1)}`, class: "bar attention" }), svg("circle", { cx: x(arm.mean), cy: 9, r: 4.5, class: "mark attention" }));
  /** @type {[string, (arm: any) => any, (arm: any) => any][]} */
  const columns = [
    ["arm", (arm) => arm.name, (arm) => arm.name], [metric, (arm) => arm.mean, (arm) => score(arm.mean)],
    ["95 % interval", (arm) => arm.low, (arm) => [interval(arm), ` ${score(arm.low)} to ${score(arm.high)}`]],
    ["seeds", (arm) => arm.seeds, (arm) => arm.seeds], ["seconds", (arm) => arm.seconds, (arm) => num(arm.seconds, 1)],
    ["peak MB", (arm) => arm.peak_mb, (arm) => num(arm.peak_mb, 0)], ["parameters", (arm) => arm.parameters, (arm) => num(arm.parameters, 0)]];
  const [, column, way] = /^(\d)(up|down)$/.exec(state.sort ?? "") ?? ["", "1", found.lower ? "up" : "down"];
  let by = Math.min(+column, columns.length - 1);
  let down = way === "down";
  const body = h("tbody", {});
  const heads = columns.map(([title], k) => h("th", {}, h("button", { type: "button", onclick: () => {
    down = by === k ? !down : true;
    by = k;
    writeState({ sort: `${by}${down ? "down" : "up"}` });
    sort();
  } }, title)));
  function sort() {
    const value = columns[by][1];
    const order = [...arms].sort((p, q) => (typeof value(p) === "number" ? value(p) - value(q) : String(value(p)).localeCompare(String(value(q)))) * (down ? -1 : 1));
    heads.forEach((head, k) => (k === by ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    body.replaceChildren(...order.map((arm) => h("tr", {}, columns.map(([, , cell]) => h("td", {}, cell(arm))))));
  }
  sort();
  const numbers = () => [["arm", found.metric, "low", "high", "seeds", "seconds", "peak MB", "parameters"], ...arms.map((/** @type {any} */ arm) =>
    [arm.name, arm.mean, arm.low, arm.high, arm.seeds, arm.seconds, arm.peak_mb, arm.parameters].map((value) => value ?? ""))];
  const title = found.question ?? "The comparison";
  return place.replaceChildren(h("section", { class: "card" }, h("div", { class: "figure-head" }, h("h2", {}, title), downloadButtons(title, () => intervals(arms, metric, score, found.lower), numbers)), picker,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "results" }, h("table", { class: "results" }, h("thead", {}, h("tr", {}, heads)), body)),
    h("details", {}, h("summary", {}, "Verdicts in words"), h("ul", { class: "verdicts" }, (found.verdicts ?? []).slice(0, 60).map((/** @type {any} */ v) => h("li", {}, v.says))))));
}

/** Return the first available run of each arm, best arm first. @param {any} found @returns {string[]} */
function runsOf(found) {
  const rank = (/** @type {any} */ arm) => (Number.isFinite(arm.mean) ? arm.mean : -Infinity) * (found.lower ? -1 : 1);
  return [...found.arms].sort((p, q) => rank(q) - rank(p)).map((arm) => (found.runs?.[arm.name] ?? [])[0]).filter(Boolean);
}

/** Draw each arm's mean and interval, best arm first. @param {any[]} arms @param {string} metric and its unit
 * @param {(v: number) => string} score @param {boolean} lower is better */
function intervals(arms, metric, score, lower) {
  const order = [...arms].sort((p, q) => (q.mean - p.mean) * (lower ? -1 : 1));
  const [low, high] = [Math.min(...arms.map((arm) => arm.low)), Math.max(...arms.map((arm) => arm.high))];
  const x = (/** @type {number} */ v) => 210 + (340 * (v - low)) / (high - low || 1);
  return svg("svg", { viewBox: `0 0 640 ${26 * order.length + 46}` }, svg("text", { x: 8, y: 20, class: "title", "font-size": 15 }, `${metric} (95 % interval)`),
    order.map((arm, i) => {
      const y = 46 + 26 * i;
      return [svg("text", { x: 8, y: y + 5, "font-size": 14 }, shown(arm.name).slice(0, 28)), svg("path", { d: `M${x(arm.low).toFixed(1)} ${y}H${x(arm.high).toFixed(1)}`, class: "bar attention" }),
        svg("circle", { cx: x(arm.mean), cy: y, r: 5, class: "mark attention" }), svg("text", { x: 632, y: y + 5, "text-anchor": "end", "font-size": 14 }, score(arm.mean))];
    }));
}
