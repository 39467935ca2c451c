//! [`Key`]: the name of a cache entry. It covers everything that changes the entry.
//!
//! Ingredients are structs that are written out in full, and taken apart in full where they are hashed: a new ingredient that is forgotten
//! in one of the two places is a compile error. So is one that is forgotten in the tests, which change each ingredient in turn.
//!
//! **Architecture Invariant:** no counter, address, time or order of events enters a key.

use std::fmt;

/// Raised whenever this engine makes another object, or another interface, of the same ingredients.
pub(crate) const ENGINE_SCHEMA: u64 = 5;

/// A BLAKE3 hash of everything that an entry depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; Key::SIZE_BYTES]);

impl Key {
    /// How many bytes a key has.
    pub const SIZE_BYTES: usize = 32;

    /// The key with these bytes.
    pub const fn from_bytes(bytes: [u8; Self::SIZE_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::SIZE_BYTES] {
        &self.0
    }

    /// Its first bytes as a number: enough to tell the entries of one store apart, nearly always.
    pub(super) fn tag(&self) -> u64 {
        u64::from_le_bytes(self.part(0))
    }

    /// Its last bytes as a number, which has nothing to do with the tag.
    pub(super) fn spread(&self) -> u64 {
        u64::from_le_bytes(self.part(Self::SIZE_BYTES - 8))
    }

    fn part(&self, start: usize) -> [u8; 8] {
        std::array::from_fn(|at| self.0[start + at])
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Ingredients of a module's interface: the symbols that the module defines and needs.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceIngredients<'a> {
    /// The bytes of the file.
    pub source: &'a [u8],
    /// The name of the file, if it is text: that lands in the object. Bitcode has a name of its own among its bytes.
    pub text_name: Option<&'a str>,
    /// Architecture, vendor and operating system.
    pub triple: &'a str,
    /// The processor whose instructions may be used.
    pub cpu: &'a str,
    /// Instruction sets that are added and avoided. A later one overrides an earlier one, so their order counts.
    pub features: &'a str,
    /// Which build of which compiler made it: a version alone is the same for two builds that differ.
    pub compiler_build: &'a str,
    /// Bytes by which a host has entries of its own.
    pub salt: &'a [u8],
}

impl InterfaceIngredients<'_> {
    /// The key of the interface.
    ///
    /// # Cost
    /// 4 to 6 µs for 20 KB, 0.4 ms for 3.7 MB.
    pub fn key(&self) -> Key {
        self.key_in(ENGINE_SCHEMA)
    }

    fn key_in(&self, schema: u64) -> Key {
        let Self { source, text_name, triple, cpu, features, compiler_build, salt } = self;
        let mut builder = KeyBuilder::new("interface");
        builder.number("schema", schema).bytes("source", source);
        builder.list("name", text_name.iter());
        builder.bytes("triple", triple).bytes("cpu", cpu).bytes("features", features);
        builder.bytes("compiler", compiler_build).bytes("salt", salt);
        builder.finish()
    }
}

/// Ingredients of a module's object, besides those of its interface.
#[derive(Clone, Copy, Debug)]
pub struct ObjectIngredients<'a> {
    /// The key of the module's interface.
    pub interface: Key,
    /// Numbers that the compiler is told, by name: levels, models, thresholds, switches.
    pub options: &'a [(&'a str, u64)],
    /// The text of the passes that run.
    pub passes: &'a str,
    /// The identity of each hook that runs between passes, with its version, in the order in which they run.
    pub hooks: &'a [&'a str],
    /// The definitions that are kept although the module does not use them. Mostly the interface gives them; a host may add some.
    pub kept: &'a [&'a str],
    /// The definitions that are left out because others count.
    pub discards: &'a [&'a str],
}

impl ObjectIngredients<'_> {
    /// The key of the object.
    pub fn key(&self) -> Key {
        self.key_in(ENGINE_SCHEMA)
    }

    fn key_in(&self, schema: u64) -> Key {
        let Self { interface, options, passes, hooks, kept, discards } = self;
        let mut builder = KeyBuilder::new("object");
        builder.number("schema", schema).bytes("interface", interface.as_bytes());
        let mut options = options.to_vec();
        options.sort_unstable();
        for (name, value) in options {
            builder.bytes("option", name).number("value", value);
        }
        builder.bytes("passes", passes).list("hooks", hooks.iter());
        builder.list("kept", as_set(kept).iter()).list("discards", as_set(discards).iter());
        builder.finish()
    }
}

/// Ingredients of a unit of an image: of all that decides what its code does, and of nothing that decides where and how it runs.
///
/// The machine and the build of LLVM are missing: code of another build is as right, and an image says for which processors it is.
#[derive(Clone, Copy, Debug)]
pub struct UnitIngredients<'a> {
    /// The bytes of the file. Its name and place do not count.
    pub source: &'a [u8],
    /// Numbers that the compiler is told, by name.
    pub options: &'a [(&'a str, u64)],
    /// The text of the passes that run.
    pub passes: &'a str,
    /// The identity of each hook that runs between passes, in the order in which they run.
    pub hooks: &'a [&'a str],
}

impl UnitIngredients<'_> {
    /// The key of the unit.
    pub fn key(&self) -> Key {
        let Self { source, options, passes, hooks } = self;
        let mut builder = KeyBuilder::new("unit of an image");
        builder.bytes("source", source);
        let mut options = options.to_vec();
        options.sort_unstable();
        for (name, value) in options {
            builder.bytes("option", name).number("value", value);
        }
        builder.bytes("passes", passes).list("hooks", hooks.iter());
        builder.finish()
    }
}

/// Names whose order means nothing.
fn as_set<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    names
}

/// Hashes ingredients into a key, for compilers with others than LLVM's.
///
/// Each ingredient is hashed with its tag, its kind and its length. So two lists of ingredients that differ are two texts that
/// differ, and neither is the beginning of the other.
#[derive(Clone, Debug)]
pub struct KeyBuilder(blake3::Hasher);

/// The kind of value behind a tag. Part of the hashed text.
#[derive(Clone, Copy)]
enum KeyKind {
    Bytes = 1,
    Number = 2,
    List = 3,
}

impl KeyBuilder {
    /// Begins a key. Keys for two purposes never meet.
    pub fn new(purpose: &str) -> Self {
        let mut builder = Self(blake3::Hasher::new());
        builder.bytes("purpose", purpose);
        builder
    }

    /// Adds bytes or a text.
    pub fn bytes(&mut self, tag: &str, value: impl AsRef<[u8]>) -> &mut Self {
        self.begin(tag, KeyKind::Bytes).sized(value.as_ref())
    }

    /// Adds a number.
    pub fn number(&mut self, tag: &str, value: u64) -> &mut Self {
        self.begin(tag, KeyKind::Number).word(value)
    }

    /// Adds a list in its order. Sort it first if its order means nothing.
    pub fn list(&mut self, tag: &str, values: impl ExactSizeIterator<Item: AsRef<[u8]>>) -> &mut Self {
        self.begin(tag, KeyKind::List).word(values.len() as u64);
        values.for_each(|value| {
            self.sized(value.as_ref());
        });
        self
    }

    /// The key of all that was added.
    pub fn finish(&self) -> Key {
        Key(*self.0.finalize().as_bytes())
    }

    fn begin(&mut self, tag: &str, kind: KeyKind) -> &mut Self {
        self.sized(tag.as_bytes()).word(kind as u64)
    }

    fn sized(&mut self, bytes: &[u8]) -> &mut Self {
        self.word(bytes.len() as u64);
        self.0.update(bytes);
        self
    }

    fn word(&mut self, value: u64) -> &mut Self {
        self.0.update(&value.to_le_bytes());
        self
    }
}

/// Changes one field of a struct at a time: the field's name and the changed struct, for each value of the field. A field without a
/// line does not compile.
#[cfg(test)]
macro_rules! changed_one_at_a_time {
    ($whole:expr, $type:ident { $($field:ident: [$($value:expr),* $(,)?]),+ $(,)? }) => {{
        let whole = &$whole;
        // Without `..`: all fields are here.
        let $type { $($field: _),+ } = &whole;
        [$($((stringify!($field), $type { $field: $value, ..Clone::clone(whole) }),)*)+]
    }};
}
#[cfg(all(test, feature = "llvm"))]
pub(crate) use changed_one_at_a_time;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const INTERFACE: InterfaceIngredients<'_> = InterfaceIngredients {
        source: b"define void @f() { ret void }",
        text_name: Some("f.ll"),
        triple: "x86_64-unknown-linux-gnu",
        cpu: "sapphirerapids",
        features: "+avx2,-avx512f",
        compiler_build: "LLVM 22.1.8",
        salt: b"host",
    };

    fn object() -> ObjectIngredients<'static> {
        ObjectIngredients {
            interface: INTERFACE.key(),
            options: &[("codegen level", 2), ("code model", 0)],
            passes: "default<O2>",
            hooks: &["lower-allocations 1", "safepoints 3"],
            kept: &["inline", "template"],
            discards: &["yielding", "tentative"],
        }
    }

    /// Holds that all keys differ.
    #[track_caller]
    fn assert_apart(keys: &[Key]) {
        let distinct: HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "two of these keys are one: {keys:#?}");
    }

    #[test]
    fn every_ingredient_of_an_interface_changes_its_key() {
        let changed = changed_one_at_a_time!(
            INTERFACE,
            InterfaceIngredients {
                source: [b"define void @g() { ret void }", b""],
                text_name: [Some("g.ll"), Some(""), None],
                triple: ["aarch64-unknown-linux-gnu"],
                cpu: ["x86-64"],
                features: ["-avx512f,+avx2", "+avx2"],
                compiler_build: ["LLVM 22.1.9"],
                salt: [b"other", b""],
            }
        );
        let mut keys: Vec<Key> = changed.iter().map(|(_, ingredients)| ingredients.key()).collect();
        keys.extend([INTERFACE.key(), INTERFACE.key_in(ENGINE_SCHEMA + 1)]);
        assert_apart(&keys);
    }

    #[test]
    fn every_ingredient_of_an_object_changes_its_key() {
        let object = object();
        let changed = changed_one_at_a_time!(
            object,
            ObjectIngredients {
                interface: [InterfaceIngredients { source: b"", ..INTERFACE }.key()],
                options: [
                    &[("codegen level", 3), ("code model", 0)],
                    &[("codegen level", 0), ("code model", 2)],
                    &[("codegen level", 2)],
                ],
                passes: ["default<O3>", ""],
                hooks: [
                    &["lower-allocations 2", "safepoints 3"],
                    &["safepoints 3", "lower-allocations 1"],
                    &["lower-allocations 1"],
                ],
                kept: [&["inline"], &[]],
                discards: [&["yielding"], &["yieldingtentative"], &[]],
            }
        );
        let mut keys: Vec<Key> = changed.iter().map(|(_, ingredients)| ingredients.key()).collect();
        let swapped = ObjectIngredients { kept: object.discards, discards: object.kept, ..object };
        keys.extend([object.key(), swapped.key(), object.key_in(ENGINE_SCHEMA + 1), INTERFACE.key()]);
        assert_apart(&keys);
    }

    #[test]
    fn every_ingredient_of_a_unit_changes_its_key() {
        let unit = UnitIngredients {
            source: b"define void @f() { ret void }",
            options: &[("codegen level", 2), ("code model", 0)],
            passes: "default<O2>",
            hooks: &["safepoints 3"],
        };
        let changed = changed_one_at_a_time!(
            unit,
            UnitIngredients {
                source: [b"define void @g() { ret void }", b""],
                options: [&[("codegen level", 3), ("code model", 0)], &[("codegen level", 2)]],
                passes: ["default<O3>", ""],
                hooks: [&["safepoints 4"], &[]],
            }
        );
        let mut keys: Vec<Key> = changed.iter().map(|(_, ingredients)| ingredients.key()).collect();
        keys.push(unit.key());
        assert_apart(&keys);
    }

    #[test]
    fn orders_that_mean_nothing_do_not_change_a_key() {
        let object = object();
        let swapped = ObjectIngredients {
            options: &[("code model", 0), ("codegen level", 2)],
            kept: &["template", "inline"],
            discards: &["tentative", "yielding", "tentative"],
            ..object
        };
        assert_eq!(object.key(), swapped.key());
    }

    #[test]
    fn two_lists_of_ingredients_never_meet() {
        type Build<'a> = &'a dyn Fn(&mut KeyBuilder) -> &mut KeyBuilder;
        let key = |build: Build<'_>| build(&mut KeyBuilder::new("test")).finish();
        let none: [&str; 0] = [];
        assert_apart(&[
            key(&|builder| builder),
            key(&|builder| builder.bytes("a", "bc")),
            key(&|builder| builder.bytes("ab", "c")),
            key(&|builder| builder.bytes("a", "b").bytes("c", "")),
            key(&|builder| builder.bytes("a", "").bytes("c", "b")),
            key(&|builder| builder.bytes("a", 1_u64.to_le_bytes())),
            key(&|builder| builder.number("a", 1)),
            key(&|builder| builder.list("a", none.iter())),
            key(&|builder| builder.list("a", [""].iter())),
            key(&|builder| builder.list("a", ["b", "c"].iter())),
            key(&|builder| builder.list("a", ["bc"].iter())),
            KeyBuilder::new("tes").finish(),
        ]);
    }

    #[test]
    fn the_text_that_is_hashed_stays_what_it_is() {
        // A deliberate change of the text needs no higher version: all entries are simply missed once.
        let mut builder = KeyBuilder::new("test");
        let key = builder.bytes("bytes", "b").number("number", 2).list("list", ["c", "d"].iter()).finish();
        let mut text = Vec::new();
        for (tag, kind) in [("purpose", 1_u64), ("bytes", 1), ("number", 2), ("list", 3)] {
            text.extend((tag.len() as u64).to_le_bytes());
            text.extend(tag.as_bytes());
            text.extend(kind.to_le_bytes());
            let words: &[&[u8]] = match tag {
                "purpose" => &[&4_u64.to_le_bytes(), b"test"],
                "bytes" => &[&1_u64.to_le_bytes(), b"b"],
                "number" => &[&2_u64.to_le_bytes()],
                _ => &[&2_u64.to_le_bytes(), &1_u64.to_le_bytes(), b"c", &1_u64.to_le_bytes(), b"d"],
            };
            words.iter().for_each(|word| text.extend(*word));
        }
        assert_eq!(key.as_bytes(), blake3::hash(&text).as_bytes());
        assert_eq!(key.to_string().len(), 2 * Key::SIZE_BYTES);
    }
}
