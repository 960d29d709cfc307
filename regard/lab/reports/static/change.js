// Change the model and see the answer move: heads off, states of another text, attribution to words.
import { answerLine, isText } from "./answer.js";
import { ask } from "./ask.js";
import { choice, failure, h, num, percent } from "./dom.js";
import { readable } from "./tokens.js";

const LABELS = 12; // maximum labels in a table
const LEVELS = 8; // shades of a number
const NO_HEADS = "choose a model of self-attention, such as transformer, gpt or bert";

/** A table that scrolls by itself. @param {string} name @param {any[]} head @param {any[]} rows of cells, the first one a header; a text alone is a line of its own */
function table(name, head, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, h("table", {},
    h("thead", {}, h("tr", {}, head.map((cell) => (cell === "" ? h("td", {}) : h("th", { scope: "col" }, cell))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, typeof row === "string" ? h("th", { scope: "rowgroup", colspan: head.length, class: "over" }, row)
      : [h("th", { scope: "row", dir: "auto" }, row[0]), row.slice(1).map((/** @type {any} */ cell) => (cell instanceof Node ? cell : h("td", { dir: "auto" }, cell)))])))));
}

/** Answers side by side, texts one below the other; what differs from the first one is bold. @param {[string, any][]} answers */
function sideBySide(answers) {
  const [[, first]] = answers;
  const names = answers.map(([name]) => name);
  const cell = (/** @type {any} */ answer, /** @type {(answer: any) => string} */ say) => h("td", { dir: "auto", class: say(answer) === say(first) ? "" : "moved" }, say(answer));
  const row = (/** @type {string} */ name, /** @type {(answer: any) => string} */ say) => [name, ...answers.map(([, answer]) => cell(answer, say))];
  const node = h("div", {});
  if (first.tags && answers.every(([, answer]) => answer.words.join("\n") === first.words.join("\n"))) {
    node.append(table("Answers", ["word", ...names], first.words.map((/** @type {string} */ word, /** @type {number} */ i) => row(word, (answer) => answer.tags[i]))));
  } else if (isText(first)) {
    node.append(h("div", { class: "lines" }, table("Answers", ["", "answer"], answers.map(([name, answer]) => [name, cell(answer, answerLine)]))));
  } else {
    const labels = Object.keys(first.probabilities ?? {}).slice(0, LABELS);
    node.append(table("Answers", ["", ...names], [row("answer", answerLine), ...labels.map((label) => row(label, (answer) => percent(answer.probabilities[label] ?? 0, 1)))]));
  }
  if (first.next) {
    const word = (/** @type {any} */ next) => (next ? `${readable(next.token)} ${percent(next.probability, 1)}` : "–");
    const ranks = first.next.map((/** @type {any} */ _, /** @type {number} */ i) => row(String(i + 1), (answer) => word(answer.next?.[i])));
    node.append(h("h4", {}, "The likeliest next words"), h("div", { class: "ranks" }, table("The likeliest next words", ["rank", ...names], ranks)));
  }
  return node;
}

/** A number on a ground that is darker the larger it is. @param {number} value @param {number} most the largest size */
function shaded(value, most) {
  const level = most ? Math.round((LEVELS * Math.abs(value)) / most) : 0;
  return h("td", { class: level ? `h${level}${value < 0 ? " below" : ""}` : "" }, num(value, 4));
}

/** Both attributions of each word, as a table. @param {any} found @param {(choice: number) => void} pick */
export function attributions(found, pick) {
  const own = found.integrated_gradients;
  const ofAttention = found.attention_gradients;
  const [most, mostOfAttention] = [own, ofAttention ?? []].map((values) => Math.max(0, ...values.map(Math.abs)));
  const rows = found.tokens.map((/** @type {string} */ token, /** @type {number} */ i) => [readable(token), shaded(own[i], most), ...(ofAttention ? [shaded(ofAttention[i], mostOfAttention)] : [])]);
  if (found.sizes.length > 1) {
    rows.splice(found.sizes[0], 0, "written before it");
    rows.unshift("source");
  }
  const sum = own.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
  const explained = found.choices[found.choice];
  return h("div", {},
    h("div", { class: "row-of-fields" }, found.choices.length > 1 ? choice("Explain", found.choices.map((/** @type {string} */ name, /** @type {number} */ i) => [String(i), name]), String(found.choice), (index) => pick(+index)) : h("p", {}, `Explained: ${explained}`)),
    h("p", {}, `Its ${found.unit} is ${num(found.output, 3)}, and ${num(found.baseline, 3)} with all word vectors at zero.`),
    h("p", {}, `${ofAttention ? `Spearman’s ρ: ${found.spearman === null ? "–" : num(found.spearman, 2)}. ` : ""}${found.says}`),
    table("Attribution", ["word", "integrated gradients", ...(ofAttention ? ["attention × gradient"] : [])], rows),
    h("p", { class: "note" }, `Integrated gradients add up to ${num(sum, 4)}, the two values differ by ${num(found.output - found.baseline, 4)}: the rest is the error of a sum over ${found.steps} steps.`));
}

/**
 * The panel below the answer and the heads.
 * @param {() => {run: string, text: string}} now
 */
export function changePanel(now) {
  const body = h("div", {});
  const node = h("details", { class: "card change", ontoggle: () => node.open && begin() }, h("summary", {}, "Change the model: heads off, patching, attribution"), body);
  let known = "";
  /** @type {(() => void)[]} what to do when another text is typed */
  let onText = [];

  /** Ask, and show the result or the reason why there is none. @param {any} place @param {string} path @param {any} more @param {(found: any) => any} build */
  async function fill(place, path, more, build) {
    const turn = place.turn = (place.turn ?? 0) + 1;
    const asked = now();
    if (!asked.text.trim()) return place.replaceChildren(h("p", { class: "empty" }, "Type a text above first, or choose an example."));
    place.replaceChildren(h("p", { class: "soft", role: "status" }, "running…"));
    try {
      const found = await ask(path, { ...asked, ...more });
      if (turn === place.turn) place.replaceChildren(build(found));
    } catch (error) {
      if (turn === place.turn) place.replaceChildren(failure(error, () => fill(place, path, more, build)));
    }
    return undefined;
  }

  /** Remove a result, and ignore one that is still to come. @param {any} place @param {string} [why] */
  function clear(place, why = "") {
    place.turn = (place.turn ?? 0) + 1;
    const had = place.childElementCount > 0;
    place.replaceChildren(...(had && why ? [h("p", { class: "empty" }, why)] : []));
  }

  async function begin() {
    const { run } = now();
    if (known === run) return;
    known = run;
    onText = [];
    body.replaceChildren(h("p", { class: "soft", role: "status" }, "reading the model…"));
    try {
      const parts = await ask("/parts", { run });
      if (known === run) body.replaceChildren(off(parts.heads), patching(parts), attributing());
    } catch (error) {
      if (known !== run) return;
      known = "";
      body.replaceChildren(failure(error, begin), h("p", { class: "note" }, "Only networks can be changed: choose another model above."));
    }
  }

  /** @param {{layer: string, name: string, heads: number}[]} layers */
  function off(layers) {
    const title = h("h3", {}, "Heads off");
    if (!layers.length) return h("section", {}, title, h("p", { class: "empty" }, `This model has no attention by heads. To switch heads off, ${NO_HEADS}.`));
    const place = h("div", { "aria-live": "polite" });
    /** @type {Map<string, {layer: string, head: number}>} */
    const chosen = new Map();
    const look = () => {
      if (chosen.size) fill(place, "/without", { heads: [...chosen.values()] }, (found) => sideBySide([["before", found.before], ["without", found.after]]));
      else clear(place);
    };
    const set = (/** @type {string} */ layer, /** @type {number} */ head, /** @type {boolean} */ on) => {
      if (on) chosen.set(`${layer} ${head}`, { layer, head });
      else chosen.delete(`${layer} ${head}`);
      look();
    };
    onText.push(look);
    const rows = layers.map(({ layer, name, heads }) => h("fieldset", {}, h("legend", {}, name), Array.from({ length: heads }, (_, i) => h("label", { class: "field check" },
      h("input", { type: "checkbox", "aria-label": `${name}, head ${i + 1}`, onchange: (/** @type {any} */ event) => set(layer, i + 1, event.target.checked) }), h("span", {}, `${i + 1}`)))));
    return h("section", {}, title, h("p", { class: "note" }, "Choose heads to switch off. Their output is zero before the output projection."), h("div", { class: "layers" }, rows), place);
  }

  /** @param {{heads: {layer: string, name: string, heads: number}[], blocks: {block: string, name: string}[]}} parts */
  function patching({ heads, blocks }) {
    const title = h("h3", {}, "Patching");
    /** @type {[string, any][]} */
    const states = [...blocks.map(({ block, name }) => /** @type {[string, any]} */ ([`the state after ${name}`, { block }])),
      ...heads.flatMap(({ layer, name, heads: count }) => Array.from({ length: count }, (_, i) => /** @type {[string, any]} */ ([`${name}, head ${i + 1}`, { head: { layer, head: i + 1 } }])))];
    if (!states.length) return h("section", {}, title, h("p", { class: "empty" }, `This model has no attention blocks whose states could be exchanged. To patch, ${NO_HEADS}.`));
    const place = h("div", { "aria-live": "polite" });
    let state = 0;
    const other = h("input", { type: "text", "aria-label": "Other text", placeholder: "Another text", dir: "auto" });
    const at = h("input", { type: "text", "aria-label": "Positions", placeholder: "Positions from 0, such as 1 2; empty: all" });
    const go = () => {
      const positions = at.value.match(/\d+/g)?.map(Number) ?? null;
      if (!other.value.trim()) { clear(place); place.replaceChildren(h("p", { class: "empty" }, "Type another text into the field above first.")); }
      else if (at.value.trim() && !positions) { clear(place); place.replaceChildren(h("p", { class: "problem", role: "alert" }, "Positions are numbers from 0, such as 1 2. Leave the field empty for all.")); }
      else fill(place, "/patch", { other: other.value, ...states[state][1], positions }, (found) => sideBySide([["this text", found.before], ["patched", found.after], ["other text", found.other]]));
    };
    onText.push(() => clear(place, "The text has changed. Press “Patch” again."));
    return h("section", {}, title, h("p", { class: "note" }, "Take what one layer, or one head, computes for another text into this one. Without positions, both texts need equally many tokens."),
      other, at, h("div", { class: "row-of-fields" }, choice("State", states.map(([name], i) => [String(i), name]), "0", (index) => { state = +index; }), h("button", { type: "button", onclick: go }, "Patch")), place);
  }

  function attributing() {
    const place = h("div", { "aria-live": "polite" });
    const look = (/** @type {number | null} */ index) => fill(place, "/attribute", { choice: index }, (found) => attributions(found, look));
    onText.push(() => clear(place, "The text has changed. Press “Attribute the answer” again."));
    return h("section", {}, h("h3", {}, "Attribution"), h("p", { class: "note" }, "How much each word added to one number behind the answer, beside the attention it got."),
      h("button", { type: "button", onclick: () => look(null) }, "Attribute the answer"), place);
  }

  let read = "";
  return Object.assign(node, {
    /** Another model was chosen. */
    again() {
      known = "";
      body.replaceChildren();
      if (node.open) begin();
    },
    /** Another text was typed. */
    typed() {
      const { text } = now();
      if (text !== read) onText.forEach((act) => act());
      read = text;
    },
  });
}
