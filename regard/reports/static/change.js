// Change the model and see the answer move: heads off, states of another text, attribution to words.
import { ask } from "./ask.js";
import { choice, h, num, percent, shown } from "./dom.js";

/** Say an answer in one line. @param {any} answer */
function line(answer) {
  if (answer.written !== undefined) return answer.written || "(nothing)";
  if (answer.tags !== undefined) return answer.words.map((/** @type {string} */ word, /** @type {number} */ i) => `${word} ${answer.tags[i]}`).join(", ");
  if (answer.probabilities === undefined) return num(answer.value, 3);
  return `${answer.label}, ${percent(answer.probabilities[answer.label], 1)} sure`;
}

/** Answers beside one another, with the probability of every label in each. @param {[string, any][]} answers */
function beside(answers) {
  const labels = Object.keys(answers[0][1].probabilities ?? {}).slice(0, 12);
  const rows = [["answer", ...answers.map(([, answer]) => line(answer))], ...labels.map((label) => [label, ...answers.map(([, answer]) => percent(answer.probabilities[label] ?? 0, 1))])];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Answers" }, h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, ""), answers.map(([name]) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { dir: "auto" }, cell)))))));
}

/** Both attributions of each word, as a table. @param {any} found */
function attributions(found) {
  const rows = found.tokens.map((/** @type {string} */ token, /** @type {number} */ i) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, token),
    h("td", {}, num(found.integrated_gradients[i], 4)), h("td", {}, found.attention_gradients ? num(found.attention_gradients[i], 4) : "–")));
  return h("div", {}, h("p", {}, `Spearman’s ρ: ${found.spearman === null ? "–" : num(found.spearman, 2)}. ${found.says}`),
    h("p", { class: "note" }, `Integrated gradients add up to ${num(found.integrated_gradients.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0), 4)}; the score of the answer less that with all word vectors at zero is ${num(found.output - found.baseline, 4)}. Their difference is the error of the sum over 32 steps.`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attribution" }, h("table", {},
      h("thead", {}, h("tr", {}, ["word", "integrated gradients", "attention × gradient"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows))));
}

/**
 * The panel below the heads.
 * @param {() => {run: string, text: string}} now
 */
export function changePanel(now) {
  const body = h("div", {});
  const node = h("details", { class: "card change", ontoggle: () => node.open && begin() }, h("summary", {}, "Change the model: heads off, patching, attribution"), body);
  let known = "";

  /** Ask, and show the result or the reason why there is none. @param {any} place @param {string} path @param {any} more @param {(found: any) => any} build */
  async function fill(place, path, more, build) {
    place.replaceChildren(h("p", { class: "soft" }, "running…"));
    try {
      place.replaceChildren(build(await ask(path, { ...now(), ...more })));
    } catch (error) {
      place.replaceChildren(h("p", { class: "problem", role: "alert" }, shown(/** @type {any} */ (error).message)));
    }
  }

  async function begin() {
    const { run } = now();
    if (known === run) return;
    known = run;
    try {
      const parts = await ask("/parts", { run });
      body.replaceChildren(off(parts.heads, parts.names), patching(parts.blocks, parts.names), attributing());
    } catch (error) {
      known = "";
      body.replaceChildren(h("p", { class: "problem", role: "alert" }, shown(/** @type {any} */ (error).message)));
    }
  }

  /** @param {Record<string, number>} heads @param {Record<string, string>} names */
  function off(heads, names) {
    const place = h("div", { "aria-live": "polite" });
    /** @type {Map<string, {layer: string, head: number}>} */
    const chosen = new Map();
    const set = (/** @type {string} */ layer, /** @type {number} */ head, /** @type {boolean} */ on) => {
      if (on) chosen.set(`${layer} ${head}`, { layer, head });
      else chosen.delete(`${layer} ${head}`);
      if (chosen.size) fill(place, "/without", { heads: [...chosen.values()] }, (found) => beside([["before", found.before], ["without", found.after]]));
      else place.replaceChildren();
    };
    const rows = Object.entries(heads).map(([layer, count]) => h("fieldset", {}, h("legend", { title: layer }, names[layer]), Array.from({ length: count }, (_, i) => h("label", { class: "field check" },
      h("input", { type: "checkbox", onchange: (/** @type {any} */ event) => set(layer, i + 1, event.target.checked) }), h("span", {}, `head ${i + 1}`)))));
    return h("section", {}, h("h3", {}, "Heads off"), h("p", { class: "note" }, rows.length ? "Choose heads to switch off. Their output is zero before the output projection." : "This model has no attention by heads, so none can be switched off."), rows, place);
  }

  /** @param {string[]} blocks @param {Record<string, string>} names */
  function patching(blocks, names) {
    const title = h("h3", {}, "Patching");
    if (!blocks.length) return h("section", {}, title, h("p", { class: "empty" }, "This model has no stack of attention blocks, so there are no states to exchange."));
    const place = h("div", { "aria-live": "polite" });
    let block = blocks[0];
    const other = h("input", { type: "text", "aria-label": "Other text", placeholder: "Another text" });
    const at = h("input", { type: "text", "aria-label": "Positions", placeholder: "Positions from 0, such as 1 2; empty: all" });
    const go = () => {
      const positions = at.value.match(/\d+/g)?.map(Number) ?? null;
      if (!other.value.trim()) place.replaceChildren(h("p", { class: "empty" }, "Type another text first."));
      else fill(place, "/patch", { other: other.value, block, positions }, (found) => beside([["this text", found.before], ["patched", found.after], ["other text", found.other]]));
    };
    return h("section", {}, title, h("p", { class: "note" }, "Take the states after one block from another text into this one."),
      other, at, h("div", { class: "row-of-fields" }, choice("Block", blocks.map((name) => [name, names[name]]), block, (name) => { block = name; }), h("button", { type: "button", onclick: go }, "Patch")), place);
  }

  function attributing() {
    const place = h("div", { "aria-live": "polite" });
    return h("section", {}, h("h3", {}, "Attribution"), h("p", { class: "note" }, "How much each word added to the answer, beside the attention it got."),
      h("button", { type: "button", onclick: () => fill(place, "/attribute", {}, attributions) }, "Attribute the answer"), place);
  }

  return Object.assign(node, { again() {
    known = "";
    body.replaceChildren();
    if (node.open) begin();
  } });
}
