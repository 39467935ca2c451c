//! [`NamedCode`]: the names of one piece of linked code, and the DWARF of its objects.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use uruk_core::sync::Arc;

/// Names and debug information of the code of one link.
#[derive(Debug, Default)]
pub struct NamedCode {
    /// The dylib that it is part of.
    pub dylib: Box<str>,
    /// The names of its objects.
    pub units: Box<[Box<str>]>,
    /// Its instructions.
    pub code: Range<u64>,
    /// Its segments, the code among them.
    pub ranges: Arc<[Range<u64>]>,
    /// Its `.eh_frame_hdr`, if it has one.
    pub eh_frame_hdr: Option<u64>,
    /// Whether it consists of stubs of ours, which have the names of the functions that they lead on to.
    pub is_stubs: bool,
    /// Its symbols.
    pub symbols: SymbolTable,
    /// The objects that have DWARF.
    pub files: Vec<DebugFile>,
}

/// Symbols with their names, in one piece of memory each, or where a file has them.
#[derive(Debug, Default)]
pub struct SymbolTable {
    text: String,
    symbols: Vec<NamedSymbol>,
    elsewhere: Option<Arc<dyn SymbolSource>>,
}

/// Symbols that are read where they are, when they are asked for.
///
/// # Concurrency
/// Called by signal handlers too: it neither waits nor allocates.
pub trait SymbolSource: fmt::Debug + Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// One of them, if it has a name and a place.
    fn symbol(&self, number: usize) -> Option<NamedSymbol>;

    /// The name of one of them.
    fn name(&self, number: u32) -> &str;
}

/// A named range of addresses.
#[derive(Clone, Copy, Debug)]
pub struct NamedSymbol {
    /// First address.
    pub start: u64,
    /// Size in bytes; to the end of the section where the object says none.
    pub size: u64,
    /// Whether it is code.
    pub is_code: bool,
    /// Its object, as an index of [`NamedCode::units`].
    pub unit: u32,
    /// Its number where it is elsewhere, or where its name begins; and how long that is.
    pub(crate) name: (u32, u32),
}

/// An object with DWARF, and where its sections lie.
pub struct DebugFile {
    /// The owner of its bytes.
    pub owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// The object within these.
    pub range: Range<usize>,
    /// The number of each section that was placed, and its address; sorted.
    pub sections: Vec<(u32, u64)>,
}

impl NamedCode {
    /// The symbol at an address: of several the one that starts last.
    ///
    /// # Cost
    /// Linear in the symbols of the piece. It allocates nothing.
    pub fn symbol_at(&self, address: u64) -> Option<NamedSymbol> {
        let covers =
            |symbol: &NamedSymbol| symbol.start <= address && address - symbol.start < symbol.size.max(1);
        self.symbols.iter().filter(covers).max_by_key(|symbol| symbol.start)
    }

    /// The name of a symbol for a debugger or profiler, which tells stubs from the functions that they lead on to.
    pub(super) fn told_name(&self, symbol: &NamedSymbol) -> Cow<'_, str> {
        let name = self.symbols.name(symbol);
        if self.is_stubs { format!("stub of {name}").into() } else { name.into() }
    }

    /// The name of the unit that has a symbol.
    pub fn unit_of(&self, symbol: &NamedSymbol) -> &str {
        self.units.get(symbol.unit as usize).map_or("", |unit| unit)
    }
}

impl SymbolTable {
    /// A table of symbols that stay where they are.
    pub fn elsewhere(source: Arc<dyn SymbolSource>) -> Self {
        Self { elsewhere: Some(source), ..Self::default() }
    }

    /// A table without symbols, with room for some whose names have so many bytes together.
    pub fn with_room(symbols: usize, name_bytes: usize) -> Self {
        let (text, symbols) = (String::with_capacity(name_bytes), Vec::with_capacity(symbols));
        Self { text, symbols, ..Self::default() }
    }

    /// Adds a symbol. One whose name has no room is left out.
    ///
    /// The name is that of the source: the engine calls the code behind the stub of `f` *body of f in FILE*.
    pub fn add(&mut self, name: &str, unit: u32, range: Range<u64>, is_code: bool) {
        let name = name_in_source(name);
        let start = self.text.len();
        let (Ok(at), Ok(len)) = (u32::try_from(start), u32::try_from(name.len())) else { return };
        self.text.push_str(name);
        let (start, size) = (range.start, range.end.saturating_sub(range.start));
        self.symbols.push(NamedSymbol { start, size, is_code, unit, name: (at, len) });
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = NamedSymbol> {
        let elsewhere = self.elsewhere.iter();
        let others =
            elsewhere.flat_map(|source| (0..source.count()).filter_map(|number| source.symbol(number)));
        self.symbols.iter().copied().chain(others)
    }

    /// The name of one of them.
    pub fn name(&self, symbol: &NamedSymbol) -> &str {
        if let Some(source) = &self.elsewhere {
            return source.name(symbol.name.0);
        }
        let (start, len) = (symbol.name.0 as usize, symbol.name.1 as usize);
        self.text.get(start..start + len).unwrap_or_default()
    }
}

impl DebugFile {
    /// The object.
    pub fn bytes(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }

    /// The address of the section with that number.
    pub(super) fn address_of(&self, section: u32) -> Option<u64> {
        let at = self.sections.binary_search_by_key(&section, |&(index, _)| index).ok()?;
        Some(self.sections[at].1)
    }
}

impl fmt::Debug for DebugFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebugFile").field("size_bytes", &self.range.len()).finish_non_exhaustive()
    }
}

/// The function or variable that a name of the engine's stands for. Names of objects have no spaces.
fn name_in_source(name: &str) -> &str {
    if !name.contains(' ') {
        return name;
    }
    let (name, _) = name.split_once(" in ").unwrap_or((name, ""));
    name.rsplit(' ').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_symbols_at_an_address_the_later_one_counts() {
        let mut code = NamedCode { units: ["a.o".into()].into(), ..NamedCode::default() };
        code.symbols.add("outer", 0, 16..64, true);
        code.symbols.add("inner", 0, 32..40, true);
        let name = |address| code.symbol_at(address).map(|symbol| code.symbols.name(&symbol));
        assert_eq!(name(15), None);
        assert_eq!(name(16), Some("outer"));
        assert_eq!(name(32), Some("inner"));
        assert_eq!(name(40), Some("outer"));
        assert_eq!(name(64), None);
    }

    #[test]
    fn a_body_has_the_name_of_its_function() {
        assert_eq!(name_in_source("body of f in /tmp/a file in here.c, whole (#1)"), "f");
        assert_eq!(name_in_source("local in a.c #1"), "local");
        assert_eq!(name_in_source("_ZN4shop4Cart5totalEv"), "_ZN4shop4Cart5totalEv");
    }
}
