// Columns of numbers that grow, and what is found in them.

/** Columns of one length. `columns` says the type of each. */
export class Columns {
  constructor(columns) {
    this.types = columns;
    this.length = 0;
    this.room = 64;
    for (const [name, type] of Object.entries(columns)) this[name] = new type(this.room);
  }

  /** Makes room for a row and gives its index. */
  add() {
    if (this.length === this.room) {
      this.room *= 2;
      for (const [name, type] of Object.entries(this.types)) {
        const grown = new type(this.room);
        grown.set(this[name]);
        this[name] = grown;
      }
    }
    return this.length++;
  }
}

/** The first index from `from` on whose value is greater than `value`; the column is sorted. Near ones are found sooner. */
export function after(column, length, value, from = 0) {
  let step = 1;
  let low = from;
  let high = from;
  while (high < length && column[high] <= value) {
    low = high + 1;
    high += step;
    step *= 2;
  }
  high = Math.min(high, length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

const BLOCK = 64;

/** Counts over time. The greatest sum in any stretch is found without looking at each. */
export class Series {
  constructor(parts) {
    this.parts = parts;
    const types = { time: Float64Array, sum: Float64Array };
    for (let part = 0; part < parts; part++) types[`part${part}`] = Float64Array;
    this.columns = new Columns(types);
    this.greatest = new Columns({ index: Uint32Array });
    this.now = new Float64Array(parts);
    this.max = 0;
  }

  change(time, part, by) {
    this.now[part] = Math.max(0, this.now[part] + by);
    const columns = this.columns;
    const last = columns.length - 1;
    // Threads note at their own pace: a time may lie a little before the last one.
    const at = last >= 0 && time <= columns.time[last] ? last : columns.add();
    if (at !== last) columns.time[at] = time;
    let sum = 0;
    for (let each = 0; each < this.parts; each++) sum += columns[`part${each}`][at] = this.now[each];
    columns.sum[at] = sum;
    this.max = Math.max(this.max, sum);
    const block = (at / BLOCK) | 0;
    if (block >= this.greatest.length) this.greatest.index[this.greatest.add()] = at;
    else if (sum >= columns.sum[this.greatest.index[block]]) this.greatest.index[block] = at;
  }

  /** The index of the greatest sum in `from..to`. */
  greatestIn(from, to) {
    const { sum } = this.columns;
    let best = from;
    let at = from;
    while (at < to) {
      if (at % BLOCK === 0 && at + BLOCK <= to) {
        const candidate = this.greatest.index[at / BLOCK];
        if (sum[candidate] > sum[best]) best = candidate;
        at += BLOCK;
      } else {
        if (sum[at] > sum[best]) best = at;
        at += 1;
      }
    }
    return best;
  }
}
