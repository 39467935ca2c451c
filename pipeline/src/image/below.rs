//! The images that an image was built on, as the tables have them.

use super::format::Region;
use super::reader::ImageReader;

impl ImageReader {
    /// The images that this one was built on: names for messages, and ids.
    pub fn below(&self) -> impl ExactSizeIterator<Item = (&str, [u8; 16])> {
        self.rows(Region::Below).map(|row| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&row.word(8).to_le_bytes());
            id[8..].copy_from_slice(&row.word(16).to_le_bytes());
            (self.text(row.half(0)).unwrap_or_default(), id)
        })
    }
}

/// The beginning of an id, which tells it from others.
pub fn readable_id(id: &[u8; 16]) -> String {
    id[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
