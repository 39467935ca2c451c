//! An engine's outputs beside its code: dumps, traces, what it tells of modules, and sections that other tools can move.

#[cfg(feature = "llvm")]
use uruk_pipeline::ir::Dump;
use uruk_pipeline::lazy::CompileTraceFile;

#[cfg(feature = "llvm")]
use super::Arc;
use super::JitBuilder;

impl JitBuilder {
    /// Writes everything that is compiled to a directory, for people to read: each module, or function that is compiled by itself, as it came,
    /// after optimization, as assembly and as an object. Files are named after the unit and the level, with a number for each compilation.
    ///
    /// Nothing is written of a unit that a [cache](Self::cache) has, for it is not compiled. A file that cannot be written fails nothing:
    /// [`Dump::failure`] says it.
    ///
    /// # Cost
    /// Code is generated twice, once as assembly. Without it: nothing.
    ///
    /// ORC: `DumpObjects`.
    #[cfg(feature = "llvm")]
    #[must_use]
    #[doc(alias = "DumpObjects")]
    pub fn dump(mut self, dump: Dump) -> Self {
        self.compile.dump = Some(dump);
        self
    }

    /// Called for each module of LLVM IR whose functions were to be [compiled on call](Self::compile_on_call) and cannot be taken out of it:
    /// with the module's name, and why it is compiled as a whole. On the thread that adds the module.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn on_whole_module(mut self, hear: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.compile.on_whole = Some(Arc::new(hear));
        self
    }

    /// Has functions noted in `file` when they are compiled because they are called, or compiled better: for [`Jit::precompile`](crate::Jit::precompile) in another
    /// process, or for an [image](crate::ImageBuilder::order).
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use uruk::pipeline::lazy::{CompileTrace, CompileTraceFile};
    ///
    /// # let path = std::env::temp_dir().join(format!("uruk-doc-{}.trace", std::process::id()));
    /// let jit = uruk::Jit::builder().threads(1).compile_on_call(uruk::OnCall::Function);
    /// let jit = jit.trace_compile(CompileTraceFile::append(&path)?).build()?;
    /// jit.add_ir_text("main.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// // SAFETY: `next` takes and gives a 64-bit integer.
    /// let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }?;
    /// assert_eq!(next(41), 42);
    /// let trace: CompileTrace = std::fs::read_to_string(&path)?.parse()?;
    /// assert_eq!(&*trace.functions[0].function.function, "next");
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn trace_compile(mut self, file: CompileTraceFile) -> Self {
        self.run.trace = Some(file);
        self
    }

    /// Whether each function and each variable of LLVM IR has a section of its own, as `-ffunction-sections -fdata-sections` has it. They have not,
    /// unless told otherwise. An [image](crate::ImageBuilder::order) can then give each function its place, and leave it out.
    #[cfg(feature = "llvm")]
    #[must_use]
    pub fn function_sections(mut self, has_sections: bool) -> Self {
        self.compile.has_sections = has_sections;
        self
    }
}
