// Optional interactivity of a report; the page is complete without it.
import { downloadButtons } from "./save.js";

// Sort a table by the column whose heading is pressed.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        const numbers = x !== "" && y !== "" && isFinite(x) && isFinite(y);
        return numbers ? x - y : x.localeCompare(y);
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((a, b) => (down ? compare(b, a) : compare(a, b))));
    });
  });
}

// Animations with a slider and a play button; without this script only the last frame is shown.
for (const film of document.querySelectorAll(".film")) {
  const frames = [...film.querySelectorAll(".frame")];
  const [controls, play, slider, says] = ["div", "button", "input", "output"].map((name) =>
    document.createElement(name));
  controls.className = "controls";
  Object.assign(slider, { type: "range", min: 0, max: frames.length - 1, value: 0 });
  slider.setAttribute("aria-label", film.dataset.says);
  play.type = "button";
  let timer = 0;
  const show = (index) => {
    frames.forEach((frame, i) => (frame.hidden = i !== index));
    slider.value = index;
    says.textContent = frames[index].dataset.says;
    slider.setAttribute("aria-valuetext", says.textContent);
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  };
  slider.addEventListener("input", () => {
    stop();
    show(Number(slider.value));
  });
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) === frames.length - 1) show(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      show(Number(slider.value) + 1);
      if (Number(slider.value) === frames.length - 1) stop();
    }, 350);
  });
  controls.append(play, slider, says);
  film.prepend(controls);
  stop();
  show(0);
}

// Add download buttons to every figure and table.
const short = (text) => text.replace(/\s+/g, " ").trim().slice(0, 80);
const heading = (node) => {
  const before = [...document.querySelectorAll("h1, h2, h3")].filter((title) => title.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING);
  return short(before.at(-1)?.textContent ?? document.title);
};
for (const wide of document.querySelectorAll(".scroll")) { // so that it scrolls by keyboard
  Object.entries({ tabindex: "0", role: "region", "aria-label": heading(wide) }).forEach(([key, value]) => wide.setAttribute(key, value));
}
for (const figure of document.querySelectorAll("figure")) {
  const drawn = figure.querySelector("svg");
  if (!drawn || drawn.querySelector("svg")) continue;
  const title = short(drawn.querySelector(".title")?.textContent || drawn.getAttribute("aria-label") || heading(figure));
  figure.append(downloadButtons(title, () => drawn));
}
for (const table of document.querySelectorAll("table")) {
  const rows = () => [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
  const place = table.closest("figure") ?? table.parentElement;
  if (table.rows.length > 1) (place.matches(".scroll") ? place.parentElement : place).insertBefore(downloadButtons(`Table: ${heading(table)}`, null, rows), place.matches(".scroll") ? place : place.firstChild);
}

// In a notebook's frame the page reports its height to frame.js. Resize observers do not fire in a
// hidden frame, so the height is also reported once at the start.
if (parent !== window) {
  const whole = document.documentElement;
  whole.classList.add("framed");
  const tell = () => parent.postMessage({ regardHeight: whole.offsetHeight }, "*");
  new ResizeObserver(tell).observe(whole);
  tell();
}
