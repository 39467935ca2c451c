//! [`Jit::precompile`]: functions of a trace are compiled without a call of any.

use uruk_core::{
    JitDylib, JitDylibLookupFlags, LookupError, LookupRequest, LookupSet, SearchOrder, SymbolName,
};
use uruk_pipeline::lazy::CompileTrace;

use crate::error::JitError;
use crate::jit::Jit;

/// Counts of the functions of a trace, by their ends.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Precompiled {
    /// Functions that are compiled now.
    pub functions: usize,
    /// Functions of the trace that no file has.
    pub stale: usize,
    /// Functions that could not be compiled and linked, with the reason.
    pub failed: Vec<(Box<str>, LookupError)>,
}

impl Jit {
    /// Compiles functions of a trace, and the data of all files, on all threads. Nothing of them runs. The engine has to compile functions
    /// [on call](crate::JitBuilder::compile_on_call): then what is compiled is found in its [cache](crate::JitBuilder::cache) by the engines of later
    /// processes that are set up alike.
    ///
    /// Files are added before. Those of one name are told apart if [`Speculator::compare_sources`](crate::pipeline::lazy::Speculator::compare_sources) was
    /// called before that. Functions that no file has any more, and those that cannot be compiled and linked, are counted, and fail nothing.
    ///
    /// # Errors
    /// [`JitError::Lookup`] if something that the files refer to is missing.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let jit = uruk::Jit::builder().threads(1).compile_on_call(uruk::OnCall::Function).build()?;
    /// jit.add_ir_text("main.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// let trace = "# uruk trace 1\nf\t-\tmain.ll\tnext\tupper\t-\nf\t-\tmain.ll\tgone\tupper\t-\n";
    /// let compiled = jit.precompile(&trace.parse()?)?;
    /// assert_eq!((compiled.functions, compiled.stale), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn precompile(&self, trace: &CompileTrace) -> Result<Precompiled, JitError> {
        self.link_all(&[])?;
        let (bodies, stale) = self.speculator().find(trace);
        let mut compiled = Precompiled { functions: bodies.len(), stale, failed: Vec::new() };
        // All at once, so that all threads work. Of what failed, the answer names one.
        if self.look_up(&bodies).is_err() {
            for body in &bodies {
                if let Err(error) = self.look_up(std::slice::from_ref(body)) {
                    compiled.failed.push((body.1.readable().to_string().into(), error));
                }
            }
            compiled.functions -= compiled.failed.len();
        }
        Ok(compiled)
    }

    fn look_up(&self, bodies: &[(JitDylib, SymbolName)]) -> Result<(), LookupError> {
        let mut dylibs: Vec<&JitDylib> = Vec::new();
        for (dylib, _) in bodies {
            if !dylibs.contains(&dylib) {
                dylibs.push(dylib);
            }
        }
        for dylib in dylibs {
            let names = bodies.iter().filter(|(of, _)| of == dylib).map(|(_, name)| name.clone());
            let order = SearchOrder::from([(dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
            self.session().lookup(LookupRequest::new(order, LookupSet::required(names)))?;
        }
        Ok(())
    }
}
