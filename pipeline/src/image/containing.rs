//! [`Containing`]: the units that contain code of each unit of a package, and of definitions elsewhere.

use super::format::Region;
use super::reader::ImageReader;

/// The assumptions of a package, by what is assumed.
#[derive(Debug)]
pub(super) struct Containing {
    /// Where the units begin in `units` that contain code of a unit; one more number says where the last ones end.
    starts: Vec<u32>,
    units: Vec<u32>,
    /// The assumptions of definitions that are in no unit.
    foreign: Vec<u32>,
}

impl Containing {
    /// # Cost
    /// One probe of the index for each assumption.
    pub(super) fn of(reader: &ImageReader) -> Self {
        let count = reader.count(Region::Packed);
        let (mut edges, mut foreign) = (Vec::with_capacity(reader.count(Region::Assumptions)), Vec::new());
        for (row, assumption) in (0..).zip(reader.assumptions()) {
            match reader.lookup(assumption.name).map(|symbol| symbol.unit) {
                Some(home) if (home as usize) < count && (assumption.unit as usize) < count => {
                    edges.push((home, assumption.unit));
                }
                Some(_) => {}
                None => foreign.push(row),
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
        let is_it = |row: usize| reader.assumption(row).filter(|assumed| assumed.name == definition);
        let count = self.starts.len() - 1;
        let mut open: Vec<u32> = match reader.lookup(definition) {
            Some(symbol) => {
                let units = self.of_unit(symbol.unit).iter().copied();
                units.filter(|unit| reader.assumptions_of(*unit).any(|row| is_it(row).is_some())).collect()
            }
            None => {
                let units = self.foreign.iter().filter_map(|row| Some(is_it(*row as usize)?.unit));
                units.filter(|unit| (*unit as usize) < count).collect()
            }
        };
        let (mut is_in, mut closure) = (vec![false; count], Vec::new());
        while let Some(unit) = open.pop() {
            if !std::mem::replace(&mut is_in[unit as usize], true) {
                closure.push(unit);
                open.extend(self.of_unit(unit));
            }
        }
        closure.sort_unstable();
        closure
    }

    fn of_unit(&self, unit: u32) -> &[u32] {
        let unit = unit as usize;
        let range = self.starts.get(unit).zip(self.starts.get(unit + 1));
        range.map_or(&[], |(start, end)| &self.units[*start as usize..*end as usize])
    }
}
