//! Maps from symbol names, with the usual case in mind: one symbol, which costs no allocation.
//!
//! **Invariant:** a map that holds several names, or has held them, is a hash table; which form a map has shows
//! nowhere but in its cost.

use std::collections::hash_map;
use std::fmt;
use std::ops::Index;

use rustc_hash::FxHashMap;

use crate::SymbolName;
use crate::sync::Arc;

/// A map from symbol names to what is known of each.
///
/// # Cost
/// An empty map and one of a single name are values without an allocation. Larger ones are hash tables, which clones share until one of
/// them is changed.
///
/// ```
/// # use uruk_core::{SymbolFlags, SymbolFlagsMap, SymbolStringPool};
/// let pool = SymbolStringPool::new();
/// let mut symbols: SymbolFlagsMap = [(pool.intern("main"), SymbolFlags::EXPORTED)].into_iter().collect();
/// symbols.insert(pool.intern("helper"), SymbolFlags::empty());
/// assert_eq!(symbols.len(), 2);
/// assert_eq!(symbols[&pool.intern("main")], SymbolFlags::EXPORTED);
/// ```
#[derive(Clone)]
pub struct NameMap<V>(Form<V>);

#[derive(Clone)]
enum Form<V> {
    Empty,
    One(SymbolName, V),
    /// Behind a pointer: maps of one name are everywhere, and moved often. A unit hands its symbols to many, who only read them.
    Many(Arc<FxHashMap<SymbolName, V>>),
}

impl<V> NameMap<V> {
    /// An empty map.
    pub const fn new() -> Self {
        Self(Form::Empty)
    }

    /// How many names it holds.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Empty => 0,
            Form::One(..) => 1,
            Form::Many(many) => many.len(),
        }
    }

    /// Whether it holds no name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of `name`.
    pub fn get(&self, name: &SymbolName) -> Option<&V> {
        match &self.0 {
            Form::One(held, value) if held == name => Some(value),
            Form::Empty | Form::One(..) => None,
            Form::Many(many) => many.get(name),
        }
    }

    /// Whether it holds `name`.
    pub fn contains_key(&self, name: &SymbolName) -> bool {
        self.get(name).is_some()
    }

    /// The names and what is known of each, in no particular order.
    pub fn iter(&self) -> Iter<'_, V> {
        Iter(match &self.0 {
            Form::Empty => Either::Few(None.into_iter()),
            Form::One(name, value) => Either::Few(Some((name, value)).into_iter()),
            Form::Many(many) => Either::Many(many.iter()),
        })
    }

    /// The names, in no particular order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &SymbolName> + Clone {
        self.iter().map(|(name, _)| name)
    }

    /// The values of the names, in no particular order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }
}

impl<V: Clone> NameMap<V> {
    /// The value of `name`, to be changed.
    pub fn get_mut(&mut self, name: &SymbolName) -> Option<&mut V> {
        match &mut self.0 {
            Form::One(held, value) if held == name => Some(value),
            Form::Empty | Form::One(..) => None,
            Form::Many(many) => Arc::make_mut(many).get_mut(name),
        }
    }

    /// Adds a name, or replaces what was known of it and gives that back.
    pub fn insert(&mut self, name: SymbolName, value: V) -> Option<V> {
        match &mut self.0 {
            Form::Empty => {
                self.0 = Form::One(name, value);
                None
            }
            Form::One(held, known) if *held == name => Some(std::mem::replace(known, value)),
            Form::One(..) => self.table(2).insert(name, value),
            Form::Many(many) => Arc::make_mut(many).insert(name, value),
        }
    }

    /// Takes a name out and gives what was known of it.
    pub fn remove(&mut self, name: &SymbolName) -> Option<V> {
        self.remove_entry(name).map(|(_, value)| value)
    }

    /// Takes a name out and gives it back, with what was known of it.
    pub fn remove_entry(&mut self, name: &SymbolName) -> Option<(SymbolName, V)> {
        match &mut self.0 {
            Form::Many(many) => Arc::make_mut(many).remove_entry(name),
            Form::One(held, _) if held == name => match std::mem::replace(&mut self.0, Form::Empty) {
                Form::One(held, value) => Some((held, value)),
                Form::Empty | Form::Many(_) => None,
            },
            Form::Empty | Form::One(..) => None,
        }
    }

    /// Keeps the names of which `keeps` says so.
    pub fn retain(&mut self, mut keeps: impl FnMut(&SymbolName, &mut V) -> bool) {
        match &mut self.0 {
            Form::Many(many) => Arc::make_mut(many).retain(keeps),
            Form::One(name, value) => {
                if !keeps(name, value) {
                    self.0 = Form::Empty;
                }
            }
            Form::Empty => {}
        }
    }

    /// The names alone, in no particular order.
    pub fn into_keys(self) -> impl ExactSizeIterator<Item = SymbolName> {
        self.into_iter().map(|(name, _)| name)
    }

    /// The hash table with room for `further` names. Makes it of what the map holds, if it has been none.
    fn table(&mut self, further: usize) -> &mut FxHashMap<SymbolName, V> {
        if !matches!(self.0, Form::Many(_)) {
            let mut many = FxHashMap::with_capacity_and_hasher(further, Default::default());
            if let Form::One(name, value) = std::mem::replace(&mut self.0, Form::Empty) {
                many.insert(name, value);
            }
            self.0 = Form::Many(Arc::new(many));
        }
        match &mut self.0 {
            Form::Many(many) => Arc::make_mut(many),
            Form::Empty | Form::One(..) => unreachable!("it has just become one"),
        }
    }
}

/// One of two iterators.
#[derive(Clone, Debug)]
enum Either<F, M> {
    Few(F),
    Many(M),
}

impl<T, F: ExactSizeIterator<Item = T>, M: ExactSizeIterator<Item = T>> Iterator for Either<F, M> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self {
            Self::Few(few) => few.next(),
            Self::Many(many) => many.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Few(few) => few.size_hint(),
            Self::Many(many) => many.size_hint(),
        }
    }
}

/// Names and what is known of each.
#[derive(Debug)]
pub struct Iter<'a, V>(
    Either<std::option::IntoIter<(&'a SymbolName, &'a V)>, hash_map::Iter<'a, SymbolName, V>>,
);

/// Names and what was known of each.
#[derive(Debug)]
pub struct IntoIter<V>(Either<std::option::IntoIter<(SymbolName, V)>, hash_map::IntoIter<SymbolName, V>>);

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = (&'a SymbolName, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<V> Iterator for IntoIter<V> {
    type Item = (SymbolName, V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<V> Clone for Iter<'_, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<V> ExactSizeIterator for Iter<'_, V> {}

impl<V> ExactSizeIterator for IntoIter<V> {}

impl<'a, V> IntoIterator for &'a NameMap<V> {
    type Item = (&'a SymbolName, &'a V);
    type IntoIter = Iter<'a, V>;

    fn into_iter(self) -> Iter<'a, V> {
        self.iter()
    }
}

impl<V: Clone> IntoIterator for NameMap<V> {
    type Item = (SymbolName, V);
    type IntoIter = IntoIter<V>;

    fn into_iter(self) -> IntoIter<V> {
        IntoIter(match self.0 {
            Form::Empty => Either::Few(None.into_iter()),
            Form::One(name, value) => Either::Few(Some((name, value)).into_iter()),
            Form::Many(many) => Either::Many(Arc::unwrap_or_clone(many).into_iter()),
        })
    }
}

impl<V: Clone> Extend<(SymbolName, V)> for NameMap<V> {
    fn extend<T: IntoIterator<Item = (SymbolName, V)>>(&mut self, symbols: T) {
        let symbols = symbols.into_iter();
        let expected = symbols.size_hint().0;
        if expected > 1 || matches!(self.0, Form::Many(_)) {
            self.table(self.len() + expected).extend(symbols);
        } else {
            symbols.for_each(|(name, value)| drop(self.insert(name, value)));
        }
    }
}

impl<V: Clone> FromIterator<(SymbolName, V)> for NameMap<V> {
    fn from_iter<T: IntoIterator<Item = (SymbolName, V)>>(symbols: T) -> Self {
        let mut map = Self::new();
        map.extend(symbols);
        map
    }
}

impl<V: Clone, const N: usize> From<[(SymbolName, V); N]> for NameMap<V> {
    fn from(symbols: [(SymbolName, V); N]) -> Self {
        symbols.into_iter().collect()
    }
}

/// Panics for a name that the map does not hold, as all maps do.
impl<V> Index<&SymbolName> for NameMap<V> {
    type Output = V;

    fn index(&self, name: &SymbolName) -> &V {
        self.get(name).unwrap_or_else(|| panic!("the map does not hold `{name}`"))
    }
}

impl<V> Default for NameMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: PartialEq> PartialEq for NameMap<V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

impl<V: Eq> Eq for NameMap<V> {}

impl<V: fmt::Debug> fmt::Debug for NameMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SymbolStringPool;

    proptest! {
        #[test]
        fn a_map_agrees_with_a_hash_table(
            operations in prop::collection::vec((0..5u8, 0..4usize, any::<u8>()), 0..40),
        ) {
            let pool = SymbolStringPool::new();
            let names = ["a", "b", "c", "d"].map(|name| pool.intern(name));
            let (mut map, mut model) = (NameMap::new(), FxHashMap::default());
            for (operation, which, value) in operations {
                let name = &names[which];
                match operation {
                    0 => prop_assert_eq!(map.insert(name.clone(), value), model.insert(name.clone(), value)),
                    1 => prop_assert_eq!(map.remove(name), model.remove(name)),
                    2 => {
                        let further = || names[..which].iter().map(|name| (name.clone(), value));
                        map.extend(further());
                        model.extend(further());
                    }
                    3 => {
                        map.retain(|name, held| name != &names[which] || *held == value);
                        model.retain(|name, held| name != &names[which] || *held == value);
                    }
                    _ => {
                        prop_assert_eq!(map.get_mut(name), model.get_mut(name));
                        prop_assert_eq!(map.remove_entry(name), model.remove_entry(name));
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(names.iter().all(|name| map.get(name) == model.get(name)));
                prop_assert!(map.iter().len() == model.len() && map.iter().all(|(name, _)| model.contains_key(name)));
                // Its form does not matter: what was made of the entries alone is the same.
                prop_assert_eq!(&map, &map.clone().into_iter().collect());
            }
        }
    }

    #[test]
    fn a_map_is_a_word_larger_than_a_table_at_most() {
        use crate::{ExecutorSymbolDef, SymbolFlags};
        let word = size_of::<usize>();
        assert!(size_of::<NameMap<SymbolFlags>>() <= size_of::<FxHashMap<SymbolName, SymbolFlags>>() + word);
        assert!(size_of::<NameMap<ExecutorSymbolDef>>() <= size_of::<FxHashMap<SymbolName, u8>>() + word);
    }
}
