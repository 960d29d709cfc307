// Stream a generated text token by token, coloured by the model's uncertainty.
import { askLines } from "./ask.js";
import { h, num, shown, slider } from "./dom.js";

const LEVELS = 12;
const LONG = 48; // default maximum of tokens

/** @typedef {{token: string, probability: number, text: string, id: number | null, end: boolean}} Piece */

/** Return what a piece adds to the text before it, or its token if the text was changed. A character of several tokens appears with its last. @param {Piece} piece @param {string} before */
function added(piece, before) {
  const [text, start] = [piece.text, before].map((said) => said.replace(/\ufffd+$/, ""));
  return text.startsWith(start) ? text.slice(start.length) : piece.token;
}

/** The card of a generated text: the text, sampling settings, start and stop. */
export class Writer {
  /**
   * @param {{run: () => import("./ask.js").RunRow, text: () => string, begun: () => void, grew: (ids: number[], done: boolean) => void,
   *   point: (place: number) => void, leave: () => void}} on `place` is the index of an output token
   */
  constructor(on) {
    this.on = on;
    this.temperature = 0;
    this.most = LONG;
    this.seed = 0;
    /** @type {Piece[]} */
    this.pieces = [];
    /** @type {AbortController | null} */
    this.asking = null;
    this.head = h("h2", {});
    this.tokens = h("p", { class: "told", dir: "auto" });
    this.status = h("p", { class: "status soft", role: "status" });
    this.button = h("button", { type: "button", class: "main", onclick: () => (this.asking ? this.stop() : this.again()) }, "Write");
    this.warmth = h("div", {});
    const place = (/** @type {any} */ event) => event.target.closest?.("[data-piece]")?.dataset.piece;
    this.tokens.addEventListener("mouseover", (/** @type {any} */ event) => place(event) !== undefined && on.point(+place(event)));
    this.tokens.addEventListener("click", (/** @type {any} */ event) => place(event) !== undefined && on.point(+place(event)));
    this.tokens.addEventListener("mouseleave", () => on.leave());
    this.node = h("section", { class: "card", "aria-label": "Token by token" }, this.head, this.tokens, this.status,
      h("div", { class: "row-of-fields" }, this.warmth,
        slider("Maximum tokens", { min: 8, max: 200, step: 8, value: LONG, says: (v) => String(v) }, (v) => { this.most = v; }), this.button),
      h("p", { class: "note" }, "The darker a token, the less certain the model was. Point at a token to see below what it attended to."));
    this.of();
    this.begin();
  }

  /** Reset the temperature to the run's default. */
  of() {
    this.temperature = this.on.run().temperature ?? 0;
    const says = (/** @type {number} */ v) => (v ? v.toFixed(1) : "0: most likely token");
    this.warmth.replaceChildren(slider("Temperature", { min: 0, max: 2, step: 0.1, value: this.temperature, says }, (v) => { this.temperature = v; }));
  }

  /** The ids of the written tokens. */
  get ids() {
    return /** @type {number[]} */ (this.pieces.map((piece) => piece.id).filter((id) => id !== null));
  }

  /** Clear the text; for a language model, show the prompt. */
  begin() {
    this.pieces = [];
    const { writes } = this.on.run();
    this.head.textContent = writes === "on" ? "Continuation" : "Token by token";
    this.tokens.replaceChildren(...(writes === "on" ? [h("span", { class: "read" }, this.on.text())] : []));
    this.status.textContent = "";
  }

  /** Show a text written earlier. @param {Piece[]} pieces */
  show(pieces) {
    this.begin();
    pieces.forEach((piece) => this.add(piece));
  }

  /** @param {Piece} piece */
  add(piece) {
    const before = this.pieces.at(-1)?.text ?? "";
    const unsure = `w${Math.round(LEVELS * (1 - piece.probability))}`;
    const says = piece.end ? h("span", { class: `end ${unsure}` }, "end") : h("span", { class: unsure }, shown(added(piece, before)));
    says.dataset.piece = this.pieces.length;
    says.title = `p = ${num(piece.probability)}`;
    this.pieces.push(piece);
    this.tokens.append(says);
  }

  /** Write again with a new random seed. */
  again() {
    this.seed += 1;
    this.write();
  }

  /** Write from the beginning, cancelling any generation in progress. */
  async write() {
    this.cancel();
    const asking = this.asking = new AbortController();
    this.begin();
    this.on.begun();
    this.button.textContent = "Stop";
    try {
      const { temperature, seed, most } = this;
      await askLines("/generate", { run: this.on.run().name, text: this.on.text(), temperature, seed, new_tokens: most }, (line) => {
        if (asking.signal.aborted) return;
        if (line.error) throw new Error(line.error);
        if (line.done) return;
        this.add(line);
        this.on.grew(this.ids, false);
      }, asking.signal);
    } catch (error) {
      if (asking.signal.aborted) return; // stopped, or another text was entered
      this.status.replaceChildren(h("span", { class: "problem", role: "alert" }, shown(/** @type {any} */ (error).message)));
    }
    this.ended();
  }

  /** Cancel silently, because another text was entered. */
  cancel() {
    this.asking?.abort();
    this.asking = null;
    this.button.textContent = "Write";
  }

  /** Stop writing and keep the text. */
  stop() {
    this.cancel();
    this.ended();
  }

  ended() {
    this.asking = null;
    this.button.textContent = "Write again";
    const sure = this.pieces.reduce((sum, piece) => sum + Math.log(piece.probability), 0);
    if (this.pieces.length) this.status.textContent = `${this.pieces.length} tokens, ln p = ${num(sure, 2)}`;
    if (this.ids.length) this.on.grew(this.ids, true);
  }
}
