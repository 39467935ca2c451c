//! [`PeerFrame`]: a message with its bulk bytes, and [`FrameReader`], which finds frames in a stream of bytes.
//!
//! ```text
//!  offset  size
//!       0     4  size of the body in bytes
//!       4     4  size of the bulk in bytes
//!       8     4  id: an answer has that of its request
//!      12     2  kind
//!      14     2  0x7572
//!      16        body, bulk
//! ```
//!
//! Numbers are little-endian. The body is what the two sides have agreed on for the kind; the bulk is a file, as it is.

/// The size of a frame's header.
pub const HEADER_BYTES: usize = 16;

const MARK: u16 = 0x7572;

/// Memory for a frame grows by so much at a time, as bytes come.
const ROOM_BYTES: usize = 256 << 10;

/// The largest frame that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// The most bytes of a body.
    pub body_bytes: u32,
    /// The most bytes of bulk.
    pub bulk_bytes: u32,
}

impl Default for FrameLimits {
    /// 64 MiB of body, and 2 GiB of bulk.
    fn default() -> Self {
        Self { body_bytes: 64 << 20, bulk_bytes: 2 << 30 }
    }
}

/// A peer sent what is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header does not end as each header does.
    #[error("a frame ends its header with {found:#06x}, and not with {MARK:#06x}")]
    Mark {
        /// The bytes in the place of the mark.
        found: u16,
    },
    /// A part is larger than any is.
    #[error("a frame says that its {part} has {size_bytes} bytes; at most {max_bytes} are taken")]
    Size {
        /// The body or the bulk.
        part: &'static str,
        /// The size that the frame says.
        size_bytes: u32,
        /// The largest size.
        max_bytes: u32,
    },
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFrame {
    /// The kind of the message.
    pub kind: u16,
    /// The request that it belongs to.
    pub id: u32,
    payload: Vec<u8>,
    body_bytes: usize,
}

impl PeerFrame {
    /// The message itself.
    pub fn body(&self) -> &[u8] {
        &self.payload[..self.body_bytes]
    }

    /// The bytes that come with it.
    pub fn bulk(&self) -> &[u8] {
        &self.payload[self.body_bytes..]
    }

    /// Body and bulk in one, and where the bulk begins.
    pub fn into_payload(self) -> (Vec<u8>, usize) {
        (self.payload, self.body_bytes)
    }
}

/// The header of a frame with these parts.
///
/// # Errors
/// [`FrameError::Size`] for a part that `limits` do not allow.
pub(crate) fn header(
    kind: u16,
    id: u32,
    body: &[u8],
    bulk: &[u8],
    limits: FrameLimits,
) -> Result<[u8; HEADER_BYTES], FrameError> {
    let size = |part, bytes: &[u8], max_bytes| {
        let size_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if size_bytes > max_bytes {
            Err(FrameError::Size { part, size_bytes, max_bytes })
        } else {
            Ok(size_bytes)
        }
    };
    let body = size("body", body, limits.body_bytes)?;
    let bulk = size("bulk", bulk, limits.bulk_bytes)?;
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&body.to_le_bytes());
    header[4..8].copy_from_slice(&bulk.to_le_bytes());
    header[8..12].copy_from_slice(&id.to_le_bytes());
    header[12..14].copy_from_slice(&kind.to_le_bytes());
    header[14..].copy_from_slice(&MARK.to_le_bytes());
    Ok(header)
}

/// The header of a frame of this kind, without an id and without bulk.
pub(crate) fn empty_header(kind: u16, body_bytes: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&body_bytes.to_le_bytes());
    header[12..14].copy_from_slice(&kind.to_le_bytes());
    header[14..].copy_from_slice(&MARK.to_le_bytes());
    header
}

/// The sizes, the id and the kind of a frame whose parts have not come yet.
#[derive(Clone, Copy, Debug)]
struct AnnouncedFrame {
    kind: u16,
    id: u32,
    body_bytes: usize,
    payload_bytes: usize,
}

/// Finds frames in a stream.
///
/// # Examples
/// ```
/// use uruk_pipeline::peer::{FrameLimits, FrameReader};
///
/// let mut reader = FrameReader::new(FrameLimits::default());
/// let bytes = [2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0x72, 0x75, b'h', b'i'];
/// let mut rest = &bytes[..];
/// let frame = loop {
///     let room = reader.room();
///     let taken = room.len().min(rest.len());
///     room[..taken].copy_from_slice(&rest[..taken]);
///     rest = &rest[taken..];
///     if let Some(frame) = reader.filled(taken)? {
///         break frame;
///     }
/// };
/// assert_eq!((frame.id, frame.kind, frame.body()), (7, 3, &b"hi"[..]));
/// # Ok::<(), uruk_pipeline::peer::FrameError>(())
/// ```
#[derive(Debug)]
pub struct FrameReader {
    limits: FrameLimits,
    header: [u8; HEADER_BYTES],
    announced: Option<AnnouncedFrame>,
    payload: Vec<u8>,
    /// How many bytes of the header, or of the payload, have come.
    filled: usize,
}

impl FrameReader {
    /// Takes frames up to these sizes.
    pub fn new(limits: FrameLimits) -> Self {
        Self { limits, header: [0; HEADER_BYTES], announced: None, payload: Vec::new(), filled: 0 }
    }

    /// Where the next bytes go. Never empty, and never behind the end of the frame.
    ///
    /// # Cost
    /// Ahead of the bytes, memory is taken for as many as have come, or for 256 KiB; never for more than the frame says. While memory
    /// grows, an allocator that cannot extend it has the bytes that have come twice.
    pub fn room(&mut self) -> &mut [u8] {
        let Some(announced) = self.announced else { return &mut self.header[self.filled..] };
        let end = announced.payload_bytes.min(self.filled + ROOM_BYTES);
        if end > self.payload.capacity() {
            // A vector that grows by itself would end with up to twice the frame's size.
            let wanted = announced.payload_bytes.min((2 * self.filled).max(end));
            self.payload.reserve_exact(wanted - self.payload.len());
        }
        self.payload.resize(end, 0);
        &mut self.payload[self.filled..]
    }

    /// So many bytes have been written to the [room](Self::room). The frame, if that was its end.
    ///
    /// # Errors
    /// [`FrameError`]. The reader is of no use after that.
    pub fn filled(&mut self, bytes: usize) -> Result<Option<PeerFrame>, FrameError> {
        self.filled += bytes;
        let announced = match self.announced {
            Some(announced) => announced,
            None if self.filled < HEADER_BYTES => return Ok(None),
            None => {
                let announced = read_header(&self.header, self.limits)?;
                (self.announced, self.filled) = (Some(announced), 0);
                announced
            }
        };
        let AnnouncedFrame { kind, id, body_bytes, payload_bytes } = announced;
        if self.filled < payload_bytes {
            return Ok(None);
        }
        (self.announced, self.filled) = (None, 0);
        Ok(Some(PeerFrame { kind, id, payload: std::mem::take(&mut self.payload), body_bytes }))
    }
}

fn read_header(header: &[u8; HEADER_BYTES], limits: FrameLimits) -> Result<AnnouncedFrame, FrameError> {
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let found = half(14);
    if found != MARK {
        return Err(FrameError::Mark { found });
    }
    let (body, bulk) = (word(0), word(4));
    let parts = [("body", body, limits.body_bytes), ("bulk", bulk, limits.bulk_bytes)];
    for (part, size_bytes, max_bytes) in parts {
        if size_bytes > max_bytes {
            return Err(FrameError::Size { part, size_bytes, max_bytes });
        }
    }
    let (body_bytes, bulk_bytes) = (body as usize, bulk as usize);
    Ok(AnnouncedFrame { kind: half(12), id: word(8), body_bytes, payload_bytes: body_bytes + bulk_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of a stream that comes in pieces of at most so many bytes.
    fn frames(mut stream: &[u8], piece: usize, limits: FrameLimits) -> Result<Vec<PeerFrame>, FrameError> {
        let (mut reader, mut frames) = (FrameReader::new(limits), Vec::new());
        while !stream.is_empty() {
            let room = reader.room();
            let taken = room.len().min(stream.len()).min(piece);
            room[..taken].copy_from_slice(&stream[..taken]);
            stream = &stream[taken..];
            frames.extend(reader.filled(taken)?);
        }
        Ok(frames)
    }

    fn stream(parts: &[(u16, u32, &[u8], &[u8])]) -> Vec<u8> {
        let mut stream = Vec::new();
        for (kind, id, body, bulk) in parts {
            stream.extend(header(*kind, *id, body, bulk, FrameLimits::default()).expect("small"));
            stream.extend([*body, *bulk].concat());
        }
        stream
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let large = vec![7; ROOM_BYTES + 1];
        let sent: [(u16, u32, &[u8], &[u8]); 4] = [
            (1, 9, b"body", b"bulk"),
            (2, u32::MAX, b"", b""),
            (u16::MAX, 0, b"", &large),
            (3, 1, b"b", b""),
        ];
        let stream = stream(&sent);
        for piece in [1, 3, HEADER_BYTES, 1000, usize::MAX] {
            let frames = frames(&stream, piece, FrameLimits::default()).expect("frames");
            let found: Vec<_> =
                frames.iter().map(|frame| (frame.kind, frame.id, frame.body(), frame.bulk())).collect();
            assert_eq!(found, sent);
        }
    }

    #[test]
    fn a_size_that_lies_is_an_error_before_any_memory_is_taken() {
        let limits = FrameLimits { body_bytes: 10, bulk_bytes: 20 };
        for (sizes, part) in [([11, 0], "body"), ([10, 21], "bulk"), ([u32::MAX, u32::MAX], "body")] {
            let mut lie = header(1, 1, b"", b"", limits).expect("small");
            lie[..4].copy_from_slice(&sizes[0].to_le_bytes());
            lie[4..8].copy_from_slice(&sizes[1].to_le_bytes());
            let error = frames(&lie, 16, limits).expect_err("too large");
            assert!(matches!(error, FrameError::Size { part: told, .. } if told == part), "{error}");
        }
        assert!(header(1, 1, &[0; 11], b"", limits).is_err(), "nor is such a frame sent");
        // Only so much memory is taken as bytes have come, and a little more.
        let mut reader = FrameReader::new(FrameLimits::default());
        let mut lie = header(1, 1, b"", b"", limits).expect("small");
        lie[4..8].copy_from_slice(&(1u32 << 30).to_le_bytes());
        reader.room().copy_from_slice(&lie);
        assert_eq!(reader.filled(HEADER_BYTES), Ok(None));
        assert_eq!(reader.room().len(), ROOM_BYTES);
    }

    #[test]
    fn a_frame_takes_no_more_memory_than_it_says() {
        let limits = FrameLimits::default();
        for bulk_bytes in [1, ROOM_BYTES - 1, ROOM_BYTES, 2 * ROOM_BYTES + 1, 9 * ROOM_BYTES / 2] {
            let stream = stream(&[(1, 1, b"body", &vec![7; bulk_bytes])]);
            for piece in [1000, usize::MAX] {
                let (mut reader, mut rest) = (FrameReader::new(limits), &stream[..]);
                let frame = loop {
                    let room = reader.room();
                    let taken = room.len().min(rest.len()).min(piece);
                    room[..taken].copy_from_slice(&rest[..taken]);
                    rest = &rest[taken..];
                    let frame = reader.filled(taken).expect("a frame");
                    let ahead = reader.payload.capacity() - reader.filled.min(reader.payload.capacity());
                    assert!(ahead <= reader.filled.max(ROOM_BYTES), "{ahead} bytes ahead");
                    if let Some(frame) = frame {
                        break frame;
                    }
                };
                assert_eq!(frame.payload.capacity(), bulk_bytes + 4, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_an_error() {
        let error = frames(b"LLVM ERROR: out of memory", 5, FrameLimits::default()).expect_err("no frame");
        assert!(matches!(error, FrameError::Mark { .. }), "{error}");
    }
}
