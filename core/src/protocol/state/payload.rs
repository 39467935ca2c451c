//! The types that an embedder fills in.

/// The types of the values the protocol carries and never looks into.
pub(crate) trait Payload {
    /// Provides definitions.
    type Unit: Send + 'static;
    /// Is told when a query ends.
    type Handler: Send + 'static;
    /// Provides units.
    type Generator: Clone + Send + 'static;
    /// Lives as long as a tracker.
    type Resource: Send + 'static;
}
