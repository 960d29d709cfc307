// The views of a report: texts stored in the file, without a server.
import { answerCard } from "./answer.js";
import { choice, h } from "./dom.js";
import { headsView } from "./heads.js";
import { Look } from "./packed.js";

const place = document.getElementById("looks");
const stored = document.getElementById("stored");
if (place && stored) {
  /** @type {{title: string, looks: import("./packed.js").PackedLook[]}} */
  const { title, looks } = JSON.parse(/** @type {string} */ (stored.textContent));
  place.classList.add("explorer");
  const seen = h("div", {});
  const name = (/** @type {any} */ look) => `${look.run ? `${look.run}: ` : ""}${look.text.length > 70 ? `${look.text.slice(0, 69)}…` : look.text}`;
  const show = (/** @type {number} */ which) => {
    const look = looks[which];
    const { answer } = look;
    seen.replaceChildren(h("div", { class: "answer-card" }, h("p", { class: "stored-text", dir: "auto" }, look.text), answer && answerCard(answer), look.label ? h("p", { class: "soft truth" }, `True label: ${look.label}`) : null), headsView(new Look(look)));
  };
  if (looks.length > 1) place.append(h("div", { class: "card" }, choice(title, looks.map((look, i) => [String(i), name(look)]), "0", (which) => show(+which))));
  place.append(seen);
  if (looks.length) show(0);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(0));
}
