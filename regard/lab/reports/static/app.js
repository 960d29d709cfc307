// The page: selects a view and keeps its state in the URL.
import { ask, readState, writeState } from "./ask.js";
import { compareView } from "./compare.js";
import { failure, h } from "./dom.js";
import { learnView } from "./learn.js";
import { tour } from "./tour.js";
import { tryView } from "./try.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {{runs: import("./ask.js").RunRow[], comparisons: string[]}} */
let known = { runs: [], comparisons: [] };

const VIEWS = /** @type {Record<string, [string, (context: any) => Element]>} */ ({
  try: ["Try it", (context) => tryView(context, false)],
  heads: ["Heads", (context) => tryView(context, true)],
  compare: ["Compare", compareView],
  learn: ["Learn", learnView],
});

function show() {
  const state = readState();
  const view = state.view in VIEWS ? state.view : known.runs.length ? "try" : "learn";
  const [title, build] = VIEWS[view];
  document.title = `${title} · regard`;
  writeState({ view });
  if (!known.runs.some((run) => !run.error) && view !== "learn") {
    main.replaceChildren(...(known.runs.length ? unread() : [h("h1", {}, "No runs yet"), h("p", { class: "empty" }, "Train one with ", h("code", {}, "regard train classification"), " and load this page again. ", h("a", { href: "#view=learn" }, "Learn"), " needs no run.")]));
    return;
  }
  main.replaceChildren(build({ ...known, state }));
}

/** Explain why no run can be opened. */
function unread() {
  return [h("h1", {}, "No run can be opened"), h("p", { class: "empty" }, "Do what each message says, or train another run with ", h("code", {}, "regard train classification"), ", and load this page again. ", h("a", { href: "#view=learn" }, "Learn"), " needs no run."), h("ul", { class: "texts" }, known.runs.map((run) => h("li", { class: "problem" }, `${run.name}: ${run.error}`)))];
}

/** Keep the run and the text in the links to other views. */
function mark() {
  const state = readState();
  const kept = Object.entries(state).filter(([key]) => ["run", "text", "written"].includes(key));
  for (const link of document.querySelectorAll("header [data-view]")) {
    const own = /** @type {HTMLAnchorElement} */ (link);
    if (own.dataset.view === state.view) own.setAttribute("aria-current", "page");
    else own.removeAttribute("aria-current");
    own.href = `#${new URLSearchParams([["view", own.dataset.view ?? ""], ...kept])}`;
  }
}

addEventListener("state", mark);
try {
  known = await ask("/runs");
  show();
  tour();
} catch (error) {
  main.replaceChildren(failure(error, () => location.reload()));
}
addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
