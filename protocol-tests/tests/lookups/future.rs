//! A lookup as a future: any thread that has it may poll it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use protocol_tests::*;

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A future that moves to another task is polled with that task's waker, and the waker before is forgotten.
#[test]
fn whoever_polled_last_is_woken_and_nobody_else() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let mut future = pin!(session.lookup_future(request(&main, &["a"])));
    let woken = [(); 3].map(|()| Arc::new(Woken::default()));
    let wakers = woken.clone().map(Waker::from);
    for waker in &wakers {
        assert!(future.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    finish(parked.recv().unwrap().attach());
    assert_eq!(woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed)), [0, 0, 1]);
    assert!(future.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_ready());
}
