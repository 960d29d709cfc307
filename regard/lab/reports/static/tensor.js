// Tensors of float64 with reverse-mode automatic differentiation, and Adam.

/** @typedef {() => void} Back */

/** The steps of the backward pass, in the order of the forward pass; null while nothing is recorded. @type {Back[] | null} */
let tape = [];

/** Arrays of results of a finished backward pass by length, used again: a collection of garbage takes longer than a step. @type {Map<number, Float64Array[]>} */
const spare = new Map();
/** Arrays of the results on the tape. @type {Float64Array[]} */
let used = [];

/** Return zeros for a result. @param {number} n */
function zeros(n) {
  if (!tape) return new Float64Array(n);
  const found = spare.get(n)?.pop()?.fill(0) ?? new Float64Array(n);
  used.push(found);
  return found;
}

/** An array of numbers in row-major order, with its gradient. */
export class Tensor {
  /** @param {number[]} shape @param {ArrayLike<number>} [data] zeros by default */
  constructor(shape, data) {
    this.shape = shape;
    this.data = data instanceof Float64Array ? data : data ? Float64Array.from(data) : new Float64Array(sizeOf(shape));
    /** @type {Float64Array | null} */
    this.grad = null;
    if (this.data.length !== sizeOf(shape)) throw new Error(`shape [${shape}] needs ${sizeOf(shape)} numbers, not ${this.data.length}`);
  }

  /** Return the gradient, zeros at first. */
  slope() {
    this.grad ??= new Float64Array(this.data.length);
    return this.grad;
  }
}

/** @param {number[]} shape */
function sizeOf(shape) {
  return shape.reduce((a, b) => a * b, 1);
}

/** Compute without recording, as for a picture or an accuracy. @template T @param {() => T} compute @returns {T} */
export function withoutGradient(compute) {
  const before = tape;
  tape = null;
  try {
    return compute();
  } finally {
    tape = before;
  }
}

/** Compute the gradients of a scalar by everything that led to it, and forget the tape. @param {Tensor} loss */
export function backward(loss) {
  loss.slope()[0] += 1;
  for (const back of (tape ?? []).reverse()) back();
  tape = [];
  for (const array of used) (spare.get(array.length) ?? spare.set(array.length, []).get(array.length))?.push(array);
  used = [];
}

/** Return a result, whose backward pass gets its gradient. @param {number[]} shape @param {Float64Array} data @param {(gradient: Float64Array) => void} back */
function result(shape, data, back) {
  const made = new Tensor(shape, data);
  if (tape) made.grad = zeros(data.length);
  tape?.push(() => back(/** @type {Float64Array} */ (made.grad)));
  return made;
}

/** For each number of the larger shape, its place in the smaller one, broadcast as in NumPy. @type {Map<string, Int32Array | null>} */
const places = new Map();

/** @param {number[]} shape @param {number[]} whole @returns {Int32Array | null} null if the shapes are equal */
function placesIn(shape, whole) {
  const key = `${shape}|${whole}`;
  const known = places.get(key);
  if (known !== undefined) return known;
  /** @type {Int32Array | null} */
  let found = null;
  if (`${shape}` !== `${whole}`) {
    const padded = [...Array(whole.length - shape.length).fill(1), ...shape];
    const strides = padded.map((size, axis) => (size === 1 ? 0 : sizeOf(padded.slice(axis + 1))));
    found = indices(whole, strides);
  }
  places.set(key, found);
  return found;
}

/** Return the sum of index · stride for each index of a shape. @param {number[]} shape @param {number[]} strides */
function indices(shape, strides) {
  const made = new Int32Array(sizeOf(shape));
  let filled = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    for (let i = 1; i < shape[axis]; i++) for (let j = 0; j < filled; j++) made[i * filled + j] = made[j] + i * strides[axis];
    filled *= shape[axis];
  }
  return made;
}

/** @param {number[]} a @param {number[]} b */
function broadcastShape(a, b) {
  const n = Math.max(a.length, b.length);
  return Array.from({ length: n }, (_, i) => {
    const [x, y] = [a[i - n + a.length] ?? 1, b[i - n + b.length] ?? 1];
    if (x !== y && x !== 1 && y !== 1) throw new Error(`shapes [${a}] and [${b}] do not broadcast`);
    return Math.max(x, y);
  });
}

/**
 * Apply a function to pairs of numbers; `da` and `db` are its derivatives.
 * @param {Tensor} a @param {Tensor} b @param {(x: number, y: number) => number} f
 * @param {(x: number, y: number) => number} da @param {(x: number, y: number) => number} db
 */
function pairwise(a, b, f, da, db) {
  const shape = broadcastShape(a.shape, b.shape);
  const [ia, ib] = [placesIn(a.shape, shape), placesIn(b.shape, shape)];
  const data = zeros(sizeOf(shape));
  for (let i = 0; i < data.length; i++) data[i] = f(a.data[ia ? ia[i] : i], b.data[ib ? ib[i] : i]);
  return result(shape, data, (g) => {
    const [ga, gb] = [a.slope(), b.slope()];
    for (let i = 0; i < g.length; i++) {
      const [p, q] = [ia ? ia[i] : i, ib ? ib[i] : i];
      ga[p] += g[i] * da(a.data[p], b.data[q]);
      gb[q] += g[i] * db(a.data[p], b.data[q]);
    }
  });
}

/** a + b, broadcast. @param {Tensor} a @param {Tensor} b */
export function add(a, b) {
  return pairwise(a, b, (x, y) => x + y, () => 1, () => 1);
}

/** a − b, broadcast. @param {Tensor} a @param {Tensor} b */
export function subtract(a, b) {
  return pairwise(a, b, (x, y) => x - y, () => 1, () => -1);
}

/** a · b number by number, broadcast. @param {Tensor} a @param {Tensor} b */
export function multiply(a, b) {
  return pairwise(a, b, (x, y) => x * y, (_, y) => y, (x) => x);
}

/** a / b number by number, broadcast. @param {Tensor} a @param {Tensor} b */
export function divide(a, b) {
  return pairwise(a, b, (x, y) => x / y, (_, y) => 1 / y, (x, y) => -x / (y * y));
}

/** Apply a function to each number; its derivative is given the number and the result. @param {Tensor} a @param {(x: number) => number} f @param {(x: number, y: number) => number} df */
export function map(a, f, df) {
  const data = zeros(a.data.length);
  for (let i = 0; i < data.length; i++) data[i] = f(a.data[i]);
  return result(a.shape, data, (g) => {
    const ga = a.slope();
    for (let i = 0; i < g.length; i++) ga[i] += g[i] * df(a.data[i], data[i]);
  });
}

/** @param {Tensor} a @param {number} factor */
export function scale(a, factor) {
  return map(a, (x) => factor * x, () => factor);
}

/** @param {Tensor} a */
export function tanh(a) {
  return map(a, Math.tanh, (_, y) => 1 - y * y);
}

/** @param {Tensor} a */
export function sigmoid(a) {
  return map(a, (x) => 1 / (1 + Math.exp(-x)), (_, y) => y * (1 - y));
}

/** @param {Tensor} a */
export function exp(a) {
  return map(a, Math.exp, (_, y) => y);
}

/** @param {Tensor} a */
export function square(a) {
  return map(a, (x) => x * x, (x) => 2 * x);
}

/** The sum of each row of the last axis, which keeps one column. @param {Tensor} a */
export function sumRows(a) {
  const width = a.shape[a.shape.length - 1];
  const data = zeros(a.data.length / width);
  for (let r = 0, i = 0; r < data.length; r++) for (let c = 0; c < width; c++) data[r] += a.data[i++];
  return result([...a.shape.slice(0, -1), 1], data, (g) => {
    const ga = a.slope();
    for (let r = 0, i = 0; r < g.length; r++) for (let c = 0; c < width; c++) ga[i++] += g[r];
  });
}

/** The mean of all numbers. @param {Tensor} a */
export function mean(a) {
  const rows = sumRows(reshape(a, [1, a.data.length]));
  return scale(rows, 1 / a.data.length);
}

/** @param {Tensor} a @param {number[]} shape */
export function reshape(a, shape) {
  return result(shape, a.data, (g) => addTo(a.slope(), g));
}

/** @param {Float64Array} sum @param {Float64Array} terms */
function addTo(sum, terms) {
  for (let i = 0; i < sum.length; i++) sum[i] += terms[i];
}

/** Reorder the axes. @param {Tensor} a @param {number[]} axes */
export function permute(a, axes) {
  const shape = axes.map((axis) => a.shape[axis]);
  const key = `${a.shape}>${axes}`;
  const from = places.get(key) ?? indices(shape, axes.map((axis) => sizeOf(a.shape.slice(axis + 1))));
  places.set(key, from);
  const data = zeros(from.length);
  for (let i = 0; i < data.length; i++) data[i] = a.data[from[i]];
  return result(shape, data, (g) => {
    const ga = a.slope();
    for (let i = 0; i < g.length; i++) ga[from[i]] += g[i];
  });
}

/** Columns from … to − 1 of the last axis. @param {Tensor} a @param {number} from @param {number} to */
export function columns(a, from, to) {
  const [width, kept] = [a.shape[a.shape.length - 1], to - from];
  const data = zeros((a.data.length / width) * kept);
  for (let r = from, i = 0; i < data.length; r += width) for (let c = 0; c < kept; c++) data[i++] = a.data[r + c];
  return result([...a.shape.slice(0, -1), kept], data, (g) => {
    const ga = a.slope();
    for (let r = from, i = 0; i < g.length; r += width) for (let c = 0; c < kept; c++) ga[r + c] += g[i++];
  });
}

/** Join along the last axis. @param {Tensor[]} parts */
export function concat(parts) {
  const widths = parts.map((part) => part.shape[part.shape.length - 1]);
  const [width, rows] = [widths.reduce((a, b) => a + b, 0), parts[0].data.length / widths[0]];
  const data = zeros(rows * width);
  const each = (/** @type {(part: number, i: number, place: number) => void} */ visit) => {
    let start = 0;
    widths.forEach((w, part) => {
      for (let i = 0; i < rows * w; i++) visit(part, i, Math.floor(i / w) * width + start + (i % w));
      start += w;
    });
  };
  each((part, i, place) => { data[place] = parts[part].data[i]; });
  return result([...parts[0].shape.slice(0, -1), width], data, (g) => {
    const slopes = parts.map((part) => part.slope());
    each((part, i, place) => { slopes[part][i] += g[place]; });
  });
}

/** Rows of a table by number: an embedding. @param {Tensor} table (rows, width) @param {ArrayLike<number>} ids @param {number[]} shape of the numbers */
export function take(table, ids, shape) {
  const width = table.shape[1];
  const data = zeros(ids.length * width);
  for (let i = 0; i < ids.length; i++) data.set(table.data.subarray(ids[i] * width, (ids[i] + 1) * width), i * width);
  return result([...shape, width], data, (g) => {
    const gt = table.slope();
    for (let i = 0; i < ids.length; i++) for (let c = 0; c < width; c++) gt[ids[i] * width + c] += g[i * width + c];
  });
}

/**
 * Products of matrices: (…, n, k) times (…, k, m), or times (…, m, k) transposed. The leading axes
 * of b are the last ones of a's, or none: b is used again for each of a's further axes.
 * @param {Tensor} a @param {Tensor} b @param {boolean} [transposed]
 */
export function matmul(a, b, transposed = false) {
  const [n, k] = a.shape.slice(-2);
  const [rows, cols] = b.shape.slice(-2);
  const m = transposed ? rows : cols;
  if ((transposed ? cols : rows) !== k) throw new Error(`[${a.shape}] cannot multiply [${b.shape}]`);
  const [batch, step, again] = [a.data.length / (n * k), rows * cols, b.data.length / (rows * cols)];
  const data = zeros(batch * n * m);
  const [x, y] = [a.data, b.data];
  for (let r = 0; r < batch * n; r++) {
    const [i, o, first] = [r * k, r * m, (Math.floor(r / n) % again) * step];
    for (let c = 0; transposed && c < m; c++) {
      let sum = 0;
      for (let p = 0, q = first + c * k; p < k; p++) sum += x[i + p] * y[q + p];
      data[o + c] = sum;
    }
    for (let p = 0; !transposed && p < k; p++) {
      const value = x[i + p];
      for (let c = 0, q = first + p * m; c < m; c++) data[o + c] += value * y[q + c];
    }
  }
  return result([...a.shape.slice(0, -1), m], data, (g) => {
    const [ga, gb] = [a.slope(), b.slope()];
    for (let r = 0; r < batch * n; r++) {
      const [i, o, first] = [r * k, r * m, (Math.floor(r / n) % again) * step];
      for (let c = 0; transposed && c < m; c++) {
        const slope = g[o + c];
        for (let p = 0, q = first + c * k; p < k; p++) {
          ga[i + p] += slope * y[q + p];
          gb[q + p] += slope * x[i + p];
        }
      }
      for (let p = 0; !transposed && p < k; p++) {
        const value = x[i + p];
        let sum = 0;
        for (let c = 0, q = first + p * m; c < m; c++) {
          sum += g[o + c] * y[q + c];
          gb[q + c] += g[o + c] * value;
        }
        ga[i + p] += sum;
      }
    }
  });
}

/**
 * Replace each row of the last axis, by a function that returns the new row and the function from
 * its gradient to the old row's.
 * @param {Tensor} a @param {(row: Float64Array, number: number) => [Float64Array, (g: Float64Array) => Float64Array]} of
 */
export function byRow(a, of) {
  const width = a.shape[a.shape.length - 1];
  const data = zeros(a.data.length);
  /** @type {((g: Float64Array) => Float64Array)[]} */
  const backs = [];
  for (let r = 0; r < data.length / width; r++) {
    const [row, back] = of(a.data.subarray(r * width, (r + 1) * width), r);
    data.set(row, r * width);
    backs.push(back);
  }
  return result(a.shape, data, (g) => {
    const ga = a.slope();
    backs.forEach((back, r) => addTo(ga.subarray(r * width, (r + 1) * width), back(g.subarray(r * width, (r + 1) * width))));
  });
}

/** (x − mean) / √(variance + ε) of each row, times a weight, plus a bias. Ba et al. 2016. @param {Tensor} a @param {Tensor} weight @param {Tensor} bias */
export function layerNorm(a, weight, bias) {
  const normed = byRow(a, (row) => {
    const middle = row.reduce((s, x) => s + x, 0) / row.length;
    const over = 1 / Math.sqrt(row.reduce((s, x) => s + (x - middle) ** 2, 0) / row.length + 1e-5);
    const y = row.map((x) => (x - middle) * over);
    return [y, (g) => {
      const average = g.reduce((s, v) => s + v, 0) / g.length;
      const along = g.reduce((s, v, i) => s + v * y[i], 0) / g.length;
      return g.map((v, i) => over * (v - average - y[i] * along));
    }];
  });
  return add(multiply(normed, weight), bias);
}

/** The mean of −log softmax(logits)[target]. @param {Tensor} logits (…, classes) @param {ArrayLike<number>} targets */
export function crossEntropy(logits, targets) {
  const classes = logits.shape[logits.shape.length - 1];
  const shares = zeros(logits.data.length);
  let loss = 0;
  for (let r = 0; r < targets.length; r++) {
    const row = logits.data.subarray(r * classes, (r + 1) * classes);
    const most = Math.max(...row);
    let total = 0;
    for (let c = 0; c < classes; c++) total += Math.exp(row[c] - most);
    for (let c = 0; c < classes; c++) shares[r * classes + c] = Math.exp(row[c] - most) / total;
    loss += (Math.log(total) + most - row[targets[r]]) / targets.length;
  }
  return result([1], Float64Array.of(loss), (g) => {
    const gl = logits.slope();
    for (let i = 0; i < gl.length; i++) gl[i] += (g[0] * (shares[i] - Number(targets[Math.floor(i / classes)] === i % classes))) / targets.length;
  });
}

/** Adam, Kingma and Ba 2015, with torch's defaults. A step uses the gradients and forgets them. */
export class Adam {
  /** @param {Iterable<Tensor>} parameters @param {number} rate */
  constructor(parameters, rate) {
    this.rate = rate;
    this.count = 0;
    this.states = [...parameters].map((of) => ({ of, first: new Float64Array(of.data.length), second: new Float64Array(of.data.length) }));
  }

  step() {
    this.count += 1;
    const [fix1, fix2] = [1 - 0.9 ** this.count, 1 - 0.999 ** this.count];
    for (const { of, first, second } of this.states) {
      if (!of.grad) continue;
      for (let i = 0; i < first.length; i++) {
        const g = of.grad[i];
        first[i] = 0.9 * first[i] + 0.1 * g;
        second[i] = 0.999 * second[i] + 0.001 * g * g;
        of.data[i] -= (this.rate * first[i]) / fix1 / (Math.sqrt(second[i] / fix2) + 1e-8);
      }
      of.grad = null;
    }
  }
}
