//! Kaleidoscope, extreme lazy: nine statements, each a test.
//!
//! The session is the command's and the example's; it is taken in by its path, because the engine's package has it.

#[path = "../../../src/cli/repl/session/mod.rs"]
#[expect(dead_code, reason = "the command asks more of it than these tests do")]
mod session;

mod redefinition;
mod statements;

use std::sync::Arc;

use session::{HostFunction, Outcome, Session, SessionError};
use uruk::core::sync::Mutex;
use uruk::pipeline::ir::OptimizationLevel;
use uruk_kaleidoscope::Source;

/// A session, and the bodies of which IR was made, in order.
struct Watched {
    session: Session,
    lowered: Arc<Mutex<Vec<String>>>,
}

const HOST: [HostFunction; 0] = [];

impl Watched {
    fn new() -> Self {
        Self::observed(0, |_| {})
    }

    /// With threads that compile, and a hook that runs before IR is made.
    fn observed(threads: usize, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let lowered = Arc::new(Mutex::new(Vec::new()));
        let noted = lowered.clone();
        let on_lowered = move |body: &str| {
            noted.lock().push(body.to_owned());
            hook(body);
        };
        let session = Session::observed(OptimizationLevel::O0, &HOST, threads, Arc::new(on_lowered));
        Self { session: session.expect("an engine for this machine"), lowered }
    }

    /// Does what a text says: what its last expression was.
    fn try_run(&mut self, text: &str) -> Result<Option<f64>, SessionError> {
        let source = Arc::new(Source { name: "test".into(), first_line: 1, text: text.to_owned() });
        let mut last = None;
        for item in self.session.parse(&source)? {
            if let Outcome::Value(value) = self.session.run(item)? {
                last = Some(value.number);
            }
        }
        Ok(last)
    }

    #[track_caller]
    fn run(&mut self, text: &str) -> Option<f64> {
        self.try_run(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[track_caller]
    fn value(&mut self, text: &str) -> f64 {
        self.run(text).expect("there is an expression in it")
    }

    #[track_caller]
    fn error(&mut self, text: &str) -> String {
        self.try_run(text).expect_err("there is a mistake in it").to_string()
    }

    /// The bodies of functions of which IR was made since this was last asked.
    fn lowered(&self) -> Vec<String> {
        let mut lowered = std::mem::take(&mut *self.lowered.lock());
        lowered.retain(|body| !body.starts_with('$'));
        lowered
    }

    fn address(&self, function: &str) -> u64 {
        self.session.jit().lookup(function).expect("it is defined").address.value()
    }
}
