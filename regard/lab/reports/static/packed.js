// Attention weights as sent by the server (regard/lab/reports/packed.py): one byte per weight, unpacked head by head.

/** @typedef {{name: string, path: string, kind: string, heads: number, rows: number, columns: number, keys: number, queries: number, habits: Record<string, number[]>, thumb: number[], thumbs: string, top: number, packed: string[]}} PackedLayer */
/** @typedef {{run?: string, text: string, answer?: any, label?: string, read?: number, layers: PackedLayer[], axes: string[][]}} PackedLook */

const KEPT = 48; // unpacked heads kept in memory

/** @param {string} text @returns {Uint8Array} */
export function bytesOf(text) {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}

/** @param {Uint8Array} packed @returns {Promise<ArrayBuffer>} */
async function inflated(packed) {
  const stream = new Blob([/** @type {any} */ (packed)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** One head: weights of `rows` queries over `columns` keys. */
export class Head {
  /** @param {number} rows @param {number} columns @param {Float32Array} scales @param {Uint8Array} bytes */
  constructor(rows, columns, scales, bytes) {
    this.rows = rows;
    this.columns = columns;
    this.scales = scales;
    this.bytes = bytes;
    this.most = scales.reduce((a, b) => Math.max(a, b), 0) || 1;
    /** Weight of the full colour: at least four times the uniform weight, so that a diffuse head looks pale. */
    this.full = Math.min(1, Math.max(this.most, 4 / columns));
  }

  /** Return the weight of one pair. @param {number} i @param {number} j */
  at(i, j) {
    return (this.scales[i] * this.bytes[i * this.columns + j]) / 255;
  }

  /** Return the weights of query i. @param {number} i */
  row(i) {
    return Float32Array.from({ length: this.columns }, (_, j) => this.at(i, j));
  }

  /** Return the weights on key j. @param {number} j */
  column(j) {
    return Float32Array.from({ length: this.rows }, (_, i) => this.at(i, j));
  }

  /** Return the weight each key receives, averaged over queries. */
  received() {
    const total = new Float32Array(this.columns);
    for (let i = 0, place = 0; i < this.rows; i++) {
      const share = this.scales[i] / 255 / this.rows;
      for (let j = 0; j < this.columns; j++) total[j] += share * this.bytes[place++];
    }
    return total;
  }
}

/**
 * Decode a head from its bytes, which hold only the strongest keys if `top` is not 0.
 * @param {ArrayBuffer} data @param {number} rows @param {number} columns @param {number} top
 */
export function headOf(data, rows, columns, top) {
  const scales = new Float32Array(data.slice(0, 4 * rows));
  if (!top) return new Head(rows, columns, scales, new Uint8Array(data, 4 * rows));
  const places = new Uint16Array(data.slice(4 * rows, 4 * rows + 2 * rows * top));
  const strongest = new Uint8Array(data, 4 * rows + 2 * rows * top);
  const bytes = new Uint8Array(rows * columns);
  for (let i = 0, k = 0; i < rows; i++) {
    for (let t = 0; t < top; t++, k++) bytes[i * columns + places[k]] = strongest[k];
  }
  return new Head(rows, columns, scales, bytes);
}

/** A model's answer and attention for one text. Weights that were not sent are requested. */
export class Look {
  /**
   * @param {PackedLook} data
   * @param {(layer: number, head: number) => Promise<ArrayBuffer>} [ask] requests a head, counted from 0
   */
  constructor(data, ask) {
    this.data = data;
    this.ask = ask;
    this.layers = data.layers;
    /** @type {Map<string, Promise<Head>>} */
    this.heads = new Map();
  }

  /** Return the key tokens. @param {number} layer */
  keys(layer) {
    return this.data.axes[this.layers[layer].keys] ?? [];
  }

  /** Return the query tokens; for a pool, one that stands for its query. @param {number} layer */
  queries(layer) {
    const found = this.layers[layer];
    return found.queries < 0 ? Array(found.rows).fill("the pool’s query") : this.data.axes[found.queries];
  }

  /** @param {number} layer @param {number} head @returns {Promise<Head>} */
  head(layer, head) {
    const key = `${layer}/${head}`;
    const found = this.heads.get(key) ?? this.unpack(layer, head);
    this.heads.delete(key); // reinserted, so that the least recently used one is evicted first
    this.heads.set(key, found);
    if (this.heads.size > KEPT) this.heads.delete(/** @type {string} */ (this.heads.keys().next().value));
    return found;
  }

  /** @param {number} layer @param {number} head */
  async unpack(layer, head) {
    const { rows, columns, packed, top } = this.layers[layer];
    const data = packed.length ? await inflated(bytesOf(packed[head])) : await /** @type {any} */ (this.ask)(layer, head);
    return headOf(data, rows, columns, packed.length ? top : 0);
  }

  /** Return the mean of a layer's heads. @param {number} layer */
  async mean(layer) {
    const { rows, columns, heads } = this.layers[layer];
    const total = new Float32Array(rows * columns);
    for (let k = 0; k < heads; k++) {
      const head = await this.head(layer, k);
      for (let i = 0, place = 0; i < rows; i++) {
        const share = head.scales[i] / 255 / heads;
        for (let j = 0; j < columns; j++, place++) total[place] += share * head.bytes[place];
      }
    }
    return quantised(total, rows, columns);
  }
}

/** Quantise plain weights as a head. @param {ArrayLike<number>} weights @param {number} rows @param {number} columns */
export function quantised(weights, rows, columns) {
  const scales = new Float32Array(rows);
  const bytes = new Uint8Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) scales[i] = Math.max(scales[i], weights[i * columns + j]);
    const factor = scales[i] > 0 ? 255 / scales[i] : 0;
    for (let j = 0; j < columns; j++) bytes[i * columns + j] = Math.round(factor * weights[i * columns + j]);
  }
  return new Head(rows, columns, scales, bytes);
}

/** Return the thumbnail of each head of a layer. @param {PackedLayer} layer @returns {Uint8Array[]} */
export function thumbsOf(layer) {
  const all = bytesOf(layer.thumbs);
  const size = layer.thumb[0] * layer.thumb[1];
  return Array.from({ length: layer.heads }, (_, k) => all.subarray(k * size, (k + 1) * size));
}
