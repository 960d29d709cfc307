// A text as it is written: token by token, streamed, each as deep in colour as the model was unsure.
import { askLines } from "./ask.js";
import { h, num, shown, slider } from "./dom.js";

const LEVELS = 12;
const LONG = 48; // tokens at most, unless asked for more

/** @typedef {{token: string, probability: number, text: string, id: number | null, end: boolean}} Piece */

/** What a piece adds to the text that stood before it; its own name where the text was changed. @param {Piece} piece @param {string} before */
function added(piece, before) {
  return piece.text.startsWith(before) ? piece.text.slice(before.length) : piece.token;
}

/** The card in which a model writes: its text, how it is drawn, and when to begin and to stop. */
export class Writer {
  /**
   * @param {{run: () => import("./ask.js").RunRow, text: () => string, begun: () => void, grew: (ids: number[], done: boolean) => void,
   *   point: (place: number) => void, leave: () => void}} on `place` counts the tokens written
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
        slider("Tokens at most", { min: 8, max: 200, step: 8, value: LONG, says: (v) => String(v) }, (v) => { this.most = v; }), this.button),
      h("p", { class: "note" }, "The deeper a token’s colour, the less sure the model was of it. Point at one to see below what it looked at."));
    this.of();
    this.begin();
  }

  /** Draw as the run does if nothing else is asked: by its own temperature. */
  of() {
    this.temperature = this.on.run().temperature ?? 0;
    const says = (/** @type {number} */ v) => (v ? v.toFixed(1) : "0: the likeliest");
    this.warmth.replaceChildren(slider("Temperature", { min: 0, max: 2, step: 0.1, value: this.temperature, says }, (v) => { this.temperature = v; }));
  }

  /** The numbers of the tokens written. */
  get ids() {
    return /** @type {number[]} */ (this.pieces.map((piece) => piece.id).filter((id) => id !== null));
  }

  /** An empty text; of a model that goes on, behind what it has read. */
  begin() {
    this.pieces = [];
    const { writes } = this.on.run();
    this.head.textContent = writes === "on" ? "It goes on" : "Token by token";
    this.tokens.replaceChildren(...(writes === "on" ? [h("span", { class: "read" }, this.on.text())] : []));
    this.status.textContent = "";
  }

  /** Show a text that was written before. @param {Piece[]} pieces */
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

  /** Write with a new draw. */
  again() {
    this.seed += 1;
    this.write();
  }

  /** Write from the beginning; what was being written ends. */
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
      if (asking.signal.aborted) return; // by `stop` or by another text
      this.status.replaceChildren(h("span", { class: "problem", role: "alert" }, shown(/** @type {any} */ (error).message)));
    }
    this.ended();
  }

  /** Write no more, without a word: another text has come. */
  cancel() {
    this.asking?.abort();
    this.asking = null;
    this.button.textContent = "Write";
  }

  /** Write no more; what stands stays. */
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
