//! [`Containing`]: the units that contain code of each unit of a package, and of definitions elsewhere.

use super::reader::ImageReader;
use super::unit_set::UnitSet;

/// The assumptions of a package, by what is assumed.
#[derive(Debug)]
pub(super) struct Containing {
    /// Where the units begin in `units` that contain code of a unit; one more number says where the last ones end.
    starts: Vec<u32>,
    units: Vec<u32>,
    /// The units and assumptions of definitions that are in no unit.
    foreign: Vec<(u32, usize)>,
}

impl Containing {
    /// # Cost
    /// Two reads of a number for each assumption.
    pub(super) fn of(reader: &ImageReader) -> Self {
        let count = reader.packed().len();
        let (mut edges, mut foreign) = (Vec::new(), Vec::new());
        for unit in 0..count as u32 {
            for row in reader.assumptions_of(unit) {
                match reader.home_of(row) {
                    Some(home) if (home as usize) < count => edges.push((home, unit)),
                    Some(_) => {}
                    None => foreign.push((unit, row)),
                }
            }
        }
        let mut starts = vec![0; count + 1];
        edges.iter().for_each(|(home, _)| starts[*home as usize + 1] += 1);
        for home in 0..count {
            starts[home + 1] += starts[home];
        }
        let (mut next, mut units) = (starts.clone(), vec![0; edges.len()]);
        for (home, unit) in edges {
            let place = &mut next[home as usize];
            units[*place as usize] = unit;
            *place += 1;
        }
        Self { starts, units, foreign }
    }

    /// The units that contain code of `definition`, directly or by way of others, in the order of their numbers.
    ///
    /// # Cost
    /// Linear in the units that contain code of the definition's unit, and in the result. For a definition that is in no unit, linear in the
    /// assumptions of such.
    pub(super) fn closure(&self, reader: &ImageReader, definition: &str) -> Vec<u32> {
        let is_it = |row: usize| reader.assumption(row).is_some_and(|assumed| assumed.name == definition);
        let mut open: Vec<u32> = match reader.lookup(definition).map(|symbol| symbol.unit) {
            Some(home) => {
                let is_of_it = |row: usize| reader.home_of(row) == Some(home) && is_it(row);
                let units = self.of_unit(home).iter().copied();
                units.filter(|unit| reader.assumptions_of(*unit).any(is_of_it)).collect()
            }
            None => self.foreign.iter().filter(|(_, row)| is_it(*row)).map(|(unit, _)| *unit).collect(),
        };
        let mut closure = UnitSet::none_of(self.starts.len() - 1);
        while let Some(unit) = open.pop() {
            if closure.insert(unit) {
                open.extend(self.of_unit(unit));
            }
        }
        let mut closure = closure.into_members();
        closure.sort_unstable();
        closure
    }

    fn of_unit(&self, unit: u32) -> &[u32] {
        let unit = unit as usize;
        let range = self.starts.get(unit).zip(self.starts.get(unit + 1));
        range.map_or(&[], |(start, end)| &self.units[*start as usize..*end as usize])
    }
}
