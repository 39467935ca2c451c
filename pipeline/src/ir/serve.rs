//! [`serve_compiles`]: a process that compiles for another one.

use std::io;

use super::compile::IrCompiler;
use super::context::ThreadSafeContext;
use super::error::CompileError;
use super::job::{CompileJob, JobError, Outcome, Wanted};
use super::llvm_build::llvm_build;
use super::module::ThreadSafeModule;
use super::optimize::OptimizationPipeline;
use super::pending::leave_out;
use super::source::SourceKind;
use super::symbols::ModuleInterface;
use super::target::JitTargetMachineBuilder;
use crate::cache::ENGINE_SCHEMA;
use crate::helpers::{Serving, serve};
use crate::object::ObjectBuffer;
use crate::peer::PeerFrame;

/// Identifies the compiler of a helper: the build of LLVM, and the version of this engine. A host and its helpers have to agree on it: on the
/// layout of jobs, and on the objects that are made of them.
///
/// # Cost
/// As [`llvm_build`], and one string.
pub fn helper_build() -> String {
    format!("{} by uruk {}, objects of kind {ENGINE_SCHEMA}", llvm_build(), env!("CARGO_PKG_VERSION"))
}

/// As much stack as workers of a pool have: LLVM goes deep.
const STACK_BYTES: usize = 64 << 20;

/// Compiles for the process that has started this one as one of its [helpers](crate::helpers::Helpers), until that ends. To be called at the
/// beginning of `main`, before anything reads stdin.
///
/// # Errors
/// If this process was not started by a pool of helpers; LLVM cannot be loaded; or the pool is of another version.
///
/// # Examples
/// ```no_run
/// // A host that is its own helper.
/// if std::env::args().nth(1).as_deref() == Some("compile-helper") {
///     return uruk_pipeline::ir::serve_compiles();
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn serve_compiles() -> io::Result<()> {
    serve_compiles_watched(|_, _| {})
}

/// The same, calling `watch` with the kind of each message, and the name of the job at hand: for tests, which end the process at a message.
///
/// # Errors
/// As there.
#[doc(hidden)]
pub fn serve_compiles_watched(watch: impl FnMut(u16, &str) + Send + 'static) -> io::Result<()> {
    let work = move || serve(&mut Compiles { watch, job: String::new(), left: None });
    let thread = uruk_core::sync::thread::Builder::new().name("uruk helper".to_owned());
    let served = thread.stack_size(STACK_BYTES).spawn(work)?.join();
    served.unwrap_or_else(|_| Err(io::Error::other("a helper panicked")))
}

struct Compiles<W> {
    watch: W,
    /// The name of the last job.
    job: String,
    /// The last module's context, which takes long to go: the host does not wait for it.
    left: Option<ThreadSafeContext>,
}

impl<W: FnMut(u16, &str)> Serving for Compiles<W> {
    /// Loads LLVM and compiles nothing, so that the first job finds it ready.
    fn prepare(&mut self) -> io::Result<String> {
        let target = JitTargetMachineBuilder::host().map_err(io::Error::other)?;
        IrCompiler::new(target, OptimizationPipeline::none())
            .compile(ThreadSafeModule::new(
                &ThreadSafeContext::try_new().map_err(io::Error::other)?,
                "nothing",
            ))
            .map_err(io::Error::other)?;
        Ok(helper_build())
    }

    fn on_message(&mut self, kind: u16) {
        (self.watch)(kind, &self.job);
    }

    fn name(&mut self, job: &PeerFrame) {
        self.job =
            postcard::from_bytes::<CompileJob>(job.body()).map_or_else(|_| String::new(), |job| job.name);
    }

    fn work(&mut self, job: PeerFrame) -> (Vec<u8>, Vec<u8>) {
        let (outcome, bulk): (Outcome, _) = match postcard::from_bytes::<CompileJob>(job.body()) {
            Ok(asked) => match do_job(asked, job, &mut self.left) {
                Ok(made) => (Ok(()), made.bytes().to_vec()),
                Err(error) => (Err(error.into()), Vec::new()),
            },
            Err(error) => (Err(JobError::Other { message: error.to_string() }), Vec::new()),
        };
        // Nothing at all is no outcome to the host, which ends this process then.
        (postcard::to_stdvec(&outcome).unwrap_or_default(), bulk)
    }

    fn clean_up(&mut self) {
        self.left = None;
    }
}

fn do_job(
    job: CompileJob,
    frame: PeerFrame,
    left: &mut Option<ThreadSafeContext>,
) -> Result<ObjectBuffer, CompileError> {
    let CompileJob { wanted, name, verified, kept, discarded, target, is_host, pipeline, partition } = job;
    let target = if is_host {
        JitTargetMachineBuilder::host()?.with_options(target)
    } else {
        JitTargetMachineBuilder::new(target)?
    };
    let compiler = IrCompiler::new(target, pipeline).with_partition(partition);
    let (payload, at) = frame.into_payload();
    let size_bytes = payload.len();
    let whole = ObjectBuffer::new(name.as_str(), payload);
    let source = whole.slice(name.as_str(), at..size_bytes).unwrap_or(whole);
    match wanted {
        Wanted::Check => {
            compiler.check_pipeline()?;
            Ok(ObjectBuffer::new(name, Vec::new()))
        }
        Wanted::Interface => {
            let interface = match SourceKind::of(&source)? {
                SourceKind::Bitcode => ModuleInterface::of_bitcode(&source, compiler.target())?,
                SourceKind::Assembly => ModuleInterface::of_module(
                    &ThreadSafeModule::parse_assembly(&source)?,
                    compiler.target(),
                )?,
            };
            Ok(ObjectBuffer::new(name, interface.to_bytes()))
        }
        Wanted::Object => {
            let module = match verified {
                true => ThreadSafeModule::parse(&source)?,
                false => ThreadSafeModule::parse_unverified(&source)?,
            };
            *left = Some(module.context().clone());
            leave_out(&module, &discarded, &kept)?;
            compiler.compile(module)
        }
    }
}
