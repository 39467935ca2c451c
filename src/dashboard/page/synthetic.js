// Notes of a program that never ran, to see how the page stands many of them: `/?synthetic=1000000`.

import { Kind } from './kinds.js';

const THREADS = 8;
const FRAME = 16384;
const PHASES = ['ir.read', 'ir.optimize', 'ir.generate', 'link.graph', 'link.allocate', 'link.fixup', 'cache.find'];
const UNITS = 512;

/** A generator of numbers in 0..1, the same each time. */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function* notes(chance) {
  const clocks = new Float64Array(THREADS).map(() => 2e6 + chance() * 1e5);
  const unitName = (unit) => 1 + PHASES.length + THREADS + (unit % UNITS);
  for (let thread = 0; thread < THREADS; thread++) {
    yield [Kind.ThreadNamed, 0, thread, 1 + PHASES.length + thread, thread, 0];
  }
  yield [Kind.Dylib, 0, 0, unitName(0) + UNITS, 1, 0];
  let bytes = 0;
  for (let id = 1; ; id++) {
    let thread = 0;
    for (let each = 1; each < THREADS; each++) if (clocks[each] < clocks[thread]) thread = each;
    let time = clocks[thread];
    const query = 1e6 + id;
    const by = id > 8 && chance() < 0.3 ? id - 3 : 0;
    yield [Kind.Claimed, time, thread, unitName(id), id, by];
    yield [Kind.Lodged, (time += 400), thread, unitName(id), query, by];
    if (chance() < 0.3) yield [Kind.Prioritized, (time += 50), thread, 0, id, (chance() * 3) | 0];
    yield [Kind.Begun, (time += 2e4 * chance() ** 3), thread, unitName(id), id, 0];
    const weight = 0.2 + 4 * chance() ** 6;
    for (let phase = 0; phase < 6; phase++) {
      if (chance() < 0.25) continue;
      yield [Kind.PhaseBegun, (time += 200), thread, 1 + phase, id, 0];
      if (phase === 4 && chance() < 0.06) {
        yield [Kind.Blocked, (time += 100), thread, unitName(id + 1), 1e6 + id - 1, 0];
        yield [Kind.Unblocked, (time += 2e4 * chance()), thread, unitName(id + 1), 1e6 + id - 1, 0];
      }
      time += weight * [3e3, 4e4, 3e4, 4e3, 3e3, 6e3][phase] * (0.5 + chance());
      yield [Kind.PhaseEnded, time, thread, 1 + phase, id, 0];
    }
    bytes += 4096 * ((1 + 8 * chance()) | 0) * (chance() < 0.45 ? -1 : 1);
    bytes = Math.max(bytes, 65536);
    if (id % 8 === 0) yield [Kind.Bytes, time, thread, 0, 1, bytes];
    if (id % 5 === 0) yield [Kind.CacheAsked, time, thread, unitName(id), chance() < 0.6 ? 1 : 0, 0];
    yield [Kind.Emitted, (time += 300), thread, 0, id, 1];
    yield [Kind.Ready, (time += 100), thread, unitName(id), id, id];
    yield [Kind.Ended, (time += 100), thread, 0, id, chance() < 0.004 ? 1 : 0];
    yield [Kind.Completed, (time += 100), thread, 0, query, id];
    clocks[thread] = time + 1e3 * chance();
  }
}

/** Frames with `count` notes, as the server would send them. */
export function* frames(count) {
  const names = ['', ...PHASES];
  for (let thread = 0; thread < THREADS; thread++) names.push(thread === 0 ? 'main' : `uruk-worker-${thread}`);
  for (let unit = 0; unit < UNITS; unit++) names.push(`module_${String(unit).padStart(3, '0')}.ll`);
  names.push('main dylib');
  const source = notes(random(7));
  for (let first = 0; first < count; first += FRAME) {
    const rows = { count: Math.min(FRAME, count - first) };
    for (const column of ['time', 'a', 'b']) rows[column] = new Float64Array(rows.count);
    rows.name = new Uint32Array(rows.count);
    for (const column of ['kind', 'session', 'thread']) rows[column] = new Uint16Array(rows.count);
    let now = 0;
    for (let at = 0; at < rows.count; at++) {
      [rows.kind[at], rows.time[at], rows.thread[at], rows.name[at], rows.a[at], rows.b[at]] = source.next().value;
      now = Math.max(now, rows.time[at]);
    }
    yield { first, lost: 0, nameFirst: 0, names: first === 0 ? names : [], now, rows };
  }
}
