// The worker that trains: one training that is watched, or pairs of trainings for a comparison.
import { TASKS, begin } from "./train-tasks.js";

const SLICE = 60; // milliseconds of training between two pictures
const FRAME = 30; // milliseconds between two pictures of a training whose steps are seen one by one

/** @typedef {import("./train-tasks.js").Settings} Settings */
/** @type {import("./train-tasks.js").Training | null} */
let training = null;
let task = "";
let steps = 0;
let seconds = 0;
/** What is running; a later order ends it. */
let order = 0;
/** The page's number of the training: what comes after the page began another one is left out there. */
let number = 0;

/** Send what there is to see; before the first step without the score, which takes longer. @param {number} loss */
function show(loss) {
  const now = /** @type {import("./train-tasks.js").Training} */ (training);
  postMessage({ kind: "seen", number, steps, seconds, loss, score: steps ? now.score() : Number.NaN, picture: now.picture() });
}

/** Train until another order comes, with a pause between slices in which orders arrive. @param {number} mine */
async function play(mine) {
  while (training && order === mine) {
    const [start, single] = [performance.now(), TASKS[task].single];
    let loss = 0;
    do {
      loss = training.step();
      steps += 1;
    } while (!single && performance.now() - start < SLICE);
    seconds += (performance.now() - start) / 1000;
    show(loss);
    await new Promise((done) => setTimeout(done, single ? FRAME : 0));
  }
}

/** Train two settings with each seed, and send the two scores of each seed. @param {number} mine @param {{settings: Settings[], seeds: number, number: number}} asked */
async function compare(mine, { settings, seeds, number: comparison }) {
  for (let seed = 1; seed <= seeds; seed++) {
    const scores = [];
    for (const each of settings) {
      const one = begin({ ...each, seed: 100 * seed }); // seeds of the data, the start and the test lie side by side
      for (let step = 0; step < TASKS[each.task].steps; step++) {
        one.step();
        if (step % 10 === 0) await new Promise((done) => setTimeout(done));
        if (order !== mine) return;
      }
      scores.push(one.score());
    }
    postMessage({ kind: "pair", number: comparison, scores });
  }
}

addEventListener("message", ({ data }) => {
  order += 1;
  if (data.kind === "begin") {
    training = begin(data.settings);
    number = data.number;
    task = data.settings.task;
    [steps, seconds] = [0, 0];
    show(Number.NaN);
  }
  if (data.kind === "step" && training) {
    const loss = training.step();
    steps += 1;
    show(loss);
  }
  if (data.kind === "play") play(order);
  if (data.kind === "compare") compare(order, data);
});
