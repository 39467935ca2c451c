//! Modules that a cache knows by their shape: queries, as a database compiles them.

use std::sync::Arc;

use uruk::core::sync::atomic::{AtomicUsize, Ordering};
use uruk::core::sync::{Latch, thread};
use uruk::pipeline::cache::MemoryCache;
use uruk::pipeline::ir::{OptimizationPipeline, ThreadSafeContext, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Function, Jit};

type Answer = extern "C" fn() -> i64;

fn engine(threads: usize) -> Jit {
    let cache = Arc::new(MemoryCache::new(4 << 20));
    Jit::builder().threads(threads).cache(cache).build().expect("an engine for this machine")
}

fn add(jit: &Jit, text: &str) {
    let source = ObjectBuffer::new("query.ll", text.as_bytes().to_vec());
    jit.add_shaped_ir(&source, None).unwrap_or_else(|error| panic!("{error}\n{text}"));
}

fn call(jit: &Jit, function: &str) -> i64 {
    // SAFETY: all functions here have this signature.
    let function: Function<Answer> =
        unsafe { jit.get(function) }.unwrap_or_else(|error| panic!("{function}: {error}"));
    function()
}

/// Hits and misses.
fn counts(jit: &Jit) -> (u64, u64) {
    let stats = jit.cache_stats().expect("there is a cache");
    (stats.object_hits, stats.object_misses)
}

/// The address of a value that stays.
fn address<T>(value: T) -> usize {
    std::ptr::from_ref(Box::leak(Box::new(value))).addr()
}

/// A query: a numbered function, a structure's fields, a function of the host by its address, a literal.
fn query(number: usize, row: usize, host: usize, literal: i64) -> String {
    format!(
        "%struct.Row.{number} = type {{ i64, i64, i64 }}
         @pg_fn_{number} = internal constant ptr inttoptr (i64 {host} to ptr)
         define available_externally i64 @not_needed_{number}() {{ ret i64 {number} }}
         define internal i64 @helper_{number}(ptr %row) {{
           %field = getelementptr %struct.Row.{number}, ptr %row, i32 0, i32 2
           %x = load i64, ptr %field, align 8
           ret i64 %x
         }}
         define i64 @evalexpr_{number}_1() {{
           %a = load i64, ptr inttoptr (i64 {row} to ptr), align 16
           %b = load i64, ptr inttoptr (i64 {second} to ptr)
           %c = call i64 @helper_{number}(ptr inttoptr (i64 {row} to ptr))
           %f = load ptr, ptr @pg_fn_{number}
           %d = call i64 %f(i64 %a)
           %ab = add i64 %a, %b
           %abc = add i64 %ab, %c
           %abcd = add i64 %abc, %d
           %all = add i64 %abcd, {literal}
           ret i64 %all
         }}",
        second = row + 8,
    )
}

extern "C" fn negated(x: i64) -> i64 {
    -x
}

extern "C" fn doubled(x: i64) -> i64 {
    2 * x
}

const HOST: [(extern "C" fn(i64) -> i64, i64); 2] = [(negated, -1), (doubled, 2)];

/// The query over a row, and its answer.
fn query_over(number: usize, literal: i64) -> (String, i64) {
    let row = [number as i64, 10, 100];
    let (host, factor) = HOST[number % 2];
    (query(number, address(row), host as usize, literal), number as i64 * (1 + factor) + 110 + literal)
}

#[test]
fn the_same_query_at_other_addresses_is_compiled_once() {
    let jit = engine(1);
    for number in 1..=5 {
        let (text, answer) = query_over(number, 7);
        add(&jit, &text);
        assert_eq!(call(&jit, &format!("evalexpr_{number}_1")), answer);
    }
    assert_eq!(counts(&jit), (4, 1));
}

#[test]
fn another_literal_is_another_shape() {
    let jit = engine(1);
    for (number, literal) in [(1, 7), (2, 8), (3, 7)] {
        let (text, answer) = query_over(number, literal);
        add(&jit, &text);
        assert_eq!(call(&jit, &format!("evalexpr_{number}_1")), answer);
    }
    assert_eq!(counts(&jit), (1, 2));
}

#[test]
fn a_shape_does_not_depend_on_what_else_its_context_has_seen() {
    let (jit, context) = (engine(1), ThreadSafeContext::new());
    let mut modules = Vec::new();
    for number in 1..=3 {
        let (text, answer) = query_over(1, 0);
        // The same name of a structure each time, to which the context gives a number.
        let source = ObjectBuffer::new("query.ll", text.replace("_1", &format!("_{number}")).into_bytes());
        let module = ThreadSafeModule::parse_in(&context, &source).expect("it is right");
        let names =
            module.with_module(|module| jit.add_shaped("query", module, None)).expect("the context is there");
        let names: Vec<_> = names.expect("new names").iter().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(names, [format!("evalexpr_{number}_{number}")]);
        assert_eq!(call(&jit, &names[0]), answer);
        // It is still its owner's.
        modules.push(module);
    }
    assert_eq!(counts(&jit), (2, 1));
}

/// Fills the bytes at `filled`, and reads the word at `read` before and after.
fn change(number: usize, filled: usize, read: usize) -> String {
    format!(
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)
         define i64 @change{number}() {{
           %before = load i64, ptr inttoptr (i64 {read} to ptr)
           call void @llvm.memset.p0.i64(ptr align {align} inttoptr (i64 {filled} to ptr), i8 -1, i64 256, i1 false)
           %after = load i64, ptr inttoptr (i64 {read} to ptr)
           %changed = xor i64 %before, %after
           ret i64 %changed
         }}",
        align = 8 << (number % 3),
    )
}

#[test]
fn addresses_of_one_object_may_take_the_places_of_addresses_of_two() {
    let jit = engine(1);
    let (apart, together) = (address([0_i64; 32]), address([0_i64; 32]));
    add(&jit, &change(1, apart, address(0_i64)));
    assert_eq!(call(&jit, "change1"), 0);
    // Too far from one another to be found from one another, and yet they overlap.
    add(&jit, &change(2, together, together + 128));
    assert_eq!(call(&jit, "change2"), -1);
    assert_eq!(counts(&jit), (1, 1));
}

#[test]
fn variables_with_addresses_may_have_those_of_one_object() {
    let jit = engine(1);
    let module = |number: usize, filled: usize, read: usize| {
        format!(
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)
             @filled = internal constant ptr inttoptr (i64 {filled} to ptr)
             @looked_at = internal constant ptr inttoptr (i64 {read} to ptr)
             define i64 @f{number}() {{
               %read = load ptr, ptr @looked_at
               %before = load i64, ptr %read
               %filled = load ptr, ptr @filled
               call void @llvm.memset.p0.i64(ptr %filled, i8 -1, i64 256, i1 false)
               %after = load i64, ptr %read
               %changed = xor i64 %before, %after
               ret i64 %changed
             }}"
        )
    };
    let (apart, together) = (address([0_i64; 32]), address([0_i64; 32]));
    add(&jit, &module(1, apart, address(0_i64)));
    add(&jit, &module(2, together, together + 128));
    assert_eq!([call(&jit, "f1"), call(&jit, "f2")], [0, -1]);
    assert_eq!(counts(&jit), (1, 1));
}

#[test]
fn fields_of_one_structure_are_told_apart() {
    let jit = engine(1);
    let module = |number: usize, first: usize, second: usize| {
        format!(
            "define i64 @f{number}() {{
               store i64 1, ptr inttoptr (i64 {first} to ptr)
               store i64 2, ptr inttoptr (i64 {second} to ptr)
               %x = load i64, ptr inttoptr (i64 {first} to ptr)
               ret i64 %x
             }}"
        )
    };
    let rows = [address([0_i64; 8]), address([0_i64; 8]), address([0_i64; 8])];
    add(&jit, &module(1, rows[0], rows[0] + 8));
    add(&jit, &module(2, rows[1], rows[1]));
    add(&jit, &module(3, rows[2] + 8, rows[2]));
    assert_eq!([1, 2, 3].map(|number| call(&jit, &format!("f{number}"))), [1, 2, 1]);
    assert_eq!(counts(&jit), (0, 3), "distances within a structure count");
}

#[test]
fn many_threads_at_once_compile_one_shape_once() {
    const THREADS: usize = 4;
    let (jit, started, gate) = (engine(2), AtomicUsize::new(0), Latch::new());
    thread::scope(|scope| {
        for number in 1..=THREADS {
            let (jit, started, gate) = (&jit, &started, &gate);
            scope.spawn(move || {
                let (text, answer) = query_over(number, 3);
                if started.fetch_add(1, Ordering::SeqCst) + 1 == THREADS {
                    gate.open();
                }
                gate.wait();
                add(jit, &text);
                assert_eq!(call(jit, &format!("evalexpr_{number}_1")), answer);
            });
        }
    });
    assert_eq!(counts(&jit), (THREADS as u64 - 1, 1));
}

#[test]
fn passes_run_on_a_miss_alone_and_are_part_of_the_key() {
    let jit = engine(1);
    let add = |number, passes: &str| {
        let (text, answer) = query_over(number, 7);
        let passes = OptimizationPipeline::passes(passes);
        let source = ObjectBuffer::new("query.ll", text.into_bytes());
        jit.add_shaped_ir(&source, Some(&passes)).expect("new names");
        (format!("evalexpr_{number}_1"), answer)
    };
    let (first, answer) = add(1, "default<O3>");
    assert_eq!(call(&jit, &first), answer);
    let (second, answer) = add(2, "default<O3>");
    assert_eq!(call(&jit, &second), answer);
    assert_eq!(counts(&jit), (1, 1));
    let (third, answer) = add(3, "instcombine");
    assert_eq!(call(&jit, &third), answer);
    assert_eq!(counts(&jit), (1, 2));
    let (fourth, _) = add(4, "no such pass");
    assert!(jit.lookup(&fourth).expect_err("the passes run").to_string().contains("evalexpr_4_1"));
}

#[test]
fn a_module_without_a_shape_is_compiled_as_it_is() {
    let jit = engine(1);
    let module = |number: usize, row: usize| {
        format!(
            "@other{number} = alias i64 (), ptr @f{number}
             define i64 @f{number}() {{ %x = load i64, ptr inttoptr (i64 {row} to ptr) ret i64 %x }}"
        )
    };
    for number in 1..=2 {
        add(&jit, &module(number, address(number as i64)));
        assert_eq!(call(&jit, &format!("other{number}")), number as i64);
    }
    assert_eq!(counts(&jit), (0, 2));
}

#[test]
fn weak_definitions_of_a_hit_yield_to_those_that_were_there() {
    let jit = engine(1);
    let module = |number: usize, row: usize| {
        format!(
            "define weak i64 @shared() {{ %x = load i64, ptr inttoptr (i64 {row} to ptr) ret i64 %x }}
             define i64 @f{number}() {{ %x = call i64 @shared() ret i64 %x }}"
        )
    };
    for number in 1..=3 {
        add(&jit, &module(number, address(number as i64)));
        assert_eq!(call(&jit, &format!("f{number}")), 1);
    }
    assert_eq!(counts(&jit), (2, 1));
}

#[test]
fn without_a_cache_shapes_change_nothing() {
    let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
    let (text, answer) = query_over(1, 7);
    add(&jit, &text);
    assert_eq!(call(&jit, "evalexpr_1_1"), answer);
}
