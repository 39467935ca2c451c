//! Calls of the client's functions, made with nothing of ours beneath them.
//!
//! A unit is to be materialized, a generator is asked, or a lookup is answered, deep inside the session. The client's function may never
//! return from there: PostgreSQL reports an error by `longjmp`, over all frames between. So the session only *posts* a call. The function of
//! the interface that the client is in runs it, once the session is through:
//!
//! ```text
//!  client ─▶ LLVMOrcLLJITLookup ─▶ session ─▶ generator posts a call ─▶ back
//!                               ─▶ run_all ─▶ the client's function
//! ```
//!
//! Each function of the interface has a *stage*, in a list of the thread: its calls, and the one that runs. All that such a call needs lies there.
//! The frames between the client and its callback own nothing.
//!
//! **A stage that was left.** If a callback jumps out, its stage stays in the list. The next function of the interface
//! finds that and fails what was under way: the generator's request or the unit's symbols. Calls that were not run yet are
//! run then. A stage has been left if the frame of the function that made it is gone: its address lies in what is now unused
//! stack, or its mark has been overwritten. A stage that is above one whose callback returns was left too. Before a lookup, which would wait for
//! it, the unwinder says whose frame lies there now.
//!
//! **Calls of an outer stage.** A callback may look up a symbol whose unit waits in the stage below it, on the same thread. So a lookup that would
//! block makes these calls first.
//!
//! Where no function of the interface is below, as in the first call of a lazy function, calls are made in place. A
//! callback must return from there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use llvm_sys::error::LLVMErrorRef;
use uruk::core::{ExecutionSession, LookupError, LookupRequest, LookupResult, SymbolFuture, shared_error};

use crate::errors::{ClientError, Problem};
use crate::frames;
use crate::handles::{self, Handle};
use crate::names::Lent;
use crate::suspended::{self, LookupState};
use crate::symbols::{LookupSetElement, SymbolMapPair};

/// The data that a client's function is called with. The client answers for the threads that it allows.
#[derive(Clone, Copy)]
pub(crate) struct Data(pub(crate) *mut c_void);

// SAFETY: the pointer is handed back to the client, and never read through.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

pub(crate) type Materialize = unsafe extern "C" fn(*mut c_void, Handle);
pub(crate) type TryToGenerate = unsafe extern "C" fn(
    Handle,
    *mut c_void,
    *mut Handle,
    c_int,
    Handle,
    c_int,
    *const LookupSetElement,
    usize,
) -> ClientError;
pub(crate) type HandleResult = unsafe extern "C" fn(LLVMErrorRef, *const SymbolMapPair, usize, *mut c_void);

/// A call of the client's function.
pub(crate) enum Call {
    Materialize {
        function: Materialize,
        data: Data,
        responsibility: Handle,
    },
    Generate(Box<Generate>),
    Answer {
        function: HandleResult,
        data: Data,
        error: Option<Problem>,
        found: Vec<SymbolMapPair>,
        _names: Lent,
    },
}

/// The question to a generator.
pub(crate) struct Generate {
    pub(crate) function: TryToGenerate,
    pub(crate) data: Data,
    pub(crate) generator: Handle,
    /// The suspended lookup. The client sets the second to null if it keeps the lookup.
    pub(crate) state: Handle,
    pub(crate) kept: Handle,
    pub(crate) kind: c_int,
    pub(crate) dylib: Handle,
    pub(crate) flags: c_int,
    pub(crate) symbols: Vec<LookupSetElement>,
    /// Of `symbols`.
    pub(crate) _names: Lent,
}

/// A call while it is made: plain numbers, so that its frame may vanish.
#[derive(Clone, Copy)]
enum Plain {
    Materialize(Materialize, *mut c_void, Handle),
    Generate(TryToGenerate, *mut c_void, *mut Generate),
    Answer(HandleResult, *mut c_void, LLVMErrorRef, *const SymbolMapPair, usize),
}

impl Call {
    fn plain(&mut self) -> Plain {
        match self {
            Self::Materialize { function, data, responsibility } => {
                Plain::Materialize(*function, data.0, *responsibility)
            }
            Self::Generate(asked) => Plain::Generate(asked.function, asked.data.0, &raw mut **asked),
            Self::Answer { function, data, error, found, .. } => {
                let error = error.take().map_or(std::ptr::null_mut(), Problem::into_llvm);
                Plain::Answer(*function, data.0, error, found.as_ptr(), found.len())
            }
        }
    }

    /// After the client's function has returned.
    fn finish(self, error: ClientError) {
        let Self::Generate(asked) = self else { return };
        let outcome = error.into_result();
        if !asked.kept.is_null() {
            // A client that has continued the lookup itself and left the state in place has said all there is to say.
            let _ = LookupState::finish(asked.state, outcome);
        }
    }

    /// The client's function will not return.
    fn was_left(self) {
        match self {
            Self::Materialize { responsibility, .. } => {
                // Its symbols fail as the last handle of their duty goes.
                handles::end(responsibility);
            }
            Self::Generate(asked) => {
                let left = shared_error("the client's generator was left by a jump and did not return");
                let _ = LookupState::finish(asked.state, Err(left));
            }
            Self::Answer { .. } => {}
        }
    }

    fn run_here(mut self) {
        let plain = self.plain();
        // SAFETY: `self` outlives the call.
        let error = unsafe { plain.make() };
        self.finish(error);
    }
}

impl Plain {
    /// # Safety
    /// The call that it was made of is where it was.
    unsafe fn make(self) -> ClientError {
        // SAFETY: the client has given the functions for such calls, with their data; the arguments live as long as the call, which the
        // caller answers for.
        unsafe {
            match self {
                Self::Materialize(function, data, responsibility) => function(data, responsibility),
                Self::Generate(function, data, asked) => {
                    let Generate { generator, kind, dylib, flags, .. } = *asked;
                    let (symbols, len) = ((&raw const (*asked).symbols).as_ref(), &raw mut (*asked).kept);
                    let symbols = symbols.map_or(&[][..], Vec::as_slice);
                    return function(
                        generator,
                        data,
                        len,
                        kind,
                        dylib,
                        flags,
                        symbols.as_ptr(),
                        symbols.len(),
                    );
                }
                Self::Answer(function, data, error, found, len) => function(error, found, len, data),
            }
        }
        ClientError::NONE
    }
}

/// A function of the interface that this thread is in.
struct Stage {
    /// The address of the function's frame.
    entry: usize,
    /// The address of a copy of `mark` in that of [`run_all`], while it makes a call; null otherwise.
    frame: usize,
    mark: u64,
    posted: VecDeque<Call>,
    running: Option<Box<Call>>,
    /// Whether calls are posted. They are made in place while a callback runs, and while a lookup blocks.
    is_open: bool,
    lookup: Option<Lookup>,
}

/// The lookup of `LLVMOrcLLJITLookup`.
enum Lookup {
    Asked(Pin<Box<SymbolFuture>>),
    Answered(Result<LookupResult, LookupError>),
}

impl Lookup {
    fn poll(self) -> Self {
        let Self::Asked(mut asked) = self else { return self };
        match poll(asked.as_mut()) {
            Some(answer) => Self::Answered(answer),
            None => Self::Asked(asked),
        }
    }
}

fn poll(lookup: Pin<&mut SymbolFuture>) -> Option<Result<LookupResult, LookupError>> {
    match lookup.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

thread_local! {
    static STAGES: RefCell<Vec<Stage>> = const { RefCell::new(Vec::new()) };
}

/// None at the very end of a thread, which has no list any more.
fn with_stages<R>(use_stages: impl FnOnce(&mut Vec<Stage>) -> R) -> Option<R> {
    STAGES.try_with(|stages| use_stages(&mut stages.borrow_mut())).ok()
}

/// Has `call` made when the session is through, or here and now.
pub(crate) fn post(call: Call) {
    let mut call = Some(call);
    with_stages(|stages| {
        if let Some(stage) = stages.last_mut().filter(|stage| stage.is_open) {
            stage.posted.extend(call.take());
        }
    });
    if let Some(call) = call {
        call.run_here();
    }
}

/// A function of the interface begins, whose frame is `here`: fails what was left, and opens a stage. Answers its depth in the list.
pub(crate) fn begin(here: usize) -> usize {
    let begun = with_stages(|stages| {
        let alive = stages.iter().position(|stage| !stage.is_alive(here)).unwrap_or(stages.len());
        let left = stages.split_off(alive);
        stages.push(Stage::new(here, true));
        (alive, left)
    });
    let (depth, left) = begun.unwrap_or_default();
    were_left(left);
    depth
}

/// Fails what was under way in stages that were left, and posts their calls anew.
fn were_left(stages: Vec<Stage>) {
    for stage in stages {
        if let Some(call) = stage.running {
            call.was_left();
        }
        drop(stage.lookup);
        stage.posted.into_iter().for_each(post);
    }
}

/// The stages above that of `depth` were left: a callback has jumped into the one that it was called by.
fn cut(depth: usize) {
    let left = with_stages(|stages| stages.split_off(stages.len().min(depth + 1)));
    were_left(left.unwrap_or_default());
}

/// Fails what was left below the function that is to look up, where marks do not tell: beneath a buffer that nothing has written to. The
/// stages stay, so that those above keep their places.
fn fail_hidden() {
    let left = with_stages(|stages| {
        let below = stages.len().saturating_sub(1);
        let hidden = stages.iter_mut().take(below).filter(|stage| stage.frame != 0);
        let hidden = hidden.filter(|stage| !frames::may_be_caller(stage.frame));
        hidden.map(|stage| std::mem::replace(stage, Stage::new(stage.entry, false))).collect()
    });
    were_left(left.unwrap_or_default());
}

impl Stage {
    fn new(entry: usize, is_open: bool) -> Self {
        Self { entry, frame: 0, mark: 0, posted: VecDeque::new(), running: None, is_open, lookup: None }
    }

    /// The lookup that the running generator is to finish, unless it has kept it for later.
    fn asked_state(&self) -> Option<Handle> {
        match self.running.as_deref()? {
            Call::Generate(asked) if !asked.kept.is_null() => Some(asked.state),
            _ => None,
        }
    }

    fn is_alive(&self, here: usize) -> bool {
        if self.frame == 0 {
            return self.entry > here;
        }
        // SAFETY: the address lies above `here`, in the frame of a caller, on the stack of this thread: it can be read. The value may be
        // anything.
        let mark = || unsafe { std::ptr::with_exposed_provenance::<u64>(self.frame).read_volatile() };
        self.frame > here && mark() == self.mark
    }
}

/// Makes the calls that were posted in the stage of `depth`, and those that are posted meanwhile.
///
/// This frame, its callers up to the client, and that of [`Plain::make`] own nothing while a callback runs.
#[inline(never)]
pub(crate) fn run_all(depth: usize) {
    let mut mark = 0_u64;
    let frame = (&raw mut mark).expose_provenance();
    cut(depth);
    while let Some((plain, number)) = next(depth, frame) {
        // SAFETY: `mark` is ours. `is_alive` reads it through its address.
        unsafe { (&raw mut mark).write_volatile(number) };
        // SAFETY: the call lies in the stage, behind a box, and stays there until it is taken below.
        let error = unsafe { plain.make() };
        returned(depth, error);
    }
    // SAFETY: as above.
    unsafe { (&raw mut mark).write_volatile(0) };
}

fn next(depth: usize, frame: usize) -> Option<(Plain, u64)> {
    frames::learn_caller(frame);
    with_stages(|stages| {
        let stage = stages.get_mut(depth)?;
        let call = stage.posted.pop_front();
        stage.is_open = call.is_none();
        let call = stage.running.insert(Box::new(call?));
        (stage.frame, stage.mark) = (frame, fresh_mark());
        Some((call.plain(), stage.mark))
    })?
}

fn returned(depth: usize, error: ClientError) {
    let call = with_stages(|stages| {
        let stage = stages.get_mut(depth)?;
        (stage.is_open, stage.frame) = (true, 0);
        stage.running.take()
    });
    cut(depth);
    if let Some(call) = call.flatten() {
        call.finish(error);
    }
}

/// A number that no stack has by chance.
fn fresh_mark() -> u64 {
    thread_local! {
        static LAST: std::cell::Cell<u64> = const { std::cell::Cell::new(0x5552_6d61_726b_0000) };
    }
    LAST.set(LAST.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
    LAST.get()
}

/// The function of the interface returns, whose stage is that of `depth`, with none above.
pub(crate) fn end(depth: usize) {
    drop(with_stages(|stages| stages.split_off(stages.len().min(depth))));
}

/// Runs `body`, which may block, with calls made in place: another thread may wait for them.
pub(crate) fn in_place<R>(body: impl FnOnce() -> R) -> R {
    let depth = with_stages(|stages| stages.len().checked_sub(1)).flatten();
    let set = |is_open| {
        with_stages(|stages| {
            let stage = stages.get_mut(depth?)?;
            Some(std::mem::replace(&mut stage.is_open, is_open))
        })
    };
    let was_open = set(false).flatten();
    let result = body();
    set(was_open.unwrap_or_default());
    result
}

/// Looks up and waits. Calls that this thread has posted are made first, in place: the lookup may be for one of their symbols, and
/// nothing else would make them.
pub(crate) fn look_up(
    session: &ExecutionSession,
    request: LookupRequest,
) -> Result<LookupResult, LookupError> {
    fail_hidden();
    in_place(|| {
        let answer = poll(pin!(session.lookup_future(request.clone())));
        answer.unwrap_or_else(|| {
            posted().into_iter().for_each(Call::run_here);
            suspended::with_attached(&asked_states(), || session.lookup(request))
        })
    })
}

/// The lookups that generators which run on this thread are to finish.
fn asked_states() -> Vec<Handle> {
    with_stages(|stages| stages.iter().filter_map(Stage::asked_state).collect()).unwrap_or_default()
}

/// Takes the calls that wait in all stages of this thread.
fn posted() -> VecDeque<Call> {
    let posted = with_stages(|stages| stages.iter_mut().flat_map(|stage| stage.posted.drain(..)).collect());
    posted.unwrap_or_default()
}

/// Begins a lookup whose units and generators run by [`run_lookup`].
pub(crate) fn begin_lookup(session: &ExecutionSession, request: LookupRequest) {
    fail_hidden();
    let lookup = Lookup::Asked(Box::pin(session.lookup_future(request)));
    with_stages(|stages| {
        if let Some(stage) = stages.last_mut() {
            stage.lookup = Some(lookup);
        }
    });
}

/// Makes the calls of the lookup that was begun last. If that does not answer it, it makes those of the functions below as well, as ORC does:
/// its symbols may be theirs.
pub(crate) fn run_lookup() {
    let Some(depth) = with_stages(|stages| stages.len().checked_sub(1)).flatten() else { return };
    run_all(depth);
    take_over(depth);
    run_all(depth);
}

fn take_over(depth: usize) {
    let Some(lookup) = with_stages(|stages| stages.get_mut(depth)?.lookup.take()).flatten() else { return };
    let lookup = lookup.poll();
    let calls = if matches!(lookup, Lookup::Asked(_)) { posted() } else { VecDeque::new() };
    with_stages(|stages| {
        if let Some(stage) = stages.get_mut(depth) {
            stage.lookup = Some(lookup);
            stage.posted.extend(calls);
        }
    });
}

/// The answer of the lookup that was begun last, if it is there.
pub(crate) fn answer_of_lookup() -> Option<Result<LookupResult, LookupError>> {
    match with_stages(|stages| stages.last_mut()?.lookup.take()).flatten()?.poll() {
        Lookup::Answered(answer) => Some(answer),
        Lookup::Asked(_) => None,
    }
}
