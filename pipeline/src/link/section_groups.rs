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
/// One lock, held for map operations; never while a session is called.
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
        let members = platform.take_sharing_sections(&symbol);
        let order = platform.order_of(&symbol).unwrap_or(u32::MAX);

        let mut waiting = self.waiting.lock();
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
