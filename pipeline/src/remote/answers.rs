//! [`AnswerTable`]: threads of an executor that wait for the host, each for an answer of its own.
//!
//! The thread that takes messages publishes code and leads stubs on by itself, and hands out answers. So all that comes before an answer is done
//! when the thread that waits for the answer goes on. Generic, so that a model runs this file.

use std::collections::BTreeMap;

use uruk_core::sync::{Condvar, Mutex, weakened};

/// Questions without an answer, and answers that were not fetched.
#[derive(Debug)]
pub(super) struct AnswerTable<A> {
    questions: Mutex<Questions<A>>,
    answered: Condvar,
}

#[derive(Debug)]
struct Questions<A> {
    last: u32,
    open: BTreeMap<u32, Option<A>>,
}

impl<A> AnswerTable<A> {
    pub(super) fn new() -> Self {
        let questions = Questions { last: 0, open: BTreeMap::new() };
        Self { questions: Mutex::new(questions), answered: Condvar::new() }
    }

    /// Has `send` send a question under the number that it is given, and waits for the answer. A host that is gone has the process ended meanwhile.
    pub(super) fn ask(&self, send: impl FnOnce(u32)) -> A {
        let mut questions = self.questions.lock();
        questions.last = questions.last.wrapping_add(1);
        let number = questions.last;
        if weakened("remote::asks_before_it_opens") {
            drop(questions);
            send(number);
            self.questions.lock().open.insert(number, None);
        } else {
            questions.open.insert(number, None);
            drop(questions);
            send(number);
        }
        self.wait_for(number)
    }

    fn wait_for(&self, number: u32) -> A {
        let mut questions = self.questions.lock();
        loop {
            if let Some(answer) = questions.open.get_mut(&number).and_then(Option::take) {
                questions.open.remove(&number);
                return answer;
            }
            questions = self.answered.wait(questions);
        }
    }

    /// Hands out an answer. Says whether there was such a question.
    pub(super) fn answer(&self, number: u32, answer: A) -> bool {
        let mut questions = self.questions.lock();
        let Some(place @ None) = questions.open.get_mut(&number) else { return false };
        *place = Some(answer);
        drop(questions);
        if !weakened("remote::answers_in_silence") {
            self.answered.notify_all();
        }
        true
    }
}
