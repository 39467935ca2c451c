//! Resource trackers: what is removed together.

use std::any::Any;
use std::error::Error;
use std::fmt;

use crate::ids::TrackerId;
use crate::protocol::removal::policy::OnDependants;
use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::tracker::Defunct;
use crate::session::Live;
use crate::session::resource_memory::{HeldMemory, ResourceMemory};
use crate::shared_error;
use crate::sync::{Arc, Weak, unique, weakened};
use crate::{JitDylib, RemovalPolicy, RemoveError, SharedError, TrackerError};

/// Something that lives as long as the symbols of a tracker: memory, unwind registrations, files.
///
/// A resource that is merely dropped, because its session is, must free what it holds as well.
///
/// # Concurrency
/// Removed once, by whichever thread removes the symbols or closes the session, without any lock: it may use the session.
///
/// ORC: `ResourceManager`, whose keyed maps become owned values.
pub trait Resource: Any + Send {
    /// Notes that the resource is about to be removed. All resources that are removed together are told, newest first, before the
    /// first of them is removed: what their ends have to do for one another is done while all of them are there.
    ///
    /// Runs no code of others. A resource that is merely dropped is not told.
    fn prepare_removal(&mut self, removal: RemovalNumber) {
        let _ = removal;
    }

    /// Knows how much memory the resource holds, for [`ResourceTracker::memory_usage`]. Called once, before a tracker has the resource.
    /// By default the resource counts for nothing.
    fn memory(&self) -> Option<Arc<dyn ResourceMemory>> {
        None
    }

    /// Gives back what the resource holds.
    ///
    /// # Errors
    /// Any failure; removal goes on with the next resource and reports all errors together.
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Tells removals apart: what is removed together has one number. None comes twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemovalNumber(u64);

impl RemovalNumber {
    /// The number of a removal that begins.
    pub(crate) fn next() -> Self {
        Self(unique())
    }

    /// A number that no removal has, for tests of resources.
    #[doc(hidden)]
    pub fn new() -> Self {
        Self::next()
    }
}

/// A resource as a tracker has it, with its memory, which was asked for without a lock.
pub(crate) struct Registered {
    resource: Box<dyn Resource>,
    memory: Option<Arc<dyn ResourceMemory>>,
}

impl Registered {
    pub(crate) fn new(resource: Box<dyn Resource>) -> Self {
        Self { memory: resource.memory(), resource }
    }

    pub(crate) fn memory(&self) -> Option<Arc<dyn ResourceMemory>> {
        self.memory.clone()
    }
}

impl fmt::Debug for dyn Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resource")
    }
}

/// Groups symbols and their resources, so that they are removed together.
///
/// When the last handle is dropped, what the tracker still has is transferred to its dylib's default
/// tracker.
///
/// # Concurrency
/// Every method may be called from any thread, and takes the session's lock for a moment; so does dropping the last handle. None waits
/// for others.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let query = session.intern("query");
/// for address in [0x1000, 0x2000] {
///     let tracker = main.create_tracker();
///     let unit = FnUnit::new([query.clone()], move |request| {
///         request.addresses([("query", ExecutorAddr::new(address))])
///     });
///     main.define_with_tracker(Box::new(unit), &tracker)?;
///     assert_eq!(session.lookup_symbol(&main.link_order(), &query)?.address, ExecutorAddr::new(address));
///     tracker.remove()?; // The name is free again, and what the unit kept is gone.
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ORC: `ResourceTracker`.
#[derive(Clone)]
pub struct ResourceTracker(Arc<TrackerHandle>);

struct TrackerHandle {
    dylib: JitDylib,
    id: TrackerId,
    /// The default tracker of a dylib lives as long as the dylib, with or without handles.
    is_default: bool,
}

impl ResourceTracker {
    pub(crate) fn new(dylib: JitDylib, id: TrackerId, is_default: bool) -> Self {
        Self(Arc::new(TrackerHandle { dylib, id, is_default }))
    }

    /// The tracker that the handle stands for: the default tracker of a dylib is another one after each removal.
    pub(crate) fn id_in(&self, state: &SessionState<Live>) -> TrackerId {
        if self.0.is_default { state.definitions.default_tracker(self.0.dylib.id()) } else { self.0.id }
    }

    /// The tracker's id; none for the default tracker of its dylib.
    pub(crate) fn own_id(&self) -> Option<TrackerId> {
        (!self.0.is_default).then_some(self.0.id)
    }

    /// The dylib whose symbols the tracker groups.
    pub fn dylib(&self) -> &JitDylib {
        &self.0.dylib
    }

    /// Whether the tracker was removed or transferred.
    pub fn is_defunct(&self) -> bool {
        self.0.dylib.session().transact(|state, _| state.tracker_is_defunct(self.id_in(state)))
    }

    /// Lets `resource` live as long as the tracker's symbols.
    ///
    /// # Errors
    /// [`TrackerError::Defunct`]; the resource has been dropped then.
    pub fn add_resource(&self, resource: Box<dyn Resource>) -> Result<(), TrackerError> {
        let resource = Registered::new(resource);
        self.0
            .dylib
            .session()
            .transact(|state, effects| state.add_resource(self.id_in(state), resource, effects))
            .map_err(|Defunct| TrackerError::Defunct { dylib: self.0.dylib.shared_name() })
    }

    /// Removes the tracker's symbols in any state, and then its resources, newest first.
    ///
    /// In a dylib that [keeps dependants](crate::ExecutionSession::create_jit_dylib_keeping_dependants) this is
    /// [`RemovalPolicy::Refuse`]: nothing is removed if symbols that would stay need some of the tracker. In other dylibs such
    /// symbols are unknown and stay, though their code refers to removed symbols; the caller ensures that it does not run.
    ///
    /// Symbols being materialized fail, and so do lookups that wait for them; their unit learns of it
    /// when it next uses its responsibility. Removing a defunct tracker does nothing.
    ///
    /// # Concurrency
    /// Callable from any thread. On return the resources have been removed. The caller ensures that no
    /// thread still runs code of the removed symbols.
    ///
    /// # Errors
    /// [`RemoveError::Needed`] names the dependants of the symbols. [`RemoveError::Resources`] joins the resources' errors;
    /// symbols and resources are gone all the same.
    ///
    /// # Cost
    /// Linear in the symbols; more than a few go in slices, between which others have the session's lock. No lookup finds any of
    /// them meanwhile. Where dependants are kept, one hold of the lock looks at the symbols and their dependants first.
    ///
    /// ORC: `ResourceTracker::remove`, which does not look at dependants.
    pub fn remove(&self) -> Result<(), RemoveError> {
        self.remove_by(Resource::remove)
    }

    /// As [`ResourceTracker::remove`], with `remove` in the place of [`Resource::remove`]: for who wants to know what became of the
    /// resources, which can be told apart as [`Any`].
    ///
    /// # Concurrency
    /// `remove` is called on this thread before the method returns, newest resource first, without any lock.
    ///
    /// # Errors
    /// As [`ResourceTracker::remove`].
    pub fn remove_by(&self, remove: impl FnMut(Box<dyn Resource>) -> Removed) -> Result<(), RemoveError> {
        self.remove_tracker(OnDependants::AsKept, remove)
    }

    /// As [`ResourceTracker::remove`], with a choice of what becomes of dependants.
    ///
    /// With [`RemovalPolicy::Cascade`] they go at the same moment. Resources of dependants alone are removed first, in the order of
    /// need: a dependant's before those of the symbols it needs.
    ///
    /// # Errors
    /// As [`ResourceTracker::remove`], and [`RemoveError::DependantsNotKept`] if the dylib does not keep them.
    ///
    /// # Cost
    /// That of [`ResourceTracker::remove`]. Dependants that go with the tracker go in one hold of the lock.
    pub fn remove_with(&self, policy: RemovalPolicy) -> Result<(), RemoveError> {
        self.remove_with_by(policy, Resource::remove)
    }

    /// As [`ResourceTracker::remove_with`], with `remove` in the place of [`Resource::remove`], as in
    /// [`ResourceTracker::remove_by`].
    ///
    /// # Errors
    /// As [`ResourceTracker::remove_with`].
    pub fn remove_with_by(
        &self,
        policy: RemovalPolicy,
        remove: impl FnMut(Box<dyn Resource>) -> Removed,
    ) -> Result<(), RemoveError> {
        self.remove_tracker(OnDependants::Policy(policy), remove)
    }

    /// As [`ResourceTracker::remove_by`], but dependants do not matter: they stay as they are, as everywhere in ORC.
    ///
    /// Nothing here runs code, so nothing here is unsafe. A caller that runs code of dependants from now on must say why that is
    /// sound.
    ///
    /// # Errors
    /// [`RemoveError::Resources`], as [`ResourceTracker::remove`].
    pub fn remove_leaving_dependants_by(
        &self,
        remove: impl FnMut(Box<dyn Resource>) -> Removed,
    ) -> Result<(), RemoveError> {
        self.remove_tracker(OnDependants::Leave, remove)
    }

    fn remove_tracker(
        &self,
        on_dependants: OnDependants,
        remove: impl FnMut(Box<dyn Resource>) -> Removed,
    ) -> Result<(), RemoveError> {
        let dylib = || self.0.dylib.shared_name();
        let on_dependants = match weakened("dependants::asks_before_it_removes") {
            true => {
                let asked = |state: &mut SessionState<Live>, _: &mut _| {
                    state.ask_dependants(self.id_in(state), dylib)
                };
                self.0.dylib.session().transact(asked)?;
                OnDependants::Leave
            }
            false => on_dependants,
        };
        let remove_rows = |state: &mut SessionState<Live>, effects: &mut _| {
            state.remove_tracker_with(self.id_in(state), on_dependants, dylib, effects)
        };
        let (removed, removal) = self.0.dylib.session().transact_removal(remove_rows, |removed| {
            removed.as_ref().is_ok_and(|resources| !resources.is_empty())
        });
        let resources = removed?;
        removal.map_or(Ok(()), |removal| removal.remove_by(dylib(), resources.into_vec(), remove))
    }

    /// How much memory the tracker's resources hold: of linked code, the bytes that its removal gives back, unless a handle keeps them.
    /// Nothing for a tracker that was removed or transferred.
    ///
    /// Objects that were linked together share their memory. It counts for the tracker of one of them, and for that of another when
    /// the first is removed. So the sum over trackers is what there is.
    ///
    /// # Concurrency
    /// Takes the session's lock for a moment, and asks the resources after it.
    ///
    /// # Cost
    /// Linear in the tracker's resources.
    pub fn memory_usage(&self) -> HeldMemory {
        let memories = self.0.dylib.session().transact(|state, _| {
            let resources = state.definitions.resources_of(self.id_in(state));
            resources.filter_map(Registered::memory).collect()
        });
        HeldMemory::of(memories)
    }

    /// A handle that keeps neither the tracker nor its session: for what lies in the session itself.
    pub fn downgrade(&self) -> WeakResourceTracker {
        WeakResourceTracker(Arc::downgrade(&self.0))
    }

    /// Moves the tracker's symbols and resources to `destination`; this tracker is defunct afterwards.
    ///
    /// # Errors
    /// [`TrackerError::Defunct`] if either is, [`TrackerError::Foreign`] if they belong to different dylibs.
    ///
    /// # Cost
    /// Linear in the symbols moved.
    ///
    /// ORC: `ResourceTracker::transferTo`.
    pub fn transfer_to(&self, destination: &ResourceTracker) -> Result<(), TrackerError> {
        let dylib = self.0.dylib.shared_name();
        if self.0.dylib != destination.0.dylib {
            return Err(TrackerError::Foreign { dylib });
        }
        self.0
            .dylib
            .session()
            .transact(|state, effects| {
                state.transfer_tracker(self.id_in(state), destination.id_in(state), effects)
            })
            .map_err(|Defunct| TrackerError::Defunct { dylib })
    }
}

impl JitDylib {
    /// How much memory the resources of the dylib's symbols hold: the sum over its trackers. Nothing for a dylib that was removed.
    ///
    /// # Concurrency
    /// As [`ResourceTracker::memory_usage`].
    ///
    /// # Cost
    /// Linear in the dylib's trackers and their resources.
    pub fn memory_usage(&self) -> HeldMemory {
        let memories = self.session().transact(|state, _| {
            let resources = state.definitions.resources_of_dylib(self.id());
            resources.filter_map(Registered::memory).collect()
        });
        HeldMemory::of(memories)
    }
}

/// A tracker, as long as a [`ResourceTracker`] of it exists.
///
/// A handle that lies in its own session keeps all of that session alive; this does not.
#[derive(Clone)]
pub struct WeakResourceTracker(Weak<TrackerHandle>);

impl WeakResourceTracker {
    /// The tracker; nothing once its last handle is gone, and what it had is the default tracker's.
    pub fn upgrade(&self) -> Option<ResourceTracker> {
        self.0.upgrade().map(ResourceTracker)
    }
}

impl fmt::Debug for WeakResourceTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakResourceTracker")
    }
}

impl fmt::Debug for ResourceTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceTracker")
            .field("dylib", &self.0.dylib.name())
            .field("is_default", &self.0.is_default)
            .finish_non_exhaustive()
    }
}

impl PartialEq for ResourceTracker {
    fn eq(&self, other: &Self) -> bool {
        (self.0.is_default, self.0.is_default || self.0.id == other.0.id) == (other.0.is_default, true)
            && self.0.dylib == other.0.dylib
    }
}

impl Eq for ResourceTracker {}

impl Drop for TrackerHandle {
    fn drop(&mut self) {
        if !self.is_default {
            self.dylib.session().transact(|state, effects| state.release_tracker(self.id, effects));
        }
    }
}

/// The result of removing a resource.
pub(crate) type Removed = Result<(), Box<dyn Error + Send + Sync>>;

/// Resources that know that they are about to be removed.
pub(crate) struct PreparedResources {
    resources: Vec<Box<dyn Resource>>,
    /// The errors so far.
    sources: Vec<SharedError>,
}

impl PreparedResources {
    /// Tells `resources`, which are in the order of their registration, newest first and past panics.
    pub(crate) fn new(resources: Vec<Registered>, removal: RemovalNumber) -> Self {
        let mut resources: Vec<_> = resources.into_iter().map(|registered| registered.resource).collect();
        let prepare = |resource: &mut Box<dyn Resource>| {
            let prepared = crate::panics::guard(|| resource.prepare_removal(removal));
            prepared.err().map(|message| shared_error(format!("preparing a removal panicked: {message}")))
        };
        let sources = resources.iter_mut().rev().filter_map(prepare).collect();
        Self { resources, sources }
    }

    /// Removes them, newest first and past errors, each as `remove` does it.
    pub(crate) fn remove_by(
        self,
        dylib: Arc<str>,
        mut remove: impl FnMut(Box<dyn Resource>) -> Removed,
    ) -> Result<(), RemoveError> {
        let mut remove_one = |resource| {
            crate::panics::guard(|| remove(resource).map_err(SharedError::from)).unwrap_or_else(|message| {
                Err(shared_error(format!("removing a resource panicked: {message}")))
            })
        };
        let Self { resources, mut sources } = self;
        sources.extend(resources.into_iter().rev().filter_map(|resource| remove_one(resource).err()));
        if sources.is_empty() { Ok(()) } else { Err(RemoveError::Resources { dylib, sources }) }
    }
}
