// Learn: interactive figures that explain attention, computed in the browser.
import { readState, writeState } from "./ask.js";
import { h, settled } from "./dom.js";
import { maskLesson } from "./learn-masks.js";
import { positionLesson } from "./learn-positions.js";
import { scalingLesson } from "./learn-scaling.js";
import { stepLesson } from "./learn-steps.js";
import { trainLesson } from "./learn-train.js";

const PAUSE = 150; // milliseconds after the last change before it is written to the URL

/** @typedef {{number: (key: string, otherwise: number, low: number, high: number) => number, word: (key: string, otherwise: string) => string, keep: (changes: Record<string, string | number>) => void}} Kept */

/** Keep the state of a lesson in the URL, prefixed by its name. @param {string} lesson @returns {Kept} */
function keptOf(lesson) {
  const word = (/** @type {string} */ key, /** @type {string} */ otherwise) => readState()[`${lesson}.${key}`] ?? otherwise;
  /** @type {Record<string, string | number>} */
  let waiting = {};
  const write = settled(() => {
    if ((readState().lesson ?? "") === lesson) writeState(waiting);
    waiting = {};
  }, PAUSE);
  return {
    word,
    number(key, otherwise, low, high) {
      const found = Number.parseFloat(word(key, ""));
      return Number.isFinite(found) ? Math.max(low, Math.min(high, found)) : otherwise;
    },
    keep(changes) {
      for (const [key, value] of Object.entries(changes)) waiting[`${lesson}.${key}`] = value;
      write();
    },
  };
}

/** @type {[string, string, (kept: Kept) => Element][]} */
const LESSONS = [
  ["train", "Playground", trainLesson], ["scaling", "Why √d", scalingLesson], ["positions", "Positions", positionLesson],
  ["steps", "One head, step by step", stepLesson], ["masks", "Masks", maskLesson],
];

export function learnView() {
  const place = h("div", { class: "lesson" });
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Lessons" }, LESSONS.map(([name, title]) =>
    h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "lesson", onclick: () => show(name), onkeydown: turn }, title)));
  place.id = "lesson";
  place.setAttribute("role", "tabpanel");

  function show(/** @type {string} */ name) {
    const found = LESSONS.find((lesson) => lesson[0] === name) ?? LESSONS[0];
    for (const tab of tabs.children) {
      const own = tab.id === `tab-${found[0]}`;
      tab.setAttribute("aria-selected", String(own));
      tab.setAttribute("tabindex", own ? "0" : "-1");
    }
    place.setAttribute("aria-labelledby", `tab-${found[0]}`);
    const others = Object.keys(readState()).filter((key) => key.includes(".") && !key.startsWith(`${found[0]}.`));
    writeState({ lesson: found[0], ...Object.fromEntries(others.map((key) => [key, ""])) });
    place.replaceChildren(h("h2", {}, found[1]), found[2](keptOf(found[0])));
  }

  function turn(/** @type {KeyboardEvent} */ event) {
    const step = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1 })[event.key];
    if (!step) return;
    const all = [...tabs.children];
    const next = /** @type {HTMLElement} */ (all[(all.indexOf(/** @type {any} */ (event.target)) + step + all.length) % all.length]);
    show(next.id.slice(4));
    next.focus();
  }

  show(readState().lesson ?? "train");
  return h("div", { class: "view" }, h("h1", {}, "Learn"), h("p", { class: "lead formula" }, "f(q) = Σ normalize(score(q, kᵢ)) vᵢ"), tabs, place);
}
