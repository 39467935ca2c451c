//! Kaleidoscope, the language of LLVM's tutorial, through mutable variables and operators of one's own.
//!
//! ```text
//!   text ─lex─▶ tokens ─parse─▶ items ─lower─▶ a module of LLVM IR, one for each function
//! ```
//!
//! All values are doubles. A program is a list of items: definitions, declarations of C functions, and expressions to be run.
//!
//! ```text
//! def fib(n) if n < 3 then 1 else fib(n-1) + fib(n-2)    # comments begin with #
//! extern sin(x)                                          # a function of the process
//! def unary!(v) if v then 0 else 1                       # operators: one operand,
//! def binary| 5 (a b) if a then 1 else if b then 1 else 0   # or two, with a precedence
//! def binary: 1 (a b) b
//! def sum(n) var s = 0 in (for i = 1, i < n in s = s + i) : s
//! fib(10)
//! ```
//!
//! It knows nothing of the engine: who runs functions says what calls refer to ([`Functions`]) and compiles what [`lower`] makes.
//! Functions need not be known before they are lowered, so a definition may call what comes later.

mod ast;
mod functions;
mod lexer;
mod lower;
mod operators;
mod parser;
mod source;

pub use ast::{Arithmetic, Binding, Definition, Expr, ExprKind, Item, Named, Operator, Prototype};
pub use functions::{Callee, Functions, nearest};
pub use lexer::{Token, TokenKind, is_blank, keywords, tokens};
pub use lower::{LowerError, STOP_LIMIT, STOP_NOTE, STOP_STATE, lower};
pub use operators::Operators;
pub use parser::parse;
pub use source::{Diagnostic, Source, Span};
