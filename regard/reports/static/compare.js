// Compare: two runs on one text, where they disagree on the test split, and a comparison's table.
import { ask, writeState } from "./ask.js";
import { h, num, percent, settled, shown, svg } from "./dom.js";
import { telling } from "./heads.js";
import { runPicker, textField } from "./picker.js";
import { figure, takingAlong } from "./save.js";
import { Tokens } from "./tokens.js";
import { answerCard, lookAt } from "./try.js";

const PAUSE = 150;

/** What each token of the text receives in a look: its pool, or its last layer that looks at it. @param {import("./packed.js").Look} look */
async function receivedBy(look) {
  const { layers } = look;
  if (!layers.length) return null;
  const chosen = telling(look);
  const head = await look.mean(chosen);
  const tokens = look.keys(chosen);
  const cls = tokens[0] === "[CLS]"; // it alone asks for the answer
  return { tokens: cls ? tokens.slice(1) : tokens, weights: cls ? head.row(0).slice(1) : head.received(), name: cls ? `${layers[chosen].name}, from [CLS],` : layers[chosen].name };
}

/** @param {{runs: import("./ask.js").RunRow[], comparisons: string[], state: Record<string, string>}} context */
export function compareView(context) {
  const able = context.runs.filter((run) => !run.error);
  const named = (/** @type {string} */ name) => able.find((run) => run.name === name);
  let a = named(context.state.a) ?? able.find((run) => run.attends) ?? able[0];
  const alike = (/** @type {any} */ run) => run !== a && run.task === a.task && run.model !== a.model && run.attends;
  let b = named(context.state.b) ?? able.find(alike) ?? able.find((run) => run !== a && run.task === a.task) ?? able.find((run) => run !== a) ?? a;
  let text = context.state.text ?? "";
  let turn = 0;
  const sides = h("div", { class: "pair two", "aria-live": "polite" });
  const apart = h("div", {});
  const table = h("div", {});
  const field = textField(text, settled((now) => {
    text = now;
    writeState({ text });
    look();
  }, PAUSE));

  async function side(/** @type {import("./ask.js").RunRow} */ run) {
    try {
      const found = await lookAt(run.name, text);
      return { run, answer: found.data.answer, seen: await receivedBy(found) };
    } catch (error) {
      return { run, error: shown(/** @type {any} */ (error).message) };
    }
  }

  async function look() {
    const mine = ++turn;
    if (!text.trim()) return sides.replaceChildren(h("p", { class: "empty" }, "Type a text, or take one of the examples."));
    if (!sides.children.length) sides.replaceChildren(h("p", { class: "empty", role: "status" }, "Asking both models…"));
    const both = [await side(a), await side(b)];
    if (mine !== turn) return undefined;
    const seen = both.map((one) => /** @type {any} */ (one).seen);
    const same = seen[0] && seen[1] && seen[0].tokens.join("\u0000") === seen[1].tokens.join("\u0000");
    sides.replaceChildren(...both.map((one, i) => h("section", { class: "card", "aria-label": one.run.name },
      h("h3", {}, `${"AB"[i]} · ${one.run.name}`), one.error ? h("p", { class: "problem", role: "alert" }, one.error) : answerCard(one.answer),
      ...(seen[i] ? strip(seen[i]) : one.error ? [] : [h("p", { class: "soft" }, "no attention to look at")]))));
    const said = both.map((one) => /** @type {any} */ (one).answer?.probabilities);
    if (said[0] && said[1] && Object.keys(said[0]).every((label) => label in said[1])) sides.append(answers(said[0], said[1]));
    if (same) sides.append(difference(seen[0], seen[1]));
    return undefined;
  }

  function strip(/** @type {any} */ seen) {
    const tokens = new Tokens(`The text by ${seen.name}`, seen.tokens, { pick: (i) => tokens.mark(i) });
    tokens.shade(seen.weights);
    return [h("h4", {}, `What its ${seen.name} looks at`), tokens.node];
  }

  /** How differently they answer: labels by how far apart their probabilities are. @param {Record<string, number>} ours @param {Record<string, number>} theirs */
  function answers(ours, theirs) {
    const gap = (/** @type {string} */ label) => 100 * (ours[label] - theirs[label]);
    const order = Object.keys(ours).sort((p, q) => Math.abs(gap(q)) - Math.abs(gap(p)));
    const signed = (/** @type {number} */ points) => `${points > 0 ? "+" : ""}${num(points, 1)}`;
    const title = "How differently they answer";
    const numbers = () => [["label", "A", "B", "A − B"], ...order.map((label) => [label, ours[label], theirs[label], ours[label] - theirs[label]])];
    return h("section", { class: "card", "aria-label": title }, h("div", { class: "figure-head" }, h("h3", {}, title), takingAlong(title, null, numbers)),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "probabilities of both" }, h("table", {},
        h("thead", {}, h("tr", {}, ["label", "A", "B", "A − B, points"].map((word) => h("th", { scope: "col" }, word)))),
        h("tbody", {}, order.slice(0, 12).map((label) => h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, percent(ours[label], 1)), h("td", {}, percent(theirs[label], 1)), h("td", {}, signed(gap(label)))))))));
  }

  function difference(/** @type {any} */ ours, /** @type {any} */ theirs) {
    const gaps = Array.from(ours.weights, (/** @type {number} */ w, /** @type {number} */ i) => w - theirs.weights[i]);
    const places = gaps.map((_, i) => i).sort((x, y) => Math.abs(gaps[y]) - Math.abs(gaps[x])).slice(0, 12);
    const most = Math.max(...places.map((i) => Math.abs(gaps[i])), 1e-9);
    const high = 26 * places.length + 34;
    const drawn = svg("svg", { viewBox: `0 0 640 ${high}`, class: "middle", role: "img", "aria-label": "Differences of weight word by word" },
      svg("text", { x: 200, y: 16, "text-anchor": "middle", class: "soft", "font-size": 13 }, "← B looks more"), svg("text", { x: 520, y: 16, "text-anchor": "middle", class: "soft", "font-size": 13 }, "A looks more →"),
      places.map((i, row) => {
        const wide = (170 * Math.abs(gaps[i])) / most;
        const y = 30 + 26 * row;
        return [svg("rect", { x: gaps[i] > 0 ? 360 : 360 - wide, y, width: wide, height: 17, rx: 2, class: gaps[i] > 0 ? "heat" : "cold" }),
          svg("text", { x: 8, y: y + 13, "font-size": 14 }, shown(ours.tokens[i]).slice(0, 22)), svg("text", { x: 632, y: y + 13, "text-anchor": "end", class: "soft", "font-size": 13 }, num(gaps[i]))];
      }));
    return figure({ title: "Where they look differently", node: drawn, says: "The twelve words whose weights differ most.",
      rows: () => [["word", "place", "A", "B", "difference"], ...gaps.map((gap, i) => [ours.tokens[i], i, ours.weights[i], theirs.weights[i], gap])] });
  }

  async function disagree() {
    writeState({ apart: "shown" });
    apart.replaceChildren(h("p", { class: "soft" }, "Reading the test split…"));
    try {
      const found = await ask(`/disagreements?a=${encodeURIComponent(a.name)}&b=${encodeURIComponent(b.name)}`);
      const { right } = found;
      const total = right.both + right.a + right.b + right.neither;
      const cell = (/** @type {number} */ n) => h("td", {}, `${n.toLocaleString("en")} (${percent(n / total, 1)})`);
      apart.replaceChildren(h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "who is right" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, ""), h("th", {}, "B is right"), h("th", {}, "B is wrong"))),
        h("tbody", {}, h("tr", {}, h("th", { scope: "row" }, "A is right"), cell(right.both), cell(right.a)), h("tr", {}, h("th", { scope: "row" }, "A is wrong"), cell(right.b), cell(right.neither))))),
      h("ul", { class: "texts" }, found.shown.map((/** @type {any} */ row) => h("li", {}, h("button", { type: "button", class: "quiet text", onclick: () => {
        field.set(row.text);
        field.field.scrollIntoView({ block: "center" });
      } }, row.text.length > 220 ? `${row.text.slice(0, 219)}…` : row.text),
      h("span", { class: "soft" }, ` in truth ${row.truth}; `), h("span", { class: row.right === "a" ? "right" : "wrong" }, `A ${row.a}`), " ", h("span", { class: row.right === "b" ? "right" : "wrong" }, `B ${row.b}`)))));
    } catch (error) {
      apart.replaceChildren(h("p", { class: "problem" }, shown(/** @type {any} */ (error).message)));
    }
  }

  function begin(first = false) {
    writeState({ a: a.name, b: b.name, apart: "" });
    apart.replaceChildren(h("button", { type: "button", onclick: disagree }, "Show the texts on which one of them is right"));
    if (!first) look();
  }
  field.offer(a.name, async (texts) => {
    if (!text && texts.length) {
      text = texts[0];
      field.field.value = text;
    }
    await look();
    if (opened) disagree(); // it takes a while: after what is seen at once
  });
  const { apart: opened } = context.state;
  begin(true);
  if (context.comparisons.length) comparisonTable(context, table);
  return h("div", { class: "view" }, h("h1", {}, "Compare"), h("p", { class: "lead" }, "Two models on one text: what they answer, and where they look."),
    h("div", { class: "card" }, h("div", { class: "row-of-fields" },
      runPicker("A", able, a.name, (name) => { a = named(name) ?? a; begin(); }), runPicker("B", able, b.name, (name) => { b = named(name) ?? b; begin(); })), field.node),
    sides, h("section", { class: "card" }, h("h2", {}, "Where they disagree"), apart), table);
}

/** A comparison's arms with their intervals, sorted by any column. @param {any} context @param {any} place */
async function comparisonTable(context, place) {
  const names = context.comparisons;
  const name = names.includes(context.state.comparison) ? context.state.comparison : names[0];
  let found;
  try {
    found = await ask(`/comparison?name=${encodeURIComponent(name)}`);
  } catch (error) {
    return place.replaceChildren(h("p", { class: "problem" }, shown(/** @type {any} */ (error).message)));
  }
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
  const [, column, way] = /^(\d)(up|down)$/.exec(context.state.sort ?? "") ?? ["", "1", found.lower ? "up" : "down"];
  let by = Math.min(+column, columns.length - 1);
  let down = way === "down";
  const body = h("tbody", {});
  const heads = columns.map(([title], k) => h("th", {}, h("button", { type: "button", onclick: () => {
    down = by === k ? !down : true;
    by = k;
    context.state.sort = `${by}${down ? "down" : "up"}`;
    writeState({ sort: context.state.sort });
    sort();
  } }, title)));
  function sort() {
    const worth = columns[by][1];
    const order = [...arms].sort((p, q) => (typeof worth(p) === "number" ? worth(p) - worth(q) : String(worth(p)).localeCompare(String(worth(q)))) * (down ? -1 : 1));
    heads.forEach((head, k) => (k === by ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    body.replaceChildren(...order.map((arm) => h("tr", {}, columns.map(([, , cell]) => h("td", {}, cell(arm))))));
  }
  sort();
  const picker = names.length > 1 && h("label", { class: "field" }, h("span", {}, "Comparison"), h("select", { onchange: (/** @type {any} */ e) => {
    context.state.comparison = e.target.value;
    writeState({ comparison: e.target.value });
    comparisonTable(context, place);
  } }, names.map((/** @type {string} */ n) => h("option", { value: n, selected: n === name }, n))));
  const numbers = () => [["arm", found.metric, "low", "high", "seeds", "seconds", "peak MB", "parameters"], ...arms.map((/** @type {any} */ arm) =>
    [arm.name, arm.mean, arm.low, arm.high, arm.seeds, arm.seconds, arm.peak_mb, arm.parameters].map((value) => value ?? ""))];
  const title = found.question ?? "The comparison";
  return place.replaceChildren(h("section", { class: "card" }, h("div", { class: "figure-head" }, h("h2", {}, title), takingAlong(title, () => intervals(arms, metric, score, found.lower), numbers)), picker,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "results" }, h("table", { class: "results" }, h("thead", {}, h("tr", {}, heads)), body)),
    h("details", {}, h("summary", {}, "Each verdict in words"), h("ul", { class: "verdicts" }, (found.verdicts ?? []).slice(0, 60).map((/** @type {any} */ v) => h("li", {}, v.says))))));
}

/** Each arm's mean and interval, the best above. @param {any[]} arms @param {string} metric and its unit
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
