// The critical path of a lookup: from its answer back to the moment at which it was asked, without a gap.

const STEPS_MAX = 20_000;

/**
 * Steps in the order of time, each with `from`, `to`, `kind` and what it is about: `work` of a claim on a thread, `queued` claims, `deliver`
 * between the end of work and the answer, `ask` before a claim.
 */
export function criticalPath(model, query) {
  const steps = [];
  const end = Number.isNaN(query.completed) ? model.now : query.completed;
  walk(query, end, query.lodged, steps, new Set());
  return steps.reverse().filter((step) => step.to > step.from);
}

/** Pushes steps backwards from `time` to `floor`. */
function walk(query, time, floor, steps, walked) {
  const push = (kind, from, claim) => {
    const start = Math.max(from, floor);
    if (start < time) steps.push({ kind, from: start, to: time, claim, thread: claim?.thread ?? -1, name: claim?.name ?? query.name });
    time = Math.min(time, start);
  };
  walked.add(query);
  let claim = query.last;
  while (claim !== undefined && time > floor && steps.length < STEPS_MAX) {
    const end = firstKnown(claim.emitted, claim.ended, time);
    if (end < time) push('deliver', end, undefined);
    work(claim, floor, steps, walked, () => time, push, (at) => (time = at));
    if (time <= floor) return;
    push('queued', firstKnown(claim.claimed, time), claim);
    // It was claimed for a lookup of another claim, which had worked until then.
    const asker = claim.query;
    if (asker === undefined || asker === query || asker.by === claim) break;
    push('ask', asker.lodged, claim);
    claim = asker.by;
  }
  if (time > floor) push('ask', floor, undefined);
}

/** A claim's work, last first. Where a lookup that it had asked was answered, that lookup's path is the path until it was asked. */
function work(claim, floor, steps, walked, now, push, setTime) {
  const begun = Number.isNaN(claim.begun) ? floor : claim.begun;
  const answered = claim.asked.filter((query) => query.completed > begun && !walked.has(query));
  for (const query of answered.sort((a, b) => b.completed - a.completed)) {
    if (query.completed > now() || query.completed <= floor) continue;
    push('work', query.completed, claim);
    const from = Math.max(query.lodged, floor);
    walk(query, now(), from, steps, walked);
    setTime(Math.min(now(), from));
  }
  push('work', begun, claim);
}

const firstKnown = (...times) => times.find((time) => !Number.isNaN(time));
