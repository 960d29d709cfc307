// Disagreements of two runs on the test split: counts, and a paginated list of texts that only one gets right.
import { ask, brief, inWords, joined, writeState } from "./ask.js";
import { choice, failure, h, percent, settled, shown } from "./dom.js";

const PAGE = 10; // texts of a page
const PAUSE = 200;
/** @type {[string, string][]} */
const SIDES = [["", "only A or only B"], ["a", "only A"], ["b", "only B"]];
const KEPT = { right: "apart.right", truth: "apart.truth", contains: "apart.words", page: "apart.page" };

/** @typedef {{a: string, b: string, right: Record<string, number>, truths: string[], found: number, offset: number, shown: {text: string, truth: string, a: string, b: string, right: string}[]}} Disagreements */

/** The table and the list for a pair of runs. */
export class Apart {
  /** @param {(text: string) => void} pick called with the chosen text */
  constructor(pick) {
    this.pick = pick;
    this.node = h("div", {});
    this.turn = 0;
    this.a = this.b = "";
    this.at = { right: "", truth: "", contains: "", page: 0 };
  }

  /** Switch to two other runs; data are requested only when the user opens the list. @param {string} a @param {string} b */
  begin(a, b) {
    this.turn += 1;
    this.a = a;
    this.b = b;
    this.at = { right: "", truth: "", contains: "", page: 0 };
    writeState({ apart: "", ...Object.fromEntries(Object.values(KEPT).map((key) => [key, ""])) });
    this.node.replaceChildren(h("button", { type: "button", onclick: () => this.open() }, "Show texts that only one of them gets right"));
  }

  /** Restore the list from the state in the URL. @param {Record<string, string>} state */
  again(state) {
    const page = Number.parseInt(state[KEPT.page] ?? "", 10);
    this.at = { right: state[KEPT.right] ?? "", truth: state[KEPT.truth] ?? "", contains: state[KEPT.contains] ?? "", page: page > 0 ? page : 0 };
    return this.open();
  }

  async open() {
    this.node.replaceChildren(h("p", { class: "soft", role: "status" }, "Reading the test split…"));
    const found = await this.ask();
    if (!found) return;
    const { right, truths } = found;
    const total = right.both + right.a + right.b + right.neither;
    const cell = (/** @type {number} */ n) => h("td", {}, `${n.toLocaleString("en")} (${percent(n / total, 1)})`);
    const row = (/** @type {string} */ name, /** @type {number[]} */ counts) => h("tr", {}, h("th", { scope: "row" }, name), counts.map(cell));
    const turned = (/** @type {Record<string, string>} */ change) => {
      Object.assign(this.at, { page: 0 }, change);
      this.list();
    };
    const words = settled((/** @type {string} */ contains) => turned({ contains }), PAUSE);
    const search = h("input", { type: "text", value: this.at.contains, "aria-label": "Contains", spellcheck: "false", oninput: () => words(search.value) });
    this.place = h("div", {});
    this.node.replaceChildren(
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "who is right" }, h("table", {},
        h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "B is right"), h("th", { scope: "col" }, "B is wrong"))),
        h("tbody", {}, row("A is right", [right.both, right.a]), row("A is wrong", [right.b, right.neither])))),
      h("div", { class: "row-of-fields filter" }, choice("Correct", SIDES, this.at.right, (side) => turned({ right: side })),
        truths.length > 1 && choice("Reference", [["", "— any —"], ...truths.map((truth) => /** @type {[string, string]} */ ([truth, shown(truth)]))], this.at.truth, (truth) => turned({ truth })),
        h("label", { class: "field grow" }, h("span", {}, "Contains"), search)),
      this.place);
    this.show(found);
  }

  /** Request the current page; null if another one was requested meanwhile. @returns {Promise<Disagreements | null>} */
  async ask() {
    const mine = ++this.turn;
    const { right, truth, contains, page } = this.at;
    writeState({ apart: "shown", ...Object.fromEntries(Object.entries(KEPT).map(([key, name]) => [name, /** @type {any} */ (this.at)[key] || ""])) });
    const asked = new URLSearchParams({ a: this.a, b: this.b, right, truth, contains, offset: String(PAGE * page), limit: String(PAGE) });
    try {
      const found = await ask(`/disagreements?${asked}`);
      return mine === this.turn ? found : null;
    } catch (error) {
      if (mine === this.turn) this.node.replaceChildren(failure(error, () => this.open()));
      return null;
    }
  }

  async list() {
    const found = await this.ask();
    if (found) this.show(found);
  }

  /** @param {Disagreements} found */
  show({ found, offset, shown: rows }) {
    const go = (/** @type {number} */ step) => {
      this.at.page += step;
      this.list().then(() => this.place?.querySelector(`[data-step="${step}"]`)?.focus({ preventScroll: true }));
    };
    const turn = (/** @type {string} */ word, /** @type {number} */ step, /** @type {boolean} */ there) =>
      h("button", { type: "button", "data-step": step, "aria-disabled": String(!there), onclick: () => there && go(step) }, word);
    const says = found ? `${(offset + 1).toLocaleString("en")} to ${(offset + rows.length).toLocaleString("en")} of ${found.toLocaleString("en")}` : "No matching texts. Choose other answers above, or search for other words.";
    const said = (/** @type {string} */ name, /** @type {string} */ answer, /** @type {boolean} */ right) =>
      h("span", { class: right ? "right" : "wrong" }, `${right ? "✓" : "✗"} ${name} ${answer}`);
    /** @type {any} */ (this.place).replaceChildren(
      h("ul", { class: "texts" }, rows.map((row) => h("li", {},
        h("button", { type: "button", class: "quiet text", onclick: () => this.pick(joined(row)) }, brief(inWords(joined(row)), 220)),
        h("p", { class: "answers" }, said("A", row.a, row.right === "a"), said("B", row.b, row.right === "b"), h("span", { class: "soft" }, `reference: ${row.truth}`))))),
      h("div", { class: "row-of-fields pages" }, turn("← Previous", -1, offset > 0), h("span", { role: "status" }, says), turn("Next →", 1, offset + rows.length < found)));
  }
}

