//! Compilations that happen in helper processes: the host's side.
//!
//! | source | its way |
//! |---|---|
//! | bitcode and text, from files or memory | as they are; the host's LLVM sees nothing of them |
//! | a shape of bitcode or text, sources of an image | refused: the host would read them |
//! | a module in memory, also one that a layer has changed | written as bitcode by the host, which has read or built it |
//! | hooks between passes, dumps, code for several processors | refused when the engine is built, or a module compiled: they are this process's |
//! | assembly that reads other files (`.incbin`, `.include`) | an error of LLVM: a helper opens no files |
//! | a listing of bitcode or assembly | refused when it is wanted of a module |
//! | functions that are compiled when they are called, tiers | refused when the engine is built |
//!
//! A cache is asked before a helper, and has what helpers have compiled: their objects are those that this process would make.

use std::sync::Arc;

use uruk_core::{ExecutionSession, SymbolName};

use super::compile::IrCompiler;
use super::error::CompileError;
use super::job::{CompileJob, Outcome, Wanted};
use super::module::ThreadSafeModule;
use super::part_cache::PartCache;
use super::pending::{PendingModule, Source};
use super::symbols::ModuleInterface;
use crate::cache::KeyBuilder;
use crate::helpers::{Checked, HelperAnswer, HelperPool};
use crate::object::{FileKind, ObjectBuffer};

impl IrCompiler {
    /// The same compiler, which compiles in processes of `helpers`.
    ///
    /// # Errors
    /// [`CompileError::NotContained`] if hooks run between its passes, it writes a dump, or its objects have code for several processors.
    /// Where it gets one of these later, its compilations fail so.
    pub fn with_helpers(self, helpers: Arc<HelperPool>) -> Result<Self, CompileError> {
        match self.kept_here() {
            Some(what) => Err(CompileError::NotContained { what: what.to_owned() }),
            None => Ok(Self { helpers: Some(helpers), ..self }),
        }
    }

    /// The part of its work that no helper does.
    fn kept_here(&self) -> Option<&'static str> {
        let parts = [
            (!self.pipeline.hook_ids().is_empty(), "hooks between passes"),
            (self.dump.is_some(), "a dump of what is compiled"),
            (!self.versions.is_empty(), "code for several processors"),
        ];
        parts.into_iter().find_map(|(is_wanted, what)| is_wanted.then_some(what))
    }

    /// The processes that it compiles in, if it does not compile in this one.
    pub fn helpers(&self) -> Option<&Arc<HelperPool>> {
        self.helpers.as_ref()
    }

    /// Turns a module that may be unread into an object.
    pub(super) fn compile_pending(
        &self,
        session: &ExecutionSession,
        pending: PendingModule,
        cache: Option<PartCache>,
    ) -> Result<ObjectBuffer, CompileError> {
        let Some(helpers) = &self.helpers else {
            return self.compile_cached(session, pending.prepare()?, cache);
        };
        self.refuse()?;
        let PendingModule { source, verified, kept, discarded, key: _ } = pending;
        let (source, verified) = match source {
            Source::Unread(source) => (source, verified),
            Source::Module(module) => (module.to_bitcode()?, false),
            Source::Data(module) => (module.data()?.to_bitcode()?, verified),
            Source::Compiled(object) => return Ok(object),
        };
        let names =
            |symbols: Vec<SymbolName>| symbols.iter().map(|symbol| symbol.as_str().to_owned()).collect();
        let job = CompileJob {
            kept: names(kept),
            discarded: names(discarded),
            ..self.job(Wanted::Object, &source, verified)
        };
        ask(helpers, &job, &source, Some(session))
    }

    /// Turns a module in memory into an object, in a helper.
    pub(super) fn compile_apart(
        &self,
        helpers: &HelperPool,
        module: ThreadSafeModule,
        session: Option<&ExecutionSession>,
    ) -> Result<ObjectBuffer, CompileError> {
        self.refuse()?;
        let source = module.to_bitcode()?;
        drop(module);
        ask(helpers, &self.job(Wanted::Object, &source, false), &source, session)
    }

    /// The interface of a file of bitcode or text, if a helper is to read it.
    pub(super) fn interface_apart(
        &self,
        source: &ObjectBuffer,
    ) -> Option<Result<ModuleInterface, CompileError>> {
        let helpers = self.helpers.as_ref()?;
        let read = || {
            // Text was verified when it was read, and only then.
            let bytes = ask(helpers, &self.job(Wanted::Interface, source, true), source, None)?;
            let damaged = |_| CompileError::Parse {
                module: source.name().clone(),
                message: "its helper sent no interface".to_owned(),
            };
            ModuleInterface::from_bytes(bytes.bytes()).map_err(damaged)
        };
        Some(read())
    }

    /// Finds out in a helper whether LLVM understands the passes.
    pub(super) fn check_apart(&self, helpers: &HelperPool) -> Result<(), CompileError> {
        let nothing = ObjectBuffer::new("the pipeline", Vec::new());
        ask(helpers, &self.job(Wanted::Check, &nothing, true), &nothing, None).map(drop)
    }

    /// Refuses to leave something out. The optimized module, for one, stays in the helper, where nothing lists it.
    fn refuse(&self) -> Result<(), CompileError> {
        let listed = self.listing.is_wanted().then_some("bitcode or assembly of what is compiled");
        match self.kept_here().or(listed) {
            Some(what) => Err(CompileError::NotContained { what: what.to_owned() }),
            None => Ok(()),
        }
    }

    fn job(&self, wanted: Wanted, source: &ObjectBuffer, verified: bool) -> CompileJob {
        CompileJob {
            wanted,
            name: source.name().to_string(),
            verified,
            kept: Vec::new(),
            discarded: Vec::new(),
            target: self.target.decided().clone(),
            is_host: self.target.is_host(),
            pipeline: self.pipeline.clone(),
            partition: self.partition,
        }
    }
}

/// Looks at an answer before it is believed, and kept in a cache.
fn check(wanted: Wanted, outcome: &[u8], bytes: &[u8]) -> Result<Checked, String> {
    let outcome = postcard::from_bytes::<Outcome>(outcome);
    if outcome.map_err(|error| format!("it sent no outcome: {error}"))?.is_err() {
        return Ok(Checked::Doubtful);
    }
    match wanted {
        Wanted::Check => {}
        Wanted::Interface => {
            ModuleInterface::from_bytes(bytes).map_err(|error| format!("it sent no interface: {error}"))?;
        }
        Wanted::Object if !matches!(FileKind::of(bytes), FileKind::Object | FileKind::Archive) => {
            return Err(format!("it sent {} bytes that are no object", bytes.len()));
        }
        Wanted::Object => {}
    }
    Ok(Checked::Sound)
}

/// Has a helper do the job; gives the bytes that it made. Meanwhile another thread does the work of this one for `session`.
fn ask(
    helpers: &HelperPool,
    job: &CompileJob,
    source: &ObjectBuffer,
    session: Option<&ExecutionSession>,
) -> Result<ObjectBuffer, CompileError> {
    let name = source.name();
    let phase = uruk_core::phase!("ir.contain", unit = %name, size_bytes = source.size_bytes());
    let _inside = uruk_core::inside(phase);
    let unsent = |why: String| CompileError::NotContained { what: format!("{name}: {why}") };
    let body = postcard::to_stdvec(job).map_err(|error| unsent(error.to_string()))?;
    let mut key = KeyBuilder::new("job of a helper");
    key.bytes("job", &body).bytes("source", source.bytes());
    let blocking = |wait: &mut dyn FnMut()| {
        // Not the session's own way: that runs what is queued on this thread first, which may want the helper that this one has.
        // Where the dispatcher refuses, the thread waits as one that is busy.
        let _ = session.map(|session| session.dispatcher().blocking(wait));
    };
    let check = |answer: &HelperAnswer| check(job.wanted, answer.body(), answer.bulk());
    let answer = helpers.ask(key.finish().as_bytes(), &body, source.bytes(), &check, &blocking);
    let answer =
        answer.map_err(|error| CompileError::Helper { module: name.clone(), source: Box::new(error) })?;
    match postcard::from_bytes::<Outcome>(answer.body()) {
        Ok(Ok(())) => {
            let (payload, at) = answer.into_bulk();
            let size_bytes = payload.len();
            let whole = ObjectBuffer::new(name.clone(), payload);
            Ok(whole.slice(name.clone(), at..size_bytes).unwrap_or(whole))
        }
        Ok(Err(error)) => Err(error.into_error(name)),
        Err(error) => Err(unsent(format!("its helper sent no outcome: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::job::JobError;

    #[test]
    fn an_answer_that_makes_no_sense_is_not_believed() {
        let outcome = |outcome: Outcome| postcard::to_stdvec(&outcome).expect("it is plain");
        let (done, failed) = (outcome(Ok(())), outcome(Err(JobError::Shim { message: String::new() })));
        for wanted in [Wanted::Check, Wanted::Interface, Wanted::Object] {
            assert!(check(wanted, b"", b"").is_err(), "{wanted:?}: no outcome");
            assert_eq!(check(wanted, &failed, b""), Ok(Checked::Doubtful));
            assert_eq!(check(wanted, &done, b"").is_ok(), wanted == Wanted::Check);
            assert_eq!(check(wanted, &done, b"neither nor").is_ok(), wanted == Wanted::Check);
        }
        let interface = ModuleInterface::default().to_bytes();
        assert_eq!(check(Wanted::Interface, &done, &interface), Ok(Checked::Sound));
        assert!(check(Wanted::Object, &done, &interface).is_err());
    }
}
