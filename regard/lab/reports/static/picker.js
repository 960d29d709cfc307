// Selectors of the run and the text, shared by the views of a model.
import { ask, brief, inWords, joined, partsOf } from "./ask.js";
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
  const area = (/** @type {string} */ label, /** @type {string} */ placeholder) => h("textarea", { rows: 3, "aria-label": label, placeholder, spellcheck: "false", dir: "auto", oninput: () => changed(own.value) });
  const field = area("Text", "Type a text…"), more = area("Second text", "Type the second text…");
  const second = h("div", { hidden: true }, more), columns = h("div", { class: "row-of-fields", hidden: true });
  /** @type {Record<string, HTMLInputElement>} */
  let boxes = {};
  let input = value; // while the fields of its run are not known
  const own = {
    get value() {
      const values = Object.fromEntries(Object.entries(boxes).map(([name, box]) => [name, box.value]));
      return joined({ text: field.value, ...(!second.hidden && { second: more.value }), ...(!columns.hidden && { columns: values }) });
    },
    set value(now) {
      const parts = partsOf(input = now);
      field.value = parts.text;
      more.value = parts.second ?? "";
      for (const [name, box] of Object.entries(boxes)) box.value = parts.columns?.[name] ?? "";
    },
  };
  own.value = value;
  const examples = h("div", { class: "examples" });
  const truth = h("p", { class: "soft truth", "aria-live": "polite" }), facts = h("p", { class: "soft" });
  /** @type {Record<string, string>} */
  let labels = {};
  const tell = () => { truth.textContent = labels[own.value] ? `True label: ${labels[own.value]}` : ""; };
  const changed = (/** @type {string} */ text) => { input = text; tell(); typed(text); };
  /** @type {string[]} */
  let offered = [];
  let turn = 0;
  const node = h("div", { class: "asking" }, field, second, columns, truth, examples, facts);
  return {
    node,
    field,
    get value() {
      return own.value;
    },
    set value(input) {
      own.value = input;
    },
    /** @param {string} text */
    set(text) {
      own.value = text;
      changed(own.value);
    },
    /** Return whether the user typed the text. It stays when another model is chosen, unlike an example. @param {string} text */
    own: (text) => Boolean(text.trim()) && !offered.includes(text),
    /** Show the fields of a run. @param {import("./ask.js").RunRow} run */
    of(run) {
      const names = run.features ?? [];
      second.hidden = !run.second;
      columns.hidden = !names.length;
      if (names.join() !== Object.keys(boxes).join()) {
        boxes = Object.fromEntries(names.map((name) => [name, /** @type {HTMLInputElement} */ (h("input", { type: "text", "aria-label": name, spellcheck: "false", oninput: () => changed(own.value) }))]));
        columns.replaceChildren(...names.map((name) => h("label", { class: "field" }, h("span", {}, name), boxes[name])));
        own.value = input;
      }
      field.placeholder = run.second ? "Type the first text…" : "Type a text…";
    },
    /** Show the fields of a run, and offer texts of its test split. @param {import("./ask.js").RunRow} run @param {(texts: string[]) => void} came */
    async offer(run, came) {
      const mine = ++turn;
      this.of(run);
      examples.replaceChildren();
      facts.textContent = "";
      labels = {};
      try {
        const { texts: said, inputs, labels: known, test, ended } = await ask(`/examples?run=${encodeURIComponent(run.name)}`);
        if (mine !== turn) return;
        /** @type {string[]} */
        const texts = inputs ? inputs.map(joined) : said;
        labels = Object.fromEntries(texts.map((text, i) => [text, known?.[said[i]]]));
        facts.textContent = [test, ended && `Training ${ended}`].filter(Boolean).map((says) => `${says[0].toUpperCase()}${says.slice(1)}.`).join(" ");
        examples.replaceChildren(...(texts.length ? [h("span", { class: "soft" }, "From the test split:")] : []), ...texts.map((text) => {
          const shown = inWords(text);
          return h("button", { type: "button", class: "chip", title: shown, onclick: () => this.set(text) }, brief(shown, 42));
        }));
        came(texts);
        offered = texts;
        tell();
      } catch {
        if (mine === turn) came([]);
      }
    },
  };
}
