// The lessons and the playground without a server: the whole of one file.
import { learnView } from "./learn.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const show = () => main.replaceChildren(learnView());
show();
addEventListener("hashchange", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
