//! Check.
use super::{Payload, SessionState};
impl<P: Payload> SessionState<P> {
    pub(crate) fn check_now_and_then(&mut self) {
        self.unchecked += 1;
    }
}
