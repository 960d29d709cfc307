// What the playground trains: networks with one layer of attention, and generated data for each.
import { addPositions, attend, below, gru, gruParameters, linear, linearParameters, multiHead, multiHeadParameters, scoreParameters } from "./layers.js";
import { normal, seeded } from "./numbers.js";
import { Adam, Tensor, add, backward, concat, crossEntropy, matmul, mean, permute, reshape, square, subtract, take, tanh, withoutGradient } from "./tensor.js";

/**
 * @typedef {import("./layers.js").How & {task: string, network: string, rate: number, seed: number, points: number, noise: number}} Settings
 * @typedef {{weights: number[][][], rows: string[], columns: string[], says: string, points?: {x: number, y: number}[], curve?: number[]}} Picture
 * @typedef {{step: () => number, score: () => number, picture: () => Picture}} Training
 * @typedef {{title: string, says: string, networks: string[], unit: string, solved: number, steps: number, single?: boolean, usual: Partial<Settings>, begin: (settings: Settings) => Training}} Task
 */

const [WIDTH, BATCH, JUDGED, LENGTH] = [16, 32, 200, 6];
const SPAN = 5; // of the points of the regression

/** @param {number} x */
const truth = (x) => 2 * Math.sin(x) + x ** 0.8 - 1.2 * (x > 3.2 ? (x - 3.2) * 0.9 : 0) - 0.4;

/** @param {number} n @param {() => number} random @param {number} [least] */
const whole = (n, random, least = 0) => least + Math.floor(n * random());

/** Draw without replacement. @param {number} n @param {number} count @param {() => number} random */
function sample(n, count, random) {
  const all = Array.from({ length: n }, (_, i) => i);
  return Array.from({ length: count }, () => all.splice(whole(all.length, random), 1)[0]);
}

/** A table of normal numbers. @param {number[]} shape @param {() => number} random @param {number} [size] */
function drawn(shape, random, size = 1) {
  return new Tensor(shape, Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => size * normal(random)));
}

/** The weights of the first text, head by head. @param {Tensor} weights (batch, heads, n, m) */
function firstWeights(weights) {
  const [heads, n, m] = weights.shape.slice(-3);
  return Array.from({ length: heads }, (_, h) => Array.from({ length: n }, (__, i) => [...weights.data.subarray((h * n + i) * m, (h * n + i + 1) * m)]));
}

/** Kernel regression whose width is learned from the error at each point without that point. @param {Settings} how @returns {Training} */
function regression(how) {
  const random = seeded(how.seed);
  const draw = (/** @type {number} */ n, /** @type {number} */ noise) => Array.from({ length: n }, () => {
    const x = SPAN * random();
    return { x, y: truth(x) + noise * normal(random) };
  }).sort((a, b) => a.x - b.x);
  const points = draw(how.points, how.noise);
  const unseen = draw(JUDGED, 0);
  const tall = (/** @type {number[]} */ values) => new Tensor([values.length, 1], values);
  const [x, y] = [tall(points.map((p) => p.x)), tall(points.map((p) => p.y))];
  const parameters = scoreParameters(how.score, 1, [], seeded(how.seed + 1));
  const adam = new Adam(Object.values(parameters), how.rate);
  const fit = (/** @type {number[]} */ places) => [...withoutGradient(() => attend(tall(places), x, y, { ...how, mask: "none" }, parameters).output.data)];
  return {
    step() {
      const loss = mean(square(subtract(attend(x, x, y, { ...how, mask: "others" }, parameters).output, y)));
      backward(loss);
      adam.step();
      return loss.data[0];
    },
    score() {
      const middle = unseen.reduce((sum, p) => sum + p.y, 0) / JUDGED;
      const over = (/** @type {(i: number) => number} */ f) => unseen.reduce((sum, p, i) => sum + (p.y - f(i)) ** 2, 0);
      const found = fit(unseen.map((p) => p.x));
      return 1 - over((i) => found[i]) / over(() => middle);
    },
    picture() {
      const weights = withoutGradient(() => attend(x, x, y, { ...how, mask: "none" }, parameters).weights.data);
      const names = points.map((p) => p.x.toFixed(2));
      const w = parameters.inverse_width;
      return {
        points, curve: fit(Array.from({ length: 101 }, (_, i) => (SPAN * i) / 100)), rows: names, columns: names,
        weights: [points.map((_, i) => [...weights.subarray(i * points.length, (i + 1) * points.length)])],
        says: w ? `width 1/w = ${(1 / Math.abs(w.data[0])).toFixed(3)}` : "no width to learn",
      };
    },
  };
}

/** A batch: what is read, what the queries know, and what they must answer; numbers of symbols, text after text. @typedef {{read: number[], second?: number[], queries: number[], targets: number[]}} Batch */

/** @type {Record<string, {symbols: string[], batch: (n: number, random: () => number) => Batch, writes: boolean}>} */
const SEQUENCES = {
  retrieve: {
    symbols: [..."abcdefgh01234567"], writes: false,
    batch(n, random) {
      const texts = Array.from({ length: n }, () => ({ keys: sample(8, LENGTH, random), values: Array.from({ length: LENGTH }, () => whole(8, random, 8)), order: sample(LENGTH, LENGTH, random) }));
      return { read: texts.flatMap((t) => t.keys), second: texts.flatMap((t) => t.values), queries: texts.flatMap((t) => t.order.map((i) => t.keys[i])), targets: texts.flatMap((t) => t.order.map((i) => t.values[i])) };
    },
  },
  sort: {
    symbols: [..."0123456789", "▷"], writes: true,
    batch(n, random) {
      const texts = Array.from({ length: n }, () => sample(10, LENGTH, random));
      return written(texts, texts.map((text) => [...text].sort((a, b) => a - b)), 10);
    },
  },
  reverse: {
    symbols: [..."abcdefgh", "▷"], writes: true,
    batch(n, random) {
      const texts = Array.from({ length: n }, () => Array.from({ length: LENGTH }, () => whole(8, random)));
      return written(texts, texts.map((text) => [...text].reverse()), 8);
    },
  },
};

/** @param {number[][]} texts @param {number[][]} answers @param {number} start the symbol before the first @returns {Batch} */
function written(texts, answers, start) {
  return { read: texts.flat(), queries: answers.flatMap((answer) => [start, ...answer.slice(0, -1)]), targets: answers.flat() };
}

/** Index of the largest number of each row. @param {Tensor} logits */
function answersOf(logits) {
  const classes = logits.shape[logits.shape.length - 1];
  return Array.from({ length: logits.data.length / classes }, (_, r) => {
    const row = logits.data.subarray(r * classes, (r + 1) * classes);
    return row.indexOf(Math.max(...row));
  });
}

/** Column t of tables with LENGTH columns. @param {number[]} ids @param {number} t */
const column = (ids, t) => ids.filter((_, i) => i % LENGTH === t);

/** One layer of attention from the symbols known so far to those that were read, or a recurrent encoder and decoder. @param {Settings} how @returns {Training} */
function sequences(how) {
  const [random, start] = [seeded(how.seed), seeded(how.seed + 1)];
  const { symbols, batch, writes } = SEQUENCES[how.task];
  const recurrent = how.network === "recurrent";
  const inside = how.position === "rotary" || how.position === "alibi";
  const score = multiHeadParameters(WIDTH, how, start);
  /** @type {import("./layers.js").Parameters} */
  const p = {
    symbols: drawn([symbols.length, WIDTH], start), table: drawn([LENGTH, WIDTH], start, 0.5), ...score,
    ...linearParameters("answer", recurrent ? 2 * WIDTH : WIDTH, symbols.length, start),
    ...(recurrent && Object.fromEntries(["encode", "decode"].flatMap((side) => Object.entries(gruParameters(side === "encode" ? WIDTH : 2 * WIDTH, WIDTH, start)).map(([name, value]) => [`${side}.${name}`, value])))),
  };
  const adam = new Adam(Object.values(p), how.rate);
  const embed = (/** @type {number[]} */ ids) => take(p.symbols, ids, [ids.length / LENGTH, LENGTH]);
  const placed = (/** @type {Tensor} */ x) => (inside ? x : addPositions(x, how, p));

  /** All queries at once. @param {Batch} given */
  function layer(given) {
    const read = given.second ? add(embed(given.read), embed(given.second)) : embed(given.read);
    const { output, weights } = multiHead(placed(embed(given.queries)), placed(read), how, p);
    return { logits: linear(output, p, "answer"), weights };
  }

  /** Symbol after symbol, from the right ones before or from its own. @param {Batch} given @param {boolean} own */
  function recurrence(given, own) {
    const n = given.read.length / LENGTH;
    const [encode, decode] = [below(p, "encode."), below(p, "decode.")];
    let state = new Tensor([n, WIDTH]);
    const states = [];
    for (let t = 0; t < LENGTH; t++) states.push((state = gru(take(p.symbols, column(given.read, t), [n]), state, encode)));
    const memory = placed(reshape(concat(states), [n, LENGTH, WIDTH]));
    let [before, context] = [column(given.queries, 0), new Tensor([n, WIDTH])];
    const [logits, maps] = [/** @type {Tensor[]} */ ([]), /** @type {Tensor[]} */ ([])];
    for (let t = 0; t < LENGTH; t++) {
      if (t) before = own ? answersOf(logits[t - 1]) : column(given.queries, t);
      state = gru(concat([take(p.symbols, before, [n]), context]), state, decode);
      const found = multiHead(reshape(state, [n, 1, WIDTH]), memory, { ...how, mask: "none" }, p);
      context = reshape(found.output, [n, WIDTH]);
      logits.push(linear(concat([state, context]), p, "answer"));
      maps.push(reshape(found.weights, [n, how.heads * LENGTH]));
    }
    return { logits: reshape(concat(logits), [n, LENGTH, symbols.length]), weights: stacked(maps, n) };
  }

  /** The maps of single steps as one, (batch, heads, n, m). @param {Tensor[]} maps @param {number} n */
  function stacked(maps, n) {
    return permute(reshape(concat(maps), [n, LENGTH, how.heads, LENGTH]), [0, 2, 1, 3]);
  }

  /** Answers without seeing the right ones. @param {Batch} given */
  function answered(given) {
    if (recurrent) return recurrence(given, true);
    let found = layer(given);
    if (!writes) return found;
    const queries = given.queries.map((id, i) => (i % LENGTH ? 0 : id));
    for (let t = 0; t < LENGTH; t++) {
      found = layer({ ...given, queries });
      const answers = answersOf(found.logits);
      if (t + 1 < LENGTH) for (let i = t + 1; i < queries.length; i += LENGTH) queries[i] = answers[i - 1];
    }
    return found;
  }

  const unseen = batch(JUDGED, seeded(how.seed + 2));
  const one = { ...unseen, ...Object.fromEntries(Object.entries(unseen).map(([name, ids]) => [name, ids.slice(0, LENGTH)])) };
  return {
    step() {
      const given = batch(BATCH, random);
      const loss = crossEntropy((recurrent ? recurrence(given, false) : layer(given)).logits, given.targets);
      backward(loss);
      adam.step();
      return loss.data[0];
    },
    score: () => withoutGradient(() => answersOf(answered(unseen).logits).filter((answer, i) => answer === unseen.targets[i]).length / unseen.targets.length),
    picture: () => withoutGradient(() => {
      const { logits, weights } = answered(one);
      const words = answersOf(logits).map((id) => symbols[id]);
      const readAs = one.read.map((id, i) => symbols[id] + (one.second ? symbols[one.second[i]] : ""));
      return {
        weights: firstWeights(weights), rows: words.map((word, i) => (writes ? word : `${symbols[one.queries[i]]}→${word}`)), columns: readAs,
        says: `${readAs.join(" ")} → ${words.join(" ")}, wanted ${one.targets.map((id) => symbols[id]).join(" ")}`,
      };
    }),
  };
}

/** Sentences for a positive review, from `regard.lab.data.synthetic`; a negative one exchanges + and −. Only the first two can be classified without the order of the words. */
const SENTENCES = [
  "the {part} was {+}", "i {+verb} the {part}", "it was {-} at first but {+} in the end", "the {part} was not {-} it was {+}",
  "it is {+} rather than {-}", "the {part} was more {+} than {-}", "far from {-} the {part} was {+}", "i expected a {-} film but i saw a {+} film",
];
/** @type {Record<string, string[]>} */
const SLOTS = {
  "+": ["wonderful", "moving", "funny", "clever"], "-": ["dull", "clumsy", "tedious", "awful"], "+verb": ["loved", "admired"],
  "-verb": ["hated", "disliked"], "part": ["acting", "plot", "ending", "music"],
};
const WORDS = ["", "[CLS]", ...new Set([...SENTENCES.join(" ").split(" ").filter((word) => !word.includes("{")), ...Object.values(SLOTS).flat()])];

/** @param {() => number} random @param {boolean} positive */
function sentence(random, positive) {
  return SENTENCES[whole(SENTENCES.length, random)].split(" ").map((word) => {
    const slot = word.match(/^\{([+-]?)(\w*)\}$/);
    if (!slot) return word;
    const sign = positive || !slot[1] ? slot[1] : { "+": "-", "-": "+" }[slot[1]];
    const words = SLOTS[`${sign}${slot[2]}`];
    return words[whole(words.length, random)];
  });
}

/** Networks for sentences, each with what the ones before it have. */
const RUNGS = ["mean of the words", "self-attention", "+ residual", "+ positions", "CLS"];

/** @param {Settings} how @returns {Training} */
function ladder(how) {
  const [random, start] = [seeded(how.seed), seeded(how.seed + 1)];
  const rung = Math.max(0, RUNGS.indexOf(how.network));
  const longest = 12;
  const inside = how.position === "rotary" || how.position === "alibi";
  const p = { symbols: drawn([WORDS.length, WIDTH], start), table: drawn([longest, WIDTH], start, 0.5), ...multiHeadParameters(WIDTH, how, start), ...linearParameters("hidden", WIDTH, WIDTH, start), ...linearParameters("answer", WIDTH, 2, start) };
  const adam = new Adam(Object.values(p), how.rate);
  const batch = (/** @type {number} */ n, /** @type {() => number} */ chance) => {
    const labels = Array.from({ length: n }, (_, i) => i % 2);
    const texts = labels.map((label) => [...(rung === 4 ? ["[CLS]"] : []), ...sentence(chance, label === 1)]);
    return { texts, labels };
  };
  function classify(/** @type {string[][]} */ texts) {
    const [n, m] = [texts.length, longest];
    const lengths = texts.map((text) => text.length);
    let x = take(p.symbols, texts.flatMap((text) => Array.from({ length: m }, (_, i) => WORDS.indexOf(text[i] ?? ""))), [n, m]);
    let weights = null;
    if (rung >= 3 && !inside) x = addPositions(x, how, p);
    if (rung) {
      const found = multiHead(x, x, { ...how, position: rung >= 3 ? how.position : "none", lengths }, p);
      x = rung >= 2 ? add(x, found.output) : found.output;
      weights = found.weights;
    }
    const share = new Tensor([n, 1, m], lengths.flatMap((length) => Array.from({ length: m }, (_, i) => (rung === 4 ? Number(i === 0) : Number(i < length) / length))));
    const pooled = reshape(matmul(share, x), [n, WIDTH]);
    return { logits: linear(tanh(linear(pooled, p, "hidden")), p, "answer"), weights };
  }
  const unseen = batch(JUDGED, seeded(how.seed + 2));
  const shownText = unseen.texts.reduce((a, b) => (b.length > a.length ? b : a));
  return {
    step() {
      const { texts, labels } = batch(BATCH, random);
      const loss = crossEntropy(classify(texts).logits, labels);
      backward(loss);
      adam.step();
      return loss.data[0];
    },
    score: () => withoutGradient(() => answersOf(classify(unseen.texts).logits).filter((answer, i) => answer === unseen.labels[i]).length / JUDGED),
    picture: () => withoutGradient(() => {
      const { logits, weights } = classify([shownText]);
      const n = shownText.length;
      const all = weights ? firstWeights(weights) : [Array.from({ length: longest }, () => Array(longest).fill(1 / n))];
      return { weights: all.map((head) => head.slice(0, n).map((row) => row.slice(0, n))), rows: shownText, columns: shownText, says: `“${shownText.filter((w) => w !== "[CLS]").join(" ")}”: ${["negative", "positive"][answersOf(logits)[0]]}` };
    }),
  };
}

const SCALED = { score: "scaled-dot", normalize: "softmax", mask: "none", position: "none", heads: 1, rate: 0.01 };

/** @type {Record<string, Task>} */
export const TASKS = {
  regression: { title: "Kernel regression", says: "The prediction at x is the mean of all y, weighted by how close their x are. The width of the kernel is learned: each step lowers the error at every point, predicted from the other points.",
    networks: [], unit: "R² on 200 unseen points", solved: 0.9, steps: 150, single: true, usual: { ...SCALED, score: "gaussian", rate: 0.05 }, begin: regression },
  retrieve: { title: "Retrieval", says: "Six pairs of a letter and a digit; each query is a letter, and the answer is its digit. One layer of attention must find the pair.",
    networks: [], unit: "accuracy", solved: 0.98, steps: 60, usual: SCALED, begin: sequences },
  sort: { title: "Sorting", says: "Six different digits in any order, to be written in order. The query is the digit written before, so attention must find the next larger one.",
    networks: [], unit: "accuracy", solved: 0.98, steps: 250, usual: { ...SCALED, rate: 0.02 }, begin: sequences },
  reverse: { title: "Reversal", says: "Six letters, to be written from the end. The alignment of what is written (rows) with what was read (columns) appears while it trains.",
    networks: ["attention", "recurrent"], unit: "accuracy", solved: 0.98, steps: 80, usual: { ...SCALED, network: "attention", position: "sinusoidal" }, begin: sequences },
  ladder: { title: "Word order", says: "Is the review positive? Three of four sentences have words of both kinds, and only their order tells which counts. Without positions, attention cannot see the order. CLS has one query and needs several heads.",
    networks: RUNGS, unit: "accuracy", solved: 0.98, steps: 150, usual: { ...SCALED, network: "+ positions", position: "learned" }, begin: ladder },
};

/** Begin a training. @param {Settings} settings */
export function begin(settings) {
  return TASKS[settings.task].begin(settings);
}
