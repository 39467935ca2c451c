//! Worlds: which definitions a piece of code assumed.

use std::fmt;

/// A moment of the program's definitions. Each redefinition begins the next world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "world_age")]
pub struct World(u64);

impl World {
    /// The world in which a program begins.
    pub const FIRST: Self = Self(0);

    /// Wraps a number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The world that a redefinition begins.
    ///
    /// # Panics
    /// After 2⁶⁴ redefinitions.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a world fits into 64 bits"))
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The worlds in which code is valid: from one world on, up to another or without an end. Never empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worlds {
    from: World,
    /// The first world in which it is valid no more.
    until: Option<World>,
}

impl Worlds {
    /// From `from` on, without an end.
    pub(crate) fn since(from: World) -> Self {
        Self { from, until: None }
    }

    /// The first of them.
    pub(crate) fn from(&self) -> World {
        self.from
    }

    /// The first world after them, if there is one. Julia's `max_world` is the one before.
    pub(crate) fn until(&self) -> Option<World> {
        self.until
    }

    /// Whether `world` is among them.
    pub(crate) fn contains(&self, world: World) -> bool {
        self.from <= world && self.until.is_none_or(|until| world < until)
    }

    /// Ends them at `world`. Says whether that leaves out any; it leaves at least one.
    pub(crate) fn end_at(&mut self, world: World) -> bool {
        let ends = self.from < world && self.until.is_none_or(|until| world < until);
        if ends {
            self.until = Some(world);
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_not_among_them() {
        let [third, fifth] = [3, 5].map(World::new);
        let mut worlds = Worlds::since(third);
        assert!(
            worlds.contains(third)
                && worlds.contains(World::new(u64::MAX))
                && !worlds.contains(World::new(2))
        );
        assert!(worlds.end_at(fifth) && !worlds.end_at(fifth), "it ends once");
        assert_eq!((worlds.from(), worlds.until()), (third, Some(fifth)));
        assert!(worlds.contains(World::new(4)) && !worlds.contains(fifth));
    }

    #[test]
    fn what_begins_in_a_world_does_not_end_with_it() {
        let third = World::new(3);
        assert!(!Worlds::since(third).end_at(third), "it was compiled with what that world brought");
    }
}
