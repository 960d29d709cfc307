// Selectors of the run and the text, shared by the views of a model.
import { ask } from "./ask.js";
import { h } from "./dom.js";

/**
 * A selector of runs, grouped by task and data.
 * @param {string} label @param {import("./ask.js").RunRow[]} runs @param {string} value @param {(name: string) => void} pick
 */
export function runPicker(label, runs, value, pick) {
  /** @type {Map<string, import("./ask.js").RunRow[]>} */
  const groups = new Map();
  for (const run of runs) {
    const group = run.error ? "cannot be opened" : `${run.task}${run.data && run.data !== run.task ? ` · ${run.data}` : ""}`;
    groups.set(group, [...(groups.get(group) ?? []), run]);
  }
  const select = h("select", { "aria-label": label, onchange: () => pick(select.value) }, [...groups].map(([group, rows]) =>
    h("optgroup", { label: group }, rows.map((run) => h("option", { value: run.name, selected: run.name === value, disabled: Boolean(run.error) }, run.name)))));
  return h("label", { class: "field" }, h("span", {}, label), select);
}

/** Describe a run in one line. @param {import("./ask.js").RunRow | undefined} run */
export function aboutRun(run) {
  if (!run) return "";
  const { parameters } = run;
  const size = !parameters ? "" : parameters < 1e5 ? ` ${parameters.toLocaleString("en")} parameters.` : ` ${(parameters / 1e6).toFixed(2)} million parameters.`;
  return `${run.model}: ${run.says}.${size}`;
}

/**
 * A text field with examples from the run's test split.
 * @param {string} value @param {(text: string) => void} typed
 */
export function textField(value, typed) {
  const field = h("textarea", { rows: 3, "aria-label": "Text", placeholder: "Type a text…", spellcheck: "false", dir: "auto", oninput: () => changed(field.value) });
  field.value = value;
  const examples = h("div", { class: "examples" });
  const truth = h("p", { class: "soft truth", "aria-live": "polite" }), facts = h("p", { class: "soft" });
  /** @type {Record<string, string>} */
  let labels = {};
  const tell = () => { truth.textContent = labels[field.value] ? `True label: ${labels[field.value]}` : ""; };
  const changed = (/** @type {string} */ text) => { tell(); typed(text); };
  /** @type {string[]} */
  let offered = [];
  let turn = 0;
  const node = h("div", { class: "asking" }, field, truth, examples, facts);
  return {
    node,
    field,
    /** @param {string} text */
    set(text) {
      field.value = text;
      changed(text);
    },
    /** Return whether the user typed the text. It stays when another model is chosen, unlike an example. @param {string} text */
    own: (text) => Boolean(text.trim()) && !offered.includes(text),
    /** Offer texts of a run's test split. @param {string} run @param {(texts: string[]) => void} came */
    async offer(run, came) {
      const mine = ++turn;
      examples.replaceChildren();
      facts.textContent = "";
      labels = {};
      try {
        const { texts, labels: known, test, ended } = await ask(`/examples?run=${encodeURIComponent(run)}`);
        if (mine !== turn) return;
        labels = known ?? {};
        facts.textContent = [test, ended && `Training ${ended}`].filter(Boolean).map((says) => `${says[0].toUpperCase()}${says.slice(1)}.`).join(" ");
        examples.replaceChildren(...(texts.length ? [h("span", { class: "soft" }, "From the test split:")] : []), ...texts.map((/** @type {string} */ text) =>
          h("button", { type: "button", class: "chip", title: text, onclick: () => this.set(text) }, text.length > 42 ? `${text.slice(0, 41)}…` : text)));
        came(texts);
        offered = texts;
        tell();
      } catch {
        if (mine === turn) came([]);
      }
    },
  };
}
