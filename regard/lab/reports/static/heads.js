// One head in three ways: the highlighted text, the matrix, the arcs; and thumbnails of all heads.
import { Arcs, strongestPairs } from "./arcs.js";
import { choice, h, num, percent, shown, svg } from "./dom.js";
import { legend, Matrix } from "./matrix.js";
import { figure, downloadButtons } from "./save.js";
import { habitsInWords, Thumbs } from "./thumbs.js";
import { apart, readable, Tokens } from "./tokens.js";

const LONG = 18; // most characters of a label beside its bar; longer ones are placed above

/** @param {import("./packed.js").PackedLayer} layer @param {number} head −1 for the mean */
export function headName(layer, head) {
  if (layer.heads === 1) return layer.name;
  return head < 0 ? `${layer.name}, mean of ${layer.heads} heads` : `${layer.name}, head ${head + 1}`;
}

const NOTES = /** @type {Record<string, string>} */ ({
  rollout: "Attention rollout: how much each input word contributes to each final state, if half of every layer’s state bypasses its attention (Abnar & Zuidema 2020).",
  pool: "One learned query turns the text into a single vector: these are the weights of its words.",
  cross: "Rows are output tokens, columns input tokens: a bright cell shows where the model looked while writing that token.",
  self: "Each row is a query word; its weights over all words add up to 1.",
  past: "A word attends to itself and to earlier words, and the next word is predicted from that: see the word before a word for what led to it. Underlined: written by the model.",
});

/** Return the layer most related to the answer: a pool, cross-attention, else the last one. @param {import("./packed.js").Look} look */
export function telling(look) {
  const found = look.layers.findIndex((layer) => layer.kind === "pool" || layer.kind === "cross");
  return found >= 0 ? found : look.layers.findLastIndex((layer) => layer.kind !== "rollout");
}

/** Return the head shown first: the most concentrated one of a self-attention layer; for a growing text, one of the last layer. @param {import("./packed.js").Look} look */
function opening(look) {
  const own = { layer: telling(look), head: 0 };
  if (look.data.read !== undefined || look.layers[own.layer].kind === "cross") return own;
  const heads = look.layers.flatMap(({ kind, habits }, layer) => (kind === "self" ? habits.words.map((words, head) => ({ words, layer, head })) : []));
  return heads.sort((a, b) => a.words - b.words)[0] ?? own;
}

/**
 * The view of heads in the page and in reports.
 * @param {import("./packed.js").Look} look
 * @param {{layer?: number, head?: number, query?: number, find?: string}} [at]
 * @param {(at: {layer: number, head: number, query: number, find: string}) => void} [changed]
 */
export function headsView(look, at = {}, changed = () => {}) {
  if (!look.layers.length) {
    return h("p", { class: "empty" }, "This model has no attention layer, so there are no weights to show. Choose a model with attention, such as transformer.");
  }
  const inside = (/** @type {number | undefined} */ n, /** @type {number} */ size) => Math.max(0, Math.min(size - 1, n ?? 0));
  const first = at.layer === undefined ? opening(look) : { layer: at.layer, head: at.head };
  const state = { layer: inside(first.layer, look.layers.length), head: 0, query: at.query ?? -1, find: at.find ?? "" };
  state.head = inside(first.head, look.layers[state.layer].heads);
  const one = h("div", { class: "one-head" });
  const thumbs = new Thumbs(look, (layer, head) => {
    if (layer !== state.layer && look.layers[layer].rows !== look.layers[state.layer].rows) state.query = -1;
    Object.assign(state, { layer, head });
    show();
  }, state.find, (find) => {
    state.find = find;
    changed(state);
  });
  const several = look.layers.reduce((n, layer) => n + layer.heads, 0) > 1;
  const node = h("div", { class: several ? "heads" : "heads alone" },
    several && h("aside", { class: "card", "aria-label": "Heads" }, h("h3", {}, "All heads"), thumbs.node), one);
  /** @type {ReturnType<typeof headFigures> | null} */
  let drawn = null;
  let asked = 0;

  async function show() {
    const turn = ++asked;
    const { layer, head } = state;
    thumbs.mark(layer, head);
    let found;
    try {
      found = await look.head(layer, head);
    } catch (error) {
      one.replaceChildren(h("p", { class: "fails", role: "alert" }, String(/** @type {any} */ (error).message ?? error)));
      return;
    }
    if (turn !== asked) return; // another head was chosen meanwhile
    if (!drawn?.fits(layer)) {
      drawn = headFigures(look, layer, (query) => {
        state.query = query;
        changed(state);
      });
      one.replaceChildren(drawn.node);
    }
    drawn.paint(found, layer, head, state.query);
    performance.mark("head-painted");
    changed(state);
  }
  node.ready = show();
  node.read = look.data.read;
  /** Highlight a query word; −1 for none. @param {number} i */
  node.point = (i) => drawn?.point(Math.max(i, -1));
  return node;
}

/**
 * The figures of one head; reused for other heads of the same shape.
 * @param {import("./packed.js").Look} look @param {number} first @param {(query: number) => void} pinned
 */
function headFigures(look, first, pinned) {
  const shape = look.layers[first];
  const [queries, keys] = [look.queries(first), look.keys(first)];
  const same = shape.kind === "self" || shape.kind === "rollout";
  const pool = shape.kind === "pool";
  const cls = same && keys[0] === "[CLS]"; // only its row feeds the answer
  const read = same ? look.data.read : undefined; // number of tokens read, if the model continued the text
  const past = read !== undefined;
  const rest = past ? queries.length - 1 : -1; // default query: the newest word
  let backward = false; // show the queries that look at the hovered word
  /** @type {import("./packed.js").Head} */
  let head;
  let pin = -1; // the pinned query
  /** @type {{i: number, j: number}} */
  let now = { i: -1, j: -1 };
  let frame = 0;

  const toward = (/** @type {number} */ i) => (backward ? point(-1, i) : point(i, -1));
  const asks = new Tokens(past ? "The text; words that the selected word looks at are highlighted" : same ? "The text as queries" : "Output", queries, {
    hover: toward, leave: () => toward(pin), pick: (i) => pinTo(i === pin ? -1 : i) }, read);
  const asked = past ? asks : new Tokens(same ? "The text as keys" : pool ? "The text" : "Input", keys, {
    hover: (j) => point(-1, j), leave: () => point(pin, -1), pick: (j) => point(-1, j) });
  const title = h("h2", {});
  const facts = h("ul", { class: "facts" });
  const says = h("p", { class: "says", "aria-live": "polite" });
  const matrix = new Matrix("The weights as a matrix; the text above shows the same numbers", queries, keys, {
    hover: (i, j) => point(i, j), leave: () => point(pin, -1), pick: (i) => pinTo(i === pin ? -1 : i) });
  const arcs = pool ? null : new Arcs("The strongest weights as arcs over the text", queries, keys, same);
  const scale = h("div", {});
  const strongest = h("div", { class: "strongest" }), names = [apart(queries), apart(keys)];
  const note = h("p", { class: "note" }, NOTES[past && shape.kind === "self" ? "past" : shape.kind]);

  function pinTo(/** @type {number} */ i) {
    pin = i;
    pinned(pin);
    toward(pin);
  }

  /** Highlight a query, a key or both in the next frame. @param {number} i @param {number} j */
  function point(i, j) {
    now = { i, j };
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      light();
    });
  }

  function light() {
    const { j } = now;
    const i = now.i < 0 && j < 0 ? rest : now.i;
    if (past) {
      asks.mark(i >= 0 ? i : j);
      asks.shade(i >= 0 ? head.row(i) : head.column(j));
    } else {
      asks.mark(i);
      asked.mark(j);
      asked.shade(i >= 0 ? head.row(i) : j >= 0 ? null : pool || cls ? head.row(0) : head.received());
      asks.shade(j >= 0 && i < 0 ? head.column(j) : null);
    }
    matrix.mark(now.i, j);
    arcs?.mark(now.i, j);
    says.replaceChildren(...words(i, j));
    performance.mark("hover-painted");
  }

  function words(/** @type {number} */ i, /** @type {number} */ j) {
    const most = (/** @type {Float32Array} */ weights, /** @type {string[]} */ names) =>
      Array.from(weights, (w, k) => /** @type {[number, number]} */ ([w, k])).sort((a, b) => b[0] - a[0]).slice(0, 5).filter(([w]) => w > 0.0005)
        .flatMap(([w, k], n) => [n ? ", " : "", h("b", {}, readable(names[k])), ` ${num(w, 2)}`]);
    if (i >= 0 && j >= 0) return [h("b", {}, readable(queries[i])), " looks at ", h("b", {}, readable(keys[j])), ` with ${num(head.at(i, j), 3)}`];
    if (i >= 0) return [h("b", {}, readable(queries[i])), " looks at ", ...most(head.row(i), keys)];
    if (j >= 0) return [h("b", {}, readable(keys[j])), pool ? ` gets ${num(head.at(0, j), 3)} of the weight` : " is looked at by ", ...(pool ? [] : most(head.column(j), queries))];
    if (cls) return ["Coloured by what ", h("b", {}, "[CLS]"), " looks at: ", ...most(head.row(0), keys)];
    return [same ? "Coloured by the weight each word receives. Point at a word or use the arrow keys." : "Largest weights: ", ...(same ? [] : most(head.received(), keys))];
  }

  const direction = past && choice("Point at a word to see", [["", "what it looks at"], ["back", "which words look at it"]], "", (way) => {
    backward = Boolean(way);
    toward(pin);
  });
  const blocks = past ? [h("div", { class: "whole" }, direction, asks.node)] : pool
    ? [h("div", {}, h("h4", {}, "What the pool looks at"), asked.node)]
    : [h("div", {}, h("h4", {}, same ? "Queries — point at a word" : "Output — point at a word"), asks.node),
      h("div", {}, h("h4", {}, same ? "Keys" : "Input"), asked.node)];
  const node = h("div", {}, h("div", { class: "card" }, title, facts, note, h("div", { class: "pair" }, blocks), says),
    h("div", { class: "figures" },
      arcs && figure({ title: same ? "As arcs" : "As an alignment", node: h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": same ? "arcs" : "alignment" }, arcs.node), rows: () => arcs.rows(),
        says: same ? "An arc joins two words; its width grows with the weight. Point at a word to see only its arcs: blue to the words it looks at, orange from those that look at it." : "Lines join output words (above) to input words (below)." }),
      !pool && figure({ title: "As a matrix", node: h("div", { class: "beside" }, h("div", {}, matrix.node, scale), strongest), drawing: () => matrix.drawing(), rows: () => matrix.rows(),
        says: "Rows are queries, columns keys. The colour is the square root of the weight, so that small weights stay visible." })));
  return {
    node,
    point: (/** @type {number} */ i) => i < queries.length && point(i < 0 ? pin : i, -1),
    fits: (/** @type {number} */ layer) => {
      const other = look.layers[layer];
      return other.keys === shape.keys && other.queries === shape.queries && other.kind === shape.kind && other.rows === shape.rows;
    },
    paint(/** @type {import("./packed.js").Head} */ found, /** @type {number} */ layer, /** @type {number} */ which, /** @type {number} */ query) {
      head = found;
      pin = query < queries.length ? query : -1;
      const described = look.layers[layer];
      title.textContent = headName(described, which);
      facts.replaceChildren(...habitsInWords(described, which).map((said) => h("li", {}, said)));
      if (described.top) facts.append(h("li", {}, `this file contains only the ${described.top} strongest keys of each query`));
      matrix.paint(head);
      arcs?.paint(head);
      scale.replaceChildren(legend(head.full));
      strongest.replaceChildren(h("h4", {}, "Strongest pairs"), h("ol", {}, strongestPairs(head, 12).map(([i, j]) =>
        h("li", {}, h("b", {}, names[0][i]), " → ", h("b", {}, names[1][j]), h("span", { class: "soft" }, ` ${num(head.at(i, j), 2)}`)))));
      now = { i: pin, j: -1 };
      light();
    },
  };
}

/** Draw a classifier's probabilities as bars. @param {{label?: string, labels?: string[], probabilities: Record<string, number>}} answer */
export function probabilityBars(answer) {
  const all = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]);
  const rows = all.slice(0, 12);
  const best = answer.labels ?? [answer.label];
  const long = rows.some(([label]) => label.length > LONG);
  const bars = h("div", { class: long ? "bars long" : "bars", role: "list", "aria-label": "Probabilities" }, rows.map(([label, p]) =>
    h("div", { role: "listitem", class: best.includes(label) ? "row best" : "row" }, h("span", { class: "name" }, label),
      h("span", { class: "track", "aria-hidden": "true" }, h("span", { style: { width: percent(p, 1).replace(" ", "") } })), h("span", { class: "share" }, percent(p, 1)))));
  const drawing = () => svg("svg", { viewBox: `0 0 640 ${28 * rows.length + 16}` }, rows.map(([label, p], i) => [
    svg("text", { x: 8, y: 28 * i + 26, "font-size": 15 }, shown(label).slice(0, 22)), svg("rect", { x: 200, y: 28 * i + 13, width: 360 * p, height: 17, rx: 3, class: "heat" }),
    svg("text", { x: 632, y: 28 * i + 26, "text-anchor": "end", "font-size": 14 }, percent(p, 1))]));
  return h("div", { class: "told-bars" }, bars, downloadButtons("Probabilities", drawing, () => [["label", "probability"], ...all]));
}
