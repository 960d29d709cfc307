// Try it: the model's answer and its attention, updated while you type.
import { answerCard, notRead } from "./answer.js";
import { ask, askBytes, writeState } from "./ask.js";
import { attributions, changePanel } from "./change.js";
import { failure, h, settled } from "./dom.js";
import { headsView, telling } from "./heads.js";
import { Look } from "./packed.js";
import { aboutRun, runPicker, textField } from "./picker.js";
import { Writer } from "./write.js";

const PAUSE = 120; // milliseconds after the last key
const OTHERWISE = "The cat did not cross the street because it was too tired."; // for the view of heads, if the run has no examples
const FOLLOW = 400; // minimum milliseconds between two requests while a text is being written

/**
 * Request a run's answer and attention for a text; with `written`, the attention while writing these tokens.
 * @param {string} run @param {string} text @param {AbortSignal} [signal] @param {number[] | null} [written]
 */
export async function lookAt(run, text, signal, written) {
  const about = written ? { run, text, written } : { run, text };
  const data = await ask("/look", about, signal);
  return new Look(data, (layer, head) => askBytes("/matrix", { ...about, layer: layer + 1, head: head + 1 }));
}

/** Parse the token ids in the URL. @param {string | undefined} said @returns {number[] | null} */
function numbersIn(said) {
  return said && /^\d+(\.\d+)*$/.test(said) ? said.split(".").map(Number) : null;
}

/**
 * The view of one model; with `wide`, the view of all heads.
 * @param {{runs: import("./ask.js").RunRow[], state: Record<string, string>}} context @param {boolean} wide
 */
export function tryView(context, wide) {
  const { runs, state } = context;
  const named = runs.find((run) => run.name === state.run);
  const able = runs.filter((run) => !run.error && (run.attends || !wide));
  if (!able.length) return h("p", { class: "empty" }, "No model here has attention layers, so there are no heads to show. Train one with ", h("code", {}, "regard train classification transformer"), " and load this page again. ", h("a", { href: "#view=try" }, "Try it"), " shows the answers of these models.");
  const kin = (/** @type {import("./ask.js").RunRow} */ r) => r.attends && r.task === named?.task && r.data === named?.data;
  let run = able.find((r) => r === named) ?? able.find(kin) ?? able.find((r) => r.attends) ?? able[0];
  let text = state.text ?? "";
  let written = numbersIn(state.written);
  const at = { layer: state.layer === undefined ? undefined : +state.layer, head: +(state.head ?? 0), query: +(state.query ?? -1), find: state.find ?? "" };
  /** @type {AbortController | null} */
  let asking = null;
  let free = 0; // earliest time of the next request for a growing text
  let pointed = -1; // the hovered output token
  /** @type {any} */
  let view = null;
  const answer = h("div", { class: "answer-place", "aria-live": "polite" });
  const seen = h("div", { class: "seen-place" });
  const about = h("p", { class: "note" });
  const place = h("div", {});
  const status = h("p", { class: "status soft", role: "status" });
  const change = changePanel(() => ({ run: run.name, text }));
  const goesOn = () => run.writes === "on";
  const type = settled((/** @type {string} */ now) => {
    text = now;
    written = null;
    Object.assign(at, { query: -1 });
    writeState({ text, written: "", query: "" });
    begin();
  }, PAUSE);
  const field = textField(text, type);
  const writer = wide || !run ? null : new Writer({
    run: () => run, text: () => text,
    begun() {
      written = null;
      asking?.abort(); // the request for the previous text
    },
    grew(ids, done) {
      written = ids;
      if (done) writeState({ written: ids.join(".") });
      if (done || (!asking && performance.now() > free)) look(done);
    },
    point(piece) {
      pointed = piece;
      view?.point?.((view.read ?? 0) + piece);
    },
    leave() {
      pointed = -1;
      view?.point?.(-1);
    },
  });

  /** Request the model's answer, or start writing. */
  function begin() {
    pointed = -1;
    writer?.cancel();
    writer?.begin();
    place.hidden = !text.trim();
    change.typed();
    if (!text.trim()) {
      asking?.abort();
      answer.replaceChildren();
      seen.replaceChildren(h("p", { class: "empty" }, "Type a text or choose an example."));
    } else if (goesOn() && writer && !written) {
      answer.replaceChildren();
      writer.write();
    } else look(true);
  }

  /** Request the attention and show it; without status messages while a text still grows. @param {boolean} whole */
  async function look(whole) {
    asking?.abort();
    const mine = asking = new AbortController();
    const { signal } = mine;
    const begun = performance.now();
    if (whole) status.textContent = "running…";
    try {
      const found = await lookAt(run.name, text, signal, written);
      const next = wide || goesOn() ? headsView(found, at, (now) => {
        Object.assign(at, now);
        writeState(now);
      }) : glance(found);
      await next.ready;
      if (signal.aborted) return;
      if (whole) {
        status.textContent = `answered in ${Math.round(performance.now() - begun)} ms`;
        tell(found.data.answer);
      }
      view = next;
      put(next);
      if (pointed >= 0) view.point?.((view.read ?? 0) + pointed);
    } catch (error) {
      if (signal.aborted || !whole) return; // the next request may find a free slot in the queue
      status.textContent = "";
      answer.replaceChildren(failure(error, () => look(true)));
      seen.replaceChildren();
    } finally {
      if (asking === mine) asking = null;
      free = performance.now() + Math.max(FOLLOW, performance.now() - begun);
    }
  }

  /** Show the answer; a written text is shown in the writer's card. @param {any} said */
  function tell(said) {
    if (writer && said.pieces && !writer.asking && !writer.pieces.length) writer.show(said.pieces);
    answer.replaceChildren(...(goesOn() && writer ? notRead(said) : [answerCard(said)]));
  }

  /** Replace the view, keeping focus and scroll positions. @param {any} next */
  function put(next) {
    const places = () => [...seen.querySelectorAll("aside, .tokens, .scroll")];
    const kept = places().map((node) => { // follow a growing text to its end, unless the user scrolled away
      const end = goesOn() && node.matches(".tokens") && node.scrollTop + node.clientHeight > node.scrollHeight - 8;
      return [end ? 1e6 : node.scrollTop, node.scrollLeft];
    });
    const { activeElement } = document;
    const held = activeElement && seen.contains(activeElement) ? activeElement : null;
    const way = held?.matches(".thumb") ? ".thumb[aria-pressed=true]" : `[aria-label="${CSS.escape(held?.getAttribute("aria-label") ?? "")}"]`;
    seen.replaceChildren(next);
    places().forEach((node, i) => { [node.scrollTop, node.scrollLeft] = kept[i] ?? [0, 0]; });
    if (held) /** @type {HTMLElement | null} */ (seen.querySelector(way))?.focus({ preventScroll: true });
  }

  /** Show only the layer most related to the answer, with a link to all heads. @param {Look} found */
  function glance(found) {
    const { layers } = found;
    if (!layers.length) return h("p", { class: "empty" }, `${run.model} has no attention layer, so there are no weights to show. Choose a model with attention, or attribute the answer to words below.`);
    const count = layers.reduce((n, layer) => n + layer.heads, 0);
    if (run.attributes) return reasons(count);
    const chosen = telling(found);
    const one = new Look({ ...found.data, layers: [layers[chosen]] }, (_, head) => /** @type {any} */ (found.ask)(chosen, head));
    const inner = headsView(one, {});
    const link = new URLSearchParams({ view: "heads", run: run.name, text, ...(written ? { written: written.join(".") } : {}) });
    const node = h("div", {}, inner, count > 1 && h("p", {}, h("a", { href: `#${link}` }, `See all ${count} heads →`)));
    return Object.assign(node, { ready: inner.ready, point: inner.point, read: inner.read });
  }

  /** Show what each word adds to the answer, with a link to all heads. @param {number} heads */
  function reasons(heads) {
    const place = h("div", { "aria-live": "polite" }, h("p", { class: "soft", role: "status" }, "attributing…"));
    const asked = { run: run.name, text };
    const explain = (/** @type {number | null} */ choice) => ask("/attribute", { ...asked, choice })
      .then((/** @type {any} */ found) => place.replaceChildren(attributions(found, explain)))
      .catch((/** @type {any} */ error) => place.replaceChildren(failure(error, () => explain(choice))));
    explain(null);
    const link = new URLSearchParams({ view: "heads", ...asked });
    return h("div", {}, place, h("p", {}, h("a", { href: `#${link}` }, `See the attention of all ${heads} heads →`)));
  }

  function pick(/** @type {string} */ name) {
    run = able.find((r) => r.name === name) ?? run;
    written = null;
    field.of(run);
    text = field.value; // may have been typed a moment ago
    Object.assign(at, { layer: undefined, head: 0, query: -1 });
    writeState({ run: run.name, text, layer: "", head: "", query: "", written: "" });
    choose();
  }

  function choose() {
    about.textContent = aboutRun(run);
    field.of(run);
    writer?.of();
    change.again();
    place.replaceChildren(...(run.writes && writer ? [writer.node] : []));
    if (field.own(text)) begin();
    field.offer(run, (texts) => {
      if (field.own(text)) return;
      text = texts.includes(text) ? text : texts[0] ?? (text || (wide ? OTHERWISE : ""));
      field.value = text;
      writeState({ text });
      begin();
    });
  }

  choose();
  return h("div", { class: "view" },
    h("h1", {}, wide ? "Heads" : "Try it"),
    h("p", { class: "lead" }, wide ? "Every head of every layer on one text: choose a head, then point at words." : "Type a text to see the model’s answer and the words it attends to."),
    h("div", { class: "card" }, runPicker("Model", able, run.name, pick), about, field.node, status), answer, place, seen, change);
}
