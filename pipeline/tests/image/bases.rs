//! An image is the same for every base that it is linked at: so no word of it holds an address that the loader does not know of.

use uruk_pipeline::image::{ImageReader, SymbolTraits};

use crate::sources::{image, program, programs};
use std::path::Path;

#[test]
fn images_that_are_linked_at_different_bases_are_the_same_bytes() {
    for objects in programs() {
        let at = |base| image(&objects, base).unwrap_or_else(|error| panic!("{error}")).to_bytes();
        let zero = at(0);
        for base in [0x1000_0000, 0x5555_1234_5000, 0x6fff_0000_0000] {
            let moved = at(base);
            let first = zero.iter().zip(&moved).position(|(zero, moved)| zero != moved);
            assert_eq!((first, zero.len()), (None, moved.len()), "at {base:#x}");
        }
    }
}

#[test]
fn an_image_says_what_it_is_made_of() {
    let bytes = image(&program(&["-fPIC", "-O2"]), 0).expect("links").to_bytes();
    let reader = ImageReader::of_bytes(Path::new("test.uim"), &bytes).expect("whole");
    let units: Vec<&str> = reader.units().collect();
    assert_eq!(units, ["pointers.o", "thread_locals.o", "thrower.o", "catcher.o"]);
    let visit = reader.lookup("visit").expect("it is defined");
    assert!(visit.traits.contains(SymbolTraits::CALLABLE | SymbolTraits::EXPORTED) && visit.size_bytes > 0);
    assert_eq!(reader.units().nth(visit.unit as usize), Some("pointers.o"));
    assert!(reader.lookup("exported").expect("it is defined").traits.contains(SymbolTraits::THREAD_LOCAL));
    assert_eq!((reader.lookup("begin"), reader.lookup("none")), (None, None), "local, and not there");
    let is_weak = |wanted: &str| {
        reader
            .imports()
            .find(|(name, _)| *name == wanted)
            .map(|(_, traits)| traits.contains(SymbolTraits::WEAK))
    };
    assert_eq!([is_weak("puts"), is_weak("absent"), is_weak("visit")], [Some(false), Some(true), None]);
    let found = reader.symbols().filter(|symbol| symbol.traits.contains(SymbolTraits::GLOBAL));
    let lost: Vec<&str> = found
        .filter(|symbol| reader.lookup(symbol.name) != Some(*symbol))
        .map(|symbol| symbol.name)
        .collect();
    assert!(lost.is_empty(), "not found by the index: {lost:?}");
}

#[test]
fn objects_that_are_not_position_independent_are_refused_with_advice() {
    let error = image(&program(&["-fno-pic", "-O1", "-mcmodel=small"]), 0).expect_err("32-bit addresses");
    let text = crate::link_support::chain(&error);
    assert!(text.contains("-fPIC"), "{text}");
}
