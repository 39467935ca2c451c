//! Compilation in other processes, as a choice of the builder.

use uruk_pipeline::helpers::Helpers;

use super::JitBuilder;

impl JitBuilder {
    /// Has LLVM read and compile files in helper processes, so that a file that crashes it, or has it hang or eat memory, fails alone, in an
    /// error that says how its helper ended. Such a file is not tried again by this engine. Objects are the same.
    ///
    /// A module that was [built in memory](crate::Scope::add_module) goes there as bitcode. Hooks between passes, a [dump](Self::dump),
    /// [`compile_on_call`](Self::compile_on_call) and [`tiers`](Self::tiers) are not possible with it: [`build`](Self::build) says so. Nor are
    /// images, and modules that are [known by their shape](crate::Scope::add_shaped). A file whose assembly reads other files (`.incbin`,
    /// `.include`) fails: helpers open none.
    ///
    /// Helpers are confined: code that a file smuggles into its compiler can open no file, socket, program or process there. It could still
    /// send a wrong object, which runs in this process: this is no reason to run what strangers send.
    /// [`Helpers::unconfined`] turns it off, and [`HelperStats::unconfined`](uruk_pipeline::helpers::HelperStats::unconfined) says whether
    /// the system has refused it.
    ///
    /// # Cost
    /// Bitcode and object cross a socket. Each helper has an LLVM of its own. With the feature `lazy-llvm` this process loads none, as long as it
    /// has files compiled and no modules of its own. Threads of a pool whose jobs are in helpers are replaced meanwhile: at most one for each helper.
    ///
    /// # Examples
    /// ```no_run
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// use std::time::Duration;
    /// use uruk::pipeline::helpers::Helpers;
    ///
    /// let helpers = Helpers::new("/usr/local/bin/uruk").argument("compile-helper");
    /// let helpers = helpers.count(2).memory(1 << 30).time_limit(Duration::from_secs(30));
    /// let jit = uruk::Jit::builder().compile_in(helpers).build()?;
    /// jit.add_file("from-a-stranger.bc")?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn compile_in(mut self, helpers: Helpers) -> Self {
        self.compile.helpers = Some(helpers);
        self
    }
}
