//! Lookups, and names of an engine.

use std::ffi::{c_int, c_void};

use llvm_sys::error::LLVMErrorRef;
use uruk::core::{JitDylibLookupFlags, LookupRequest, LookupResult, LookupSet, SymbolFlags, SymbolName};
use uruk::pipeline::debug;

use crate::boundary::{Array, Out, Text};
use crate::callbacks::{self, Call, Data, HandleResult};
use crate::dylibs;
use crate::engine::{Lljit, Session};
use crate::errors::Problem;
use crate::handles::{self, Handle};
use crate::names::{self, Lent};
use crate::symbols::{self, LookupSetElement, SymbolMapPair};

/// `LLVMOrcCJITDylibSearchOrderElement`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SearchedDylib {
    dylib: Handle,
    flags: c_int,
}

/// Looks a symbol up in the main dylib alone, hidden ones too, as ORC does.
fn begin(jit: Handle, name: Text) -> Result<(), Problem> {
    let jit = handles::get::<Lljit>(jit)?.0.jit()?;
    callbacks::begin_lookup(jit.session(), request(&jit, name)?);
    Ok(())
}

fn request(jit: &uruk::Jit, name: Text) -> Result<LookupRequest, Problem> {
    let order = vec![(jit.main_dylib().clone(), JitDylibLookupFlags::MatchAllSymbols)];
    Ok(LookupRequest::new(order, LookupSet::one(jit.intern(name.get()?))))
}

/// The answer of a lookup that was begun; waits for it if another thread has to do with it.
fn end(jit: Handle, name: Text) -> Result<u64, Problem> {
    let jit = handles::get::<Lljit>(jit)?.0.jit()?;
    let answer = match callbacks::answer_of_lookup() {
        Some(answer) => answer,
        None => callbacks::look_up(jit.session(), request(&jit, name)?),
    };
    debug::settle();
    let found = answer.map_err(Problem::from).and_then(with_addresses)?;
    let definition = found.iter().next().map(|(_, definition)| definition);
    definition
        .map(|definition| definition.address.value())
        .ok_or_else(|| Problem::new("the lookup has no answer"))
}

/// The answer, if each symbol has one address.
///
/// # Errors
/// One is thread-local: linked code finds it by a descriptor, which is no address of it.
fn with_addresses(found: LookupResult) -> Result<LookupResult, Problem> {
    let thread_local =
        found.iter().find(|(_, definition)| definition.flags.contains(SymbolFlags::THREAD_LOCAL));
    match thread_local.map(|(name, _)| name.clone()) {
        Some(name) => Err(Problem::new(format_args!(
            "`{name}` is thread_local and has an address for each thread: look up a function that gives it"
        ))),
        None => Ok(found),
    }
}

fn answer(function: HandleResult, data: Data, answer: Result<LookupResult, Problem>) {
    debug::settle();
    let mut names = Lent::default();
    let (error, found) = match answer {
        Err(problem) => (Some(problem), Vec::new()),
        Ok(found) => {
            let pair =
                |(name, definition): (&SymbolName, _)| SymbolMapPair::lend(name, definition, &mut names);
            (None, found.iter().map(pair).collect())
        }
    };
    callbacks::post(Call::Answer { function, data, error, found, _names: names });
}

interface! {
    fn LLVMOrcLLJITLookup(jit: Handle, result: Out<u64>, name: Text) -> LLVMErrorRef {
        result.set(0);
        begin(jit, name)?;
        // Callbacks run here. The frames that they may jump over own nothing: the lookup lies in the thread's list.
        callbacks::run_lookup();
        result.set(end(jit, name)?);
        Ok(())
    }

    fn LLVMOrcExecutionSessionLookup(
        session: Handle,
        kind: c_int,
        order: Array<SearchedDylib>,
        order_len: usize,
        set: Array<LookupSetElement>,
        set_len: usize,
        handle_result: HandleResult,
        data: *mut c_void,
    ) {
        let data = Data(data);
        // The names are ours in any case.
        let set = set.of(set_len).and_then(symbols::take_set);
        let asked = handles::get::<Session>(session).and_then(|session| {
            let dylib = |searched: &SearchedDylib| {
                Ok((dylibs::get(searched.dylib)?.1.0.clone(), symbols::dylib_flags(searched.flags)))
            };
            let order: Vec<_> = order.of(order_len)?.iter().map(dylib).collect::<Result<_, Problem>>()?;
            Ok((session, LookupRequest { kind: symbols::kind(kind), ..LookupRequest::new(order, set?) }))
        });
        match asked {
            Ok((session, request)) => {
                session.0.session().lookup_async(request, move |found| {
                    answer(handle_result, data, found.map_err(Problem::from).and_then(with_addresses));
                });
            }
            // Each lookup has an answer.
            Err(problem) => answer(handle_result, data, Err(problem)),
        }
        Ok(())
    }

    fn LLVMOrcExecutionSessionIntern(session: Handle, name: Text) -> Handle {
        Ok(names::give(&handles::get::<Session>(session)?.0.session().intern(name.get()?)))
    }

    /// Names of ELF symbols are not mangled.
    fn LLVMOrcLLJITMangleAndIntern(jit: Handle, name: Text) -> Handle {
        Ok(names::give(&handles::get::<Lljit>(jit)?.0.session().intern(name.get()?)))
    }
}
