// What notes mean: slices of threads, claims, lookups, queues, memory. It grows with each note and is never read back.

import { Columns, Series, after } from './columns.js';
import { Kind, PRIORITIES } from './kinds.js';

/** What a slice is about; the number is the index of its colour. */
export const CATEGORIES = ['unit', 'read', 'optimize', 'generate', 'link', 'cache', 'blocked', 'other'];
const UNIT = 0;
const BLOCKED = 6;
const HIDDEN = 8;

/** Phases around what another note says. */
const AROUND = new Set(['dispatch.run', 'unit.materialize', 'lookup.wait', 'dispatch.block']);

function category(name) {
  if (AROUND.has(name)) return HIDDEN;
  if (/cache/.test(name)) return 5;
  if (/optimi|inline|pass/.test(name)) return 2;
  if (/generat|codegen|emit_object|compile/.test(name)) return 3;
  if (/link|graph|fixup|alloc|finali|layout|memory|code\./.test(name)) return 4;
  if (/read|parse|load|normali|interface|ir\.|split|materiali/.test(name)) return 1;
  return 7;
}

/** The slices of one depth of one thread, in the order of time. They do not overlap. `busy` is the time in all of them up to here. */
const newTrack = () =>
  new Columns({ start: Float64Array, end: Float64Array, busy: Float64Array, subject: Uint32Array, name: Uint32Array, category: Uint8Array });

/** Of threads that have just claimed nothing. */
const NONE = Object.freeze([]);

class Lane {
  constructor(thread) {
    this.thread = thread;
    this.name = `thread ${thread}`;
    this.tracks = [];
    this.open = []; // slices that have begun
    this.claimed = NONE; // claims whose lookup is about to be noted
    this.last = 0;
  }

  begin(time, name, category, subject) {
    this.last = Math.max(this.last, time);
    this.open.push({ start: this.last, name, category, subject });
  }

  /** Ends the innermost open slice for which `is` holds, and those within it, whose ends were lost. */
  end(time, is) {
    this.last = Math.max(this.last, time);
    const at = this.open.findLastIndex(is);
    if (at < 0) return undefined;
    while (this.open.length > at + 1) this.close(time);
    return this.close(time);
  }

  close() {
    const slice = this.open.pop();
    const depth = this.open.length;
    while (this.tracks.length <= depth) this.tracks.push(newTrack());
    const track = this.tracks[depth];
    const at = track.add();
    track.start[at] = slice.start;
    track.end[at] = this.last;
    track.busy[at] = (at > 0 ? track.busy[at - 1] : 0) + this.last - slice.start;
    track.subject[at] = slice.subject;
    track.name[at] = slice.name;
    track.category[at] = slice.category;
    return slice;
  }

  get depths() {
    return Math.max(1, this.tracks.length, this.open.length);
  }

  /** The slice of the unit that the thread works on. */
  get unit() {
    return this.open.findLast((slice) => slice.category === UNIT);
  }
}

/** What became of units, in the order of their lives. A unit that was left waits for another thread to emit it. */
export const STATES = ['defined', 'queued', 'running', 'waiting', 'emitted', 'failed', 'returned'];

export class Model {
  constructor() {
    this.names = [];
    this.categories = []; // by name
    this.lanes = [];
    this.sessions = [];
    this.things = [undefined]; // claims and lookups; slices name them by their index
    this.claims = [];
    this.queries = [];
    this.dylibs = [];
    this.units = new Map(); // figures by the name of a unit
    this.bytes = new Map();
    this.resident = new Series(1);
    this.queued = new Series(PRIORITIES.length);
    this.counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    this.blocked = 0;
    this.symbols = { ready: 0, failed: 0 };
    this.lookups = { open: 0, completed: 0, failed: 0, withdrawn: 0 };
    this.cache = { hits: 0, misses: 0 };
    this.tiers = new Map();
    this.first = Infinity;
    this.last = -Infinity;
    this.now = 0;
    this.next = 0;
    this.notes = 0;
    this.slices = 0;
    this.lost = 0;
    this.missed = 0;
    this.version = 0;
  }

  name(index) {
    return this.names[index] ?? '';
  }

  lane(thread) {
    return (this.lanes[thread] ??= new Lane(thread));
  }

  take({ first, lost, nameFirst, now, names, rows }) {
    for (let each = 0; each < names.length; each++) {
      this.names[nameFirst + each] = names[each];
      this.categories[nameFirst + each] = category(names[each]);
    }
    this.missed += Math.max(0, first - this.next);
    this.lost = lost;
    this.next = first + rows.count;
    this.notes += rows.count;
    const { kind, session, time, thread, name, a, b } = rows;
    for (let at = 0; at < rows.count; at++) this.note(kind[at], session[at], time[at], thread[at], name[at], a[at], b[at]);
    this.now = Math.max(now, this.now, this.last);
    this.version += 1;
  }

  note(kind, session, time, thread, name, a, b) {
    if (time < this.first && kind >= Kind.Dylib) this.first = time;
    if (time > this.last) this.last = time;
    switch (kind) {
      case Kind.PhaseBegun:
        if (this.categories[name] === HIDDEN) return undefined;
        return this.lane(thread).begin(time, name, this.categories[name] ?? 7, a === 0 ? 0 : this.claim(session, a).index);
      case Kind.PhaseEnded:
        return this.phaseEnded(time, thread, name);
      case Kind.Ready:
        return void (this.symbols.ready += 1);
      case Kind.Failed:
        this.symbols.failed += 1;
        return b === 0 ? undefined : this.becomes(this.claim(session, b), 'failed');
      case Kind.Claimed:
        return this.claimed(session, time, thread, name, a, b);
      case Kind.Prioritized:
        return this.prioritized(this.claim(session, a), time, b);
      case Kind.Begun:
        return this.begun(this.claim(session, a), time, thread);
      case Kind.Ended:
        return this.ended(this.claim(session, a), time, thread, b);
      case Kind.Resolved:
        return void (this.claim(session, a).resolved = time);
      case Kind.Emitted:
        return this.emitted(this.claim(session, a), time);
      case Kind.Returned:
        return this.returned(this.claim(session, a), time);
      case Kind.Lodged:
        return this.lodged(session, time, thread, name, a, b);
      case Kind.Completed:
        return this.answered(session, time, a, 'completed');
      case Kind.QueryFailed:
        return this.answered(session, time, a, 'failed');
      case Kind.Withdrawn:
        return this.answered(session, time, a, 'withdrawn');
      case Kind.Blocked:
        this.blocked += 1;
        return this.lane(thread).begin(time, this.query(session, a)?.name ?? name, BLOCKED, this.query(session, a)?.index ?? 0);
      case Kind.Unblocked:
        return this.unblocked(time, thread);
      case Kind.Defined:
        return void (this.counts.defined += 1);
      case Kind.Bytes:
        return this.memory(time, name, `${session} ${a}`, b);
      case Kind.CacheAsked:
        return void (this.cache[a === 1 ? 'hits' : 'misses'] += 1);
      case Kind.Promoted:
        return void this.tiers.set(a, (this.tiers.get(a) ?? 0) + 1);
      case Kind.ThreadNamed:
        return void (this.lane(thread).name = this.name(name) || this.lane(thread).name);
      case Kind.Dylib:
        return void this.dylibs.push(this.name(name));
      default: // Kinds of a newer recorder.
    }
  }

  session(number) {
    return (this.sessions[number] ??= { claims: new Map(), queries: new Map() });
  }

  query(session, id) {
    return id === 0 ? undefined : this.session(session).queries.get(id);
  }

  lodged(session, time, thread, name, id, by) {
    const lane = this.lane(thread);
    let query = this.query(session, id);
    // It may be open: then it goes on with the next part of its search.
    if (query?.state !== 'open') {
      query = { isQuery: true, index: this.things.length, session, id, name, by: by === 0 ? undefined : this.claim(session, by), lodged: time, completed: NaN, state: 'open' };
      this.things.push(query);
      this.queries.push(query);
      this.session(session).queries.set(id, query);
      this.lookups.open += 1;
    }
    // The units that it needs were claimed in the same step, on this thread.
    for (const claim of lane.claimed) if (claim.by === query.by) claim.query = query;
    lane.claimed = NONE;
  }

  /** A claim, also one whose beginning was lost. */
  claim(session, id) {
    return this.session(session).claims.get(id) ?? this.newClaim(session, id);
  }

  newClaim(session, id) {
    const claim = {
      index: this.things.length, id, name: 0, by: undefined, query: undefined, priority: 0, thread: -1, state: undefined, blocked: 0, depth: 0,
      claimed: NaN, begun: NaN, ended: NaN, resolved: NaN, emitted: NaN,
    };
    this.things.push(claim);
    this.claims.push(claim);
    this.session(session).claims.set(id, claim);
    return claim;
  }

  becomes(claim, state) {
    if (claim.state === state || claim.state === 'failed') return;
    if (claim.state !== undefined) this.counts[claim.state] -= 1;
    claim.state = state;
    this.counts[state] += 1;
  }

  claimed(session, time, thread, name, id, by) {
    const claim = this.newClaim(session, id); // The number may have been an earlier one's.
    Object.assign(claim, { name, by: by === 0 ? undefined : this.claim(session, by), claimed: time });
    const lane = this.lane(thread);
    if (lane.claimed === NONE) lane.claimed = [claim];
    else lane.claimed.push(claim);
    this.counts.defined = Math.max(0, this.counts.defined - 1);
    this.becomes(claim, 'queued');
    this.queued.change(time, claim.priority, 1);
  }

  prioritized(claim, time, priority) {
    const now = Math.max(0, PRIORITIES.length - 1 - priority);
    if (claim.state === 'queued') {
      this.queued.change(time, claim.priority, -1);
      this.queued.change(time, now, 1);
    }
    claim.priority = now;
  }

  leaveQueue(claim, time) {
    if (claim.state === 'queued') this.queued.change(time, claim.priority, -1);
  }

  begun(claim, time, thread) {
    this.leaveQueue(claim, time);
    this.becomes(claim, 'running');
    claim.begun = time;
    claim.thread = thread;
    claim.depth = this.lane(thread).open.length;
    this.lane(thread).begin(time, claim.name, UNIT, claim.index);
  }

  ended(claim, time, thread, isPanic) {
    claim.ended = time;
    if (isPanic) this.becomes(claim, 'failed');
    else if (claim.state === 'running') this.becomes(claim, 'waiting');
    if (this.lane(thread).end(time, (slice) => slice.category === UNIT && slice.subject === claim.index)) this.slices += 1;
    const unit = this.unit(claim.name);
    unit.claims += 1;
    if (claim.begun <= time) unit.time += time - claim.begun;
    if (claim.claimed <= claim.begun) unit.queued += claim.begun - claim.claimed;
  }

  emitted(claim, time) {
    claim.emitted = time;
    if (claim.state === 'running' || claim.state === 'waiting') this.becomes(claim, 'emitted');
  }

  returned(claim, time) {
    this.leaveQueue(claim, time);
    claim.ended = time;
    this.becomes(claim, 'returned');
  }

  unit(name) {
    let unit = this.units.get(name);
    if (unit === undefined) {
      unit = { name, time: 0, queued: 0, claims: 0, phases: new Float64Array(CATEGORIES.length) };
      this.units.set(name, unit);
    }
    return unit;
  }

  phaseEnded(time, thread, name) {
    const lane = this.lane(thread);
    const slice = lane.end(time, (slice) => slice.name === name && slice.category !== UNIT);
    if (slice === undefined) return;
    this.slices += 1;
    const unit = lane.unit;
    if (unit === undefined) return;
    // Of phases in each other, each counts without those within it.
    const { phases } = this.unit(unit.name);
    phases[slice.category] += lane.last - slice.start;
    const around = lane.open.at(-1);
    if (around.category !== UNIT) phases[around.category] -= lane.last - slice.start;
  }

  unblocked(time, thread) {
    const lane = this.lane(thread);
    const slice = lane.end(time, (slice) => slice.category === BLOCKED);
    if (slice === undefined) return;
    this.blocked = Math.max(0, this.blocked - 1);
    this.slices += 1;
    const claim = this.things[lane.unit?.subject ?? 0];
    if (claim !== undefined) claim.blocked += lane.last - slice.start;
  }

  answered(session, time, id, state) {
    const query = this.query(session, id);
    if (query?.state !== 'open') return; // lodged before the first note
    Object.assign(query, { completed: time, state });
    this.lookups.open -= 1;
    this.lookups[state] += 1;
  }

  memory(time, name, id, size) {
    const before = this.bytes.get(id);
    this.bytes.set(id, { size, name: name === 0 ? before?.name ?? 0 : name, most: Math.max(size, before?.most ?? 0) });
    this.resident.change(time, 0, size - (before?.size ?? 0));
  }

  /** Completed lookups, the slowest first. */
  slowest(count) {
    const all = this.queries.filter((query) => query.state === 'completed' || query.state === 'failed');
    return all.sort((a, b) => b.completed - b.lodged - (a.completed - a.lodged)).slice(0, count);
  }

  /** The slice of a thread at a time, of at most that depth: where it lies and what it is. */
  sliceAt(thread, depth, time) {
    const lane = this.lanes[thread];
    const track = lane?.tracks[depth];
    if (track !== undefined) {
      const at = after(track.end, track.length, time);
      if (at < track.length && track.start[at] <= time) return { thread, depth, at, ...sliceOf(track, at) };
    }
    const open = lane?.open[depth];
    if (open !== undefined && open.start <= time) return { thread, depth, at: track?.length ?? 0, ...open, end: this.now, isOpen: true };
    return undefined;
  }
}

export function sliceOf(track, at) {
  return { start: track.start[at], end: track.end[at], name: track.name[at], category: track.category[at], subject: track.subject[at] };
}
