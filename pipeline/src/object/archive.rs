//! Static archives: which member defines which symbol.
//!
//! The archive's own symbol table is used where it has one. Members it does not cover are read themselves:
//! all of them when the table is missing, and bitcode members that the archiver did not understand. The
//! contents of a member are looked at only when one of its symbols is wanted.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ptr;
use std::sync::Arc;

use object::archive::MAGIC;
use object::read::archive::ArchiveFile;

use super::foreign::foreign_object;
use super::proportion::{NameBudget, NamesTooLong};
use super::{FileKind, ObjectBuffer, ObjectError, ObjectInterface, default_version, foreign_format};

/// The members of a static archive, by position and by the symbols they define.
///
/// # Examples
/// ```
/// # #[cfg(not(feature = "llvm"))]
/// # fn main() {}
/// # #[cfg(feature = "llvm")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule};
/// use uruk_pipeline::object::{ArchiveIndex, ObjectBuffer};
///
/// # let source = ObjectBuffer::new("answer.o", "define i64 @answer() { ret i64 42 }".as_bytes());
/// # let object = IrCompiler::host(OptimizationLevel::O2)?.compile(ThreadSafeModule::parse(&source)?)?;
/// # let size = object.bytes().len();
/// # let header = format!("!<arch>\n{:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", "answer.o/", 0, 0, 0, 644);
/// # let archive = ObjectBuffer::new("libanswer.a", [header.as_bytes(), object.bytes()].concat());
/// let index = ArchiveIndex::read(&archive)?; // `ar rc libanswer.a answer.o`
/// assert_eq!(&**index.members()[0].contents().name(), "libanswer.a(answer.o)");
/// assert_eq!(index.member_defining("answer"), Some(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ArchiveIndex {
    name: Arc<str>,
    members: Vec<ArchiveMember>,
    /// The first member that defines each name.
    by_symbol: HashMap<Arc<str>, usize>,
    /// The others, of the few names that more than one member defines.
    repeated: HashMap<Arc<str>, BTreeSet<usize>>,
}

/// One file in an archive. Its name is that of the archive with the member's in brackets.
#[derive(Clone, Debug)]
pub struct ArchiveMember {
    contents: ObjectBuffer,
    /// Names that it defines, whichever member is the first to do so.
    symbols: Vec<Arc<str>>,
}

impl ArchiveMember {
    /// The member's bytes, shared with the archive's.
    pub fn contents(&self) -> &ObjectBuffer {
        &self.contents
    }

    /// The names it defines, as the archive's table has them.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().map(|name| &**name)
    }

    /// Whether the member is LLVM bitcode rather than an object.
    pub fn is_bitcode(&self) -> bool {
        FileKind::of(self.contents.bytes()) == FileKind::Bitcode
    }
}

impl ArchiveIndex {
    /// Reads the table of contents of an archive of objects. Members that are bitcode, and that the archive's own table says nothing
    /// about, count as defining nothing: [`ArchiveIndex::read_with`] asks what they define.
    ///
    /// ```
    /// use uruk_pipeline::object::{ArchiveIndex, ObjectBuffer};
    ///
    /// let empty = ObjectBuffer::new("libempty.a", b"!<arch>\n".to_vec());
    /// let index = ArchiveIndex::read(&empty)?;
    /// assert!(index.members().is_empty() && index.member_defining("f").is_none());
    /// # Ok::<(), uruk_pipeline::object::ObjectError>(())
    /// ```
    ///
    /// # Errors
    /// [`ObjectError`] for bytes that are no archive, a thin one, or one that is cut off.
    ///
    /// # Cost
    /// That of [`ArchiveIndex::read_with`].
    pub fn read(archive: &ObjectBuffer) -> Result<Self, ObjectError> {
        Self::read_with(archive, |_| Ok(Vec::new()))
    }

    /// Reads the table of contents of `archive`. `bitcode_symbols` answers for members that are bitcode and
    /// that the archive's own table says nothing about.
    ///
    /// # Errors
    /// [`ObjectError`], converted, if the bytes are no archive, a thin one, or one that is cut off; and every error of `bitcode_symbols`.
    ///
    /// # Cost
    /// One pass over the member headers and the symbol table. Without a symbol table, one over each
    /// member's symbols too.
    pub fn read_with<E: From<ObjectError>>(
        archive: &ObjectBuffer,
        mut bitcode_symbols: impl FnMut(&ObjectBuffer) -> Result<Vec<Box<str>>, E>,
    ) -> Result<Self, E> {
        let malformed = |damage: ArchiveDamage| ObjectError::Malformed {
            object: archive.name().clone(),
            size_bytes: archive.size_bytes(),
            what: format!("as an archive: {damage}"),
        };
        let file = ArchiveFile::parse(archive.bytes()).map_err(|error| malformed(error.into()))?;
        if file.is_thin() {
            return Err(ObjectError::ThinArchive { archive: archive.name().clone() }.into());
        }
        if !archive.bytes().starts_with(&MAGIC) {
            return Err(malformed(ArchiveDamage::Foreign).into());
        }
        let mut names = NameBudget::of_file(archive.size_bytes());
        let mut index = Self {
            name: archive.name().clone(),
            members: Vec::new(),
            by_symbol: HashMap::default(),
            repeated: HashMap::default(),
        };
        let mut positions = HashMap::default();
        for member in file.members() {
            let member = member.map_err(|error| malformed(error.into()))?;
            // Members may share a long name, of which each gets a copy.
            names.spend(member.name()).map_err(|error| malformed(error.into()))?;
            positions.extend(header_offset(archive, &member).map(|offset| (offset, index.members.len())));
            let cut = cut_member(archive, &member)?;
            // Archives hold texts and tables too, which are nothing to a linker.
            if foreign_object(cut.contents.bytes()).is_some() {
                let found = foreign_format(cut.contents.bytes()).unwrap_or_default();
                let member = String::from_utf8_lossy(member.name()).into();
                return Err(
                    ObjectError::ForeignMember { archive: archive.name().clone(), member, found }.into()
                );
            }
            index.members.push(cut);
        }
        let table = index.read_table(&file, &positions, &mut names).map_err(malformed)?;
        for position in 0..index.members.len() {
            let member = &index.members[position];
            let names = match &table {
                Some(covered) if covered.contains(&position) || !member.is_bitcode() => continue,
                _ if member.is_bitcode() => bitcode_symbols(&member.contents)?,
                _ => defined_names(&member.contents)?,
            };
            index.add(names, position);
        }
        Ok(index)
    }

    /// The archive's name in messages.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The members, in the archive's order.
    pub fn members(&self) -> &[ArchiveMember] {
        &self.members
    }

    /// The position of the first member that defines `symbol`.
    pub fn member_defining(&self, symbol: &str) -> Option<usize> {
        self.by_symbol.get(symbol).copied()
    }

    /// The positions of all members that define `symbol`, in the archive's order.
    pub fn members_defining(&self, symbol: &str) -> impl Iterator<Item = usize> + use<'_> {
        let others = self.repeated.get(symbol).into_iter().flatten().copied();
        self.member_defining(symbol).into_iter().chain(others)
    }

    /// Lets the members at `positions` define nothing: what they define is found elsewhere.
    pub fn leave_out(&mut self, positions: &HashSet<usize>) {
        if positions.is_empty() {
            return;
        }
        (self.by_symbol, self.repeated) = Default::default();
        for position in 0..self.members.len() {
            let symbols = std::mem::take(&mut self.members[position].symbols);
            if !positions.contains(&position) {
                self.add(symbols.iter().map(|name| (&**name).into()), position);
            }
        }
    }

    /// How many names the archive defines.
    pub fn symbol_count(&self) -> usize {
        self.by_symbol.len()
    }

    /// Takes over the archive's own symbol table; answers which members it mentions, or `None` without one. The table
    /// names members by the offset of their headers: `positions` says which position each has.
    fn read_table(
        &mut self,
        file: &ArchiveFile<'_>,
        positions: &HashMap<u64, usize>,
        names: &mut NameBudget,
    ) -> Result<Option<HashSet<usize>>, ArchiveDamage> {
        let Some(symbols) = file.symbols()? else { return Ok(None) };
        let mut covered = HashSet::default();
        for symbol in symbols {
            let symbol = symbol?;
            // In some formats names may overlap.
            names.spend(symbol.name())?;
            // An entry that points between members is stale. Its name is not found, as if it were absent.
            let Some(&position) = positions.get(&symbol.offset().0) else { continue };
            covered.insert(position);
            if let Ok(name) = std::str::from_utf8(symbol.name()) {
                self.add([default_version(name).into()], position);
            }
        }
        Ok(Some(covered))
    }

    fn add(&mut self, names: impl IntoIterator<Item = Box<str>>, position: usize) {
        for name in names {
            let entry = self.by_symbol.entry(name.into());
            self.members[position].symbols.push(entry.key().clone());
            match entry {
                Entry::Vacant(entry) => drop(entry.insert(position)),
                Entry::Occupied(mut entry) => {
                    let first = position.min(*entry.get());
                    let other = position.max(entry.insert(first));
                    if other != first {
                        self.repeated.entry(entry.key().clone()).or_default().insert(other);
                    }
                }
            }
        }
    }
}

/// The damage of an archive.
#[derive(Debug, thiserror::Error)]
enum ArchiveDamage {
    #[error(transparent)]
    Archive(#[from] object::read::Error),
    #[error(transparent)]
    Names(#[from] NamesTooLong),
    #[error("its format is that of another system; make it anew with the `ar` of this one")]
    Foreign,
}

/// Where the header of a member lies in the archive.
fn header_offset(archive: &ObjectBuffer, member: &object::read::archive::ArchiveMember<'_>) -> Option<u64> {
    let header = ptr::from_ref(member.header()?).addr();
    Some(header.checked_sub(archive.bytes().as_ptr().addr())? as u64)
}

fn cut_member(
    archive: &ObjectBuffer,
    member: &object::read::archive::ArchiveMember<'_>,
) -> Result<ArchiveMember, ObjectError> {
    let (offset, size_bytes) = member.file_range();
    let name = format!("{}({})", archive.name(), String::from_utf8_lossy(member.name()));
    let range = usize::try_from(offset).ok().zip(usize::try_from(size_bytes).ok());
    let contents = range
        .and_then(|(start, size_bytes)| archive.slice(&*name, start..start.checked_add(size_bytes)?))
        .ok_or_else(|| ObjectError::Malformed {
            object: archive.name().clone(),
            size_bytes: archive.size_bytes(),
            what: format!("member {name} has {size_bytes} bytes from {offset:#x}, past the end"),
        })?;
    Ok(ArchiveMember { contents, symbols: Vec::new() })
}

/// The definitions of an object. Empty for a member that is no object, because archives hold other files too.
fn defined_names(member: &ObjectBuffer) -> Result<Vec<Box<str>>, ObjectError> {
    match ObjectInterface::read(member) {
        Ok(interface) => Ok(interface.defined.iter().map(|symbol| symbol.name.into()).collect()),
        Err(ObjectError::NotElf { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
