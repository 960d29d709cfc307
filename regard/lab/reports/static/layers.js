// Attention and recurrent layers on tensors, with the names, formulas and parameters of regard in Python.
import { normal, sines } from "./numbers.js";
import { Tensor, add, byRow, columns, concat, divide, exp, map, matmul, multiply, permute, reshape, scale, sigmoid, square, subtract, sumRows, take, tanh } from "./tensor.js";

/** Parameters by the names that they have in Python's state_dict. @typedef {Record<string, Tensor>} Parameters */
/** @typedef {{score: string, normalize: string, mask: string, position: string, heads: number, lengths?: number[]}} How */
/** @typedef {{output: Tensor, weights: Tensor}} Attended */

/** @param {Tensor} a */
const width = (a) => a.shape[a.shape.length - 1];
/** @param {Tensor} a */
const rows = (a) => a.shape[a.shape.length - 2];

/** x / max(‖x‖, 10⁻⁸) of each row. @param {Tensor} x */
function direction(x) {
  return divide(x, map(sumRows(square(x)), (s) => Math.max(Math.sqrt(s), 1e-8), (s, y) => (y > 1e-8 ? 0.5 / y : 0)));
}

/** q − k for each pair, (…, n, m, width). @param {Tensor} q @param {Tensor} k @param {(a: Tensor, b: Tensor) => Tensor} join */
function pairs(q, k, join) {
  return join(reshape(q, [...q.shape.slice(0, -1), 1, width(q)]), reshape(k, [...k.shape.slice(0, -2), 1, rows(k), width(k)]));
}

/** w² ‖q − k‖² for each pair. @param {Tensor} q @param {Tensor} k @param {Tensor} w */
function distances(q, k, w) {
  const squares = sumRows(square(pairs(q, k, subtract)));
  return multiply(reshape(squares, squares.shape.slice(0, -1)), square(w));
}

/** score(q, k) for each query and key, (…, n, m). @type {Record<string, (q: Tensor, k: Tensor, p: Parameters) => Tensor>} */
export const SCORES = {
  "dot": (q, k) => matmul(q, k, true),
  "scaled-dot": (q, k) => scale(matmul(q, k, true), width(q) ** -0.5),
  "general": (q, k, p) => matmul(matmul(q, p.weight), k, true),
  "additive": (q, k, p) => {
    const hidden = tanh(pairs(add(matmul(q, p.query_weight), p.bias), matmul(k, p.key_weight), add));
    // The weight of each head, (heads, 1, 1, hidden), beside the hidden numbers of each of its pairs.
    const weight = reshape(p.weight, [...p.weight.shape.slice(0, -2), 1, 1, width(hidden)]);
    const sums = sumRows(multiply(hidden, weight));
    return reshape(sums, sums.shape.slice(0, -1));
  },
  "cosine": (q, k) => matmul(direction(q), direction(k), true),
  "cosine-temperature": (q, k, p) => multiply(matmul(direction(q), direction(k), true), exp(p.temperature)),
  "gaussian": (q, k, p) => scale(distances(q, k, p.inverse_width), -0.5),
  "epanechnikov": (q, k, p) => map(distances(q, k, p.inverse_width), (u) => 0.75 * Math.max(1 - u, 0), (u) => (u < 1 ? -0.75 : 0)),
  "boxcar": (q, k, p) => map(distances(q, k, p.inverse_width), (u) => (u <= 1 ? 0.5 : 0), () => 0),
};

/** New parameters of a score. @param {string} score @param {number} each width of a head @param {number[]} heads [heads], or [] without heads @param {() => number} random @returns {Parameters} */
export function scoreParameters(score, each, heads, random) {
  const filled = (/** @type {number[]} */ shape, /** @type {() => number} */ value) => {
    const made = new Tensor(shape);
    return new Tensor(shape, made.data.map(value));
  };
  const uniform = () => (2 * random() - 1) * each ** -0.5;
  const ones = heads.length ? [...heads, 1, 1] : [1];
  if (score === "general") return { weight: filled([...heads, each, each], () => normal(random) / each) };
  if (score === "additive") {
    return { query_weight: filled([...heads, each, each], uniform), key_weight: filled([...heads, each, each], uniform), bias: new Tensor([...heads, 1, each]), weight: filled([...heads, each, 1], uniform) };
  }
  if (score === "cosine-temperature") return { temperature: filled(ones, () => 0.5 * Math.log(each)) };
  if (score === "gaussian") return { inverse_width: filled(ones, () => each ** -0.25) };
  if (score === "epanechnikov" || score === "boxcar") return { inverse_width: filled(ones, () => (4 * each) ** -0.5) };
  return {};
}

/** A normaliser: the weights of a row of scores, −∞ where hidden, and the gradient of the scores. @typedef {(s: Float64Array) => [Float64Array, (g: Float64Array) => Float64Array]} RowWeights */

/** exp(s) / (start + Σ exp(s)). @param {Float64Array} s @param {number} start @returns {ReturnType<RowWeights>} */
function exponential(s, start) {
  const most = Math.max(start ? 0 : -Infinity, ...s);
  if (most === -Infinity) return [new Float64Array(s.length), (g) => g.map(() => 0)];
  const w = s.map((x) => Math.exp(x - most));
  const total = w.reduce((a, b) => a + b, start * Math.exp(-most));
  for (let i = 0; i < w.length; i++) w[i] /= total;
  return [w, (g) => {
    const middle = g.reduce((sum, v, i) => sum + v * w[i], 0);
    return g.map((v, i) => w[i] * (v - middle));
  }];
}

/** The largest τ for which Σ f(s − τ) reaches 1, by bisection between two bounds. @param {(t: number) => number} total @param {number} low @param {number} high */
function threshold(total, low, high) {
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (total(middle) >= 1) low = middle;
    else high = middle;
  }
  return low;
}

/** max((α − 1) s − τ, 0)^(1 / (α − 1)) for α = 2 or 1.5, with τ such that the weights sum to 1. @param {Float64Array} s @param {1 | 2} power @returns {ReturnType<RowWeights>} */
function sparse(s, power) {
  const most = Math.max(...s);
  if (most === -Infinity) return [new Float64Array(s.length), (g) => g.map(() => 0)];
  const z = s.map((x) => (x - most) / power);
  const tau = threshold((t) => z.reduce((sum, x) => sum + Math.max(x - t, 0) ** power, 0), -1, 0);
  const w = z.map((x) => Math.max(x - tau, 0) ** power);
  return [w, (g) => {
    const slope = w.map((x) => (x > 0 ? x ** (1 - 1 / power) : 0)); // 1, or the root of the weight
    const middle = g.reduce((sum, v, i) => sum + v * slope[i], 0) / slope.reduce((a, b) => a + b, 0);
    return g.map((v, i) => slope[i] * (v - middle));
  }];
}

/** @type {Record<string, RowWeights>} */
export const NORMALIZERS = {
  "softmax": (s) => exponential(s, 0),
  "softmax-plus-one": (s) => exponential(s, 1),
  "sparsemax": (s) => sparse(s, 1),
  "entmax15": (s) => sparse(s, 2),
  "sigmoid": (s) => {
    const seen = Math.max(1, s.reduce((n, x) => n + Number(x > -Infinity), 0));
    const w = s.map((x) => 1 / (1 + seen * Math.exp(-x)));
    return [w, (g) => g.map((v, i) => v * w[i] * (1 - w[i]))];
  },
  "sum": (s) => {
    const total = s.reduce((sum, x) => sum + Math.max(x, 0), 0) || 1;
    const w = s.map((x) => Math.max(x, 0) / total);
    return [w, (g) => {
      const middle = g.reduce((sum, v, i) => sum + v * w[i], 0);
      return g.map((v, i) => (s[i] > 0 ? (v - middle) / total : 0));
    }];
  },
  "top-k-2": (s) => {
    const least = Float64Array.from(s).sort()[Math.max(0, s.length - 2)];
    return exponential(s.map((x) => (x >= least ? x : -Infinity)), 0);
  },
};

/** May a query at position i see a key at position j? @type {Record<string, (i: number, j: number) => boolean>} */
export const MASKS = {
  "none": () => true,
  "causal": (i, j) => j <= i,
  "window-1": (i, j) => Math.abs(i - j) <= 1,
  "window-2": (i, j) => Math.abs(i - j) <= 2,
  "others": (i, j) => i !== j,
};

/** Positions that are part of the score, and those that are added to the input. */
export const POSITIONS = ["none", "sinusoidal", "learned", "rotary", "alibi"];

/** Turn the columns (h, h + ⌊w/2⌋) of row i by i · 10000^(−h / ⌊w/2⌋). Su et al. 2021. @param {Tensor} x @param {number} first the position of the first row */
function rotate(x, first) {
  const [n, half] = [rows(x), Math.floor(width(x) / 2)];
  const table = (/** @type {(angle: number) => number} */ f) => new Tensor([n, half], Array.from({ length: n * half }, (_, p) => f((first + Math.floor(p / half)) * 10000 ** (-(p % half) / half))));
  const [cos, sin, a, b] = [table(Math.cos), table(Math.sin), columns(x, 0, half), columns(x, half, 2 * half)];
  const turned = [subtract(multiply(a, cos), multiply(b, sin)), add(multiply(b, cos), multiply(a, sin))];
  return concat(width(x) % 2 ? [...turned, columns(x, 2 * half, width(x))] : turned);
}

/** −slope · |i − j| of each head, (heads, n, m); slopes 2^(−8h/heads), heads a power of two. Press et al. 2022. @param {number} heads @param {number} n @param {number} m */
function alibi(heads, n, m) {
  return new Tensor([heads, n, m], Array.from({ length: heads * n * m }, (_, p) => {
    const [h, i, j] = [Math.floor(p / (n * m)), Math.floor((p % (n * m)) / m), p % m];
    return -(2 ** ((-8 * (h + 1)) / heads)) * Math.abs(i + m - n - j);
  }));
}

/**
 * f(q) = Σ normalize(score(q, kᵢ)) vᵢ over the keys that the mask lets q see; the queries are the
 * last ones of the positions of the keys.
 * @param {Tensor} q (batch, heads, n, width), or (n, width) for one head @param {Tensor} k @param {Tensor} v
 * @param {How} how @param {Parameters} parameters those of the score
 * @returns {Attended}
 */
export function attend(q, k, v, how, parameters = {}) {
  const [n, m] = [rows(q), rows(k)];
  const turned = how.position === "rotary" ? [rotate(q, m - n), rotate(k, 0)] : [q, k];
  let scores = SCORES[how.score](turned[0], turned[1], parameters);
  if (how.position === "alibi") {
    const bias = alibi(how.heads, n, m);
    scores = add(scores, q.shape.length > 2 ? bias : new Tensor([n, m], bias.data));
  }
  const [may, weigh] = [MASKS[how.mask], NORMALIZERS[how.normalize]];
  const perText = q.shape.length > 2 ? q.shape.slice(1, -1).reduce((a, b) => a * b, 1) : n;
  const weights = byRow(scores, (row, r) => {
    const [i, length] = [(r % n) + m - n, how.lengths?.[Math.floor(r / perText)] ?? m];
    return weigh(row.map((s, j) => (j < length && may(i, j) ? s : -Infinity)));
  });
  return { output: matmul(weights, v), weights };
}

/** Parameters below a prefix, without it. @param {Parameters} all @param {string} prefix @returns {Parameters} */
export function below(all, prefix) {
  return Object.fromEntries(Object.entries(all).filter(([name]) => name.startsWith(prefix)).map(([name, value]) => [name.slice(prefix.length), value]));
}

/** x Wᵀ + b. @param {Tensor} x @param {Parameters} p @param {string} name */
export function linear(x, p, name) {
  return add(matmul(x, p[`${name}.weight`], true), p[`${name}.bias`]);
}

/** A new linear layer, as torch begins it. @param {string} name @param {number} inputs @param {number} outputs @param {() => number} random @returns {Parameters} */
export function linearParameters(name, inputs, outputs, random) {
  const uniform = () => (2 * random() - 1) * inputs ** -0.5;
  return { [`${name}.weight`]: new Tensor([outputs, inputs], Array.from({ length: inputs * outputs }, uniform)), [`${name}.bias`]: new Tensor([outputs], Array.from({ length: outputs }, uniform)) };
}

/** concat(head₁ … head_h) W_O. Vaswani et al. 2017. @param {Tensor} x (batch, n, width) @param {Tensor} memory (batch, m, width) @param {How} how @param {Parameters} p @returns {Attended} */
export function multiHead(x, memory, how, p) {
  const [w, batch] = [width(x), x.shape[0]];
  const first = linear(x, p, "project");
  const others = x === memory ? first : linear(memory, p, "project");
  const part = (/** @type {Tensor} */ of, /** @type {number} */ i) =>
    permute(reshape(columns(of, i * w, (i + 1) * w), [batch, rows(of), how.heads, w / how.heads]), [0, 2, 1, 3]);
  const inner = how.position === "rotary" || how.position === "alibi" ? "inner." : "";
  const score = { ...below(p, "attention.score."), ...below(p, `attention.score.${inner}`) };
  const { output, weights } = attend(part(first, 0), part(others, 1), part(others, 2), how, score);
  return { output: linear(reshape(permute(output, [0, 2, 1, 3]), x.shape), p, "output"), weights };
}

/** New parameters of `multiHead`. @param {number} w width @param {How} how @param {() => number} random @returns {Parameters} */
export function multiHeadParameters(w, how, random) {
  const score = scoreParameters(how.score, w / how.heads, [how.heads], random);
  return { ...linearParameters("project", w, 3 * w, random), ...linearParameters("output", w, w, random),
    ...Object.fromEntries(Object.entries(score).map(([name, value]) => [`attention.score.${name}`, value])) };
}

/** x + p[i], for positions that are added to the input. @param {Tensor} x @param {How} how @param {Parameters} p */
export function addPositions(x, how, p) {
  const n = rows(x);
  if (how.position === "sinusoidal") return add(x, new Tensor([n, width(x)], sines(n, width(x)).flat()));
  if (how.position === "learned") return add(x, take(p.table, Array.from({ length: n }, (_, i) => i), [n]));
  return x;
}

/** One step of a gated recurrent unit, as torch.nn.GRUCell. Cho et al. 2014. @param {Tensor} x (batch, inputs) @param {Tensor} state (batch, hidden) @param {Parameters} p */
export function gru(x, state, p) {
  const h = width(state);
  const [a, b] = [add(matmul(x, p.weight_ih, true), p.bias_ih), add(matmul(state, p.weight_hh, true), p.bias_hh)];
  const both = (/** @type {number} */ i) => sigmoid(add(columns(a, i * h, (i + 1) * h), columns(b, i * h, (i + 1) * h)));
  const [reset, update] = [both(0), both(1)];
  const next = tanh(add(columns(a, 2 * h, 3 * h), multiply(reset, columns(b, 2 * h, 3 * h))));
  return add(next, multiply(update, subtract(state, next)));
}

/** New parameters of `gru`. @param {number} inputs @param {number} hidden @param {() => number} random @returns {Parameters} */
export function gruParameters(inputs, hidden, random) {
  const table = (/** @type {number[]} */ shape) => new Tensor(shape, Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => (2 * random() - 1) * hidden ** -0.5));
  return { weight_ih: table([3 * hidden, inputs]), weight_hh: table([3 * hidden, hidden]), bias_ih: table([3 * hidden]), bias_hh: table([3 * hidden]) };
}
