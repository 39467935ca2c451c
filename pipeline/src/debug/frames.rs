//! Unwind tables of several pieces of code as one `.debug_frame`.
//!
//! Linked code has `.eh_frame`, whose pointers are relative to where they stand. A file has one such section, and pieces lie anywhere. In
//! `.debug_frame` pointers are addresses, so that the records of all pieces can stand one behind the other.
//!
//! ```text
//!   CIE  length, 0,        1, "zPLR", alignments, register, data, rules   ─▶  length, !0,     1, "", alignments, register, rules
//!   FDE  length, distance, start (relative), size, data, rules            ─▶  length, offset, start, size, rules
//! ```

use rustc_hash::FxHashMap;

/// Pointer encodings (`DW_EH_PE_*`): as wide as an address, four or eight bytes, relative to their own place.
const ABSOLUTE: u8 = 0x00;
const RELATIVE: u8 = 0x10;
const RELATIVE_4: u8 = 0x1b;
const RELATIVE_8: u8 = 0x1c;

/// The common record, as far as its dependants need it.
struct Common {
    /// Where it stands in the new section.
    at: u32,
    encoding: u8,
    has_data: bool,
}

/// Adds the records of an `.eh_frame` that lies at `address` to a `.debug_frame`. Records that no compiler writes are left out.
pub(super) fn add(section: &mut Vec<u8>, eh_frame: &[u8], address: u64) {
    let mut commons: FxHashMap<usize, Common> = FxHashMap::default();
    let mut at = 0;
    while let Some(record) = (Reader { bytes: eh_frame, at }).record() {
        let body = Reader { bytes: &eh_frame[..record.end], at: record.body };
        if record.id == 0 {
            if let Some(common) = add_common(section, body) {
                commons.insert(at, common);
            }
        } else if let Some(common) = (at + 4).checked_sub(record.id as usize).and_then(|at| commons.get(&at))
        {
            let _ = add_entry(section, body, address, common);
        }
        at = record.end;
    }
}

fn add_common(section: &mut Vec<u8>, mut body: Reader<'_>) -> Option<Common> {
    let version = body.byte()?;
    let augmentation = body.until_zero()?;
    if !matches!(version, 1 | 3) || !(augmentation.is_empty() || augmentation.starts_with(b"z")) {
        return None;
    }
    let alignments = body.at;
    body.number()?;
    body.number()?;
    match version {
        1 => _ = body.byte()?,
        _ => _ = body.number()?,
    }
    let alignments = &body.bytes[alignments..body.at];
    let mut encoding = ABSOLUTE;
    if !augmentation.is_empty() {
        let len = usize::try_from(body.number()?).ok()?;
        let mut data = Reader { bytes: body.bytes.get(..body.at + len)?, at: body.at };
        for letter in &augmentation[1..] {
            match letter {
                b'R' => encoding = data.byte()?,
                b'L' => _ = data.byte()?,
                b'P' => {
                    let width = if data.byte()? & 0x07 == 0x03 { 4 } else { 8 };
                    data.at += width;
                }
                _ => {}
            }
        }
        body.at += len;
    }
    let at = u32::try_from(section.len()).ok()?;
    let mut record = Vec::from([version, 0]);
    record.extend_from_slice(alignments);
    record.extend_from_slice(body.rest());
    append(section, u32::MAX, &record);
    Some(Common { at, encoding, has_data: !augmentation.is_empty() })
}

fn add_entry(section: &mut Vec<u8>, mut body: Reader<'_>, address: u64, common: &Common) -> Option<()> {
    let place = address.wrapping_add(body.at as u64);
    let (start, size) = match common.encoding {
        RELATIVE_4 => {
            let start = i32::from_le_bytes(body.array()?);
            (place.wrapping_add_signed(start.into()), u64::from(u32::from_le_bytes(body.array()?)))
        }
        RELATIVE | RELATIVE_8 => {
            let start = u64::from_le_bytes(body.array()?);
            (place.wrapping_add(start), u64::from_le_bytes(body.array()?))
        }
        ABSOLUTE => (u64::from_le_bytes(body.array()?), u64::from_le_bytes(body.array()?)),
        _ => return None,
    };
    if common.has_data {
        body.at = body.at.checked_add(usize::try_from(body.number()?).ok()?)?;
    }
    let mut record = Vec::from(start.to_le_bytes());
    record.extend_from_slice(&size.to_le_bytes());
    record.extend_from_slice(body.rest());
    append(section, common.at, &record);
    Some(())
}

/// A record with its length, filled up with rules that do nothing.
fn append(section: &mut Vec<u8>, id: u32, record: &[u8]) {
    let len = (8 + record.len()).next_multiple_of(8) - 4;
    section.extend_from_slice(&(len as u32).to_le_bytes());
    section.extend_from_slice(&id.to_le_bytes());
    section.extend_from_slice(record);
    section.resize(section.len().next_multiple_of(8), 0);
}

/// A record's second word, and where what follows it begins and ends.
struct FrameRecord {
    id: u32,
    body: usize,
    end: usize,
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    /// The record here. `None` at the end, which a zero marks.
    fn record(mut self) -> Option<FrameRecord> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let end = self.at.checked_add(len)?;
        let id = u32::from_le_bytes(self.array()?);
        (len >= 4 && end <= self.bytes.len()).then_some(FrameRecord { id, body: self.at, end })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(N)?)?.try_into().ok()?;
        self.at += N;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn until_zero(&mut self) -> Option<&'b [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let text = &rest[..rest.iter().position(|&byte| byte == 0)?];
        self.at += text.len() + 1;
        Some(text)
    }

    /// A LEB128 number; the sign does not matter.
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use gimli::{BaseAddresses, DebugFrame, LittleEndian, UnwindSection as _};

    use super::*;

    /// A common record and an entry for 32 bytes of code at 0x5000, of a section at 0x4000, as compilers write them.
    fn eh_frame() -> Vec<u8> {
        let common =
            [&[0; 4][..], &[1], b"zR\0", &[1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0]].concat();
        let start = 0x5000_i32 - (0x4000 + 24 + 8);
        let entry =
            [&28_u32.to_le_bytes()[..], &start.to_le_bytes(), &32_u32.to_le_bytes(), &[0, 0x41, 0x0e, 16]]
                .concat();
        let record = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
        [record(&common), record(&entry), vec![0; 4]].concat()
    }

    #[test]
    fn records_mean_the_same_addresses_in_the_other_form() {
        let mut section = Vec::new();
        add(&mut section, &eh_frame(), 0x4000);
        add(&mut section, &eh_frame(), 0x8000);
        let frames = DebugFrame::new(&section, LittleEndian);
        let bases = BaseAddresses::default();
        for (address, row_starts) in [(0x5000, 0x5000), (0x5001, 0x5001), (0x9001, 0x9001)] {
            let entry =
                frames.fde_for_address(&bases, address, DebugFrame::cie_from_offset).expect("covered");
            assert_eq!(entry.len(), 32);
            let mut context = gimli::UnwindContext::new();
            let row = entry.unwind_info_for_address(&frames, &bases, &mut context, address).expect("rules");
            assert_eq!(row.start_address(), row_starts);
        }
        assert!(frames.fde_for_address(&bases, 0x5020, DebugFrame::cie_from_offset).is_err());
    }

    #[test]
    fn damaged_records_are_left_out() {
        let whole = eh_frame();
        for end in 0..whole.len() {
            add(&mut Vec::new(), &whole[..end], 0x4000);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            add(&mut Vec::new(), &damaged, 0x4000);
        }
    }
}
