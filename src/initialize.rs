//! How the code of a [`Jit`](crate::Jit) begins and ends: initialisers run on request, and what has begun comes to its end before its
//! code goes.

use uruk_core::{LookupError, LookupSet};
use uruk_pipeline::debug;

use crate::error::JitError;
use crate::scope::Scope;

impl Scope {
    /// Runs the initialisers of the scope's dylib and of all that its link order leads to, dependencies first: constructors of static objects,
    /// functions with the attribute `constructor`. Each runs once, by priority, then in the order in which the files were added.
    ///
    /// Files that have initialisers are linked for that, even if no symbol of them was looked up. Initialisers
    /// that are linked later run by a later call.
    ///
    /// Objects that this begins come to their end later. Destructors of static objects and handlers of `atexit` and `on_exit` run, newest first,
    /// and then functions with the attribute `destructor`:
    ///
    /// - at [`Scope::deinitialize`], those of one dylib;
    /// - when code is removed, those of all that is removed together, before any of it goes, on the thread that removes it;
    /// - when the `Jit` is dropped, all that are left;
    /// - when the process exits and the `Jit` is still there, all that are left.
    ///
    /// Handlers that are registered while others run, run too. Each runs once. A handler may look symbols up; in a session that has
    /// been closed already that is an error. A C++ exception that leaves an initialiser or a handler ends the process by
    /// `std::terminate`, as in a native program.
    ///
    /// Destructors of `thread_local` objects run when their threads end, as ever. Their code, and all that it may call, stays in
    /// memory until then, removed or not. On other threads than the main one they may come after those of static objects.
    ///
    /// # Concurrency
    /// Blocks until everything has run. If another thread initialises the same dylib, this one waits for it. An initialiser may call this
    /// method: it finds what its own thread runs as done.
    ///
    /// Where [another process](crate::JitBuilder::executor) runs the code, they run there, those of all dylibs; and functions for the end run when code
    /// is removed, and when that process exits.
    ///
    /// # Errors
    /// [`JitError::Lookup`] for the first file that cannot be linked; what can be is not run then. It is not asked for again.
    ///
    /// # Safety
    /// The initialisers and, later, the handlers are sound: they are code of the files that were added.
    ///
    /// ORC: `LLJIT::initialize`.
    pub unsafe fn initialize(&self) -> Result<(), JitError> {
        self.check_open()?;
        let (session, platform) = (&self.engine.session, &self.engine.files.platform);
        let order = session.reverse_dfs_link_order(std::slice::from_ref(self.dylib()))?;
        loop {
            let unasked = order.iter().map(|dylib| (dylib.clone(), platform.unasked(dylib)));
            let unasked: Vec<_> = unasked.filter(|(_, symbols)| !symbols.is_empty()).collect();
            if unasked.is_empty() {
                break;
            }
            // They have no addresses, so that none may be required. Linking them may bring in files of archives.
            let wanted = unasked.iter().map(|(dylib, symbols)| {
                (dylib.clone(), LookupSet::weakly_referenced(symbols.iter().cloned()))
            });
            let linked = session.lookup_init_symbols(wanted);
            // Not before: another thread that initialises waits for them as well.
            platform.note_asked(unasked.iter().flat_map(|(_, symbols)| symbols));
            linked?;
        }
        debug::settle();
        #[cfg(feature = "llvm")]
        if let Some(remote) = &self.engine.remote {
            return remote.start_what_is_new(platform);
        }
        for dylib in &order {
            // SAFETY: the caller's obligation.
            unsafe { platform.initialize(dylib) }.map_err(LookupError::Wait)?;
        }
        Ok(())
    }

    /// Ends what [`Scope::initialize`] and the code of the scope's dylib have begun: handlers of `atexit` and destructors of static objects run, newest
    /// first, then the finalisers of what was initialised, last to first. Dylibs that it links against are left alone.
    ///
    /// The code stays. A dylib that has ended does not begin again: static objects are destroyed, and a later [`Scope::initialize`] runs only
    /// what has not run so far. To begin anew, remove the code and add it again.
    ///
    /// # Safety
    /// Nobody uses static objects of the dylib from now on. The handlers are sound.
    ///
    /// ORC: `LLJIT::deinitialize`.
    pub unsafe fn deinitialize(&self) {
        // SAFETY: the caller's obligation.
        unsafe { self.engine.files.platform.deinitialize(self.dylib()) };
    }

    /// Initialises the dylib if there is anything to run, and if that is to happen by itself.
    pub(crate) fn initialize_on_lookup(&self) -> Result<(), JitError> {
        let engine = &self.engine;
        if !engine.initializes_on_lookup || !engine.files.platform.has_uninitialized() {
            return Ok(());
        }
        // SAFETY: the embedder has promised it (`JitBuilder::initialize_on_lookup`).
        unsafe { self.initialize() }
    }

    /// Runs what is left for the end while the session still answers.
    pub(crate) fn end(&self) {
        // SAFETY: the engine goes, and pointers into its code with it: whoever has some promised not to use them afterwards.
        unsafe { self.engine.files.platform.deinitialize_all() };
    }
}
