// A run's answer: in one line, and as a card.
import { h, num, percent } from "./dom.js";
import { probabilityBars } from "./heads.js";

const LONG = 36; // maximum characters of an answer in large type

/**
 * Say an answer: what it is, the answer, and how likely it is.
 * @param {any} answer
 * @returns {{title: string, text: string, note: string}}
 */
function said(answer) {
  if (answer.written !== undefined) {
    return { title: "Output", text: answer.written || "(nothing)", note: `ln p = ${num(answer.log_probability, 2)}${answer.ended ? "" : ", truncated"}` };
  }
  if (answer.tags !== undefined) return { title: "Tags", text: answer.words.map((/** @type {string} */ word, /** @type {number} */ i) => `${word} ${answer.tags[i]}`).join(", "), note: "" };
  if (answer.probabilities === undefined) return { title: "Prediction", text: num(answer.value, 3), note: "" };
  if (answer.labels !== undefined) return { title: "Labels", text: answer.labels.join(", ") || "(no label)", note: "" };
  return { title: "Prediction", text: answer.label, note: `${percent(answer.probabilities[answer.label], 1)} sure` };
}

/** Return whether an answer is a text, or tags of one: too long for a column. @param {any} answer */
export function isText(answer) {
  return answer.written !== undefined || answer.tags !== undefined;
}

/** Return an answer in one line. @param {any} answer */
export function answerLine(answer) {
  const { text, note } = said(answer);
  return note ? `${text}, ${note}` : text;
}

/** Mark the tagged spans, or each tagged word, of a sentence. @param {{words: string[], tags: string[], spans: {first: number, last: number, kind: string}[]}} answer */
function marked(answer) {
  const parts = [];
  for (let i = 0; i < answer.words.length; i += 1) {
    const span = answer.spans.find((one) => one.first === i);
    const kind = span ? span.kind : answer.spans.length || answer.tags[i] === "O" ? "" : answer.tags[i];
    const words = answer.words.slice(i, span ? span.last : i + 1).join(" ");
    parts.push(kind ? h("mark", {}, words, h("small", {}, kind)) : words, " ");
    if (span) i = span.last - 1;
  }
  return parts;
}

/** Say what the model did not read of a text, if anything. @param {any} answer */
export function notRead(answer) {
  const says = [
    ...(answer.unknown ? [`Unknown to the model: ${answer.unknown.join(", ")}`] : []),
    ...(answer.left_out ? [`The text is too long: the model did not read ${answer.left_out} of its tokens.`] : []),
  ];
  return says.map((line) => h("p", { class: "soft", dir: "auto" }, line));
}

/** Show a run's answer: a label with probabilities, a text, a number, or a tag for each word. @param {any} answer */
export function answerCard(answer) {
  const { title, text, note } = said(answer);
  const body = answer.written !== undefined
    ? [h("p", { class: text.length > 4 * LONG ? "written long" : "written", dir: "auto" }, text), h("p", { class: "soft" }, note)]
    : answer.tags !== undefined ? [h("p", { class: "marked", dir: "auto" }, ...marked(answer))]
      : [h("p", { class: answer.probabilities && text.length > LONG ? "label long" : "label" }, text, note && h("span", { class: "soft" }, ` ${note}`)), answer.probabilities && probabilityBars(answer)];
  return h("div", { class: "answer-card" }, h("p", { class: "over" }, title), body, notRead(answer));
}
