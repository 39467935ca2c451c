//! Every lookup is answered: lookups on every face, with and without the lock, waiting, withdrawn, through generators.

mod claims_given_back;
mod deadline;
mod future;
mod generators;
mod holding;
mod lock_holds;
mod lookup;
mod on_caller;
mod ready;
mod ready_agrees;
mod ready_faces;
mod ready_grows;
mod reexports_apart;
mod ruled_out;
mod slices;
mod unheard;
mod why;
mod withdrawn;
