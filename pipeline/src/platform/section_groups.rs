//! Objects that are linked together because they share sections.
//!
//! Sections of one name, where that is a C identifier, lie side by side in a native program, and `__start_X` and
//! `__stop_X` are their common ends. So the objects of a dylib that have such sections wait here for one another, and the
//! last to come takes all of them along.
//!
//! ```text
//!   declared ──first of them comes──▶ expected ──comes──▶ here ──the last one comes or leaves──▶ linked
//!      │ withdrawn                        │ leaves          │ leaves
//!      ▼                                  ▼                 ▼
//! ```
//!
//! The first object that comes founds a group of all that are declared and defined in its dylib by then. The group asks the session for
//! each member, once the member is entered. If the answer comes before the group is linked, the member does not come, or does not stay: it
//! was removed, or its definition was refused. The others go on without it. A member that failed fails the group with its error, because a
//! program without it is not the requested one.
//!
//! **Architecture Invariant:** a group waits only for members that the session knows. A question has one answer, whether its symbol becomes
//! ready or not, so no member can be missed.
//!
//! An object waits until others are *compiled*, which depends on no symbol of theirs: no two can wait for each other. The model is
//! `loom-tests/tests/section_groups.rs`, for which this file needs nothing but `uruk_core`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use uruk_core::sync::{Arc, Mutex, weakened};
use uruk_core::{
    Detached, FailureCause, JitDylib, LookupError, LookupRequest, LookupResult, LookupSet,
    MaterializationResponsibility, SearchOrder, SharedError, SymbolName,
};

/// An object and the duty that goes with it.
pub(crate) type Part<O> = (MaterializationResponsibility, O);

/// The objects that share sections and are not linked yet.
///
/// # Concurrency
/// One lock, held for map operations, never while a session is called, a duty is dropped or anything is linked.
#[derive(Debug)]
pub(crate) struct SectionGroups<O> {
    waiting: Mutex<WaitingMembers<O>>,
}

#[derive(Debug)]
struct WaitingMembers<O> {
    /// By initializer symbol.
    members: FxHashMap<SymbolName, Member>,
    next_group: u64,
    groups: FxHashMap<u64, SectionGroup<O>>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// The place in link order.
    order: u32,
    place: MemberPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberPlace {
    Declared,
    Expected(u64),
    Here(u64),
}

/// Members that wait for one another.
#[derive(Debug)]
struct SectionGroup<O> {
    members: Vec<SymbolName>,
    /// How many of them are expected.
    missing: usize,
    /// Those that are here, in link order.
    parts: BTreeMap<u32, WaitingPart<O>>,
}

#[derive(Debug)]
struct WaitingPart<O> {
    symbol: SymbolName,
    responsibility: Detached<MaterializationResponsibility>,
    object: O,
}

impl<O> Default for SectionGroups<O> {
    fn default() -> Self {
        let (members, groups) = (FxHashMap::default(), FxHashMap::default());
        Self { waiting: Mutex::new(WaitingMembers { members, next_group: 0, groups }) }
    }
}

impl<O: Send + 'static> SectionGroups<O> {
    /// Notes that the unit of `symbol` shares sections; `order` is its place in link order.
    pub(crate) fn declare(&self, symbol: SymbolName, order: u32) {
        self.waiting.lock().members.insert(symbol, Member { order, place: MemberPlace::Declared });
    }

    /// Whether there is an object that shares sections and has not been linked.
    #[cfg(not(uruk_loom))]
    pub(crate) fn are_declared(&self) -> bool {
        !self.waiting.lock().members.is_empty()
    }

    /// Forgets a declaration. A member that a group expects already is left to the group's question.
    pub(crate) fn withdraw(&self, symbol: &SymbolName) {
        let mut waiting = self.waiting.lock();
        let is_free = |member: &Member| {
            member.place == MemberPlace::Declared || weakened("section_groups::withdraws_who_is_expected")
        };
        if waiting.members.get(symbol).is_some_and(is_free) {
            waiting.members.remove(symbol);
        }
    }

    /// Has `link` called with what is to be linked now that `part` has come: it alone, or its whole group in link order. While
    /// others are expected, that is when the last of them has come or left, on whichever thread brings it about.
    pub(crate) fn arrive<L>(self: &Arc<Self>, part: Part<O>, link: L)
    where
        L: Fn(Vec<Part<O>>) + Clone + Send + 'static,
    {
        let Some(symbol) = part.0.initializer_symbol().cloned() else { return link(vec![part]) };
        let candidates = self.waiting.lock().candidates(&symbol);
        let Some(candidates) = candidates else { return link(vec![part]) };
        let dylib = part.0.dylib().clone();
        // Those of other dylibs have groups of their own, as other files of a process have; others may be refused yet.
        let defined = dylib.flags(candidates).into_iter().map(|(name, _)| name).collect();
        let part = WaitingPart { symbol, responsibility: part.0.detach(), object: part.1 };
        let entered = self.waiting.lock().enter(part, defined);
        match entered {
            EnteredGroup::Alone(part) => link(vec![part.attach()]),
            EnteredGroup::Founded(id, members) => {
                for member in members {
                    self.ask(id, member, &dylib, &link);
                }
            }
            EnteredGroup::Waits => {}
            EnteredGroup::Completed(group) => group.link(&link),
        }
    }

    /// Asks the session for a member: the lookup compiles one that has not come, and its answer tells which member does not come.
    fn ask<L>(self: &Arc<Self>, id: u64, member: SymbolName, dylib: &JitDylib, link: &L)
    where
        L: Fn(Vec<Part<O>>) + Clone + Send + 'static,
    {
        // Its address is announced when the group is linked.
        let wanted = LookupSet::weakly_referenced([member.clone()]);
        let request = LookupRequest::new(SearchOrder::of(dylib), wanted).until_resolved();
        let (groups, link) = (self.clone(), link.clone());
        dylib.session().lookup_async(request, move |answer| groups.answered(id, &member, answer, &link));
    }

    /// A member that is still expected when this answer comes will not come.
    fn answered(
        &self,
        id: u64,
        member: &SymbolName,
        answer: Result<LookupResult, LookupError>,
        link: &impl Fn(Vec<Part<O>>),
    ) {
        let error = match answer {
            Ok(_) if weakened("section_groups::takes_no_answer_for_an_absence") => return,
            Ok(_) => None,
            Err(LookupError::Failed(failure)) if matches!(failure.cause, FailureCause::Removed) => None,
            Err(_) if weakened("section_groups::waits_for_who_has_failed") => return,
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            let (left, completed) = self.waiting.lock().leave(id, member);
            // It was removed: what is left of its duty ends here.
            drop(left);
            return completed.into_iter().for_each(|group| group.link(link));
        };
        let failed = self.waiting.lock().dissolve(id);
        let error: SharedError = Arc::new(error);
        for (_, part) in failed.into_iter().flat_map(|group| group.parts) {
            part.responsibility.fail(error.clone());
        }
    }

    /// How many are declared and not linked. For tests and models.
    #[cfg(any(test, uruk_loom))]
    pub(crate) fn unlinked(&self) -> usize {
        self.waiting.lock().members.len()
    }
}

/// The next step for an object that comes.
enum EnteredGroup<O> {
    /// It shares no sections.
    Alone(WaitingPart<O>),
    /// Its group is new, and these are its members.
    Founded(u64, Vec<SymbolName>),
    /// Others are expected.
    Waits,
    /// It was the last one.
    Completed(SectionGroup<O>),
}

impl<O> WaitingMembers<O> {
    /// All that `symbol` may found a group of; none if it belongs to a group already. `None` if it shares no sections.
    fn candidates(&self, symbol: &SymbolName) -> Option<Vec<SymbolName>> {
        let member = self.members.get(symbol)?;
        let is_declared = |member: &Member| member.place == MemberPlace::Declared;
        if !is_declared(member) {
            return Some(Vec::new());
        }
        let declared = self.members.iter().filter(|(_, member)| is_declared(member));
        let mut in_order: Vec<_> = declared.map(|(symbol, member)| (member.order, symbol)).collect();
        in_order.sort_unstable_by_key(|(order, _)| *order);
        Some(in_order.into_iter().map(|(_, symbol)| symbol.clone()).collect())
    }

    /// Puts an object where it belongs, which may have changed since the candidates were asked for.
    fn enter(&mut self, part: WaitingPart<O>, defined: Vec<SymbolName>) -> EnteredGroup<O> {
        match self.members.get(&part.symbol).map(|member| member.place) {
            None => EnteredGroup::Alone(part),
            Some(MemberPlace::Expected(id)) if !weakened("section_groups::founds_without_a_second_look") => {
                self.join(id, part)
            }
            Some(_) => self.found(part, defined),
        }
    }

    fn join(&mut self, id: u64, part: WaitingPart<O>) -> EnteredGroup<O> {
        let (Some(member), Some(group)) = (self.members.get_mut(&part.symbol), self.groups.get_mut(&id))
        else {
            return EnteredGroup::Alone(part);
        };
        member.place = MemberPlace::Here(id);
        group.missing -= 1;
        group.parts.insert(member.order, part);
        self.complete(id).map_or(EnteredGroup::Waits, EnteredGroup::Completed)
    }

    /// Makes a group of the founder and those of the `defined` that are in none. Without others there is none to be made.
    fn found(&mut self, founder: WaitingPart<O>, defined: Vec<SymbolName>) -> EnteredGroup<O> {
        let is_declared = |symbol: &SymbolName| {
            let place = self.members.get(symbol).map(|member| member.place);
            place == Some(MemberPlace::Declared) || weakened("section_groups::founds_without_a_second_look")
        };
        let is_other = |symbol: &SymbolName| *symbol != founder.symbol && is_declared(symbol);
        let mut members: Vec<_> = defined.into_iter().filter(is_other).collect();
        if members.is_empty() {
            self.members.remove(&founder.symbol);
            return EnteredGroup::Alone(founder);
        }
        members.push(founder.symbol.clone());
        let id = self.next_group;
        self.next_group += 1;
        for symbol in &members {
            if let Some(member) = self.members.get_mut(symbol) {
                member.place = MemberPlace::Expected(id);
            }
        }
        let (missing, parts) = (members.len(), BTreeMap::new());
        self.groups.insert(id, SectionGroup { members: members.clone(), missing, parts });
        match self.join(id, founder) {
            EnteredGroup::Waits => EnteredGroup::Founded(id, members),
            alone_or_complete => alone_or_complete,
        }
    }

    /// Takes a member out of the group `id`, if it is still in it. Gives its part, and the group if no other member is expected.
    fn leave(&mut self, id: u64, member: &SymbolName) -> (Option<WaitingPart<O>>, Option<SectionGroup<O>>) {
        let Some(&Member { order, place }) = self.members.get(member) else { return (None, None) };
        let Some(group) = self.groups.get_mut(&id) else { return (None, None) };
        let left = match place {
            MemberPlace::Expected(of) if of == id => {
                group.missing -= 1;
                None
            }
            MemberPlace::Here(of) if of == id && !weakened("section_groups::links_what_was_removed") => {
                group.parts.remove(&order)
            }
            _ => return (None, None),
        };
        self.members.remove(member);
        (left, self.complete(id))
    }

    /// The group, if no member is expected any more. It is forgotten here, and its members with it.
    fn complete(&mut self, id: u64) -> Option<SectionGroup<O>> {
        let is_complete = self.groups.get(&id).is_some_and(|group| group.missing == 0);
        is_complete.then(|| self.dissolve(id)).flatten()
    }

    /// Forgets a group and its members.
    fn dissolve(&mut self, id: u64) -> Option<SectionGroup<O>> {
        let group = self.groups.remove(&id)?;
        for symbol in &group.members {
            self.members.remove(symbol);
        }
        Some(group)
    }
}

impl<O> SectionGroup<O> {
    /// Links all members that are here. None is, if all were removed.
    fn link(self, link: &impl Fn(Vec<Part<O>>)) {
        let parts: Vec<_> = self.parts.into_values().map(WaitingPart::attach).collect();
        if !parts.is_empty() {
            link(parts);
        }
    }
}

impl<O> WaitingPart<O> {
    fn attach(self) -> Part<O> {
        (self.responsibility.attach(), self.object)
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use uruk_core::sync::{Latch, thread};
    use uruk_core::{ExecutionSession, MaterializationInterface, MaterializationUnit};

    /// Hands its object to the groups and notes how many are to be linked together.
    struct Arriving {
        initializer: SymbolName,
        groups: Arc<SectionGroups<()>>,
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
            // Nothing is linked here: the parts fail as they are dropped, which ends both lookups.
            let linked = self.linked.clone();
            self.groups.arrive((responsibility, ()), move |parts| linked.lock().push(parts.len()));
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
            let groups = Arc::<SectionGroups<()>>::default();
            let linked = Arc::new(Mutex::new(Vec::new()));
            let symbols = ["first", "second"].map(|unit| session.intern(unit));
            for (initializer, order) in symbols.clone().into_iter().zip(0..) {
                groups.declare(initializer.clone(), order);
                let (groups, linked) = (groups.clone(), linked.clone());
                dylib.define(Box::new(Arriving { initializer, groups, linked })).expect("a new symbol");
            }
            let start = Arc::new(Latch::new());
            let threads = symbols.map(|symbol| {
                let (session, order, start) = (session.clone(), dylib.link_order(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    session.lookup(LookupRequest::new(&order, LookupSet::weakly_referenced([symbol])))
                })
            });
            start.open();
            for thread in threads {
                thread.join().expect("no panic").expect_err("the parts were dropped");
            }
            assert_eq!(*linked.lock(), [2]);
            assert_eq!(groups.unlinked(), 0);
        }
    }
}
