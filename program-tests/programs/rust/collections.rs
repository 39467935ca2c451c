//# stdout: words: 12 distinct, 'the' 4 times
//# stdout: tree: 500 keys, range 10..15 sums 60
//# stdout: sorted: 100000, first 93, stable
//# stdout: heap: [99, 98, 97]
//# stdout: deque: [3, 4, 5, 0, 1, 2]
//# stdout: formatted: +007|0x00ff|1.50e3|  Uruk  |"a\nb"
//# stdout: iterators: [(0, 'a'), (2, 'c'), (4, 'e')]
//# stdout: dynamic: 3.14 16 6
//# stdout: wide: 340282366920938463463374607431768211455 / 10^19 = 34028236692093846346
//# stdout: future: 42 after 3 polls
//! Generic code of the library made here: maps, sorting, formatting, iterators, trait objects, a small executor.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

trait Shape {
    fn area(&self) -> f64;
}
struct Circle(f64);
struct Rectangle(f64, f64);
impl Shape for Circle {
    fn area(&self) -> f64 {
        3.14 * self.0 * self.0
    }
}
impl Shape for Rectangle {
    fn area(&self) -> f64 {
        self.0 * self.1
    }
}

struct Countdown(u32, u32);
impl Future for Countdown {
    type Output = u32;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        self.1 += 1;
        if self.0 == 0 {
            return Poll::Ready(self.1);
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn main() {
    let text = "the flood swept over the land and the tempest raged like the south wind in anger and";
    let mut words = HashMap::<&str, u32>::new();
    text.split(' ').take(15).for_each(|word| *words.entry(word).or_default() += 1);
    println!("words: {} distinct, 'the' {} times", words.len(), words["the"]);
    let tree: BTreeMap<u32, u32> = (0..1000).step_by(2).map(|i| (i / 2, i / 2)).collect();
    println!(
        "tree: {} keys, range 10..15 sums {}",
        tree.len(),
        tree.range(10..15).map(|(_, value)| value).sum::<u32>()
    );
    let mut state = 1_u32;
    let mut values: Vec<(u32, usize)> = (0..100_000)
        .map(|index| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8, index)
        })
        .collect();
    values.sort_by_key(|value| value.0);
    let stable = values.windows(2).all(|pair| pair[0] < pair[1]);
    println!(
        "sorted: {}, first {}, {}",
        values.len(),
        values[0].0,
        if stable { "stable" } else { "not stable" }
    );
    let mut heap: BinaryHeap<u32> = (0..100).collect();
    println!("heap: {:?}", std::iter::from_fn(|| heap.pop()).take(3).collect::<Vec<_>>());
    let mut deque: VecDeque<u32> = (0..6).collect();
    deque.rotate_left(3);
    println!("deque: {deque:?}");
    println!("formatted: {:+04}|{:#06x}|{:.2e}|{:^8}|{:?}", 7, 255, 1500.0, "Uruk", "a\nb");
    println!("iterators: {:?}", "abcdef".chars().enumerate().filter(|(i, _)| i % 2 == 0).collect::<Vec<_>>());
    let shapes: [Box<dyn Shape>; 3] =
        [Box::new(Circle(1.0)), Box::new(Rectangle(4.0, 4.0)), Box::new(Rectangle(2.0, 3.0))];
    println!(
        "dynamic: {}",
        shapes.iter().map(|shape| shape.area().to_string()).collect::<Vec<_>>().join(" ")
    );
    let ten = std::hint::black_box(10_u128);
    println!("wide: {} / 10^19 = {}", u128::MAX, u128::MAX / ten.pow(19));
    let answer = run(async {
        let polls = Countdown(2, 0).await;
        (39 + polls, polls)
    });
    println!("future: {} after {} polls", answer.0, answer.1);
}
