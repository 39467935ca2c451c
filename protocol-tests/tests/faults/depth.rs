//! Ten thousand nested steps take no stack, on every dispatcher: handlers, wakers, drops.
//!
//! Stacks of 256 KiB, which anything that grows with the depth overflows.

use std::future::Future;
use std::sync::{Arc, mpsc};

use protocol_tests::on::{On, STACK_SIZE_BYTES};
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{JitDylib, Task, TaskPriority};

on_every_dispatcher! {
    handlers_that_look_up_again_ten_thousand_deep,
    handlers_that_look_up_what_is_ready_ten_thousand_deep,
    wakers_that_poll_ten_thousand_deep,
    values_whose_drops_look_up_ten_thousand_deep,
}

/// Runs `code` on a thread with a small stack, on which tasks in place lie.
fn on_a_small_stack(code: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(STACK_SIZE_BYTES).spawn(code).unwrap().join().unwrap();
}

/// Where every transaction is checked, less will do: 130 bytes a level overflow the stack.
const DEEP: usize = if cfg!(debug_assertions) { 2_000 } else { 10_000 };

/// Looks up `s<index>` and in the handler the next, to the last.
fn look_up_deep(main: JitDylib, index: usize, done: mpsc::Sender<()>) {
    let session = main.session().clone();
    session.clone().lookup_async(request(&main, &[&format!("s{index}")]), move |answer| {
        answer.unwrap();
        match index + 1 {
            DEEP => done.send(()).unwrap(),
            next => look_up_deep(main, next, done),
        }
    });
}

fn define_deep(main: &JitDylib) {
    for index in 0..DEEP {
        let name = format!("s{index}");
        define_simple(main, &name, &[&name]);
    }
}

fn handlers_that_look_up_again_ten_thousand_deep(on: On) {
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_deep(&main);
        let (done, told) = mpsc::channel();
        look_up_deep(main, 0, done);
        told.recv().unwrap();
        session.close().unwrap();
    });
}

fn handlers_that_look_up_what_is_ready_ten_thousand_deep(on: On) {
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_deep(&main);
        let names: Vec<_> = (0..DEEP).map(|index| format!("s{index}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        look_up_later(&session, request(&main, &names)).recv().unwrap().unwrap();
        let (done, told) = mpsc::channel();
        look_up_deep(main, 0, done);
        told.recv().unwrap();
        session.close().unwrap();
    });
}

/// Each waker polls the next future for the first time, which may be answered at once.
fn wakers_that_poll_ten_thousand_deep(on: On) {
    struct Polls {
        main: JitDylib,
        next: usize,
        /// The futures that wait, which are withdrawn when they are dropped.
        futures: Arc<Mutex<Vec<uruk_core::SymbolFuture>>>,
        done: Mutex<Option<mpsc::Sender<()>>>,
    }
    impl std::task::Wake for Polls {
        fn wake(self: Arc<Self>) {
            let Some(done) = self.done.lock().take() else { return };
            if self.next == DEEP {
                return done.send(()).unwrap();
            }
            let main = &self.main;
            let mut future = main.session().lookup_future(request(main, &[&format!("s{}", self.next)]));
            let futures = self.futures.clone();
            let waker = Arc::new(Self {
                main: main.clone(),
                next: self.next + 1,
                futures: futures.clone(),
                done: Mutex::new(Some(done)),
            });
            let polled = std::pin::Pin::new(&mut future)
                .poll(&mut std::task::Context::from_waker(&waker.clone().into()));
            if polled.is_ready() {
                // No waker is called for an answer already given; an executor would poll the next one.
                main.session().dispatch(Task::new("goes on", TaskPriority::Demanded, move || waker.wake()));
            }
            futures.lock().push(future);
        }
    }
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_deep(&main);
        let (done, told) = mpsc::channel();
        let futures = Arc::new(Mutex::new(Vec::new()));
        let first = Polls { main, next: 0, futures: futures.clone(), done: Mutex::new(Some(done)) };
        std::task::Wake::wake(Arc::new(first));
        told.recv().unwrap();
        session.close().unwrap();
        drop(std::mem::take(&mut *futures.lock()));
    });
}

/// A unit is dropped because it lost its last symbol; its drop removes the next.
fn values_whose_drops_look_up_ten_thousand_deep(on: On) {
    struct LooksUp(JitDylib, usize, mpsc::Sender<()>);
    impl Drop for LooksUp {
        fn drop(&mut self) {
            let (main, next) = (self.0.clone(), self.1 + 1);
            if next == DEEP {
                return self.2.send(()).unwrap();
            }
            let owned = LooksUp(main.clone(), next, self.2.clone());
            // Dropped uncalled or after its call: either is a drop of the embedder's value.
            main.session().clone().lookup_async(request(&main, &["ready"]), move |_answer| drop(owned));
        }
    }
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_simple(&main, "ready", &["ready"]);
        let (done, told) = mpsc::channel();
        drop(LooksUp(main, 0, done));
        told.recv().unwrap();
        session.close().unwrap();
    });
}
