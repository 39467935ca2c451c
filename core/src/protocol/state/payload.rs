//! The types that an embedder fills in.

use super::pending::Parcel;

/// The types of the values the protocol carries and never looks into.
pub(crate) trait Payload {
    /// Provides definitions.
    type Unit: Send + 'static;
    /// A unit in the form in which it is handed on: made where it is defined, and not moved any more.
    type Parcel: Parcel<Self::Unit> + Send + 'static;
    /// Is told when a query ends.
    type Handler: Send + 'static;
    /// Provides units.
    type Generator: Clone + Send + 'static;
    /// Lives as long as a tracker.
    type Resource: Send + 'static;
}
