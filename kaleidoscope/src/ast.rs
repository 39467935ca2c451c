//! A program as a tree.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Diagnostic, Source, Span};

/// One thing that a program says.
#[derive(Clone, Debug)]
pub enum Item {
    /// `def …`
    Definition(Arc<Definition>),
    /// `extern …`: a function of the process.
    Extern(Prototype),
    /// An expression to be run: a function without a name and without parameters.
    Expression(Arc<Definition>),
}

/// A function: its head and its body.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The head.
    pub prototype: Prototype,
    /// Its answer.
    pub body: Expr,
    /// The names of the functions and operators that it calls.
    pub calls: BTreeSet<String>,
    /// Where it was written.
    pub source: Arc<Source>,
}

impl Definition {
    /// An error that points at a place in it.
    pub fn error(&self, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(&self.source, span, message)
    }
}

/// The head of a function.
#[derive(Clone, Debug)]
pub struct Prototype {
    /// Its name: of operators `unary!` and `binary|`.
    pub name: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// How tightly it binds, if it is an operator of two operands.
    pub precedence: Option<u8>,
    /// The name's place.
    pub span: Span,
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Its kind.
    pub kind: ExprKind,
    /// Where it is.
    pub span: Span,
    /// How many expressions stand inside each other here.
    pub(crate) height: usize,
}

/// The kind of an expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A number.
    Number(f64),
    /// A variable or parameter.
    Variable(String),
    /// `-x`, unless that is defined.
    Negate(Box<Expr>),
    /// Operators with two operands, one after another: `a * b + c`. Each takes what stands before it and its own operand. However long it is,
    /// nothing is nested in it.
    Chain {
        /// The first operand.
        first: Box<Expr>,
        /// The operators, each with its right operand.
        rest: Vec<(Operator, Expr)>,
    },
    /// `x = value`; answers the value.
    Assign(String, Box<Expr>),
    /// A call of a function, or of an operator with one operand that the program has defined.
    Call {
        /// The called function.
        callee: Named,
        /// Its arguments.
        arguments: Vec<Expr>,
    },
    /// `if condition then … else …`; zero is false.
    If {
        /// The condition.
        condition: Box<Expr>,
        /// The value if it holds.
        then: Box<Expr>,
        /// The value otherwise.
        otherwise: Box<Expr>,
    },
    /// `for variable = start, end, step in body`; answers zero. As in the tutorial, the body runs once before `end` is asked, and `end` is
    /// asked before the step is taken.
    For {
        /// The variable, which is the loop's own.
        variable: Binding,
        /// Goes on as long as this is not zero.
        end: Box<Expr>,
        /// The number that is added; one if nothing is said.
        step: Option<Box<Expr>>,
        /// The repeated expression.
        body: Box<Expr>,
    },
    /// `var a = 1, b in body`.
    Var {
        /// The variables.
        bindings: Vec<Binding>,
        /// Where they are known.
        body: Box<Expr>,
    },
}

/// An operator with two operands.
#[derive(Clone, Debug)]
pub enum Operator {
    /// One that the language has.
    Arithmetic(Arithmetic),
    /// A function of the program: `binary|`.
    Call(Named),
}

/// A function that is called.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name: of operators `unary!` and `binary|`.
    pub name: String,
    /// Where its name, or its sign, stands.
    pub span: Span,
}

/// A variable and what it begins with: zero if nothing is said.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// Its first value.
    pub value: Option<Box<Expr>>,
}

/// The operators that the language has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `<`: one if it is so, zero if not, or if one of them is no number.
    Less,
}

impl ExprKind {
    /// The expressions that stand directly inside.
    pub(crate) fn parts(&self) -> Box<dyn Iterator<Item = &Expr> + '_> {
        fn all<'a>(
            parts: impl IntoIterator<Item = &'a Expr, IntoIter: 'a>,
        ) -> Box<dyn Iterator<Item = &'a Expr> + 'a> {
            Box::new(parts.into_iter())
        }
        match self {
            Self::Number(_) | Self::Variable(_) => all([]),
            Self::Negate(part) | Self::Assign(_, part) => all([&**part]),
            Self::Chain { first, rest } => {
                all([&**first].into_iter().chain(rest.iter().map(|(_, part)| part)))
            }
            Self::Call { arguments, .. } => all(arguments),
            Self::If { condition, then, otherwise } => all([&**condition, &**then, &**otherwise]),
            Self::For { variable, end, step, body } => {
                all([&**end, &**body].into_iter().chain(step.as_deref()).chain(variable.value.as_deref()))
            }
            Self::Var { bindings, body } => {
                all(bindings.iter().filter_map(|binding| binding.value.as_deref()).chain([&**body]))
            }
        }
    }
}
