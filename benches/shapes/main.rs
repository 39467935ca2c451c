//! The cost of a module that the cache knows by its shape, by the size of the module: a hit beside a miss. In processor time.
//!
//! `cargo bench --bench shapes` prints one row a size; `-- FILE.bc…` prints one for each file instead. Each hit has other addresses and names, but
//! those of files, which are added under a tracker of their own again and again.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use uruk::Jit;
use uruk::pipeline::cache::MemoryCache;
use uruk::pipeline::ir::ThreadSafeModule;
use uruk::pipeline::object::ObjectBuffer;

const SIZES: [usize; 4] = [1, 10, 100, 400];
const ROUNDS: usize = 9;

fn main() {
    print("functions  addresses  bitcode KB   hit: add ms  link ms   miss: add ms  compile and link ms");
    let files: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for file in &files {
        let file = ObjectBuffer::open(file.as_ref()).expect("a file that can be read");
        row("?", "?", |_| file.clone());
    }
    if files.is_empty() {
        for functions in SIZES {
            row(&functions.to_string(), &(functions * ADDRESSES).to_string(), |round| {
                module(functions, round)
            });
        }
    }
}

#[expect(clippy::print_stdout, reason = "a bench prints")]
fn print(what: &str) {
    println!("{what}");
}

/// Everything happens on this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn row(functions: &str, addresses: &str, source: impl Fn(usize) -> ObjectBuffer) {
    let jit = Jit::builder().threads(0).cache(Arc::new(MemoryCache::new(256 << 20))).build();
    let jit = jit.expect("an engine for this machine");
    let mut size_bytes = 0;
    let mut once = |round| {
        let module = ThreadSafeModule::parse(&source(round)).expect("it is right");
        size_bytes = module.to_bitcode().expect("it can be written").size_bytes();
        let tracker = jit.create_tracker();
        let start = processor_time();
        let names = module.with_module(|module| jit.in_tracker(&tracker).add_shaped("query", module, None));
        let names = names.expect("its context is there").expect("new names");
        let added = processor_time() - start;
        jit.lookup(names[0].as_str()).expect("it is linked");
        (added, processor_time() - start - added)
    };
    let miss: (Duration, Duration) = once(0);
    let hits: Vec<_> = (1..=ROUNDS).map(&mut once).collect();
    let median = |of: fn(&(Duration, Duration)) -> Duration| {
        let mut times: Vec<_> = hits.iter().map(of).collect();
        times.sort_unstable();
        times[ROUNDS / 2].as_secs_f64() * 1e3
    };
    let stats = jit.cache_stats().expect("there is a cache");
    assert_eq!((stats.object_hits, stats.object_misses), (ROUNDS as u64, 1), "the module has a shape");
    print(&format!(
        "{functions:>9}  {addresses:>9}  {:>10.1}   {:>11.2}  {:>7.2}   {:>12.2}  {:>19.2}",
        size_bytes as f64 / 1024.0,
        median(|(added, _)| *added),
        median(|(_, linked)| *linked),
        miss.0.as_secs_f64() * 1e3,
        miss.1.as_secs_f64() * 1e3,
    ));
}

/// How many addresses a function has.
const ADDRESSES: usize = 7;

/// Expressions over the columns of rows, as a database writes them: checks for null, loads, arithmetic, calls by address.
fn module(functions: usize, round: usize) -> ObjectBuffer {
    let mut text = format!("%Slot.{round} = type {{ i64, ptr, [8 x i64], [8 x i8] }}\n");
    for function in 0..functions {
        // Structures of a query lie somewhere on the heap, a kilobyte apart.
        let address = |at: usize| 0x5600_0000_0000 + ((round * functions + function) * ADDRESSES + at) * 1024;
        text += &format!(
            "define i64 @evalexpr_{round}_{function}(ptr %state, ptr %isnull) {{\nentry:\n br label %b0\n"
        );
        for block in 0..6 {
            let next = block + 1;
            text += &format!(
                "b{block}:\n\
                 %r{block} = load ptr, ptr inttoptr (i64 {row} to ptr), align 8\n\
                 %v{block} = getelementptr inbounds %Slot.{round}, ptr %r{block}, i32 0, i32 2, i64 {block}\n\
                 %n{block} = getelementptr inbounds %Slot.{round}, ptr %r{block}, i32 0, i32 3, i64 {block}\n\
                 %x{block} = load i64, ptr %v{block}, align 8\n\
                 %y{block} = load i8, ptr %n{block}, align 1\n\
                 %z{block} = icmp eq i8 %y{block}, 0\n\
                 br i1 %z{block}, label %c{block}, label %d{block}\n\
                 c{block}:\n\
                 store i64 %x{block}, ptr inttoptr (i64 {field} to ptr), align 8\n\
                 %w{block} = call i64 inttoptr (i64 {host} to ptr)(ptr inttoptr (i64 {row} to ptr), i64 %x{block})\n\
                 %u{block} = sitofp i64 %w{block} to double\n\
                 %t{block} = fmul double %u{block}, 1.5\n\
                 %s{block} = fptosi double %t{block} to i64\n\
                 store i64 %s{block}, ptr inttoptr (i64 {field} to ptr), align 8\n\
                 br label %d{block}\n\
                 d{block}:\n\
                 %o{block} = phi i64 [ 0, %b{block} ], [ %s{block}, %c{block} ]\n\
                 store i64 %o{block}, ptr %state, align 8\n\
                 br label %b{next}\n",
                row = address(block),
                field = address(block) + 16,
                host = address(ADDRESSES - 1),
            );
        }
        text += "b6:\n store i8 0, ptr %isnull\n ret i64 %o5\n}\n";
    }
    ObjectBuffer::new("query.ll", text.into_bytes())
}
