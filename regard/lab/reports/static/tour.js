// A short tour of the page on first opening; remembered by the browser, and again from a button.
import { h } from "./dom.js";

const KEY = "regard-tour";
const STEPS = [
  ["Try a model", "Choose a model and type a text. The answer and the attention follow as you type."],
  ["Look at heads", "Heads shows every head of every layer. Point at a word to see what it attends to."],
  ["Change the model", "Below the answer and the heads, switch heads off, patch in another text, or attribute the answer to words."],
  ["Compare and learn", "Compare shows two models side by side. Learn explains the formula with things to drag."],
];

function seen() {
  try {
    return localStorage.getItem(KEY) === "seen";
  } catch { // storage is switched off: do not show it on every visit
    return true;
  }
}

/** Show the tour as a modal dialog: Escape closes it, the focus goes back to where it was. */
function open() {
  let step = 0;
  const title = h("h2", { id: "tour-title" });
  const text = h("p", { "aria-live": "polite" });
  const count = h("span", { class: "soft" });
  const back = h("button", { type: "button", onclick: () => go(-1) }, "Back");
  const next = h("button", { type: "button", class: "main", onclick: () => go(1) });
  const dialog = h("dialog", { class: "tour", "aria-labelledby": "tour-title", onclose: () => dialog.remove() }, title, text,
    h("div", { class: "row-of-fields" }, count, h("button", { type: "button", onclick: () => dialog.close() }, "Skip"), back, next));
  const go = (/** @type {number} */ by) => {
    step += by;
    if (step >= STEPS.length) { dialog.close(); return; }
    [title.textContent, text.textContent] = STEPS[step];
    count.textContent = `${step + 1} of ${STEPS.length}`;
    back.disabled = !step;
    next.textContent = step === STEPS.length - 1 ? "Done" : "Next";
  };
  go(0);
  document.body.append(dialog);
  dialog.showModal();
  next.focus();
  try {
    localStorage.setItem(KEY, "seen");
  } catch { /* storage is full: it comes again */ }
}

/** Add the button, and show the tour on the first visit. */
export function tour() {
  document.querySelector("header.bar")?.append(h("button", { type: "button", class: "quiet", onclick: open }, "Tour"));
  if (!seen()) open();
}
