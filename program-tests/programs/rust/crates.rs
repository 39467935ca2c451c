//# crate: itoa
//# crate: memchr
//# crate: smallvec
//# stdout: itoa: -170141183460469231731687303715884105728 255
//# stdout: memchr: Some(4) Some(17) 3
//# stdout: substring: Some(11) at 2 places
//# stdout: smallvec: inline 4, spilled 40, sum 780
//# stdout: sorted: ["barley", "clay", "reed"]
//! Real crates, compiled as archives of objects.

use memchr::{memchr, memmem, memrchr};
use smallvec::{SmallVec, smallvec};

fn main() {
    let mut buffer = itoa::Buffer::new();
    let smallest = buffer.format(i128::MIN).to_owned();
    println!("itoa: {smallest} {}", buffer.format(255_u8));
    let text = b"the canal and the seal";
    println!(
        "memchr: {:?} {:?} {}",
        memchr(b'c', text),
        memrchr(b' ', text),
        memchr::memchr_iter(b'e', text).count()
    );
    let finder = memmem::Finder::new("the ");
    let long = b"and so said the scribe of the canal";
    println!(
        "substring: {:?} at {} places",
        finder.find(&long[1..]).map(|at| at + 0),
        finder.find_iter(long).count()
    );
    let few: SmallVec<[u32; 4]> = smallvec![1, 2, 3, 4];
    let many: SmallVec<[u32; 4]> = (0..40).collect();
    assert!(!few.spilled() && many.spilled());
    println!("smallvec: inline {}, spilled {}, sum {}", few.len(), many.len(), many.iter().sum::<u32>());
    let mut words: SmallVec<[String; 2]> =
        ["reed", "barley", "clay"].iter().map(|word| (*word).to_owned()).collect();
    words.sort();
    println!("sorted: {words:?}");
}
