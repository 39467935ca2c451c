//! Which units of a package are right: alone, in chains, and in circles.

use std::path::Path;

use uruk_core::SymbolFlags;
use uruk_pipeline::arch::ProcessorLevel;
use uruk_pipeline::image::{
    BuiltUnit, ImageReader, Rejection, SourceMatch, UnitKey, Unreplaced, Validation, link_image, package,
    seal,
};
use uruk_pipeline::object::ObjectBuffer;

use crate::link_support::{CC, compile};

/// A package of units `f0`, `f1` and so on, each of which defines the function of its name and assumes those that `assumes` says.
fn reader(units: usize, assumes: impl Fn(usize) -> Vec<String>) -> ImageReader {
    reader_of(units, |number| format!("f{number}"), assumes)
}

/// The same of units from other paths.
fn reader_of(
    units: usize,
    path: impl Fn(usize) -> String,
    assumes: impl Fn(usize) -> Vec<String>,
) -> ImageReader {
    ImageReader::of_bytes(Path::new("test.uim"), &bytes_of(units, path, assumes)).expect("it is whole")
}

fn bytes_of(units: usize, path: impl Fn(usize) -> String, assumes: impl Fn(usize) -> Vec<String>) -> Vec<u8> {
    let built = (0..units).map(|number| {
        let name = format!("f{number}");
        let object = compile(CC, "c", &format!("int {name}(void) {{ return {number}; }}"), &["-fPIC", "-O1"]);
        let object = ObjectBuffer::new(&*name, object);
        let none = |_: &str| None::<SymbolFlags>;
        let image =
            link_image(&[object], &|_| false, &none, &[ProcessorLevel::V1.into()], 0).expect("it links");
        let mut unit = BuiltUnit::new(&*name, &image, vec![(path(number).into(), key(number))], Vec::new());
        assumes(number).into_iter().for_each(|definition| unit.assume(definition, [9; 32]));
        unit
    });
    package(built.collect(), &ProcessorLevel::V1.into()).to_bytes()
}

fn key(number: usize) -> UnitKey {
    std::array::from_fn(|at| if at == 0 { number as u8 } else { 1 })
}

/// Which units are valid, asked in this order.
fn valid(reader: &ImageReader, rejected: &[u32], order: &[u32]) -> Vec<bool> {
    let mut validation = Validation::new(reader);
    rejected.iter().for_each(|unit| validation.reject(*unit, Rejection::LeftOut));
    let here = |name: &str| (name == "host").then_some([9; 32]);
    order.iter().for_each(|unit| drop(validation.check(reader, *unit, &here)));
    (0..reader.packed().len() as u32).map(|unit| validation.check(reader, unit, &here).is_ok()).collect()
}

#[test]
fn a_unit_is_as_good_as_those_whose_code_it_contains() {
    // 0 <- 1 <- 2, and 3 with 4 in a circle that contains 1.
    let assumes = |number| match number {
        1 => vec!["f0"],
        2 => vec!["f1", "host"],
        3 => vec!["f4"],
        4 => vec!["f3", "f1"],
        5 => vec!["absent"],
        _ => vec![],
    };
    let reader = reader(7, |number| assumes(number).into_iter().map(str::to_owned).collect());
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [3, 0, 4, 2, 1]] {
        assert_eq!(valid(&reader, &[], &order), [true, true, true, true, true, false, true], "{order:?}");
        assert_eq!(
            valid(&reader, &[0], &order),
            [false, false, false, false, false, false, true],
            "{order:?}"
        );
        assert_eq!(valid(&reader, &[4], &order), [true, true, true, false, false, false, true], "{order:?}");
    }
}

#[test]
fn sources_are_found_by_their_keys_and_then_by_their_names() {
    let reader = reader(3, |_| Vec::new());
    let mut validation = Validation::new(&reader);
    let sources =
        [("moved/f0", key(0)), ("renamed", key(1)), ("moved/f2", key(7)), ("new", key(8)), ("f0", key(9))];
    let found = validation.match_sources(&reader, &sources);
    let expected = [
        SourceMatch::Same(0),
        SourceMatch::Same(1),
        SourceMatch::Changed(2),
        SourceMatch::New,
        SourceMatch::New,
    ];
    assert_eq!(found, expected);
    let rejected: Vec<_> = validation.rejected().collect();
    let reason = Rejection::Source { name: "f2".into(), image: key(2), here: key(7) };
    assert_eq!(rejected, [(2, &reason)]);
}

/// A tree has files of one name in several folders.
#[test]
fn a_source_of_a_name_that_fits_several_is_told_by_its_path_or_counts_for_all() {
    let reader = reader_of(2, |number| ["a/util.c", "b/util.c"][number].to_owned(), |_| Vec::new());
    let rejected = |path: &str| {
        let mut validation = Validation::new(&reader);
        validation.match_sources(&reader, &[(path, key(7))]);
        validation.rejected().map(|(unit, _)| unit).collect::<Vec<_>>()
    };
    assert_eq!(rejected("b/util.c"), [1]);
    assert_eq!(rejected("moved/util.c"), [0, 1]);
}

/// So that no name is looked up to validate a unit.
#[test]
fn a_file_says_which_unit_has_each_definition_that_units_contain_code_of() {
    let assumes =
        |number| if number == 2 { vec!["f1".to_owned(), "host".to_owned(), "f0".to_owned()] } else { vec![] };
    let reader = reader(3, assumes);
    let homes: Vec<_> = reader.assumptions().map(|assumed| (assumed.name, assumed.home)).collect();
    assert_eq!(homes, [("f0", Some(0)), ("f1", Some(1)), ("host", None)]);
    let of = |unit| Validation::contained_in(&reader, unit).map(|assumed| assumed.name).collect::<Vec<_>>();
    assert_eq!((of(0), of(1), of(2), of(3)), (vec![], vec![], vec!["f0", "f1", "host"], vec![]));
    let mut validation = Validation::new(&reader);
    assert_eq!(validation.foreign_of(&reader, 2).into_iter().collect::<Vec<_>>(), ["host"]);
}

/// A unit whose assumptions were not there counted as one that has none, and was valid.
#[test]
fn a_package_whose_units_have_other_assumptions_than_those_in_turn_is_damaged() {
    let assumes = |number| match number {
        1 => vec!["f0".to_owned(), "host".to_owned()],
        2 => vec!["f1".to_owned()],
        _ => vec![],
    };
    let bytes = bytes_of(3, |number| format!("f{number}"), assumes);
    let reader = ImageReader::of_bytes(Path::new("test.uim"), &bytes).expect("it is whole");
    let packed: Vec<_> = reader.packed().map(|unit| (unit.offset, unit.length)).collect();
    let read_with = |unit: usize, range: [u32; 2]| {
        let (offset, length) = packed[unit];
        let place = [offset.to_le_bytes(), length.to_le_bytes()].concat();
        let at = bytes.windows(16).position(|bytes| *bytes == place).expect("there is a row") + 16;
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&range.map(u32::to_le_bytes).concat());
        seal(&mut bytes);
        ImageReader::of_bytes(Path::new("test.uim"), &bytes).map_err(|error| error.to_string())
    };
    assert!(
        [(0, [0, 0]), (1, [0, 2]), (2, [2, 1])].iter().all(|(unit, range)| read_with(*unit, *range).is_ok())
    );
    let beyond = [(1, [9, 2]), (1, [u32::MAX, 2]), (2, [u32::MAX, u32::MAX])];
    let too_many = [(2, [2, 2]), (2, [2, u32::MAX]), (0, [0, 1])];
    let over_each_other = [(2, [1, 2]), (2, [0, 1]), (1, [0, 3])];
    let too_few = [(2, [2, 0]), (1, [0, 1]), (1, [1, 1])];
    for (unit, range) in [beyond, too_many, over_each_other, too_few].concat() {
        let error = read_with(unit, range).expect_err("the numbers are wrong");
        assert!(error.contains("assumptions"), "unit {unit}, {range:?}: {error}");
    }
}

/// A unit that cannot be used is asked about again and again, and none of the answers changes another.
#[test]
fn a_unit_is_rejected_for_the_first_reason_and_others_stay_valid() {
    let reader = reader(3, |number| if number == 1 { vec!["f0".to_owned()] } else { vec![] });
    let mut validation = Validation::new(&reader);
    let none = |_: &str| None;
    let redefined = Rejection::Redefined { definition: "f0".into() };
    validation.reject_all(&[1, 9], &redefined);
    validation.reject_all(&[0, 1], &Rejection::LeftOut);
    let answers = [0, 1, 2].map(|unit| validation.check(&reader, unit, &none).err());
    assert_eq!(answers, [Some(Rejection::LeftOut), Some(redefined.clone()), None]);
    let rejected: Vec<_> = validation.rejected().collect();
    assert_eq!(rejected, [(0, &Rejection::LeftOut), (1, &redefined)]);
    assert_eq!((validation.reason(2), validation.reason(9)), (None, None));
    assert!(matches!(validation.check(&reader, 9, &none), Err(Rejection::Damaged { .. })));
}

/// A damaged image is noticed when its unit is used, and others contain its code.
#[test]
fn a_unit_that_is_rejected_late_takes_those_with_it_that_contain_its_code() {
    let reader = reader(2, |number| if number == 1 { vec!["f0".to_owned()] } else { Vec::new() });
    let mut validation = Validation::new(&reader);
    let none = |_: &str| None;
    assert!(validation.check(&reader, 1, &none).is_ok());
    validation.reject(0, Rejection::LeftOut);
    assert!(validation.check(&reader, 1, &none).is_err());
}

#[test]
fn a_redefinition_concerns_the_units_that_contain_its_code_and_no_others() {
    // 1 has code of 0; 2 of 1 and of the host; 3 and 4 are a circle that contains 1; 5 has code of the host alone; 6 of none.
    let assumes = |number| match number {
        1 => vec!["f0"],
        2 => vec!["f1", "host"],
        3 => vec!["f4"],
        4 => vec!["f3", "f1"],
        5 => vec!["host"],
        _ => vec![],
    };
    let reader = reader(7, |number| assumes(number).into_iter().map(str::to_owned).collect());
    let mut validation = Validation::new(&reader);
    let mut closure = |definition| validation.closure_of(&reader, definition);
    assert_eq!(closure("f0"), [1, 2, 3, 4]);
    assert_eq!(closure("f1"), [2, 3, 4]);
    assert_eq!(closure("f4"), [3, 4]);
    assert_eq!(closure("host"), [2, 5]);
    assert!(closure("f6").is_empty() && closure("absent").is_empty());
}

/// Longer than the stack of a thread would bear, if each unit took a kibibyte of it.
#[test]
fn two_thousand_units_in_a_chain_are_asked_about() {
    let object = compile(CC, "c", "int f00000(void) { return 1; }", &["-fPIC", "-O1"]);
    let none = |_: &str| None::<SymbolFlags>;
    let units = (0..2_000).map(|number| {
        let mut bytes = object.clone();
        let name = format!("f{number:05}");
        let at =
            bytes.windows(7).position(|name| name == b"f00000\0").expect("the name is in the table of names");
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        let image = link_image(
            &[ObjectBuffer::new(&*name, bytes)],
            &|_| false,
            &none,
            &[ProcessorLevel::V1.into()],
            0,
        );
        let mut unit = BuiltUnit::new(&*name, &image.expect("it links"), Vec::new(), Vec::new());
        unit.assume(format!("f{:05}", number + 1), [9; 32]);
        unit
    });
    let bytes = package(units.collect(), &ProcessorLevel::V1.into()).to_bytes();
    let reader = ImageReader::of_bytes(Path::new("test.uim"), &bytes).expect("it is whole");
    let here = |name: &str| (name == "f02000").then_some([9; 32]);
    let mut validation = Validation::new(&reader);
    assert!(validation.check(&reader, 0, &here).is_ok());
    assert!((0..2_000).all(|unit| validation.check(&reader, unit, &|_| None).is_ok()), "all are known");
    let mut broken = Validation::new(&reader);
    broken.reject(1_999, Rejection::LeftOut);
    assert!(broken.check(&reader, 0, &here).is_err());
    assert_eq!(broken.rejected().count(), 2_000);
}

/// All units of a chain are looked through, each of which contains code of the one before.
#[test]
fn a_definition_is_looked_at_once_until_the_session_changes() {
    const UNITS: usize = 50;
    let reader =
        reader(UNITS, |number| number.checked_sub(1).map(|below| format!("f{below}")).into_iter().collect());
    let (mut looks, mut unreplaced) = (0, Unreplaced::none_of(UNITS));
    let mut changes = 5;
    for unit in 0..UNITS as u32 {
        let found = unreplaced.look(&reader, unit, changes, |_, _| {
            looks += 1;
            false
        });
        assert!(found.is_empty());
        unreplaced.pass(changes, 3, changes + 3);
        changes += 3;
    }
    assert_eq!(looks, UNITS - 1);
    // One of another's is among those that came.
    unreplaced.pass(changes, 3, changes + 4);
    let first = |name: &str, home: u32| (name, home) == ("f0", 0);
    let found = unreplaced.look(&reader, 9, changes + 4, first);
    assert_eq!(found.iter().map(|(unit, name, _)| (*unit, *name)).collect::<Vec<_>>(), [(1, "f0")]);
    assert_eq!(
        unreplaced.look(&reader, 9, changes + 4, first).len(),
        1,
        "it is found until the unit is rejected"
    );
}

#[test]
fn an_object_for_another_architecture_is_refused() {
    let flags = ["-O1", "-fno-asynchronous-unwind-tables", "-fcf-protection=none"];
    let mut object = compile(CC, "c", "int f(void) { return 1; }", &flags);
    object[18] = 183;
    let (none, object) = (|_: &str| None::<SymbolFlags>, ObjectBuffer::new("arm.o", object));
    let linked = link_image(&[object], &|_| false, &none, &[ProcessorLevel::V1.into()], 0);
    let message = linked.map(drop).expect_err("images are for this processor").to_string();
    for part in ["arm.o", "the object is for AArch64", "images have code for x86-64 alone"] {
        assert!(message.contains(part), "{message}");
    }
}
