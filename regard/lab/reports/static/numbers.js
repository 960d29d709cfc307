// The mathematics of the lessons.

/** Random numbers from a seed (mulberry32). @param {number} seed @returns {() => number} */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A standard normal number. @param {() => number} random */
export function normal(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/** Softmax over the allowed scores; zeros if none is allowed. @param {number[]} scores @param {boolean[]} [allowed] */
export function softmax(scores, allowed) {
  const may = (/** @type {number} */ i) => !allowed || allowed[i];
  const most = Math.max(...scores.filter((_, i) => may(i)));
  if (!Number.isFinite(most)) return scores.map(() => 0);
  const powers = scores.map((s, i) => (may(i) ? Math.exp(s - most) : 0));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / total);
}

/** −Σ w ln w. @param {number[]} weights */
export function entropyOf(weights) {
  return -weights.reduce((sum, w) => sum + (w > 0 ? w * Math.log(w) : 0), 0);
}

/** @param {number[]} a @param {number[]} b */
export function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}

/** Rows times a matrix. @param {number[][]} a @param {number[][]} b */
export function times(a, b) {
  return a.map((row) => b[0].map((_, j) => row.reduce((sum, x, k) => sum + x * b[k][j], 0)));
}

/** Sine positions: sin(i / 10000^(2j/d)) and cos beside it. Vaswani et al. 2017. @param {number} n @param {number} width */
export function sines(n, width) {
  return Array.from({ length: n }, (_, i) => Array.from({ length: width }, (_, c) => {
    const angle = i / 10000 ** ((2 * Math.floor(c / 2)) / width);
    return c % 2 ? Math.cos(angle) : Math.sin(angle);
  }));
}
