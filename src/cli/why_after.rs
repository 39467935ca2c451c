//! `--why-after`: a thread that says why lookups take long. There is none unless it is asked for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::time::{Duration, Instant};

use uruk::core::sync::Arc;
use uruk::core::{ExecutionSession, WaitedFor, Why, WhyState};
use uruk::pipeline::runtime::background::{BackgroundThread, Next};
use uruk::pipeline::runtime::exit::ExitError;
use uruk::pipeline::runtime::thread_exit::on_end_of_thread;

use super::observe::Observers;

/// Of how many symbols it tells at a time: those that a lookup waits for, and those that they wait for.
const WHYS_MAX: usize = 12;

/// Begins to look at the lookups of `session`, until the program's first thread ends.
///
/// # Errors
/// [`ExitError`] if the end cannot be noted.
pub(crate) fn watch(
    session: &ExecutionSession,
    after: Duration,
    observers: &Arc<Observers>,
) -> Result<(), ExitError> {
    let thread = Arc::new(BackgroundThread::new("uruk-why", false));
    let at_end = thread.clone();
    on_end_of_thread(move || at_end.stop())?;
    let mut watch =
        Watch { session: session.clone(), after, observers: observers.clone(), seen: HashMap::new() };
    BackgroundThread::start(&thread, move || watch.look());
    Ok(())
}

struct Watch {
    session: ExecutionSession,
    after: Duration,
    observers: Arc<Observers>,
    /// The lookups that waited at the last look.
    seen: HashMap<u64, Seen>,
}

/// A lookup that waits.
struct Seen {
    since: Instant,
    /// How long it is to have waited when it is told of again: twice as long each time.
    told_at: Duration,
}

impl Watch {
    fn look(&mut self) -> Next {
        let (now, waiting) = (Instant::now(), self.session.waiting_lookups());
        let ids: HashSet<u64> = waiting.iter().map(|lookup| lookup.id).collect();
        self.seen.retain(|id, _| ids.contains(id));
        for lookup in waiting {
            let begun = Seen { since: now, told_at: self.after };
            let seen = self.seen.entry(lookup.id).or_insert(begun);
            let waited = now - seen.since;
            if waited >= seen.told_at {
                seen.told_at = waited * 2;
                let block = self.block(waited, lookup.waiting);
                // The progress on a terminal would be written over it.
                self.observers.leave_terminal();
                // Nothing is left to say if stderr is gone.
                _ = std::io::stderr().write_all(block.as_bytes());
            }
        }
        Next::Rest(Some((self.after / 4).clamp(Duration::from_millis(1), Duration::from_secs(1))))
    }

    /// The symbols that a lookup waits for, and behind them those that they wait for.
    fn block(&self, waited: Duration, first: Vec<Why>) -> String {
        let mut block = format!("why: a lookup has waited for {waited:.1?}\n");
        let mut left: VecDeque<_> = first.into_iter().map(|why| (why.dylib, why.symbol)).collect();
        let mut known: HashSet<_> = left.iter().cloned().collect();
        for _ in 0..WHYS_MAX {
            let Some((dylib, symbol)) = left.pop_front() else { break };
            let Some(dylib) = self.session.jit_dylib(&dylib) else { continue };
            let why = self.session.why(&dylib, &symbol);
            block += &format!("  {}\n", why.to_string().replace('\n', "\n  "));
            let next = waited_for(&why).flat_map(|symbols| &symbols.symbols);
            let next = next.filter_map(|next| Some((next.dylib.clone()?, next.symbol.clone())));
            left.extend(next.filter(|next| known.insert(next.clone())));
        }
        block
    }
}

/// The symbols that stand between a symbol and its being ready.
fn waited_for(why: &Why) -> impl Iterator<Item = &WaitedFor> {
    let [first, second] = match &why.state {
        WhyState::Materializing(work) | WhyState::Resolved { work, .. } => {
            [work.blocked_in.as_ref(), Some(&work.asked_for)]
        }
        WhyState::Emitted { waits_for, .. } => [Some(waits_for), None],
        _ => [None, None],
    };
    first.into_iter().chain(second)
}
