//! [`PublishedTable`]: the code that the host has published to this process, by its numbers.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Mutex, Weak};

use super::messages::{Publication, PublishedSegment};
use super::names::PublishedNames;
use crate::code_ranges::CodeRanges;
use crate::debug::NamedCode;
use crate::executor::{Actions, CodeExtent, CodeNumber, Home, Published, UnwindTable, WeakHome};
use crate::memory::{MappedSegments, MemoryHere, SegmentsThere};
use crate::runtime::endings::{self, CodeKeeper};
use crate::runtime::in_process::{adopt_tls, publish_here};

/// Called when code has gone, with its number.
pub(super) type ToldGone = Arc<dyn Fn(u32) + Send + Sync>;

/// The code of this process.
pub(super) struct PublishedTable {
    memory: Arc<dyn MemoryHere>,
    state: Mutex<TableState>,
    /// Whether code may come to lie where other code lay.
    has_retired: AtomicBool,
    told_gone: ToldGone,
}

struct TableState {
    by_number: HashMap<u32, Arc<CodeHere>>,
    by_address: CodeRanges<CodeNumber>,
    homes: HashMap<u64, WeakHome>,
}

/// A piece of code. Fields drop in order: it comes to its end and is forgotten, its pages go, and the host learns of it.
struct CodeHere {
    published: Box<dyn Published>,
    ranges: Option<Arc<[Range<u64>]>>,
    _gone: TellsGone,
}

struct TellsGone(u32, ToldGone);

impl Drop for TellsGone {
    fn drop(&mut self) {
        (self.1)(self.0);
    }
}

/// Destructors of threads keep a piece of code after the host has retired it.
impl CodeKeeper for CodeHere {
    fn hold_all(&self) -> Box<dyn Any + Send + Sync> {
        Box::new(())
    }
}

impl PublishedTable {
    /// Code in `memory`. `told_gone` is called for each piece that has gone.
    pub(super) fn new(memory: Arc<dyn MemoryHere>, told_gone: ToldGone) -> Self {
        let state =
            TableState { by_number: HashMap::new(), by_address: CodeRanges::new(), homes: HashMap::new() };
        Self { memory, state: Mutex::new(state), has_retired: AtomicBool::new(false), told_gone }
    }

    /// Makes code known that the host has written, or whose `contents` it has sent. It can be called from here on.
    ///
    /// # Errors
    /// The defect of the message, or the system's refusal.
    pub(super) fn publish(
        &self,
        number: u32,
        publication: Publication,
        contents: &[u8],
    ) -> Result<(), String> {
        self.check(&publication)?;
        // Relaxed: set and read by the thread that takes messages alone.
        if self.has_retired.load(Ordering::Relaxed) {
            self.memory.serialize();
        }
        let Publication { segments, unwind, tls, is_stubs, names, end } = publication;
        let segments = segments.into_iter().map(PublishedSegment::segment).collect::<Option<_>>();
        let segments = segments.ok_or("a segment is of no kind")?;
        let memory = self.memory.take(SegmentsThere { segments, contents: contents.into() })?;
        let image = tls.map(|tls| tls.image());
        let reserved = tls.map(|tls| adopt_tls(tls.placement(), tls.image())).transpose();
        let unwind = unwind.map(|(start, end, eh_frame_hdr)| UnwindTable { code: start..end, eh_frame_hdr });
        let end = end.map(|(home, ranges)| self.extent(home, ranges));
        let ranges = end.as_ref().map(|end| end.ranges.clone());
        let names = names.map(NamedCode::from);
        let actions = Actions { tls: image, unwind, is_stubs, names, end, ..Actions::default() };
        let reserved = reserved.map_err(|error| error.to_string())?;
        let published = publish_here(memory, reserved, actions).map_err(|error| error.to_string())?;
        self.add(number, published, ranges)
    }

    fn add(
        &self,
        number: u32,
        published: Box<dyn Published>,
        ranges: Option<Arc<[Range<u64>]>>,
    ) -> Result<(), String> {
        let code_number = published.number();
        let code = CodeHere { published, ranges, _gone: TellsGone(number, self.told_gone.clone()) };
        let code = Arc::new(code);
        if let Some(code_number) = code_number {
            let keeper: Weak<CodeHere> = Arc::downgrade(&code);
            endings::kept_by(code_number, keeper, 1);
        }
        let mut state = self.state.lock();
        if let (Some(code_number), Some(ranges)) = (code_number, &code.ranges) {
            state.by_address.add(ranges, code_number);
        }
        match state.by_number.insert(number, code) {
            None => Ok(()),
            Some(before) => {
                drop(state);
                drop(before);
                Err(format!("code {number} came twice"))
            }
        }
    }

    /// Has code come to its end, unless threads need it for theirs.
    ///
    /// # Errors
    /// If there is no such code.
    pub(super) fn retire(&self, number: u32) -> Result<(), String> {
        let mut state = self.state.lock();
        let code = state.by_number.remove(&number).ok_or_else(|| format!("there is no code {number}"))?;
        if let (Some(code_number), Some(ranges)) = (code.published.number(), &code.ranges) {
            state.by_address.remove(ranges, |known| *known == code_number);
        }
        drop(state);
        // Relaxed: as above.
        self.has_retired.store(true, Ordering::Relaxed);
        drop(code);
        Ok(())
    }

    /// The memory that is mapped for code and data.
    pub(super) fn mapped(&self) -> MappedSegments {
        self.memory.mapped()
    }

    /// The number of the code at an address, if its end is known.
    pub(super) fn at(&self, address: ExecutorAddr) -> Option<CodeNumber> {
        self.state.lock().by_address.at(address.value()).copied()
    }

    fn extent(&self, home: u64, ranges: Vec<(u64, u64)>) -> CodeExtent {
        let mut state = self.state.lock();
        let known = state.homes.get(&home).and_then(WeakHome::upgrade);
        let home = known.unwrap_or_else(|| {
            let new = Home::default();
            state.homes.retain(|_, home| home.upgrade().is_some());
            state.homes.insert(home, new.downgrade());
            new
        });
        CodeExtent { home, ranges: ranges.into_iter().map(|(start, end)| start..end).collect() }
    }

    /// A host that names addresses outside of the memory for code has made a mistake.
    fn check(&self, publication: &Publication) -> Result<(), String> {
        let Publication { unwind, tls, names, end, .. } = publication;
        let range = self.memory.addresses();
        let is_in =
            |start: u64, end: u64| start == end || (range.start <= start && start < end && end <= range.end);
        let ends = end.iter().flat_map(|(_, ranges)| ranges);
        let code = unwind.iter().map(|(start, end, _)| (*start, *end));
        let index = unwind.iter().map(|(_, _, at)| (*at, at.saturating_add(8)));
        let image = tls.iter().map(|tls| (tls.address, tls.address.saturating_add(tls.image_bytes)));
        let named = names.iter().flat_map(PublishedNames::ranges_read);
        let mut all = ends.copied().chain(code).chain(index).chain(image).chain(named);
        match all.find(|&(start, end)| !is_in(start, end)) {
            Some((start, end)) => {
                Err(format!("code at {start:#x}..{end:#x} lies outside of the memory for code"))
            }
            None => Ok(()),
        }
    }
}
