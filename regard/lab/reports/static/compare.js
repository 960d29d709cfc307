// Compare: two runs on one text, their disagreements on the test split, and a comparison's table.
import { answerCard } from "./answer.js";
import { Apart } from "./apart.js";
import { writeState } from "./ask.js";
import { comparisonOf, comparisonTable } from "./comparison.js";
import { failure, h, num, percent, settled, shown, svg } from "./dom.js";
import { telling } from "./heads.js";
import { runPicker, textField } from "./picker.js";
import { figure, downloadButtons } from "./save.js";
import { Tokens } from "./tokens.js";
import { lookAt } from "./try.js";

const PAUSE = 150;

/** Return the weight each token receives: in the pool, or in the last layer that attends to the text. @param {import("./packed.js").Look} look */
async function receivedBy(look) {
  const { layers } = look;
  if (!layers.length) return null;
  const chosen = telling(look);
  const head = await look.mean(chosen);
  const tokens = look.keys(chosen);
  const cls = tokens[0] === "[CLS]"; // only [CLS] feeds the answer
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
  const apart = new Apart((chosen) => {
    field.set(chosen);
    field.field.scrollIntoView({ block: "center" });
  });
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
      return { run, error };
    }
  }

  async function look() {
    const mine = ++turn;
    if (!text.trim()) return sides.replaceChildren(h("p", { class: "empty" }, "Type a text or choose an example."));
    if (!sides.children.length) sides.replaceChildren(h("p", { class: "empty", role: "status" }, "Running both models…"));
    const both = [await side(a), await side(b)];
    if (mine !== turn) return undefined;
    const seen = both.map((one) => /** @type {any} */ (one).seen);
    const same = seen[0] && seen[1] && seen[0].tokens.join("\u0000") === seen[1].tokens.join("\u0000");
    sides.replaceChildren(...both.map((one, i) => h("section", { class: "card", "aria-label": one.run.name },
      h("h3", {}, `${"AB"[i]} · ${one.run.name}`), one.error ? failure(one.error, look) : answerCard(one.answer),
      ...(seen[i] ? strip(seen[i]) : one.error ? [] : [h("p", { class: "soft" }, `${one.run.model} has no attention layer: only the answers are compared. Choose a model with attention to compare weights.`)]))));
    const said = both.map((one) => /** @type {any} */ (one).answer?.probabilities);
    if (said[0] && said[1] && Object.keys(said[0]).every((label) => label in said[1])) sides.append(answers(said[0], said[1]));
    if (same) sides.append(difference(seen[0], seen[1]));
    return undefined;
  }

  function strip(/** @type {any} */ seen) {
    const tokens = new Tokens(`The text by ${seen.name}`, seen.tokens, { pick: (i) => tokens.mark(i) });
    tokens.shade(seen.weights);
    return [h("h4", {}, `Attention: ${seen.name}`), tokens.node];
  }

  /** Table of labels sorted by the difference of their probabilities. @param {Record<string, number>} inA @param {Record<string, number>} inB */
  function answers(inA, inB) {
    const gap = (/** @type {string} */ label) => 100 * (inA[label] - inB[label]);
    const order = Object.keys(inA).sort((p, q) => Math.abs(gap(q)) - Math.abs(gap(p)));
    const signed = (/** @type {number} */ points) => `${points > 0 ? "+" : ""}${num(points, 1)}`;
    const title = "Differences between the answers";
    const numbers = () => [["label", "A", "B", "A − B"], ...order.map((label) => [label, inA[label], inB[label], inA[label] - inB[label]])];
    return h("section", { class: "card", "aria-label": title }, h("div", { class: "figure-head" }, h("h3", {}, title), downloadButtons(title, null, numbers)),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "probabilities of both" }, h("table", {},
        h("thead", {}, h("tr", {}, ["label", "A", "B", "A − B, points"].map((word) => h("th", { scope: "col" }, word)))),
        h("tbody", {}, order.slice(0, 12).map((label) => h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, percent(inA[label], 1)), h("td", {}, percent(inB[label], 1)), h("td", {}, signed(gap(label)))))))));
  }

  function difference(/** @type {any} */ inA, /** @type {any} */ inB) {
    const gaps = Array.from(inA.weights, (/** @type {number} */ w, /** @type {number} */ i) => w - inB.weights[i]);
    const places = gaps.map((_, i) => i).sort((x, y) => Math.abs(gaps[y]) - Math.abs(gaps[x])).slice(0, 12);
    const most = Math.max(...places.map((i) => Math.abs(gaps[i])), 1e-9);
    const high = 26 * places.length + 34;
    const drawn = svg("svg", { viewBox: `0 0 640 ${high}`, class: "middle", role: "img", "aria-label": "Differences of weight per word" },
      svg("text", { x: 200, y: 16, "text-anchor": "middle", class: "soft", "font-size": 13 }, "← more weight in B"), svg("text", { x: 520, y: 16, "text-anchor": "middle", class: "soft", "font-size": 13 }, "more weight in A →"),
      places.map((i, row) => {
        const wide = (170 * Math.abs(gaps[i])) / most;
        const y = 30 + 26 * row;
        return [svg("rect", { x: gaps[i] > 0 ? 360 : 360 - wide, y, width: wide, height: 17, rx: 2, class: gaps[i] > 0 ? "heat" : "cold" }),
          svg("text", { x: 8, y: y + 13, "font-size": 14 }, shown(inA.tokens[i]).slice(0, 22)), svg("text", { x: 632, y: y + 13, "text-anchor": "end", class: "soft", "font-size": 13 }, num(gaps[i]))];
      }));
    return figure({ title: "Differences in attention", node: drawn, says: "The twelve words whose weights differ most.",
      rows: () => [["word", "position", "A", "B", "difference"], ...gaps.map((gap, i) => [inA.tokens[i], i, inA.weights[i], inB.weights[i], gap])] });
  }

  function begin(first = false) {
    writeState({ a: a.name, b: b.name });
    apart.begin(a.name, b.name);
    compared();
    if (first) return;
    field.of(a);
    text = field.value; // may have been typed a moment ago
    if (!field.own(text)) offer();
    else look();
  }

  /** Offer examples of run A and drop those of another run. */
  function offer() {
    return field.offer(a, async (texts) => {
      if (!field.own(text)) {
        text = texts.includes(text) ? text : texts[0] ?? text;
        field.value = text;
      }
      await look();
    });
  }

  /** Show the selected comparison, or the one both runs belong to. */
  function compared() {
    const { comparisons, state } = context;
    if (!comparisons.length) {
      table.replaceChildren(h("section", { class: "card" }, h("h2", {}, "The comparison"), h("p", { class: "soft" }, "No comparison is served. Make one with ", h("code", {}, `regard compare ${a.task === "Hugging Face" || a.task === "your own" ? "classification" : a.task}`), " and serve its folder.")));
      return;
    }
    const name = comparisons.includes(state.comparison) ? state.comparison : comparisonOf(comparisons, a.name, b.name);
    comparisonTable(comparisons, name, table, (chosen, runs) => {
      state.comparison = chosen;
      writeState({ comparison: chosen });
      const [one, other] = runs.map(named).filter(Boolean);
      if (!one) return compared();
      a = one;
      b = other ?? b;
      mark();
      return begin();
    });
  }

  function mark() {
    for (const [picker, run] of /** @type {[any, any][]} */ ([[pickers[0], a], [pickers[1], b]])) picker.querySelector("select").value = run.name;
  }

  /** Switch to another run and its comparison. @param {() => void} change */
  function picked(change) {
    change();
    context.state.comparison = "";
    writeState({ comparison: "" });
    begin();
  }

  const pickers = [runPicker("A", able, a.name, (name) => picked(() => { a = named(name) ?? a; })),
    runPicker("B", able, b.name, (name) => picked(() => { b = named(name) ?? b; }))];
  const { state } = context;
  begin(true);
  offer().then(async () => { if (state.apart) await apart.again(state); }); // slow, so after what is visible at once
  return h("div", { class: "view" }, h("h1", {}, "Compare"), h("p", { class: "lead" }, "Two models on one text: their answers and their attention."),
    able.length < 2 && h("p", { class: "empty" }, "Only one run can be opened, so it is compared with itself. Train another one with ", h("code", {}, "regard train"), " and load this page again."),
    h("div", { class: "card" }, h("div", { class: "row-of-fields" }, pickers), field.node),
    sides, h("section", { class: "card" }, h("h2", {}, "Disagreements"), apart.node), table);
}
