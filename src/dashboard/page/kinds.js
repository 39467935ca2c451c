// Kinds of notes, as the recorder numbers them.

export const Kind = Object.freeze({
  ThreadNamed: 1, Clock: 2,
  Dylib: 10, Defined: 11, Lodged: 12, Claimed: 13, Prioritized: 14, Begun: 15, Ended: 16, Blocked: 17, Unblocked: 18, Resolved: 19,
  Emitted: 20, Ready: 21, Failed: 22, Removed: 23, Returned: 24, Completed: 25, QueryFailed: 26, Withdrawn: 27,
  PhaseBegun: 40, PhaseEnded: 41, CacheAsked: 42, Promoted: 43, Bytes: 44, Mark: 45,
  Pass: 46, Divided: 47, Functions: 48, Tiered: 49,
});

/** The most urgent first; notes have them in the other order. */
export const PRIORITIES = ['demanded', 'lazy', 'speculative', 'idle'];
