//! A reader without a thread of its own: it is called as phases end, and misses nothing of a ring that is much too small.

use std::cell::RefCell;

use uruk_recorder::{
    Options, Reader, StageSum, Sums, after_phases, enable, phase_begun, phase_ended, static_name,
};

thread_local! {
    /// The sums so far, and how often they were read.
    static SUMS: RefCell<(Option<Reader>, Sums, u32)> = RefCell::default();
}

fn phase() {
    phase_begun(static_name!("again"));
    phase_ended(static_name!("again"));
}

#[test]
fn a_reader_that_comes_after_phases_sees_every_note_of_a_small_ring() {
    enable(Options { ring_notes: 8, ..Options::default() }).unwrap();
    after_phases(|| {
        SUMS.with_borrow_mut(|(reader, sums, looks)| {
            sums.read(reader.get_or_insert_with(|| Reader::new().unwrap()));
            *looks += 1;
            assert_ne!(*looks, 50, "this panic goes no further");
        });
    });
    (0..100).for_each(|_| phase());
    SUMS.with_borrow(|(_, sums, looks)| {
        let StageSum { count, total, own, max } = sums.stages["again"];
        assert_eq!((count, *looks, sums.lost), (100, 100, 0));
        assert!(total == own && max <= total);
    });
}
