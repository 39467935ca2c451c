//! The code instances of an image, as the tables have them.

use std::fmt;

use uruk_instances::CodeSignature;

use super::format::Region;
use super::host::hash_of_instance;
use super::reader::ImageReader;
use super::tables::TableRow;
use super::units::UnitKey;

/// A code instance of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ImageInstance<'i> {
    /// The method, as the host named it.
    pub method: &'i [u8],
    /// The specialization, as the host named it.
    pub specialization: &'i [u8],
    /// Its signature, as bytes of the host.
    pub signature: &'i [u8],
    /// The name of its entry for callers that know only the boxed convention.
    pub invoke: &'i str,
    /// The name of its code, and how that is called.
    pub specptr: Option<(&'i str, CodeSignature)>,
    first_assumption: u32,
    assumptions: u32,
}

/// A definition that a code instance takes for granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedDefinition<'i> {
    /// The method, as the host named it.
    pub method: &'i [u8],
    /// The specialization, as the host named it.
    pub specialization: &'i [u8],
    /// The key of its definition when the image was built.
    pub key: UnitKey,
}

impl ImageReader {
    /// The code instances, by their numbers; `None` for those whose row is damaged.
    pub fn instances(&self) -> impl ExactSizeIterator<Item = Option<ImageInstance<'_>>> {
        self.rows(Region::Instances).map(|row| self.instance_of(row))
    }

    /// The code instance for a method and a specialization.
    ///
    /// # Cost
    /// One probe of the index, and a comparison.
    pub fn instance(&self, method: &[u8], specialization: &[u8]) -> Option<ImageInstance<'_>> {
        let slots = self.count(Region::InstanceIndex);
        if !slots.is_power_of_two() {
            return None;
        }
        let mut slot = hash_of_instance(method, specialization) as usize & (slots - 1);
        for _ in 0..slots {
            let number = self.row(Region::InstanceIndex, slot)?.half(0).checked_sub(1)?;
            let found = self.instance_of(self.row(Region::Instances, number as usize)?);
            if let Some(found) = found
                && (found.method, found.specialization) == (method, specialization)
            {
                return Some(found);
            }
            slot = (slot + 1) & (slots - 1);
        }
        None
    }

    /// The definitions that a code instance takes for granted; `None` for those whose row is damaged.
    pub fn assumed_by(
        &self,
        instance: &ImageInstance<'_>,
    ) -> impl Iterator<Item = Option<AssumedDefinition<'_>>> {
        let first = instance.first_assumption as usize;
        (first..first + instance.assumptions as usize).map(|number| {
            let row = self.row(Region::Assumed, number)?;
            let (method, specialization) = (self.host_bytes(row, 0)?, self.host_bytes(row, 8)?);
            Some(AssumedDefinition { method, specialization, key: row.key(16) })
        })
    }

    fn instance_of<'i>(&'i self, row: TableRow<'i>) -> Option<ImageInstance<'i>> {
        let specptr = match row.half(28).checked_sub(1) {
            Some(name) if row.half(32) == 0 => Some((self.text(name)?, CodeSignature::Boxed)),
            Some(name) => Some((self.text(name)?, CodeSignature::Specialized)),
            None => None,
        };
        let (first_assumption, assumptions) = (row.half(36), row.half(40));
        let end = first_assumption.checked_add(assumptions)?;
        (end as usize <= self.count(Region::Assumed)).then_some(())?;
        Some(ImageInstance {
            method: self.host_bytes(row, 0)?,
            specialization: self.host_bytes(row, 8)?,
            signature: self.host_bytes(row, 16)?,
            invoke: self.text(row.half(24).checked_sub(1)?)?,
            specptr,
            first_assumption,
            assumptions,
        })
    }
}

impl fmt::Debug for ImageInstance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageInstance")
            .field("method", &self.method.escape_ascii().to_string())
            .field("specialization", &self.specialization.escape_ascii().to_string())
            .field("invoke", &self.invoke)
            .finish_non_exhaustive()
    }
}
