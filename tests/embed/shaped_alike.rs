//! Random modules with numbers in the range of addresses do the same with and without shapes.

use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;
use uruk::pipeline::cache::MemoryCache;
use uruk::pipeline::ir::{OptimizationLevel, ThreadSafeModule};
use uruk::pipeline::object::ObjectBuffer;
use uruk::{Function, Jit};

/// A step: its kind, and which values it takes.
type Step = (u8, usize, usize);

const KINDS: u8 = 17;
/// How many numbers a module has.
const NUMBERS: usize = 4;
const BYTES: usize = 512;

/// Two numbers for each place: the same module twice.
fn numbers() -> impl Strategy<Value = [Number; NUMBERS]> {
    prop::array::uniform4(prop_oneof![
        3 => (0..BYTES - 8).prop_map(Number::InMemory),
        1 => (0x5500_0000_0000_u64..1 << 47).prop_map(Number::Any),
        // Close together, at the ends of the range, and beyond.
        1 => (0..200_u64).prop_map(|distance| Number::Any(0x6000_0000_0000 + distance)),
        1 => prop::sample::select(vec![0x5500_0000_0000, (1 << 47) - 1, 1 << 47, 0x54ff_ffff_ffff, 17]).prop_map(Number::Any),
    ])
}

#[derive(Clone, Copy, Debug)]
enum Number {
    /// An address of the memory that the module may write to.
    InMemory(usize),
    Any(u64),
}

/// The text of a module whose function has this name.
fn text(function: &str, steps: &[Step], numbers: [u64; NUMBERS], memory: usize) -> String {
    let mut body = String::new();
    let mut values = vec!["%x".to_owned()];
    for (at, (kind, left, right)) in steps.iter().enumerate() {
        let number = numbers[right % NUMBERS];
        let other = numbers[left % NUMBERS];
        // One in two operands is a number.
        let operand = |choice: usize| match choice % 2 {
            0 => numbers[choice / 2 % NUMBERS].to_string(),
            _ => values[choice / 2 % values.len()].clone(),
        };
        let (a, b) = (operand(*left), operand(*right));
        let value = values[left % values.len()].clone();
        // A word of the memory: the addresses of the module in it, where they are, or one that is.
        let place = |address: u64| {
            let inside = (memory..memory + BYTES - 7).contains(&(address as usize));
            if inside { address } else { memory as u64 }
        };
        let v = format!("%v{at}");
        let _ = match kind {
            0 => writeln!(body, "{v} = add i64 {a}, {b}"),
            1 => writeln!(body, "{v} = sub i64 {a}, {b}"),
            2 => writeln!(body, "{v} = mul i64 {a}, {b}"),
            3 => writeln!(body, "{v} = xor i64 {a}, {b}"),
            4 => writeln!(body, "{v} = and i64 {a}, {b}"),
            5 => writeln!(body, "%c{at} = icmp ult i64 {a}, {b}\n{v} = select i1 %c{at}, i64 {number}, i64 {value}"),
            6 => writeln!(body, "%p{at} = getelementptr i8, ptr inttoptr (i64 {number} to ptr), i64 {value}\n{v} = ptrtoint ptr %p{at} to i64"),
            7 => writeln!(
                body,
                "{v} = add i64 {value}, ptrtoint (ptr getelementptr ({{ i32, i64 }}, ptr inttoptr (i64 {number} to ptr), i64 3, i32 1) to i64)"
            ),
            8 => writeln!(
                body,
                "%a{at} = add <2 x i64> <i64 {number}, i64 {other}>, <i64 3, i64 {number}>\n%w{at} = insertelement <2 x i64> %a{at}, i64 {value}, i32 0\n\
                 %m{at} = mul <2 x i64> %w{at}, %a{at}\n{v} = extractelement <2 x i64> %m{at}, i32 {}",
                left % 2
            ),
            9 => writeln!(
                body,
                "%b{at} = trunc i64 {value} to i1\nbr i1 %b{at}, label %t{at}, label %e{at}\nt{at}:\nbr label %j{at}\ne{at}:\nbr label %j{at}\n\
                 j{at}:\n{v} = phi i64 [ {number}, %t{at} ], [ {other}, %e{at} ]"
            ),
            10 => writeln!(
                body,
                "switch i64 {value}, label %d{at} [ i64 {number}, label %s{at}\n i64 3, label %s{at} ]\ns{at}:\nbr label %d{at}\n\
                 d{at}:\n{v} = phi i64 [ {other}, %s{at} ], [ {a}, %start{at} ]"
            )
            .map(|()| {
                // The block that the switch ends has a name.
                let switch = body.rfind("switch").expect("it was written");
                body.insert_str(switch, &format!("br label %start{at}\nstart{at}:\n"));
            }),
            11 => writeln!(body, "store i64 {a}, ptr inttoptr (i64 {} to ptr), align 1\n{v} = add i64 {value}, 1", place(number)),
            12 => writeln!(body, "{v} = load i64, ptr inttoptr (i64 {} to ptr), align 1", place(number)),
            13 => writeln!(body, "{v} = call i64 @llvm.umin.i64(i64 {a}, i64 {b})"),
            14 => writeln!(body, "{v} = call i64 @mixed(i64 {number}, i64 {value})"),
            15 => writeln!(body, "%q{at} = load ptr, ptr @variable\n%i{at} = ptrtoint ptr %q{at} to i64\n{v} = xor i64 %i{at}, {value}"),
            _ => writeln!(
                body,
                "%k{at} = icmp eq <2 x ptr> <ptr inttoptr (i64 {number} to ptr), ptr null>, <ptr inttoptr (i64 {other} to ptr), ptr inttoptr (i64 {number} to ptr)>\n\
                 %l{at} = extractelement <2 x i1> %k{at}, i32 0\n{v} = zext i1 %l{at} to i64"
            ),
        };
        values.push(v);
    }
    let last = values.last().expect("there is the argument");
    format!(
        "declare i64 @llvm.umin.i64(i64, i64)
         @variable = internal constant ptr inttoptr (i64 {} to ptr)
         define internal i64 @mixed(i64 %a, i64 %b) {{ %c = mul i64 %a, 31 %d = xor i64 %c, %b ret i64 %d }}
         define i64 @{function}(i64 %x) {{\n{body}ret i64 {last}\n}}",
        numbers[0],
    )
}

/// The function's answers, and the memory afterwards.
fn run(jit: &Jit, function: &str, memory: &mut [u8; BYTES]) -> (Vec<i64>, [u8; BYTES]) {
    // SAFETY: that is the function's signature.
    let function: Function<extern "C" fn(i64) -> i64> =
        unsafe { jit.get(function) }.unwrap_or_else(|error| panic!("{function}: {error}"));
    for (at, byte) in memory.iter_mut().enumerate() {
        *byte = at as u8;
    }
    let answers = [0, 3, -1, 0x7fff_1234_5678].map(|x| function(x)).into();
    (answers, *memory)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_number_is_replaced(
        steps in prop::collection::vec((0..KINDS, 0..64_usize, 0..64_usize), 1..24),
        rounds in prop::collection::vec(numbers(), 3),
    ) {
        let plain = Jit::builder().threads(0).build().expect("an engine for this machine");
        let cache = Arc::new(MemoryCache::new(4 << 20));
        let shaped = Jit::builder().threads(0).cache(cache).optimization(OptimizationLevel::O2).build();
        let shaped = shaped.expect("an engine for this machine");
        let memory = Box::leak(Box::new([0_u8; BYTES]));
        let start = std::ptr::from_mut(memory).addr();
        for (round, numbers) in rounds.into_iter().enumerate() {
            let numbers = numbers.map(|number| match number {
                Number::InMemory(offset) => (start + offset) as u64,
                Number::Any(number) => number,
            });
            let function = format!("f{round}");
            let source = text(&function, &steps, numbers, start);
            plain.add_ir_text("plain.ll", &source).unwrap_or_else(|error| panic!("{error}\n{source}"));
            let source = ObjectBuffer::new("shaped.ll", source.into_bytes());
            let module = ThreadSafeModule::parse(&source).expect("the other engine has read it");
            module.with_module(|module| shaped.add_shaped("shaped", module, None)).expect("its context is there").expect("a new name");
            prop_assert_eq!(run(&plain, &function, memory), run(&shaped, &function, memory));
        }
        let stats = shaped.cache_stats().expect("there is a cache");
        prop_assert_eq!(stats.object_hits + stats.object_misses, 3);
    }
}
