//! Dependants alone, against plain lists; what they cost.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::ids::{Id, RowId};
use crate::protocol::dependants::{Dependants, NeedyRows};
use crate::protocol::storage::memory::Memory;
use crate::protocol::tests::model::seeds::try_histories;

/// Rows in three chunks of the table, so that chunks come and go.
const PLACES: u32 = 12;
const STRIDE: u32 = 128;

/// The notes on existing rows, by their place.
#[derive(Default)]
struct World {
    dependants: Dependants,
    memory: Vec<Memory>,
    generations: BTreeMap<u32, u32>,
    there: BTreeMap<u32, RowId>,
    emission_of: BTreeMap<RowId, usize>,
    needs: BTreeMap<RowId, BTreeSet<RowId>>,
    emissions: usize,
}

impl World {
    fn create(&mut self, place: u32) -> RowId {
        let generation = self.generations.entry(place).or_default();
        *generation += 1;
        *self.there.entry(place).or_insert(RowId::new(place * STRIDE, *generation))
    }

    /// New rows are emitted in groups, and need some of those that are there.
    fn emit(&mut self, groups: &[(u16, u16)], ungrouped: u16) {
        let mut left: BTreeSet<u32> = (0..PLACES).filter(|place| !self.there.contains_key(place)).collect();
        let there: Vec<_> = self.there.iter().map(|(place, row)| (*place, *row)).collect();
        let chosen = |mask: u16, place: u32| mask >> place & 1 == 1;
        let (mut rows, mut needs) = (Vec::new(), Vec::new());
        for &(own, needed) in groups {
            let own: Vec<_> = left.iter().copied().filter(|&place| chosen(own, place)).collect();
            left.retain(|place| !own.contains(place));
            rows.push(own.into_iter().map(|place| self.create(place)).collect::<Vec<_>>());
            let needed = there.iter().filter(|(place, _)| chosen(needed, *place)).map(|(_, row)| *row);
            needs.push(needed.collect::<Vec<_>>());
        }
        let others: Vec<_> = left.into_iter().filter(|&place| chosen(ungrouped, place)).collect();
        let others: Vec<_> = others.into_iter().map(|place| self.create(place)).collect();
        self.emissions += 1;
        for (rows, needs) in rows.iter().zip(&needs) {
            self.needs.extend(rows.iter().map(|&row| (row, needs.iter().copied().collect())));
        }
        let all: Vec<_> = rows.iter().flatten().chain(&others).copied().collect();
        self.emission_of.extend(all.iter().map(|&row| (row, self.emissions)));
        let noted: Vec<_> = rows
            .iter()
            .zip(&needs)
            .map(|(rows, needs)| NeedyRows { rows, needs: needs.iter().copied().collect() })
            .collect();
        self.dependants.note(&noted, &all);
    }

    fn remove(&mut self, place: u32) {
        if let Some(row) = self.there.remove(&place) {
            self.dependants.forget(row, &mut self.memory);
            self.needs.remove(&row);
            self.emission_of.remove(&row);
        }
    }

    fn dependants_of(&self, row: RowId) -> BTreeSet<RowId> {
        self.needs.iter().filter(|(_, needs)| needs.contains(&row)).map(|(row, _)| *row).collect()
    }

    fn compare(&self) {
        let is_there = |row: RowId| self.there.values().any(|other| *other == row);
        self.dependants.check(is_there);
        for &row in self.there.values() {
            let known: BTreeSet<_> = self.dependants.of(row).filter(|&row| is_there(row)).collect();
            assert_eq!(known, self.dependants_of(row), "who needs {row:?}");
            self.compare_closure(row, is_there);
        }
    }

    fn compare_closure(&self, row: RowId, is_there: impl Fn(RowId) -> bool) {
        let closure = self.dependants.closure(&[row], &is_there);
        let present =
            |rows: &[RowId]| rows.iter().copied().filter(|&row| is_there(row)).collect::<BTreeSet<_>>();
        let mut expected = BTreeSet::from([row]);
        loop {
            let direct = expected.iter().flat_map(|&row| self.dependants_of(row));
            let emissions: BTreeSet<_> = direct.map(|row| self.emission_of[&row]).collect();
            let together = self.emission_of.iter().filter(|(_, emission)| emissions.contains(emission));
            let more: BTreeSet<_> = together.map(|(row, _)| *row).collect();
            if more.is_subset(&expected) {
                break;
            }
            expected.extend(more);
        }
        let mut gone = BTreeSet::new();
        for rows in &closure {
            // Rows need only what was there before them, so there is no cycle.
            let needing: BTreeSet<_> =
                present(rows).iter().flat_map(|&row| self.dependants_of(row)).collect();
            assert!(needing.is_subset(&gone), "dependants come first");
            gone.extend(present(rows));
        }
        gone.insert(row);
        assert_eq!(gone, expected, "all that needs {row:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Emit(Vec<(u16, u16)>, u16),
    Remove(u32),
}

#[test]
fn random_histories_agree_with_plain_lists() {
    let emit = (prop::collection::vec(any::<(u16, u16)>(), 1..3), any::<u16>())
        .prop_map(|(groups, ungrouped)| Step::Emit(groups, ungrouped & 0x111));
    let step = prop_oneof![2 => emit, 5 => (0..PLACES).prop_map(Step::Remove)];
    try_histories(200, &prop::collection::vec(step, 1..60), |steps| {
        let mut world = World::default();
        for step in steps {
            match step {
                Step::Emit(groups, ungrouped) => world.emit(&groups, ungrouped),
                Step::Remove(place) => world.remove(place),
            }
            world.compare();
        }
        (0..PLACES).for_each(|place| world.remove(place));
        world.dependants.check(|_| false);
        assert!(world.dependants.is_empty());
    });
}

/// The bytes that the documentation of dylibs names.
#[test]
fn a_dependant_costs_what_its_documentation_says() {
    let count = 64 << 10;
    let row = |index| RowId::new(index, 0);
    let mut dependants = Dependants::default();
    for index in 1..=count {
        let needs = [row(index - 1)].into_iter().collect();
        dependants.note(&[NeedyRows { rows: &[row(index)], needs }], &[row(index)]);
    }
    let bytes = dependants.bytes();
    let each = bytes.iter().map(|bytes| bytes.div_ceil(count as usize)).collect::<Vec<_>>();
    assert_eq!(each, [13, 48, 40], "for a row, for an emission, for an edge");
    let mut memory = Vec::new();
    (0..=count).for_each(|index| dependants.forget(row(index), &mut memory));
    assert!(dependants.is_empty());
}

/// A function of the host that every query needs: what goes is not searched among all that stay.
#[test]
fn one_of_many_dependants_goes_in_as_many_steps_as_a_few() {
    let (host, mut memory) = (RowId::new(0, 0), Vec::new());
    let mut dependants = Dependants::default();
    for round in 0..2_000 {
        let row = |index: u32| RowId::new(1 + index, round);
        for index in 0..100 {
            let needs = [host].into_iter().collect();
            dependants.note(&[NeedyRows { rows: &[row(index)], needs }], &[row(index)]);
        }
        (0..100).for_each(|index| dependants.forget(row(index), &mut memory));
        assert_eq!(dependants.of(host).count(), 0);
    }
    assert!(dependants.bytes().iter().sum::<usize>() < 64 << 10, "memory follows what is there");
}
