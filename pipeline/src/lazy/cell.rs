//! The target of a stub: at first, after its first call, and after it was led elsewhere.
//!
//! ```text
//!   generation 1 ─redirect─▶ generation 2 ─redirect─▶ …
//!   caller: which generation? ─ find its body ─ bind, if it still is that generation ─ otherwise again
//! ```
//!
//! A generation may have two bodies: the one that was found first, whose calls are counted, and a better one ([`promote`](Cell::promote)).
//!
//! The slot is written under the cell's lock alone, so a body that a slow caller has found for an older generation never overtakes a newer
//! one. Nor does it take the place of a better body. The models are `loom-tests/tests/redirect.rs` and `promote.rs`, which compile this
//! file.
//!
//! **Holds.** When a redirection has returned, the slot leads to no older body. When a promotion has returned, it leads to none that is worse.

use uruk_core::ExecutorAddr;
use uruk_core::sync::{Mutex, weakened};

/// The word that a stub jumps through. Its user holds the stub, or is called through it.
pub(super) trait JumpWord: Clone {
    fn load(&self) -> u64;
    fn store(&self, address: u64);
    /// The same, and so many calls are counted.
    fn store_counted(&self, address: u64, calls: u32);

    /// Runs `look`, which looks where the stub leads. No other thread is about to lead it elsewhere together with others then.
    fn while_settled<T>(&self, look: impl FnOnce() -> T) -> T {
        look()
    }
}

/// One stub.
pub(super) struct Cell<D, S>(Mutex<CellState<D, S>>);

struct CellState<D, S> {
    now: Now<D>,
    /// The slot, and where it led before anybody called. Known from the first call on.
    slot: Option<(S, u64)>,
}

#[derive(Clone)]
struct Now<D> {
    generation: u64,
    destination: D,
    /// Where the slot leads, if that is a body of this generation.
    bound: Option<ExecutorAddr>,
}

impl<D: Clone, S: JumpWord> Cell<D, S> {
    pub(super) fn new(destination: D) -> Self {
        Self(Mutex::new(CellState { now: Now { generation: 0, destination, bound: None }, slot: None }))
    }

    pub(super) fn destination(&self) -> D {
        self.now().destination
    }

    fn now(&self) -> Now<D> {
        self.0.lock().now.clone()
    }

    /// Has the slot lead to the body that `find` looks for. `keep` hears of it before, under the lock, so that the code's keepers follow
    /// the slot. `calls` calls of it are counted.
    ///
    /// Fails if there is no body and the stub was not led elsewhere meanwhile.
    pub(super) fn bind<H, T, E>(
        &self,
        slot: &S,
        mut find: impl FnMut(&D) -> Result<(ExecutorAddr, H), E>,
        mut keep: impl FnMut(ExecutorAddr, H) -> T,
        calls: impl Fn(&D) -> Option<u32>,
    ) -> Result<ExecutorAddr, E> {
        let mut now = slot.while_settled(|| self.now());
        loop {
            if let Some(bound) = now.bound {
                return Ok(bound); // by another thread: who calls holds the stub, and so the body
            }
            let seen = now.generation;
            match find(&now.destination) {
                Ok((body, held)) => {
                    let calls = calls(&now.destination);
                    // Outlives the lock of a group: code may go with it if the stub was led elsewhere.
                    let mut held = Some(held);
                    let bind = || {
                        let keep = || held.take().map(|held| keep(body, held));
                        let bound = self.bind_if(seen, body, slot, calls, keep);
                        if weakened("group::lets_go_while_it_looks") {
                            held = None;
                        }
                        bound
                    };
                    match slot.while_settled(bind) {
                        Ok(kept) => {
                            drop(kept); // without the lock: code may go with it
                            return Ok(body);
                        }
                        Err(later) => now = later,
                    }
                }
                Err(error) => {
                    now = slot.while_settled(|| self.now());
                    let is_settled = now.generation == seen && now.bound.is_none();
                    if is_settled || weakened("redirect::fails_for_an_older_body") {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Has the slot lead to `body` if the generation is still that one, and has no other; says otherwise how it is now.
    fn bind_if<T>(
        &self,
        generation: u64,
        body: ExecutorAddr,
        slot: &S,
        calls: Option<u32>,
        keep: impl FnOnce() -> T,
    ) -> Result<T, Now<D>> {
        let mut state = self.0.lock();
        let is_older = state.now.generation != generation && !weakened("redirect::binds_an_older_body");
        if is_older || (state.now.bound.is_some() && !weakened("promote::binds_again")) {
            return Err(state.now.clone());
        }
        state.slot.get_or_insert_with(|| (slot.clone(), slot.load()));
        let kept = keep();
        state.now.bound = Some(body);
        if weakened("redirect::stores_without_the_lock") {
            drop(state);
        }
        store(slot, body, calls);
        Ok(kept)
    }

    /// The bound body that a better one would replace: its generation, its destination, and the slot that leads there. `None` if there is
    /// none.
    pub(super) fn bound(&self) -> Option<(u64, D, S)> {
        let state = self.0.lock();
        let (slot, _) = state.slot.as_ref().filter(|_| state.now.bound.is_some())?;
        Some((state.now.generation, state.now.destination.clone(), slot.clone()))
    }

    /// Has the slot lead to a better body of the generation, if it is still that one. `keep` is told of it under the lock.
    pub(super) fn promote<T>(
        &self,
        generation: u64,
        better: ExecutorAddr,
        keep: impl FnOnce() -> T,
    ) -> Option<T> {
        self.while_bound(generation, |slot, bound| {
            let kept = keep();
            *bound = better;
            slot.store(better.value());
            kept
        })
    }

    /// Has so many calls of the body counted that the generation has; nothing: none.
    pub(super) fn count_again(&self, generation: u64, calls: Option<u32>) {
        self.while_bound(generation, |slot, bound| store(slot, *bound, calls));
    }

    fn while_bound<T>(&self, generation: u64, change: impl FnOnce(&S, &mut ExecutorAddr) -> T) -> Option<T> {
        let mut state = self.0.lock();
        let CellState { now, slot } = &mut *state;
        let is_older = now.generation != generation && !weakened("promote::overtakes_a_redirection");
        let (slot, _) = slot.as_ref().filter(|_| !is_older)?;
        if weakened("promote::stores_without_the_lock") {
            let (slot, mut bound) = (slot.clone(), now.bound?);
            drop(state);
            return Some(change(&slot, &mut bound));
        }
        Some(change(slot, now.bound.as_mut()?))
    }

    /// Leads the stub elsewhere: to `ready`, if the body is there and the stub was called before; otherwise the next call finds it. `keep`
    /// is told which, and `store` where the slot is to lead, under the lock. Gives what the stub led to.
    pub(super) fn redirect<T>(
        &self,
        destination: D,
        ready: Option<ExecutorAddr>,
        keep: impl FnOnce(Option<ExecutorAddr>) -> T,
        store: impl FnOnce(&S, u64),
    ) -> (D, T) {
        let mut state = self.0.lock();
        let CellState { now, slot } = &mut *state;
        now.generation += 1;
        let before = std::mem::replace(&mut now.destination, destination);
        now.bound = ready.filter(|_| slot.is_some());
        let kept = keep(now.bound);
        if let Some((slot, unbound)) = slot
            && !weakened("redirect::leaves_the_slot")
        {
            store(slot, now.bound.map_or(*unbound, ExecutorAddr::value));
        }
        (before, kept)
    }
}

fn store<S: JumpWord>(slot: &S, body: ExecutorAddr, calls: Option<u32>) {
    match calls {
        Some(calls) => slot.store_counted(body.value(), calls),
        None => slot.store(body.value()),
    }
}
