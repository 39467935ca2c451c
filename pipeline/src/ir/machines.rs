//! Target machines that threads keep from one module to the next.
//!
//! Making one takes a millisecond, half the time of a small module. A thread keeps those that it used last. A thread that ends leaves them
//! to others, since the threads of a pool come and go with tasks that block.
//!
//! Holds: a machine is with one thread, or with none.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use uruk_core::sync::Mutex;

use super::error::CompileError;
use super::target::TargetOptions;
use super::target_machine::TargetMachine;

/// A machine and its options.
type Machine = (TargetOptions, TargetMachine);

/// How many a thread keeps: a program compiles for one or two levels.
const KEPT_MAX: usize = 4;

/// How many are kept for threads to come.
const SPARE_MAX: usize = 16;

thread_local! {
    static KEPT: RefCell<RecentMachines> = const { RefCell::new(RecentMachines(Vec::new())) };
}

/// The machines this thread used last, the latest at the end.
struct RecentMachines(Vec<Machine>);

/// The machines of threads that have ended, the latest at the end.
static SPARE: Mutex<Vec<Machine>> = Mutex::new(Vec::new());

/// Lends this thread's machine for `options`. While it is lent, nested calls get another one.
pub(super) fn with_machine<R>(
    options: &TargetOptions,
    use_machine: impl FnOnce(&TargetMachine) -> R,
) -> Result<R, CompileError> {
    let machine = match take_kept(options).or_else(|| take_spare(options)) {
        Some(machine) => machine,
        None => (options.clone(), TargetMachine::create(options)?),
    };
    let result = use_machine(&machine.1);
    if machine.1.may_be_kept() {
        keep(machine);
    }
    Ok(result)
}

/// Forgets this thread's machine for `options` without touching it: LLVM gave up while using it.
pub(super) fn lose_machine(options: &TargetOptions) {
    if let Some(machine) = take_kept(options) {
        let _ = ManuallyDrop::new(machine);
    }
}

fn take_kept(options: &TargetOptions) -> Option<Machine> {
    // A destructor of a thread-local may be what compiles, after this thread has left its machines to others.
    KEPT.try_with(|kept| take(&mut kept.borrow_mut().0, options)).ok()?
}

fn keep(machine: Machine) {
    let mut machine = Some(machine);
    let oldest = KEPT.try_with(|kept| {
        let kept = &mut kept.borrow_mut().0;
        let oldest = (kept.len() >= KEPT_MAX).then(|| kept.remove(0));
        kept.extend(machine.take());
        oldest
    });
    drop(oldest);
}

fn take(machines: &mut Vec<Machine>, options: &TargetOptions) -> Option<Machine> {
    let position = machines.iter().rposition(|(of, _)| of == options)?;
    Some(machines.remove(position))
}

fn take_spare(options: &TargetOptions) -> Option<Machine> {
    // The holder of the lock may be a thread that does not exist in this process, a forked child.
    take(&mut *SPARE.try_lock()?, options)
}

impl Drop for RecentMachines {
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.0);
        let mut oldest = Vec::new();
        if let Some(mut spare) = SPARE.try_lock() {
            spare.append(&mut left);
            let surplus = spare.len().saturating_sub(SPARE_MAX);
            oldest.extend(spare.drain(..surplus));
        }
        // Disposed of without the lock, like those that the lock was not free for.
        drop((left, oldest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{CodegenLevel, JitTargetMachineBuilder};
    use uruk_core::sync::thread;

    fn address(target: &JitTargetMachineBuilder) -> usize {
        target.with_machine(TargetMachine::address).expect("machine")
    }

    #[test]
    fn a_thread_reuses_its_machine() {
        let target = JitTargetMachineBuilder::host().expect("host target");
        let first = address(&target);
        assert_eq!(first, address(&target));
        assert_ne!(first, address(&target.with_codegen_level(CodegenLevel::None)));
    }

    #[test]
    fn a_lent_machine_is_not_lent_again() {
        let target = JitTargetMachineBuilder::host().expect("host target");
        let lent = target.with_machine(|outer| (outer.address(), address(&target)));
        let (outer, inner) = lent.expect("machine");
        assert_ne!(outer, inner);
    }

    #[test]
    fn a_thread_that_ends_leaves_its_machines_to_others() {
        // Options of this test alone: other tests run meanwhile.
        let mut options = JitTargetMachineBuilder::host().expect("host target").options().clone();
        options.large_data_threshold_bytes = 4_321;
        let used = |options: TargetOptions| {
            let on_thread = move || with_machine(&options, TargetMachine::address).expect("machine");
            thread::spawn(on_thread).join().expect("no panic")
        };
        let first = used(options.clone());
        // The lock is tried, not waited for: another test may have it.
        let reused = (0..100).any(|_| used(options.clone()) == first);
        assert!(reused);
    }

    #[test]
    fn a_destructor_of_a_thread_local_may_compile() {
        struct Late(JitTargetMachineBuilder);
        impl Drop for Late {
            fn drop(&mut self) {
                assert_ne!(address(&self.0), 0);
            }
        }
        thread_local! {
            static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
        }
        let target = JitTargetMachineBuilder::host().expect("host target");
        let on_thread = move || {
            // Begun to be used first, it is destroyed last on some systems, and first on others: both must do.
            LATE.set(Some(Late(target.clone())));
            assert_ne!(address(&target), 0);
        };
        thread::spawn(on_thread).join().expect("no panic");
    }

    #[test]
    fn few_machines_are_kept() {
        let options = JitTargetMachineBuilder::host().expect("host target").options().clone();
        for number in 0..2 * KEPT_MAX as u64 {
            let mut options = options.clone();
            options.large_data_threshold_bytes = 10_000 + number;
            with_machine(&options, |_| ()).expect("machine");
        }
        KEPT.with_borrow(|kept| assert_eq!(kept.0.len(), KEPT_MAX));
    }
}
