//! Names as people know them: of a function, not of the engine's body of it; of C++ and Rust as they are written there.

use std::fmt;

use super::name::SymbolName;

/// Prints a symbol's name for people; the name itself stays as it is.
///
/// ```
/// use uruk_core::Readable;
///
/// assert_eq!(Readable("_ZN7Account7depositEi").to_string(), "Account::deposit(int)");
/// assert_eq!(Readable("main").to_string(), "main");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Readable<'a>(pub &'a str);

impl SymbolName {
    /// The name for people: demangled, and of a body made by the engine the name of its function. Errors print names so;
    /// [`as_str`](Self::as_str) is the name itself.
    pub fn readable(&self) -> Readable<'_> {
        Readable(self.as_str())
    }
}

impl<'a> Readable<'a> {
    /// The name of the function whose body this is, or of the file that this stands for. Any other name is its own.
    pub fn of(self) -> &'a str {
        let body = self.0.strip_prefix(BODY).and_then(|rest| rest.split_once(IN));
        let file = || self.0.strip_prefix("<file ")?.strip_suffix('>')?.split_once(": ");
        match (body, file()) {
            (Some((function, _)), _) => function,
            (None, Some((_, file))) => file,
            _ => self.0,
        }
    }
}

const BODY: &str = "body of ";
const IN: &str = " in ";

/// The symbol that is the body of `function`, which has its own name elsewhere. `place` tells bodies of one function apart.
///
/// ```
/// use uruk_core::{Readable, body_name};
///
/// let body = body_name("_Z4sizev", "a.cpp #1");
/// assert_eq!(body, "body of _Z4sizev in a.cpp #1");
/// assert_eq!(Readable(&body).to_string(), "size()");
/// ```
pub fn body_name(function: &str, place: &str) -> String {
    format!("{BODY}{function}{IN}{place}")
}

impl fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.of();
        // A version of the dynamic linker's, as in `stat@GLIBC_2.33`.
        let (unversioned, version) = name.split_at(name.find('@').unwrap_or(name.len()));
        match demangled(unversioned) {
            Some(demangled) => write!(f, "{demangled}{version}"),
            None => f.write_str(name),
        }
    }
}

/// A name or its readable form that is longer tells people nothing; and a short name may stand for a very long one.
const LENGTH_MAX: usize = 2048;

fn demangled(name: &str) -> Option<String> {
    if name.len() > LENGTH_MAX || !(name.starts_with("_Z") || name.starts_with("_R")) {
        return None;
    }
    let mut text = Bounded(String::new());
    if name.starts_with("_R") || has_rust_hash(name) {
        let rust = rustc_demangle::try_demangle(name).ok()?;
        fmt::write(&mut text, format_args!("{rust:#}")).ok()?;
    } else {
        let symbol = cpp_demangle::Symbol::new(name).ok()?;
        symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::new()).ok()?;
    }
    Some(as_written(text.0))
}

/// Names of Rust's older form look like those of C++, but for their end.
fn has_rust_hash(name: &str) -> bool {
    let name = name.find(".llvm.").map_or(name, |at| &name[..at]);
    let hash =
        name.strip_suffix('E').and_then(|name| Some(name.split_at_checked(name.len().checked_sub(19)?)?.1));
    hash.and_then(|hash| hash.strip_prefix("17h"))
        .is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The standard's own names for what the mangling spells out.
fn as_written(text: String) -> String {
    let string = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    let text = if text.contains(string) { text.replace(string, "std::string") } else { text };
    let table =
        text.strip_prefix('{').and_then(|text| text.strip_suffix(")}")).and_then(|text| text.split_once('('));
    match table {
        Some((what @ ("vtable" | "VTT"), class)) => format!("{what} for {class}"),
        _ => text,
    }
}

/// The text written so far, up to a limit.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LENGTH_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Which of `candidates` was probably meant by `name`, if one resembles it: a slip or two away, or the same function with the other
/// language's linkage.
pub fn nearest_symbol<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let slips = candidates.filter_map(|candidate| Some((slips(name, candidate)?, candidate)));
    slips.min().map(|(_, candidate)| candidate)
}

/// How many slips `candidate` is away from `name`, if that is few. Names that differ in numbers are different things.
pub(crate) fn slips(name: &str, candidate: &str) -> Option<usize> {
    if identifier(name) == Some(candidate) || identifier(candidate) == Some(name) {
        return Some(0);
    }
    let slips = few_slips(name, candidate).filter(|&slips| slips > 0)?;
    let same = |one: &str, other: &str| without_numbers(one).eq(without_numbers(other));
    // Two letters of a mangled name may stand for much.
    let resemble_as_written =
        || few_slips(&Readable(name).to_string(), &Readable(candidate).to_string()).is_some();
    (!same(name, candidate) && (!name.starts_with("_Z") || resemble_as_written())).then_some(slips)
}

fn few_slips(name: &str, candidate: &str) -> Option<usize> {
    let most = match name.len() {
        0..4 => return None,
        length => (length / 4).clamp(1, 2),
    };
    // Most names end here, and cost no more than that.
    if name.len().abs_diff(candidate.len()) > most {
        return None;
    }
    Some(strsim::osa_distance(name, candidate)).filter(|&slips| slips <= most)
}

/// Nor is a destructor a slip of a constructor: `D1` and `C1` in mangled names.
fn without_numbers(name: &str) -> impl Iterator<Item = u8> {
    let is_mangled = name.starts_with("_Z");
    let letters = name.bytes().filter(|byte| !byte.is_ascii_digit());
    letters.map(move |byte| if is_mangled && byte == b'D' { b'C' } else { byte })
}

/// Of a function that C++ mangles at the top level, the name that it would have in C.
fn identifier(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("_Z")?;
    let digits = rest.find(|digit: char| !digit.is_ascii_digit())?;
    rest[digits..].get(..rest[..digits].parse().ok()?)
}

/// As an error quotes it.
pub(crate) struct Quoted<'a>(pub(crate) &'a SymbolName);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.readable())
    }
}

/// Where a symbol is, behind its name: its dylib, unless that is known, and its unit if that has another name.
pub(crate) fn placed(symbol: &SymbolName, dylib: Option<&str>, unit: &SymbolName) -> String {
    let unit = Some(unit).filter(|unit| Readable(symbol.as_str()).of() != unit.as_str());
    match (dylib, unit.map(SymbolName::readable)) {
        (Some(dylib), Some(unit)) => format!(" (dylib `{dylib}`, unit `{unit}`)"),
        (Some(dylib), None) => format!(" (dylib `{dylib}`)"),
        (None, Some(unit)) => format!(" (unit `{unit}`)"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_were_written() {
        for (name, written) in [
            (
                "_ZNK1A6methodENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEi",
                "A::method(std::string, int) const",
            ),
            ("_ZN1A2stE", "A::st"),
            ("_ZTV1A", "vtable for A"),
            ("_ZTI1A", "typeinfo for A"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("stat@GLIBC_2.33", "stat@GLIBC_2.33"),
            ("_ZN3foo3barEv@@V1", "foo::bar()@@V1"),
            ("body of f in a in b.c #1", "f"),
            ("body of _Z1fv in a.cpp, whole (#2), better (1)", "f()"),
            ("<file 3: a.c>", "a.c"),
            ("_Zfoo", "_Zfoo"),
            ("_ZN", "_ZN"),
            ("_R", "_R"),
            ("_ZN17hé0123456789abcdE", "_ZN17hé0123456789abcdE"),
            ("", ""),
        ] {
            assert_eq!(Readable(name).to_string(), written);
        }
    }

    /// Each step of such a name doubles what it stands for.
    #[test]
    fn a_name_that_stands_for_a_very_long_one_is_printed_as_it_is() {
        let mut name = "_Z1fI1aS_E".to_owned();
        for digit in ('0'..='9').chain('A'..='Z') {
            name += &format!("1fIS{digit}_S{digit}_E");
        }
        assert!(Readable(&name).to_string().len() <= LENGTH_MAX);
        let deep = format!("_Z1f{}i", "P".repeat(LENGTH_MAX - 5));
        assert!(Readable(&deep).to_string().len() <= 2 * LENGTH_MAX);
    }

    #[test]
    fn a_slip_is_found_and_a_number_is_none() {
        let defined = ["helper", "main", "s30", "part_30", "_Z4sizev", "open", "_ZN5TableC1Ev", "_ZNSdD1Ev"];
        let nearest = |name| nearest_symbol(name, defined.into_iter());
        assert_eq!(nearest("hepler"), Some("helper"));
        assert_eq!(nearest("mian"), Some("main"));
        assert_eq!(nearest("size"), Some("_Z4sizev"));
        assert_eq!(nearest("_Z4openPKc"), Some("open"));
        for name in ["part_31", "s31", "_ZN5TableD1Ev", "_ZN1VD1Ev", "missing", "a", ""] {
            assert_eq!(nearest(name), None, "{name}");
        }
    }
}
