//! From text to tokens.

use std::iter::Peekable;
use std::str::CharIndices;

use crate::Span;

/// A word of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Its kind.
    pub kind: TokenKind,
    /// Where it is.
    pub span: Span,
}

/// The kind of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TokenKind {
    /// `def`
    Def,
    /// `extern`
    Extern,
    /// `if`
    If,
    /// `then`
    Then,
    /// `else`
    Else,
    /// `for`
    For,
    /// `in`
    In,
    /// `var`
    Var,
    /// `unary`
    Unary,
    /// `binary`
    Binary,
    /// A name.
    Identifier,
    /// A number; nothing if it is none, such as `1.2.3`.
    Number(Option<f64>),
    /// Any other character.
    Symbol(char),
    /// From a `#` to the end of the line.
    Comment,
}

/// The words of a text, comments included. Any other character is a [`TokenKind::Symbol`].
pub fn tokens(text: &str) -> impl Iterator<Item = Token> {
    let mut characters = text.char_indices().peekable();
    std::iter::from_fn(move || {
        while characters.next_if(|(_, c)| is_blank(*c)).is_some() {}
        let (start, first) = characters.next()?;
        let mut end = start + first.len_utf8();
        let kind = if first.is_ascii_alphabetic() || first == '_' {
            end = skip(&mut characters, end, |c| c.is_ascii_alphanumeric() || c == '_');
            word(&text[start..end])
        } else if first.is_ascii_digit() || (first == '.' && next_is_digit(&mut characters)) {
            end = number_end(&mut characters, end);
            TokenKind::Number(text[start..end].parse().ok())
        } else if first == '#' {
            end = skip(&mut characters, end, |c| c != '\n');
            TokenKind::Comment
        } else {
            TokenKind::Symbol(first)
        };
        Some(Token { kind, span: Span { start, end } })
    })
}

/// Whether a character only stands between words. A byte order mark, with which some editors begin a file, does.
pub fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == '\u{feff}'
}

/// The words that mean something by themselves.
const WORDS: [(&str, TokenKind); 10] = [
    ("def", TokenKind::Def),
    ("extern", TokenKind::Extern),
    ("if", TokenKind::If),
    ("then", TokenKind::Then),
    ("else", TokenKind::Else),
    ("for", TokenKind::For),
    ("in", TokenKind::In),
    ("var", TokenKind::Var),
    ("unary", TokenKind::Unary),
    ("binary", TokenKind::Binary),
];

/// The words of the language, for editors.
pub fn keywords() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|(word, _)| *word)
}

fn word(text: &str) -> TokenKind {
    WORDS.iter().find(|(word, _)| *word == text).map_or(TokenKind::Identifier, |(_, kind)| *kind)
}

/// Digits and points, and an exponent.
fn number_end(characters: &mut Peekable<CharIndices<'_>>, end: usize) -> usize {
    let mut end = skip(characters, end, |c| c.is_ascii_digit() || c == '.');
    let mut ahead = characters.clone();
    if ahead.next_if(|(_, c)| matches!(c, 'e' | 'E')).is_some() {
        ahead.next_if(|(_, c)| matches!(c, '+' | '-'));
        if let Some((at, _)) = ahead.next_if(|(_, c)| c.is_ascii_digit()) {
            *characters = ahead;
            end = skip(characters, at + 1, |c| c.is_ascii_digit());
        }
    }
    end
}

fn next_is_digit(characters: &mut Peekable<CharIndices<'_>>) -> bool {
    characters.peek().is_some_and(|(_, c)| c.is_ascii_digit())
}

fn skip(characters: &mut Peekable<CharIndices<'_>>, mut end: usize, belongs: impl Fn(char) -> bool) -> usize {
    while let Some((at, c)) = characters.next_if(|(_, c)| belongs(*c)) {
        end = at + c.len_utf8();
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        tokens(text).map(|token| token.kind).collect()
    }

    #[test]
    fn numbers_have_points_and_exponents() {
        let number = |text| kinds(text);
        assert_eq!(number("1.5e-3"), [TokenKind::Number(Some(1.5e-3))]);
        assert_eq!(number(".5"), [TokenKind::Number(Some(0.5))]);
        assert_eq!(number("1.2.3"), [TokenKind::Number(None)]);
        assert_eq!(number("2e"), [TokenKind::Number(Some(2.0)), TokenKind::Identifier]);
    }

    #[test]
    fn a_comment_ends_with_its_line() {
        assert_eq!(kinds("x # def\nin"), [TokenKind::Identifier, TokenKind::Comment, TokenKind::In]);
        assert_eq!(kinds("é"), [TokenKind::Symbol('é')]);
    }
}
