//! Reading a code instance, beside one atomic load and beside a pointer to a record that never changes. The table's operations,
//! for each instance.
//!
//! ```text
//! cargo bench -p uruk-core --bench code_instance
//! ```
//!
//! Nanoseconds a read: the median of all rounds, the least and the most, and *over*, the median of what a round's load took less. The cases
//! run in turn in each round. Each read depends on the one before, as a call depends on the pointer that it loads. Over many instances the
//! caches miss.

#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Instant;

use uruk_core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use uruk_instances::{CodeInstance, CodeInstanceState, CodeInstanceTable, CodeSignature, InstanceClaim};

type Instance = CodeInstance<NonZeroU64>;

/// The other way to publish a pair: a record is written whole, and then one pointer to it.
struct Record {
    invoke: u64,
    specptr: u64,
    is_specialized: bool,
}

/// How often each case is measured.
const ROUNDS: usize = 101;

/// Reads of one round.
const READS: usize = 100_000;

/// How many instances are read in turn: one, what the second level of the cache holds, and what none holds.
const SIZES: [usize; 3] = [1, 1 << 12, 1 << 20];

/// The data that is read: `count` of each kind, all published.
struct Published {
    words: Vec<[AtomicU64; 3]>,
    instances: Vec<Instance>,
    records: Vec<AtomicPtr<Record>>,
}

/// Code number `index`. Even, so that what depends on it does not go elsewhere.
fn code(index: usize) -> NonZeroU64 {
    NonZeroU64::new((index as u64 + 1) << 4).expect("it is larger than zero")
}

impl Published {
    fn new(count: usize) -> Self {
        let word = |index| [code(index).get(), 0, 0].map(AtomicU64::new);
        let instance = |index| {
            let instance = Instance::new();
            let published = instance.publish(code(index), code(index), CodeSignature::Specialized);
            published.expect("nobody else publishes");
            instance
        };
        Self {
            words: (0..count).map(word).collect(),
            instances: (0..count).map(instance).collect(),
            records: (0..count).map(|index| AtomicPtr::new(leaked_record(index))).collect(),
        }
    }

    fn load(&self, index: usize) -> u64 {
        self.words[index][0].load(Ordering::Acquire)
    }

    fn invoke(&self, index: usize) -> u64 {
        self.instances[index].invoke().map_or(0, NonZeroU64::get)
    }

    fn behind_invoke(&self, index: usize) -> u64 {
        match self.instances[index].behind_invoke() {
            Some((specptr, CodeSignature::Specialized)) => specptr.get(),
            _ => 0,
        }
    }

    fn read(&self, index: usize) -> u64 {
        match self.instances[index].read() {
            CodeInstanceState::Unset => 0,
            CodeInstanceState::InvokeOnly { invoke } | CodeInstanceState::Boxed { invoke, .. } => {
                invoke.get()
            }
            CodeInstanceState::Specialized { specptr, .. } => specptr.get(),
        }
    }

    fn record(&self, index: usize) -> u64 {
        // SAFETY: records are leaked, so each pointer leads to one for ever, and they never change.
        let record = unsafe { self.records[index].load(Ordering::Acquire).as_ref() };
        match record {
            Some(record) if record.is_specialized => record.specptr,
            Some(record) => record.invoke,
            None => 0,
        }
    }
}

fn leaked_record(index: usize) -> *mut Record {
    let pointer = code(index).get();
    Box::leak(Box::new(Record { invoke: pointer, specptr: pointer, is_specialized: true }))
}

/// Nanoseconds a read. Each is of an instance that the one before it decides.
fn walk(count: usize, read: impl Fn(usize) -> u64) -> f64 {
    let begin = Instant::now();
    let mut index = 0;
    for _ in 0..READS {
        // Full period, and the numbers of code are even.
        index = (index * 5 + 12_345 + (read(index) & 1) as usize) & (count - 1);
    }
    black_box(index);
    begin.elapsed().as_nanos() as f64 / READS as f64
}

/// Nanoseconds a publication, of instances and of records.
fn publications() -> [f64; 2] {
    const COUNT: usize = 10_000;
    let instances: Vec<Instance> = (0..COUNT).map(|_| Instance::new()).collect();
    let records: Vec<AtomicPtr<Record>> = (0..COUNT).map(|_| AtomicPtr::default()).collect();
    let each = |publish: &dyn Fn(usize)| {
        let begin = Instant::now();
        (0..COUNT).for_each(publish);
        begin.elapsed().as_nanos() as f64 / COUNT as f64
    };
    let of_instances = each(&|index| {
        let published = instances[index].publish(code(index), code(index), CodeSignature::Specialized);
        published.expect("nobody else publishes");
    });
    let of_records = each(&|index| records[index].store(leaked_record(index), Ordering::Release));
    black_box((instances, records));
    [of_instances, of_records]
}

/// Nanoseconds for each caller that assumes one method: claiming, with its assumption and its publication; ending it by a redefinition;
/// taking it out.
fn table() -> [f64; 3] {
    const CALLERS: u32 = 1000;
    let table = CodeInstanceTable::<u32, u32, NonZeroU64>::new();
    let timed = |run: &dyn Fn()| {
        let begin = Instant::now();
        run();
        begin.elapsed().as_nanos() as f64 / f64::from(CALLERS)
    };
    let claims = timed(&|| {
        for caller in 1..=CALLERS {
            let InstanceClaim::Compile(compile) = table.claim(caller, 0, table.world()) else { continue };
            compile.assume(0, 0).expect("nothing has changed");
            compile.instance().publish_invoke(code(caller as usize)).expect("nobody else publishes");
        }
    });
    let redefines = timed(&|| assert_eq!(table.redefine([0]).ended.len(), CALLERS as usize));
    let forgets = timed(&|| assert_eq!(table.forget(table.world()).len(), CALLERS as usize));
    [claims, redefines, forgets]
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

fn report(name: &str, figures: &[f64], beside: Option<&[f64]>) {
    let ranked = sorted(figures.iter().copied());
    let [least, median, most] = [0, ranked.len() / 2, ranked.len() - 1].map(|at| ranked[at]);
    let over = beside.map(|beside| {
        let over = sorted(figures.iter().zip(beside).map(|(figure, load)| figure - load));
        format!(", over {:.2}", over[over.len() / 2])
    });
    println!("{name:<40} {median:>8.2}   {least:.2} to {most:.2}{}", over.unwrap_or_default());
}

fn main() {
    for count in SIZES {
        let published = Published::new(count);
        let mut figures = [const { Vec::new() }; 5];
        for _ in 0..ROUNDS {
            figures[0].push(walk(count, |index| published.load(index)));
            figures[1].push(walk(count, |index| published.invoke(index)));
            figures[2].push(walk(count, |index| published.behind_invoke(index)));
            figures[3].push(walk(count, |index| published.read(index)));
            figures[4].push(walk(count, |index| published.record(index)));
        }
        let cases = ["one atomic load", "invoke", "behind_invoke", "read", "a pointer to a record"];
        for (name, of_case) in cases.into_iter().zip(&figures) {
            report(&format!("{count}: {name}"), of_case, Some(&figures[0]));
        }
    }
    let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| publications()).collect();
    report("publish", &sorted(rounds.iter().map(|round| round[0])), None);
    report("publish a record", &sorted(rounds.iter().map(|round| round[1])), None);
    let rounds: Vec<[f64; 3]> = (0..ROUNDS).map(|_| table()).collect();
    for (at, name) in
        ["claim, assume, publish", "redefine: each that ends", "forget: each"].into_iter().enumerate()
    {
        report(name, &sorted(rounds.iter().map(|round| round[at])), None);
    }
}
