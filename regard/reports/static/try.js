// Try it: type a text; what the model answers, and what it looks at, follow as you type.
import { ask, askBytes, askLines, writeState } from "./ask.js";
import { h, num, percent, settled, shown, slider } from "./dom.js";
import { headsView, probabilityBars, telling } from "./heads.js";
import { Look } from "./packed.js";
import { aboutRun, runPicker, textField } from "./picker.js";

const PAUSE = 120; // milliseconds after the last key

/** A look at a text by a run, as the server packs it. @param {string} run @param {string} text @param {AbortSignal} [signal] */
export async function lookAt(run, text, signal) {
  const data = await ask("/look", { run, text }, signal);
  return new Look(data, (layer, head) => askBytes("/matrix", { run, text, layer: layer + 1, head: head + 1 }));
}

/** What a run answered: a label with its probabilities, or a text. @param {any} answer */
export function answerCard(answer) {
  if (answer.written !== undefined) {
    return h("div", { class: "answer-card" }, h("p", { class: "over" }, "It writes"), h("p", { class: "written", dir: "auto" }, answer.written || "(nothing)"),
      h("p", { class: "soft" }, `ln p = ${num(answer.log_probability, 2)}${answer.ended ? "" : ", cut at the longest length"}`));
  }
  return h("div", { class: "answer-card" }, h("p", { class: "over" }, "It says"), h("p", { class: "label" }, answer.label,
    h("span", { class: "soft" }, ` ${percent(answer.probabilities[answer.label], 1)} sure`)), probabilityBars(answer));
}

/**
 * The view. With `wide` every head is shown beside the text: the view of heads.
 * @param {{runs: import("./ask.js").RunRow[], state: Record<string, string>}} context @param {boolean} wide
 */
export function tryView(context, wide) {
  const { runs, state } = context;
  const able = runs.filter((run) => !run.error);
  let run = able.find((r) => r.name === state.run) ?? (able.find((r) => r.attends) ?? able[0]);
  let text = state.text ?? "";
  const at = { layer: state.layer === undefined ? undefined : +state.layer, head: +(state.head ?? 0), query: +(state.query ?? -1) };
  /** @type {AbortController | null} */
  let asking = null;
  const answer = h("div", { class: "answer-place", "aria-live": "polite" });
  const seen = h("div", { class: "seen-place" });
  const about = h("p", { class: "note" });
  const writing = h("div", {});
  const status = h("p", { class: "status soft", role: "status" });
  const type = settled((/** @type {string} */ now) => {
    text = now;
    writeState({ text });
    look();
  }, PAUSE);
  const field = textField(text, type);

  async function look() {
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    if (!text.trim()) {
      answer.replaceChildren();
      seen.replaceChildren(h("p", { class: "empty" }, "Type a text, or take one of the examples."));
      return;
    }
    const begun = performance.now();
    status.textContent = "asking…";
    try {
      const found = await lookAt(run.name, text, signal);
      status.textContent = `answered in ${Math.round(performance.now() - begun)} ms`;
      answer.replaceChildren(answerCard(found.data.answer));
      const view = wide ? headsView(found, at, (now) => {
        Object.assign(at, now);
        writeState(now);
      }) : glance(found);
      await view.ready;
      seen.replaceChildren(view);
    } catch (error) {
      if (signal.aborted) return;
      status.textContent = "";
      answer.replaceChildren(h("p", { class: "problem", role: "alert" }, shown(/** @type {any} */ (error).message)));
      seen.replaceChildren();
    }
  }

  /** The most telling layer alone; all heads are a click away. @param {Look} found */
  function glance(found) {
    const { layers } = found;
    if (!layers.length) return h("p", { class: "empty" }, `${run.model} has no attention layer: there are no weights to look at.`);
    const chosen = telling(found);
    const count = layers.reduce((n, layer) => n + layer.heads, 0);
    const one = new Look({ ...found.data, layers: [layers[chosen]] }, (_, head) => /** @type {any} */ (found.ask)(chosen, head));
    const node = h("div", {}, headsView(one, {}));
    const link = new URLSearchParams({ view: "heads", run: run.name, text });
    if (count > 1) node.append(h("p", {}, h("a", { href: `#${link}` }, `See all ${count} heads →`)));
    node.ready = node.firstChild.ready;
    return node;
  }

  function pick(/** @type {string} */ name) {
    run = able.find((r) => r.name === name) ?? run;
    Object.assign(at, { layer: undefined, head: 0, query: -1 });
    writeState({ run: run.name, layer: "", head: "", query: "" });
    begin();
  }

  function begin() {
    about.textContent = aboutRun(run);
    writing.replaceChildren(...(run.kind === "sequences" && !wide ? [writer(() => run.name, () => text)] : []));
    field.offer(run.name, (texts) => {
      if (!text && texts.length) {
        text = texts[0];
        field.field.value = text;
        look();
      }
    });
    look();
  }

  begin();
  return h("div", { class: "view" },
    h("h1", {}, wide ? "Heads" : "Try it"),
    h("p", { class: "lead" }, wide ? "Every head of every layer on one text: choose one, then point at words." : "Type a text and watch what the model answers, and which words it looks at to get there."),
    h("div", { class: "card" }, runPicker("Model", able, run.name, pick), about, field.node, status), answer, writing, seen);
}

/** Write the answer again, token by token, drawn at a temperature. @param {() => string} run @param {() => string} text */
function writer(run, text) {
  let temperature = 0;
  let seed = 0;
  /** @type {AbortController | null} */
  let asking = null;
  const tokens = h("p", { class: "told", "aria-live": "polite" });
  async function write() {
    asking?.abort();
    asking = new AbortController();
    tokens.replaceChildren();
    try {
      await askLines("/generate", { run: run(), text: text(), temperature, seed: seed++, new_tokens: 200 }, (line) => {
        if (line.error) tokens.append(h("span", { class: "problem" }, line.error));
        else if (!line.done) tokens.append(h("span", { class: `w${Math.round(12 * (1 - line.probability))}`, title: `p = ${num(line.probability)}` }, shown(line.token)), " ");
      }, asking.signal);
    } catch (error) {
      if (!asking.signal.aborted) tokens.append(h("span", { class: "problem" }, shown(/** @type {any} */ (error).message)));
    }
  }
  return h("div", { class: "card" }, h("h3", {}, "Token by token"),
    h("div", { class: "row-of-fields" }, slider("Temperature", { min: 0, max: 2, step: 0.1, value: 0, says: (v) => (v ? v.toFixed(1) : "0: the likeliest") }, (v) => { temperature = v; }),
      h("button", { type: "button", class: "main", onclick: write }, "Write")), tokens,
    h("p", { class: "note" }, "The deeper the colour, the less sure the model was of that token."));
}
