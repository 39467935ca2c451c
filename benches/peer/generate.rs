//! Modules as the peer's generator writes them, letter by letter: what front ends produce, unoptimized.
//!
//! Each has five functions of local variables, two loops, a switch and array traffic, a call inside of the module and one into
//! another. The second argument bounds the depth of those calls. All chance is splitmix64, seeded by the module's number.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::harness::SplitMix64;

const FUNCTIONS: usize = 5;
const OPERATIONS: [&str; 6] = ["add", "sub", "mul", "xor", "and", "or"];

/// The text of module `number` of `modules`.
pub(crate) fn module(number: usize, modules: usize) -> String {
    let mut rng = SplitMix64(0x5EED_0000 + number as u64);
    let mut body = String::new();
    let mut elsewhere = BTreeSet::new();
    for function in 0..FUNCTIONS {
        let mut other = rng.below((modules - 1).max(1));
        if other >= number {
            other += 1;
        }
        let callee = format!("m{other}_f{}", rng.below(FUNCTIONS));
        body += &Function { rng: &mut rng, values: 0, text: String::new() }.write(number, function, &callee);
        elsewhere.insert(callee);
    }
    let mut text =
        format!("; ModuleID = 'm{number:04}'\nsource_filename = \"m{number:04}\"\n{TARGET}\n{body}");
    for callee in elsewhere {
        text += &format!("declare i64 @{callee}(i64, i64)\n");
    }
    text
}

/// The text of the module of one function that calls the one of `(number - 1) / 2`.
pub(crate) fn small(number: usize) -> String {
    let mut text = format!("; ModuleID = 's{number:04}'\nsource_filename = \"s{number:04}\"\n{TARGET}\n");
    text += &format!("define i64 @s{number}(i64 %x) {{\n  %a = mul i64 %x, {}\n", 2 * number + 3);
    match number.checked_sub(1) {
        None => text += "  ret i64 %a\n}\n",
        Some(before) => {
            let callee = before / 2;
            text += &format!("  %r = call i64 @s{callee}(i64 %a)\n  %b = add i64 %r, {number}\n");
            text += &format!("  ret i64 %b\n}}\n\ndeclare i64 @s{callee}(i64)\n");
        }
    }
    text
}

/// The text of the module of one function that calls nothing.
pub(crate) fn lazy(number: usize) -> String {
    let mut text = format!("; ModuleID = 'l{number:04}'\nsource_filename = \"l{number:04}\"\n{TARGET}\n");
    text += &format!("define i64 @l{number}(i64 %x) {{\n  %a = mul i64 %x, {}\n", 2 * number + 3);
    text += &format!("  %b = xor i64 %a, {}\n  ret i64 %b\n}}\n", number * 2_654_435_761);
    text
}

const TARGET: &str =
    "target datalayout = \"e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128\"
target triple = \"x86_64-unknown-linux-gnu\"
";

/// A function being written.
struct Function<'a> {
    rng: &'a mut SplitMix64,
    /// How many values have a name already.
    values: usize,
    text: String,
}

impl Function<'_> {
    fn write(mut self, module: usize, function: usize, callee: &str) -> String {
        self.line(format_args!("define i64 @m{module}_f{function}(i64 %x, i64 %d) {{"));
        self.entry();
        self.fill_array();
        self.switch_loop();
        self.sum_array();
        self.calls(module, function, callee);
        self.line(format_args!("done:"));
        let result = self.load("%acc");
        self.line(format_args!("  ret i64 {result}\n}}\n"));
        self.text
    }

    fn entry(&mut self) {
        self.line(format_args!("entry:\n  %arr = alloca [16 x i64], align 16"));
        for variable in ["x.addr", "d.addr", "acc", "i", "j"] {
            self.line(format_args!("  %{variable} = alloca i64, align 8"));
        }
        self.store("%x", "%x.addr");
        self.store("%d", "%d.addr");
        let start = self.rng.below(1000).to_string();
        self.store(&start, "%acc");
        self.store("0", "%i");
        self.line(format_args!("  br label %init.cond"));
    }

    fn fill_array(&mut self) {
        self.condition("init.cond", "%i", 16, "init.body", "loop.init");
        self.line(format_args!("init.body:"));
        let [index, x, product, mixed, place, next] = self.names();
        let factor = self.rng.below(97) + 3;
        self.line(format_args!("  {index} = load i64, ptr %i, align 8"));
        self.line(format_args!("  {x} = load i64, ptr %x.addr, align 8"));
        self.line(format_args!("  {product} = mul i64 {index}, {factor}"));
        self.line(format_args!("  {mixed} = xor i64 {product}, {x}"));
        self.element(&place, &index);
        self.store(&mixed, &place);
        self.line(format_args!("  {next} = add i64 {index}, 1"));
        self.store(&next, "%i");
        self.line(format_args!("  br label %init.cond"));
    }

    fn switch_loop(&mut self) {
        let rounds = 20 + self.rng.below(20);
        let cases = 5 + self.rng.below(4);
        self.line(format_args!("loop.init:"));
        self.store("0", "%i");
        self.line(format_args!("  br label %loop.cond"));
        self.condition("loop.cond", "%i", rounds, "loop.body", "after");
        self.line(format_args!("loop.body:"));
        let [accumulator, selector] = self.names();
        self.line(format_args!("  {accumulator} = load i64, ptr %acc, align 8"));
        self.line(format_args!("  {selector} = and i64 {accumulator}, 15"));
        self.line(format_args!("  switch i64 {selector}, label %sw.default ["));
        for case in 0..cases {
            self.line(format_args!("    i64 {case}, label %sw.{case}"));
        }
        self.line(format_args!("  ]"));
        for case in 0..cases {
            self.case(&case.to_string());
        }
        self.case("default");
        self.line(format_args!("loop.inc:"));
        self.increment("%i");
        self.line(format_args!("  br label %loop.cond"));
    }

    fn case(&mut self, label: &str) {
        self.line(format_args!("sw.{label}:"));
        let [index, wrapped, place, value] = self.names();
        self.line(format_args!("  {index} = load i64, ptr %i, align 8"));
        let [shifted] = self.names();
        let offset = self.rng.below(16);
        self.line(format_args!("  {shifted} = add i64 {index}, {offset}"));
        self.line(format_args!("  {wrapped} = and i64 {shifted}, 15"));
        self.element(&place, &wrapped);
        self.line(format_args!("  {value} = load i64, ptr {place}, align 8"));
        let mut current = self.load("%acc");
        for _ in 0..3 + self.rng.below(4) {
            let operation = OPERATIONS[self.rng.below(OPERATIONS.len())];
            let right = match self.rng.below(2) {
                0 => (self.rng.below(1 << 20) | 1).to_string(),
                _ => value.clone(),
            };
            let [next] = self.names();
            self.line(format_args!("  {next} = {operation} i64 {current}, {right}"));
            current = next;
        }
        let [shifted, mixed] = self.names();
        let by = 1 + self.rng.below(20);
        self.line(format_args!("  {shifted} = lshr i64 {current}, {by}"));
        self.line(format_args!("  {mixed} = xor i64 {current}, {shifted}"));
        self.store(&mixed, "%acc");
        if self.rng.below(2) == 1 {
            self.store(&mixed, &place);
        }
        self.line(format_args!("  br label %loop.inc"));
    }

    fn sum_array(&mut self) {
        self.line(format_args!("after:"));
        self.store("0", "%j");
        self.line(format_args!("  br label %red.cond"));
        self.condition("red.cond", "%j", 16, "red.body", "guard");
        self.line(format_args!("red.body:"));
        let [index, place, value, accumulator, sum, next] = self.names();
        self.line(format_args!("  {index} = load i64, ptr %j, align 8"));
        self.element(&place, &index);
        self.line(format_args!("  {value} = load i64, ptr {place}, align 8"));
        self.line(format_args!("  {accumulator} = load i64, ptr %acc, align 8"));
        self.line(format_args!("  {sum} = add i64 {accumulator}, {value}"));
        self.store(&sum, "%acc");
        self.line(format_args!("  {next} = add i64 {index}, 1"));
        self.store(&next, "%j");
        self.line(format_args!("  br label %red.cond"));
    }

    fn calls(&mut self, module: usize, function: usize, callee: &str) {
        self.line(format_args!("guard:"));
        let [depth, deeper] = self.names();
        self.line(format_args!("  {depth} = load i64, ptr %d.addr, align 8"));
        self.line(format_args!("  {deeper} = icmp sgt i64 {depth}, 0"));
        self.line(format_args!("  br i1 {deeper}, label %calls, label %done"));
        self.line(format_args!("calls:"));
        let [depth, less, accumulator] = self.names();
        self.line(format_args!("  {depth} = load i64, ptr %d.addr, align 8"));
        self.line(format_args!("  {less} = sub i64 {depth}, 1"));
        self.line(format_args!("  {accumulator} = load i64, ptr %acc, align 8"));
        let mut current = accumulator;
        if function > 0 {
            let [result, next] = self.names();
            let inside = self.rng.below(function);
            self.line(format_args!("  {result} = call i64 @m{module}_f{inside}(i64 {current}, i64 {less})"));
            self.line(format_args!("  {next} = xor i64 {current}, {result}"));
            current = next;
        }
        let [result, next] = self.names();
        self.line(format_args!("  {result} = call i64 @{callee}(i64 {current}, i64 {less})"));
        self.line(format_args!("  {next} = add i64 {current}, {result}"));
        self.store(&next, "%acc");
        self.line(format_args!("  br label %done"));
    }

    /// The block that goes on in the one or the other, by whether `variable` is below `limit`.
    fn condition(&mut self, label: &str, variable: &str, limit: usize, below: &str, else_: &str) {
        self.line(format_args!("{label}:"));
        let [value, is_below] = self.names();
        self.line(format_args!("  {value} = load i64, ptr {variable}, align 8"));
        self.line(format_args!("  {is_below} = icmp slt i64 {value}, {limit}"));
        self.line(format_args!("  br i1 {is_below}, label %{below}, label %{else_}"));
    }

    fn increment(&mut self, variable: &str) {
        let [value, next] = self.names();
        self.line(format_args!("  {value} = load i64, ptr {variable}, align 8"));
        self.line(format_args!("  {next} = add i64 {value}, 1"));
        self.store(&next, variable);
    }

    fn load(&mut self, variable: &str) -> String {
        let [value] = self.names();
        self.line(format_args!("  {value} = load i64, ptr {variable}, align 8"));
        value
    }

    fn store(&mut self, value: &str, place: &str) {
        self.line(format_args!("  store i64 {value}, ptr {place}, align 8"));
    }

    fn element(&mut self, place: &str, index: &str) {
        self.line(format_args!(
            "  {place} = getelementptr inbounds [16 x i64], ptr %arr, i64 0, i64 {index}"
        ));
    }

    /// Names for values, in the order in which the generator hands them out.
    fn names<const N: usize>(&mut self) -> [String; N] {
        std::array::from_fn(|_| {
            self.values += 1;
            format!("%t{}", self.values)
        })
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{text}").expect("a String takes everything");
    }
}
