//! Call frame information: taken apart so that each entry goes where its function goes, and indexed.
//!
//! Records keep their bytes and their relocations. Only their places change, and so the distance from an entry to its common entry, which
//! is an edge like any other. `_dl_find_object` hands the index to the unwinder: with it a frame is found by bisection, without it by
//! reading every record.
//!
//! ```text
//!  .eh_frame      | length u32 | 0 u32          | version, augmentation, ...            |   common entry (CIE)
//!                 | length u32 | back to CIE    | function, its size, augmentation, ... |   per function (FDE)
//!                 | 0 u32 |                                                                 terminator
//!  .eh_frame_hdr  | 1 | 0x1b | 0x03 | 0x3b | .eh_frame i32 pcrel | count u32 | (function, FDE) i32 x 2, sorted |
//! ```
//! The distances in the table count from the start of `.eh_frame_hdr`.

/// Where a record's distance to its common entry lies, in the record.
pub(super) const CIE_POINTER_OFFSET: u64 = 4;
/// Where a frame description entry's function lies, in the record.
pub(super) const FUNCTION_OFFSET: u64 = 8;
/// The terminator of `.eh_frame`.
pub(super) const TERMINATOR_BYTES: u64 = 4;
/// Version, three encodings, the distance to `.eh_frame`, the count.
const HEADER_BYTES: u64 = 12;
const ENTRY_BYTES: u64 = 8;

/// A record of `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) kind: RecordKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    Cie,
    Fde,
}

/// Takes `.eh_frame` apart. Terminators are left out: the layout writes one of its own.
///
/// # Errors
/// The offset of the malformed record, and its defect.
pub(super) fn split(content: &[u8]) -> Result<Vec<Record>, (u64, &'static str)> {
    /// The mark of a 64-bit length. No unwinder reads that form from `.eh_frame`.
    const EXTENDED: u32 = 0xffff_ffff;
    let mut records = Vec::new();
    let mut offset = 0;
    while offset < content.len() {
        let at = offset as u64;
        let length = word(content, offset).ok_or((at, "the length of a call frame record is truncated"))?;
        let start = offset + 4;
        offset = match length {
            0 => start,
            EXTENDED => return Err((at, "64-bit call frame records are not supported by unwinders")),
            length => start.saturating_add(length as usize),
        };
        if length == 0 {
            continue;
        }
        if offset > content.len() {
            return Err((at, "a call frame record reaches beyond the end of the section"));
        }
        let kind = match word(&content[..offset], start) {
            Some(0) => RecordKind::Cie,
            Some(_) => RecordKind::Fde,
            None => return Err((at, "a call frame record is too short to say what it is")),
        };
        records.push(Record { offset: at, size: (offset as u64) - at, kind });
    }
    Ok(records)
}

/// Where the common entry of the record `content` at `record_offset` lies, if it is a frame description entry.
pub(super) fn cie_of(content: &[u8], record_offset: u64) -> Option<u64> {
    let back = u64::from(word(content, CIE_POINTER_OFFSET as usize)?);
    if back == 0 {
        return None;
    }
    // A distance that leads out of the section names no record: the caller says so.
    Some((record_offset + CIE_POINTER_OFFSET).checked_sub(back).unwrap_or(u64::MAX))
}

fn word(content: &[u8], offset: usize) -> Option<u32> {
    let bytes = content.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// How many bytes the index of `count` functions takes.
pub(super) fn header_bytes(count: usize) -> u64 {
    HEADER_BYTES + ENTRY_BYTES * count as u64
}

/// A function and the record that describes it; the unit of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) function: u64,
    pub(super) record: u64,
}

/// Writes the index of `entries`, which it sorts, for the `.eh_frame` at `frames`.
///
/// # Errors
/// The distance that does not fit in 32 bits, and the address it leads to.
pub(super) fn write_header(
    header: &mut [u8],
    address: u64,
    frames: u64,
    entries: &mut [Entry],
) -> Result<(), (i64, u64)> {
    const VERSION: u8 = 1;
    const PCREL_SDATA4: u8 = 0x1b;
    const UDATA4: u8 = 0x03;
    const DATAREL_SDATA4: u8 = 0x3b;
    let distance = |to: u64, from: u64| {
        let distance = to.wrapping_sub(from).cast_signed();
        i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| (distance, to))
    };
    entries.sort_unstable();
    header[..4].copy_from_slice(&[VERSION, PCREL_SDATA4, UDATA4, DATAREL_SDATA4]);
    header[4..8].copy_from_slice(&distance(frames, address + 4)?);
    header[8..12].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    for (slot, entry) in header[HEADER_BYTES as usize..].chunks_exact_mut(ENTRY_BYTES as usize).zip(entries) {
        slot[..4].copy_from_slice(&distance(entry.function, address)?);
        slot[4..8].copy_from_slice(&distance(entry.record, address)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(id.to_le_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn records_are_told_apart_and_terminators_left_out() {
        let mut content = record(0, b"\x01zR\0");
        let fde = content.len();
        content.extend(record(fde as u32 + 4, &[0; 12]));
        content.extend([0; 4]);
        let records = split(&content).expect("well-formed");
        assert_eq!(
            records.iter().map(|record| record.kind).collect::<Vec<_>>(),
            [RecordKind::Cie, RecordKind::Fde]
        );
        assert_eq!(cie_of(&content[fde..], fde as u64), Some(0));
        assert_eq!(cie_of(&content, 0), None);
    }

    #[test]
    fn truncation_anywhere_is_an_error_that_says_where() {
        let mut content = record(0, b"\x01zR\0");
        content.extend(record(16, &[0; 12]));
        for end in 1..content.len() {
            match split(&content[..end]) {
                Ok(records) => assert_eq!(records.len(), 1, "cut at {end}"),
                Err((offset, _)) => assert!(offset == 0 || offset == 12, "cut at {end}: {offset}"),
            }
        }
    }

    #[test]
    fn the_index_is_sorted_and_refuses_what_it_cannot_reach() {
        let mut entries =
            [Entry { function: 0x3000, record: 0x1100 }, Entry { function: 0x2000, record: 0x1200 }];
        let mut header = vec![0; header_bytes(2) as usize];
        write_header(&mut header, 0x1000, 0x1080, &mut entries).expect("in reach");
        assert_eq!(&header[..12], [1, 0x1b, 3, 0x3b, 0x7c, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(&header[12..20], [0, 0x10, 0, 0, 0, 2, 0, 0]);
        entries[0].function = 0x9000_0000;
        assert_eq!(write_header(&mut header, 0x1000, 0x1080, &mut entries), Err((0x8fff_f000, 0x9000_0000)));
    }
}
