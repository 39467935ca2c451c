//! Which operators there are, and how tightly they bind: a table that a program adds to.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Arithmetic, Prototype};

/// How tightly `=` binds, which alone groups from the right.
pub(crate) const ASSIGNMENT: u8 = 2;

/// The operators that there are at one place of a program.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    /// Those of two operands that the program has defined.
    binary: BTreeMap<char, u8>,
    /// Those of one.
    unary: BTreeSet<char>,
}

impl Operators {
    /// Those of the language.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the operator that a function defines, if it does, or changes how tightly it binds.
    pub fn add(&mut self, prototype: &Prototype) {
        let Some(sign) = prototype.name.chars().last().filter(|sign| Self::is_sign(*sign)) else { return };
        match prototype.precedence {
            Some(precedence) => drop(self.binary.insert(sign, precedence)),
            None => drop(self.unary.insert(sign)),
        }
    }

    /// How tightly an operator of two operands binds; nothing if there is none.
    pub(crate) fn precedence(&self, sign: char) -> Option<u8> {
        match sign {
            '=' => Some(ASSIGNMENT),
            '<' => Some(10),
            '+' | '-' => Some(20),
            '*' => Some(40),
            _ => self.binary.get(&sign).copied(),
        }
    }

    /// Whether an operator of one operand is defined.
    pub(crate) fn is_unary(&self, sign: char) -> bool {
        self.unary.contains(&sign)
    }

    /// Whether a program may have an operator of this sign.
    pub(crate) fn is_sign(character: char) -> bool {
        character.is_ascii_punctuation() && !"(),;#=_.".contains(character)
    }
}

/// The operator of the language with this sign.
pub(crate) fn arithmetic(sign: char) -> Option<Arithmetic> {
    match sign {
        '+' => Some(Arithmetic::Add),
        '-' => Some(Arithmetic::Subtract),
        '*' => Some(Arithmetic::Multiply),
        '<' => Some(Arithmetic::Less),
        _ => None,
    }
}
