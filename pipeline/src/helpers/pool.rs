//! [`HelperPool`]: asks helpers, starts them, and lets them go.

use std::time::{Duration, Instant};

use uruk_core::sync::{Latch, Mutex};

use super::backoff::Backoff;
use super::blame::{Blame, MemoryKills};
use super::error::HelperError;
use super::messages::{ANSWER, AnswerHead, BEGUN, HELLO, Hello, JOB, PROTOCOL, READY, Ready};
use super::quarantine::Quarantine;
use super::settings::Helpers;
use super::shelf::{Asked, HelperShelf, request};
use crate::peer::{Deadline, FrameLimits, PeerError, PeerFrame, PeerProcess};

/// The most bytes of messages about an object, beside the object.
const ANSWER_BODY_BYTES: u32 = 16 << 20;

/// How long a helper may take to say that it has the whole job: it only reads it.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);

/// Helpers of one program.
///
/// # Concurrency
/// Any thread may ask. Each has a helper to itself; if all are busy, it waits. A child that the process forks, and a pool that was
/// [retired](Self::retire), start a helper for each job.
#[derive(Debug)]
pub struct HelperPool {
    settings: Helpers,
    /// Identifies the compiler that helpers have to have.
    build: String,
    shelf: HelperShelf<Helper>,
    state: Mutex<PoolState>,
    memory_kills: Mutex<MemoryKills>,
    /// The process that has the locks. In a child of it a thread may have left one locked that it does not have.
    owner: u32,
}

#[derive(Debug, Default)]
struct PoolState {
    backoff: Backoff,
    quarantine: Quarantine,
    stats: HelperStats,
}

/// Figures of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HelperStats {
    /// Helpers that were started.
    pub started: u64,
    /// Jobs that were answered.
    pub answered: u64,
    /// Jobs that ended their helper, or whose helper was killed from outside; the latter are tried once more, and may be answered then.
    pub failed: u64,
    /// Helpers that ended before they began a job, which another one got.
    pub not_begun: u64,
    /// Helpers that were replaced for their age, their size, their number of jobs, or a job that failed.
    pub recycled: u64,
    /// Jobs that were refused because they had ended a helper before.
    pub refused: u64,
    /// Helpers that became ready and may call all of the system: the settings have it so, or the system has no filter for it.
    pub unconfined: u64,
    /// Keys in quarantine.
    pub quarantined: usize,
}

/// A helper, and how far it has come.
#[derive(Debug)]
struct Helper {
    process: PeerProcess,
    is_ready: bool,
    is_confined: bool,
    jobs: u32,
}

/// The answer to a job.
#[derive(Clone, Debug)]
pub struct HelperAnswer {
    frame: PeerFrame,
    body_at: usize,
}

/// The verdict of a pool's user on an answer that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The helper did its job.
    Sound,
    /// The job failed, which may have left damage in the helper.
    Doubtful,
}

/// Looks at an answer, whose error says that it makes no sense.
type Check<'a> = &'a dyn Fn(&HelperAnswer) -> Result<Checked, String>;

/// Runs a wait once, as one of the caller's scheduler, which then has another thread do the caller's work; or does nothing where it cannot.
pub type HelperWait<'a> = &'a dyn Fn(&mut dyn FnMut());

impl HelperAnswer {
    /// The bytes that come with it.
    pub fn bulk(&self) -> &[u8] {
        self.frame.bulk()
    }

    /// The answer itself.
    pub fn body(&self) -> &[u8] {
        &self.frame.body()[self.body_at..]
    }

    /// The bytes that come with it, and where they begin.
    pub fn into_bulk(self) -> (Vec<u8>, usize) {
        self.frame.into_payload()
    }
}

impl HelperPool {
    /// A pool whose helpers have the compiler that `build` identifies. The first of them is started, and not waited for.
    pub fn new(settings: Helpers, build: impl Into<String>) -> Self {
        let shelf = HelperShelf::new(settings.count);
        let pool = Self {
            settings,
            build: build.into(),
            shelf,
            state: Mutex::default(),
            memory_kills: Mutex::new(MemoryKills::new()),
            owner: std::process::id(),
        };
        pool.keep_one_warm();
        pool
    }

    /// Has a helper do a job. `check` looks at the answer before the helper may have another job: an error of it says that the answer is none,
    /// and ends the helper; [`Checked::Doubtful`] lets the helper go, and keeps the answer.
    ///
    /// `blocking` runs the part during which a helper works. No more than [`count`](Helpers::count) threads are inside it at a time.
    ///
    /// # Errors
    /// [`HelperError`]. If the job has ended a helper that had no job before, or two of them, `key` is not tried again. A job whose helper
    /// another process has ended, by `SIGKILL`, is given to another one, once, and is not suspected. Whether a helper that is
    /// not confined has ended itself so cannot be known: there the second time counts.
    ///
    /// # Cost
    /// The time of the job, and of its way through a socket, if a helper is idle. Otherwise one is started first, which loads LLVM.
    pub fn ask(
        &self,
        key: &[u8; 32],
        body: &[u8],
        bulk: &[u8],
        check: Check<'_>,
        blocking: HelperWait<'_>,
    ) -> Result<HelperAnswer, HelperError> {
        if self.owner != std::process::id() {
            return self.ask_one_of_its_own(body, bulk, check);
        }
        self.refuse_large(body, bulk)?;
        match self.ask_once(key, body, bulk, check, blocking) {
            (Err(_), Blame::Outside | Blame::Unclear) => self.ask_once(key, body, bulk, check, blocking).0,
            (answer, _) => answer,
        }
    }

    /// The answer. To an error belongs the blame for it.
    fn ask_once(
        &self,
        key: &[u8; 32],
        body: &[u8],
        bulk: &[u8],
        check: Check<'_>,
        blocking: HelperWait<'_>,
    ) -> (Result<HelperAnswer, HelperError>, Blame) {
        let known = {
            let mut state = self.state.lock();
            let known = state.quarantine.of(key);
            state.stats.refused += u64::from(known.is_some());
            known
        };
        if let Some(before) = known {
            return (Err(HelperError::Quarantined { before }), Blame::Job);
        }
        let (mut was_let_go, mut blame) = (false, Blame::Job);
        let mut ask = |helper: &mut Helper| {
            let had_worked = helper.jobs > 0;
            let mut asked = None;
            // Not while the thread waits for a helper: as many threads would wait as there are jobs, each in a replaced one's place.
            blocking(&mut || asked = Some(self.ask_helper(helper, body, bulk, check)));
            let asked = asked.unwrap_or_else(|| self.ask_helper(helper, body, bulk, check));
            if let Asked::Failed(HelperError::Failed(error)) = &asked {
                let lacked_memory = || self.memory_kills.lock().have_grown();
                blame = Blame::of(error, helper.is_confined, lacked_memory);
            }
            let mut state = self.state.lock();
            match &asked {
                Asked::Answered { is_fit, .. } => {
                    state.backoff.note_success();
                    state.quarantine.clear_of_doubt(key);
                    state.stats.answered += 1;
                    state.stats.recycled += u64::from(!is_fit);
                    was_let_go = !is_fit;
                }
                Asked::NotBegun(_) => {
                    state.stats.not_begun += 1;
                    // One that was ready can be started.
                    if !helper.is_ready {
                        state.backoff.note_failure(Instant::now());
                    }
                }
                Asked::Failed(error) => {
                    state.stats.failed += 1;
                    let is_of_host = matches!(error, HelperError::Failed(PeerError::System { .. }));
                    let is_of_job = matches!(error, HelperError::Failed(_)) && !is_of_host;
                    if is_of_job && blame != Blame::Outside {
                        state.quarantine.add(*key, error, !had_worked && blame == Blame::Job);
                    }
                }
            }
            asked
        };
        let answer = request(&self.shelf, &mut || self.start(), &mut ask);
        if answer.is_err() || was_let_go {
            self.keep_one_warm();
        }
        (answer, blame)
    }

    /// Ends idle helpers; busy ones end after their jobs. From here on a job starts a helper of its own: for hosts whose process becomes
    /// another program's, which should find no children that it has not started.
    pub fn retire(&self) {
        drop(self.shelf.clear());
    }

    /// Figures so far.
    pub fn stats(&self) -> HelperStats {
        let state = self.state.lock();
        HelperStats { quarantined: state.quarantine.len(), ..state.stats }
    }

    /// The numbers of the processes that are idle.
    pub fn idle(&self) -> Vec<u32> {
        self.shelf.with_idle(|idle| idle.iter().map(|helper| helper.process.pid()).collect())
    }

    /// Starts a helper if there is none.
    fn keep_one_warm(&self) {
        let is_time = || self.state.lock().backoff.pause(Instant::now()) == Some(Duration::ZERO);
        if let Some(place) = self.shelf.take_first()
            && is_time()
            // A program that cannot be started is an error of the first job.
            && let Ok(helper) = self.spawn()
        {
            drop(place.keep(helper));
        }
    }

    /// Starts a helper, after a pause if the last ones ended at once.
    fn start(&self) -> Result<Helper, HelperError> {
        let pause = self.state.lock().backoff.pause(Instant::now());
        let Some(pause) = pause else {
            return Err(self.no_helper("the last ones ended at once, so none is started for a second"));
        };
        if !pause.is_zero() {
            // No other thread opens it: the time passes.
            let _ = Latch::new().wait_timeout(pause);
        }
        let started = self.spawn();
        if started.is_err() {
            self.state.lock().backoff.note_failure(Instant::now());
        }
        started
    }

    fn spawn(&self) -> Result<Helper, HelperError> {
        let process = PeerProcess::start(&self.settings.program);
        let mut process = process.map_err(|error| self.no_helper(error))?;
        process.take_at_most(FrameLimits {
            body_bytes: ANSWER_BODY_BYTES,
            bulk_bytes: self.settings.answer_bytes,
        });
        let hello = Hello {
            protocol: PROTOCOL,
            parent: std::process::id(),
            memory_bytes: self.settings.memory_bytes,
            confines: self.settings.confines,
        };
        let body = postcard::to_stdvec(&hello).map_err(|error| self.no_helper(error))?;
        let deadline = Deadline::after(self.settings.start_limit);
        process.send(HELLO, 0, (&body, &[]), deadline).map_err(|error| self.no_helper(error))?;
        if self.owner == std::process::id() {
            self.state.lock().stats.started += 1;
        }
        Ok(Helper { process, is_ready: false, is_confined: false, jobs: 0 })
    }

    fn no_helper(&self, why: impl ToString) -> HelperError {
        HelperError::NoHelper { program: self.settings.program.path.clone(), why: why.to_string() }
    }

    /// Refuses a job that helpers have no memory for: they have its bytes, and at least as much of what they read from them.
    fn refuse_large(&self, body: &[u8], bulk: &[u8]) -> Result<(), HelperError> {
        let (size_bytes, memory_bytes) = (body.len() + bulk.len(), self.settings.memory_bytes);
        match memory_bytes {
            Some(memory_bytes) if 2 * size_bytes as u64 > memory_bytes => Err(HelperError::TooLarge {
                why: format!("it has {size_bytes} bytes, and its helper {memory_bytes} bytes of memory"),
            }),
            _ => Ok(()),
        }
    }

    /// In a child of a fork: without any lock.
    fn ask_one_of_its_own(
        &self,
        body: &[u8],
        bulk: &[u8],
        check: Check<'_>,
    ) -> Result<HelperAnswer, HelperError> {
        self.refuse_large(body, bulk)?;
        match self.ask_helper(&mut self.spawn()?, body, bulk, check) {
            Asked::Answered { answer, .. } => Ok(answer),
            Asked::NotBegun(error) | Asked::Failed(error) => Err(error),
        }
    }

    fn ask_helper(
        &self,
        helper: &mut Helper,
        body: &[u8],
        bulk: &[u8],
        check: Check<'_>,
    ) -> Asked<HelperAnswer, HelperError> {
        if !helper.is_ready {
            match self.greet(&mut helper.process) {
                Ok(is_confined) => helper.is_confined = is_confined,
                Err(failed) => return failed,
            }
            helper.is_ready = true;
        }
        let id = helper.jobs;
        helper.jobs += 1;
        if let Err(error) = helper.begin(id, body, bulk) {
            return match error {
                PeerError::Lied { why, .. } if is_too_large(body, bulk) => {
                    Asked::Failed(HelperError::TooLarge { why })
                }
                error => Asked::NotBegun(self.no_helper(error)),
            };
        }
        match helper.finish(id, self.settings.time_limit) {
            Ok((answer, grown_bytes)) => match check(&answer) {
                Ok(checked) => {
                    let is_fit = checked == Checked::Sound && self.is_fit(helper, grown_bytes);
                    Asked::Answered { answer, is_fit }
                }
                Err(why) => Asked::Failed(HelperError::Failed(helper.process.lied(why))),
            },
            Err(error) => Asked::Failed(HelperError::Failed(error)),
        }
    }

    /// Waits until a helper is ready; gives whether it is confined. Only one that ended is worth another try: others would be as slow, or as wrong.
    fn greet<R>(&self, process: &mut PeerProcess) -> Result<bool, Asked<R, HelperError>> {
        let frame = process.receive(Deadline::after(self.settings.start_limit));
        let frame = frame.map_err(|error| match error {
            PeerError::Ended { .. } => Asked::NotBegun(self.no_helper(error)),
            error => Asked::Failed(self.no_helper(error)),
        })?;
        let ready = (frame.kind == READY).then(|| postcard::from_bytes::<Ready>(frame.body()));
        let Some(Ok(Ready { protocol: PROTOCOL, build, unconfined })) = ready else {
            return Err(Asked::Failed(self.no_helper(process.lied("it did not say that it is ready"))));
        };
        if build != self.build {
            let (program, ours) = (self.settings.program.path.clone(), self.build.clone());
            return Err(Asked::Failed(HelperError::OtherBuild { program, theirs: build, ours }));
        }
        Ok(self.note_confinement(unconfined))
    }

    fn note_confinement(&self, unconfined: Option<String>) -> bool {
        if let Some(why) = &unconfined {
            tracing::warn!(program = %self.settings.program.path.display(), why, "a helper is not confined");
        }
        let is_confined = self.settings.confines && unconfined.is_none();
        if !is_confined && self.owner == std::process::id() {
            self.state.lock().stats.unconfined += 1;
        }
        is_confined
    }

    /// Whether a helper may have another job.
    fn is_fit(&self, helper: &Helper, grown_bytes: u64) -> bool {
        let Helpers { memory_bytes, jobs_max, age_max, .. } = self.settings;
        let is_slim = memory_bytes.is_none_or(|memory_bytes| grown_bytes <= memory_bytes / 2);
        is_slim && helper.jobs < jobs_max && helper.process.age() < age_max
    }
}

/// Whether the sender refused it, and no helper has seen it.
fn is_too_large(body: &[u8], bulk: &[u8]) -> bool {
    let limits = FrameLimits::default();
    body.len() > limits.body_bytes as usize || bulk.len() > limits.bulk_bytes as usize
}

impl Helper {
    /// Hands the job over, until the helper says that it has it.
    fn begin(&mut self, id: u32, body: &[u8], bulk: &[u8]) -> Result<(), PeerError> {
        self.process.forget_words();
        let deadline = Deadline::after(BEGIN_LIMIT);
        self.process.send(JOB, id, (body, bulk), deadline)?;
        self.receive(BEGUN, id, deadline).map(drop)
    }

    /// Waits for the answer.
    fn finish(&mut self, id: u32, limit: Duration) -> Result<(HelperAnswer, u64), PeerError> {
        let frame = self.receive(ANSWER, id, Deadline::after(limit))?;
        match postcard::take_from_bytes::<AnswerHead>(frame.body()) {
            Ok((AnswerHead { grown_bytes }, rest)) => {
                let body_at = frame.body().len() - rest.len();
                Ok((HelperAnswer { frame, body_at }, grown_bytes))
            }
            Err(error) => Err(self.process.lied(error.to_string())),
        }
    }

    fn receive(&mut self, kind: u16, id: u32, deadline: Deadline) -> Result<PeerFrame, PeerError> {
        let frame = self.process.receive(deadline)?;
        if (frame.kind, frame.id) != (kind, id) {
            let why = format!(
                "message {} of job {} came where message {kind} of job {id} was expected",
                frame.kind, frame.id
            );
            return Err(self.process.lied(why));
        }
        Ok(frame)
    }
}
