//! A generator whose requests the test finishes, whenever and on whichever thread it likes.

use std::sync::{Arc, mpsc};

use uruk_core::{DefinitionGenerator, DetachedRequest, GenerateRequest};

/// Sends each request to the test.
#[derive(Debug)]
pub struct Sends(mpsc::Sender<DetachedRequest>);

impl DefinitionGenerator for Sends {
    fn name(&self) -> &str {
        "sends"
    }

    fn generate(&self, request: GenerateRequest) {
        // A test that has ended drops the request, which fails the lookup.
        let _ = self.0.send(request.detach());
    }
}

/// A generator that sends its requests, and where they come.
pub fn sends() -> (Arc<Sends>, mpsc::Receiver<DetachedRequest>) {
    let (send, requests) = mpsc::channel();
    (Arc::new(Sends(send)), requests)
}
