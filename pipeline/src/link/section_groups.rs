//! Objects that are linked together because they share sections.
//!
//! Sections of one name, where that is a C identifier, lie side by side in a native program, and
//! `__start_X` and `__stop_X` are their common ends. So objects with such sections wait here for one
//! another, and the last to come takes all of them along.
//!
//! What an object waits for is that others are *compiled*, which depends on no symbol of anybody; so no two can
//! wait for each other. A unit that does not come at all has failed, and the group fails with it.

use rustc_hash::{FxHashMap, FxHashSet};
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{
    Detached, ExecutionSession, JitDylib, LookupError, LookupRequest, LookupSet,
    MaterializationResponsibility, SharedError, SymbolName,
};

use crate::object::ObjectBuffer;
use crate::platform::Platform;

/// An object and the duty that goes with it.
pub(super) type Part = (MaterializationResponsibility, ObjectBuffer);

/// The groups that are still incomplete.
///
/// # Concurrency
/// One lock, held for map operations and over the platform's; never while a session is called.
#[derive(Debug, Default)]
pub(super) struct SectionGroups {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    groups: FxHashMap<u64, Group>,
    /// Which group each unit that has not come yet belongs to.
    group_of: FxHashMap<SymbolName, u64>,
}

#[derive(Debug, Default)]
struct Group {
    missing: usize,
    parts: Vec<(u32, Detached<MaterializationResponsibility>, ObjectBuffer)>,
}

impl SectionGroups {
    /// What is to be linked now that `part` has come: it alone, nothing yet, or its whole group in link order.
    pub(super) fn arrive(self: &Arc<Self>, part: Part, platform: &Platform) -> Vec<Part> {
        let Some(symbol) = part.0.initializer_symbol().cloned() else { return vec![part] };
        let (dylib, session) = (part.0.dylib().clone(), part.0.session().clone());
        let order = platform.order_of(&symbol).unwrap_or(u32::MAX);

        // The members are taken and entered in one step: an object that comes in between would find itself in
        // neither place.
        let mut waiting = self.waiting.lock();
        let members = platform.take_sharing_sections(&symbol);
        let founded = (members.len() > 1).then(|| waiting.found(&members));
        let Some(id) = waiting.group_of.remove(&symbol) else { return vec![part] };
        let Some(group) = waiting.groups.get_mut(&id) else { return vec![part] };
        group.missing -= 1;
        group.parts.push((order, part.0.detach(), part.1));
        let complete = if group.missing == 0 { waiting.groups.remove(&id) } else { None };
        drop(waiting);

        if let Some(id) = founded {
            self.demand(id, members, &dylib, &session);
        }
        complete.map(Group::into_parts).unwrap_or_default()
    }

    /// Sees to it that every member comes or fails.
    fn demand(
        self: &Arc<Self>,
        id: u64,
        members: FxHashSet<SymbolName>,
        dylib: &JitDylib,
        session: &ExecutionSession,
    ) {
        let request = LookupRequest::new(dylib.link_order(), LookupSet::weakly_referenced(members));
        let groups = self.clone();
        session.lookup_async(request, move |answer| {
            if let Err(error) = answer {
                groups.fail(id, &error);
            }
        });
    }

    fn fail(&self, id: u64, error: &LookupError) {
        let group = {
            let mut waiting = self.waiting.lock();
            waiting.group_of.retain(|_, group| *group != id);
            waiting.groups.remove(&id)
        };
        for (_, responsibility, _) in group.map(|group| group.parts).unwrap_or_default() {
            responsibility.fail(Arc::new(error.clone()) as SharedError);
        }
    }
}

impl Waiting {
    fn found(&mut self, members: &FxHashSet<SymbolName>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.groups.insert(id, Group { missing: members.len(), parts: Vec::new() });
        self.group_of.extend(members.iter().map(|member| (member.clone(), id)));
        id
    }
}

impl Group {
    fn into_parts(mut self) -> Vec<Part> {
        self.parts.sort_by_key(|(order, ..)| *order);
        self.parts.into_iter().map(|(_, responsibility, object)| (responsibility.attach(), object)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uruk_core::sync::{Latch, thread};
    use uruk_core::{MaterializationInterface, MaterializationUnit};

    use crate::platform::UnitTraits;

    /// Hands its object to the groups and notes how many are to be linked together.
    struct Arriving {
        initializer: SymbolName,
        groups: Arc<SectionGroups>,
        platform: Arc<Platform>,
        linked: Arc<Mutex<Vec<usize>>>,
    }

    impl MaterializationUnit for Arriving {
        fn name(&self) -> &str {
            "arriving"
        }

        fn interface(&self) -> MaterializationInterface {
            MaterializationInterface::default().with_initializer(self.initializer.clone())
        }

        fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
            let part = (responsibility, ObjectBuffer::new("arriving", Vec::new()));
            let parts = self.groups.arrive(part, &self.platform);
            if !parts.is_empty() {
                self.linked.lock().push(parts.len());
            }
            // Nothing is linked here: the parts fail as they are dropped, which ends both lookups.
        }

        fn discard(&mut self, _dylib: &JitDylib, _symbol: &SymbolName) {}
    }

    /// Two objects that came at the same moment were once linked apart: one had taken the list of members and not
    /// entered it yet when the other looked itself up, so that the first waited for ever.
    #[test]
    fn objects_that_arrive_at_the_same_moment_are_linked_together() {
        for _ in 0..2000 {
            let session = ExecutionSession::new();
            let dylib = session.create_jit_dylib("main").expect("a new name");
            let (groups, platform) = (Arc::<SectionGroups>::default(), Arc::new(Platform::new()));
            let linked = Arc::new(Mutex::new(Vec::new()));
            let traits = UnitTraits { shares_sections: true, work_bytes: 0 };
            let symbols = ["first", "second"].map(|unit| platform.declare(&session, unit, traits));
            for initializer in symbols.clone() {
                let (groups, platform, linked) = (groups.clone(), platform.clone(), linked.clone());
                dylib
                    .define(Box::new(Arriving { initializer, groups, platform, linked }))
                    .expect("a new symbol");
            }
            let start = Arc::new(Latch::new());
            let threads = symbols.map(|symbol| {
                let (session, order, start) = (session.clone(), dylib.link_order(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    session.lookup(&order, LookupSet::weakly_referenced([symbol]))
                })
            });
            start.open();
            for thread in threads {
                thread.join().expect("no panic").expect_err("the parts were dropped");
            }
            assert_eq!(*linked.lock(), [2]);
        }
    }
}
