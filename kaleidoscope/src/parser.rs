//! From tokens to items: recursive descent, and operators by precedence.
//!
//! Variables are looked up here, so that a program that names an unknown one is refused as a whole. The called function is not.
//!
//! **Holds.** Expressions are nested [`HEIGHT_MAX`] deep at most, so a walk through them needs little of its stack. Operators that follow one
//! another nest nothing: a sum may have any number of terms.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::{Binding, Definition, Expr, ExprKind, Item, Named, Operator, Prototype};
use crate::functions::nearest;
use crate::operators::{ASSIGNMENT, Operators, arithmetic};
use crate::{Diagnostic, Source, Span, Token, TokenKind, tokens};

/// How deep expressions may be nested.
const HEIGHT_MAX: usize = 200;

/// The precedence of an operator for which nothing is said, as in the tutorial.
const PRECEDENCE_DEFAULT: u8 = 30;
const PRECEDENCE_MAX: u8 = 100;

type Parsed<T> = Result<T, Diagnostic>;

/// Reads all items of a text. The operators that it defines are added to `operators`, also if an error follows them.
///
/// # Errors
/// The first mistake. It says so if the text only breaks off ([`Diagnostic::is_incomplete`]).
pub fn parse(source: &Arc<Source>, operators: &mut Operators) -> Parsed<Vec<Item>> {
    let tokens = tokens(&source.text).filter(|token| token.kind != TokenKind::Comment).collect();
    let mut parser =
        Parser { source, tokens, at: 0, operators, scope: Vec::new(), calls: BTreeSet::new(), depth: 0 };
    let mut items = Vec::new();
    loop {
        while parser.take(TokenKind::Symbol(';')).is_some() {}
        if parser.peek().is_none() {
            return Ok(items);
        }
        items.push(parser.item()?);
    }
}

struct Parser<'a> {
    source: &'a Arc<Source>,
    tokens: Vec<Token>,
    at: usize,
    operators: &'a mut Operators,
    /// The variables that are known here, the innermost last.
    scope: Vec<String>,
    /// The functions that were called so far.
    calls: BTreeSet<String>,
    depth: usize,
}

impl Parser<'_> {
    fn item(&mut self) -> Parsed<Item> {
        if self.take(TokenKind::Def).is_some() {
            let prototype = self.prototype(true)?;
            // An operator may be used in its own body.
            self.operators.add(&prototype);
            return Ok(Item::Definition(self.definition(prototype)?));
        }
        if self.take(TokenKind::Extern).is_some() {
            return Ok(Item::Extern(self.prototype(false)?));
        }
        let span = self.peek().map_or(self.end(), |token| token.span);
        let prototype = Prototype { name: String::new(), parameters: Vec::new(), precedence: None, span };
        Ok(Item::Expression(self.definition(prototype)?))
    }

    fn definition(&mut self, prototype: Prototype) -> Parsed<Arc<Definition>> {
        self.scope = prototype.parameters.clone();
        let body = self.expression()?;
        let calls = std::mem::take(&mut self.calls);
        Ok(Arc::new(Definition { prototype, body, calls, source: self.source.clone() }))
    }

    /// `name(a b)`, `unary! (v)` or `binary| 5 (a b)`. Commas between the names may be there or not.
    fn prototype(&mut self, may_be_operator: bool) -> Parsed<Prototype> {
        let Some(first) = self.next() else { return self.wrong("a function's name should follow") };
        let (name, operands) = match first.kind {
            TokenKind::Identifier => (self.text(first).to_owned(), None),
            TokenKind::Unary | TokenKind::Binary if may_be_operator => {
                let operands = if first.kind == TokenKind::Unary { 1 } else { 2 };
                let sign = self.sign(operands)?;
                (format!("{}{sign}", self.text(first)), Some(operands))
            }
            _ => return self.wrong_at(first.span, "a function's name should stand here"),
        };
        let precedence = if operands == Some(2) { Some(self.precedence()?) } else { None };
        let span = first.span.to(self.before());
        self.expect('(', "the parameters should follow, as in `(a b)`")?;
        let mut parameters: Vec<String> = Vec::new();
        while self.take(TokenKind::Symbol(')')).is_none() {
            let Some(token) = self.next() else { return self.wrong("a parameter or `)` should follow") };
            if token.kind != TokenKind::Identifier {
                return self.wrong_at(token.span, "a parameter or `)` should stand here");
            }
            let parameter = self.text(token).to_owned();
            if parameters.contains(&parameter) {
                return self.wrong_at(token.span, format!("there is a parameter `{parameter}` already"));
            }
            parameters.push(parameter);
            self.take(TokenKind::Symbol(','));
        }
        if let Some(operands) = operands.filter(|operands| *operands != parameters.len()) {
            let found = parameters.len();
            return self
                .wrong_at(span, format!("an operator with {operands} operands has {found} parameters"));
        }
        Ok(Prototype { name, parameters, precedence, span })
    }

    /// The sign of an operator that is being defined.
    fn sign(&mut self, operands: usize) -> Parsed<char> {
        let Some(token) = self.next() else { return self.wrong("the operator's sign should follow") };
        match token.kind {
            TokenKind::Symbol(sign) if operands == 2 && (arithmetic(sign).is_some() || sign == '=') => {
                self.wrong_at(token.span, format!("the language has `{sign}` already"))
            }
            TokenKind::Symbol(sign) if Operators::is_sign(sign) => Ok(sign),
            _ => self.wrong_at(token.span, "this cannot be an operator; signs such as `|` and `!` can"),
        }
    }

    fn precedence(&mut self) -> Parsed<u8> {
        let Some(Token { kind: TokenKind::Number(value), span }) = self.peek() else {
            return Ok(PRECEDENCE_DEFAULT);
        };
        self.at += 1;
        let whole = (1..=PRECEDENCE_MAX).find(|precedence| value == Some(f64::from(*precedence)));
        whole.map_or_else(
            || self.wrong_at(span, format!("a precedence is a whole number from 1 to {PRECEDENCE_MAX}")),
            Ok,
        )
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.go_deeper()?;
        let left = self.unary()?;
        let expression = self.operators_behind(left, 1)?;
        self.depth -= 1;
        Ok(expression)
    }

    /// The part behind an operand: operators that bind as tightly as `least`, each with its right side.
    fn operators_behind(&mut self, mut left: Expr, least: u8) -> Parsed<Expr> {
        while let Some(Token { kind: TokenKind::Symbol(sign), span }) = self.peek()
            && let Some(precedence) = self.operators.precedence(sign).filter(|found| *found >= least)
        {
            self.at += 1;
            let mut right = self.unary()?;
            while let Some(Token { kind: TokenKind::Symbol(next), .. }) = self.peek()
                && let Some(tighter) = self.operators.precedence(next)
                && (tighter > precedence || (sign == '=' && tighter == ASSIGNMENT))
            {
                self.go_deeper()?;
                right = self.operators_behind(right, tighter)?;
                self.depth -= 1;
            }
            left = self.binary(sign, span, left, right)?;
        }
        Ok(left)
    }

    fn go_deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > HEIGHT_MAX {
            let span = self.peek().map_or(self.end(), |token| token.span);
            return self.wrong_at(span, TOO_DEEP);
        }
        Ok(())
    }

    fn binary(&mut self, sign: char, sign_span: Span, left: Expr, right: Expr) -> Parsed<Expr> {
        let span = left.span.to(right.span);
        if sign == '=' {
            let ExprKind::Variable(name) = left.kind else {
                return self.wrong_at(left.span, "only a variable can be given a value");
            };
            return self.expr(span, ExprKind::Assign(name, Box::new(right)));
        }
        let operator = match arithmetic(sign) {
            Some(operator) => Operator::Arithmetic(operator),
            None => Operator::Call(self.named(format!("binary{sign}"), sign_span)),
        };
        self.chain(span, left, operator, right)
    }

    /// Adds an operator and its right operand to what stands before it.
    fn chain(&self, span: Span, mut left: Expr, operator: Operator, right: Expr) -> Parsed<Expr> {
        let ExprKind::Chain { rest, .. } = &mut left.kind else {
            return self.expr(span, ExprKind::Chain { first: Box::new(left), rest: vec![(operator, right)] });
        };
        if right.height == HEIGHT_MAX {
            return self.wrong_at(span, TOO_DEEP);
        }
        (left.span, left.height) = (span, left.height.max(1 + right.height));
        rest.push((operator, right));
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let Some(Token { kind: TokenKind::Symbol(sign), span }) = self.peek() else { return self.primary() };
        if !Operators::is_sign(sign) {
            return self.primary();
        }
        if sign != '-' && !self.operators.is_unary(sign) {
            return Err(self.no_operator(sign, span));
        }
        self.at += 1;
        self.go_deeper()?;
        let operand = self.unary()?;
        self.depth -= 1;
        let whole = span.to(operand.span);
        match self.operators.is_unary(sign) {
            true => self.call(whole, format!("unary{sign}"), span, vec![operand]),
            false => self.expr(whole, ExprKind::Negate(Box::new(operand))),
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let Some(token) = self.next() else { return self.wrong("an expression should follow") };
        match token.kind {
            TokenKind::Number(Some(value)) => self.expr(token.span, ExprKind::Number(value)),
            TokenKind::Number(None) => self.wrong_at(token.span, "this is no number"),
            TokenKind::Identifier if self.take(TokenKind::Symbol('(')).is_some() => {
                let arguments = self.arguments()?;
                let callee = self.text(token).to_owned();
                self.call(token.span.to(self.before()), callee, token.span, arguments)
            }
            TokenKind::Identifier => self.variable(token),
            TokenKind::Symbol('(') => {
                let inner = self.expression()?;
                self.expect(')', "a `)` or an operator should follow")?;
                Ok(Expr { span: token.span.to(self.before()), ..inner })
            }
            TokenKind::If => self.conditional(token.span),
            TokenKind::For => self.repetition(token.span),
            TokenKind::Var => self.variables(token.span),
            _ => self.wrong_at(token.span, "an expression should stand here"),
        }
    }

    /// The list between parentheses, the first of which is behind us.
    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        let mut arguments = Vec::new();
        if self.take(TokenKind::Symbol(')')).is_some() {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if self.take(TokenKind::Symbol(',')).is_none() {
                self.expect(')', "`,`, `)` or an operator should follow")?;
                return Ok(arguments);
            }
        }
    }

    fn variable(&mut self, token: Token) -> Parsed<Expr> {
        let name = self.text(token);
        self.demand_variable(name, token.span)?;
        let name = name.to_owned();
        self.expr(token.span, ExprKind::Variable(name))
    }

    fn demand_variable(&self, name: &str, span: Span) -> Parsed<()> {
        if self.scope.iter().any(|known| known == name) {
            return Ok(());
        }
        let similar = nearest(name, self.scope.iter().map(String::as_str));
        let error = self.error(span, format!("there is no variable `{name}` here"));
        Err(error.help(similar.map(|similar| format!("is `{similar}` meant?"))))
    }

    fn conditional(&mut self, begin: Span) -> Parsed<Expr> {
        let condition = Box::new(self.expression()?);
        self.expect_word(TokenKind::Then, "`then` or an operator should follow")?;
        let then = Box::new(self.expression()?);
        self.expect_word(TokenKind::Else, "`else` or an operator should follow")?;
        let otherwise = Box::new(self.expression()?);
        self.expr(begin.to(otherwise.span), ExprKind::If { condition, then, otherwise })
    }

    fn repetition(&mut self, begin: Span) -> Parsed<Expr> {
        let name = self.new_variable()?;
        self.expect('=', "`=` should follow: for i = 1, i < 10 in …")?;
        let value = Some(Box::new(self.expression()?));
        self.expect(',', "`,` should follow: for i = 1, i < 10 in …")?;
        self.scope.push(name.clone());
        let end = Box::new(self.expression()?);
        let has_step = self.take(TokenKind::Symbol(',')).is_some();
        let step = if has_step { Some(Box::new(self.expression()?)) } else { None };
        self.expect_word(TokenKind::In, "`in` or an operator should follow")?;
        let body = Box::new(self.expression()?);
        self.scope.pop();
        let variable = Binding { name, value };
        self.expr(begin.to(body.span), ExprKind::For { variable, end, step, body })
    }

    fn variables(&mut self, begin: Span) -> Parsed<Expr> {
        let outside = self.scope.len();
        let mut bindings = Vec::new();
        loop {
            let name = self.new_variable()?;
            let has_value = self.take(TokenKind::Symbol('=')).is_some();
            let value = if has_value { Some(Box::new(self.expression()?)) } else { None };
            self.scope.push(name.clone());
            bindings.push(Binding { name, value });
            if self.take(TokenKind::Symbol(',')).is_none() {
                break;
            }
        }
        self.expect_word(TokenKind::In, "`,`, `in` or an operator should follow")?;
        let body = Box::new(self.expression()?);
        self.scope.truncate(outside);
        self.expr(begin.to(body.span), ExprKind::Var { bindings, body })
    }

    fn new_variable(&mut self) -> Parsed<String> {
        match self.next() {
            Some(token) if token.kind == TokenKind::Identifier => Ok(self.text(token).to_owned()),
            Some(token) => self.wrong_at(token.span, "a variable's name should stand here"),
            None => self.wrong("a variable's name should follow"),
        }
    }

    fn call(&mut self, span: Span, callee: String, callee_span: Span, arguments: Vec<Expr>) -> Parsed<Expr> {
        let callee = self.named(callee, callee_span);
        self.expr(span, ExprKind::Call { callee, arguments })
    }

    /// A function that is called here.
    fn named(&mut self, name: String, span: Span) -> Named {
        self.calls.insert(name.clone());
        Named { name, span }
    }

    /// An expression, unless it is nested too deep.
    fn expr(&self, span: Span, kind: ExprKind) -> Parsed<Expr> {
        let height = 1 + kind.parts().map(|part| part.height).max().unwrap_or(0);
        if height > HEIGHT_MAX { self.wrong_at(span, TOO_DEEP) } else { Ok(Expr { kind, span, height }) }
    }

    fn expect(&mut self, sign: char, message: &str) -> Parsed<()> {
        self.expect_word(TokenKind::Symbol(sign), message)
    }

    fn expect_word(&mut self, kind: TokenKind, message: &str) -> Parsed<()> {
        match self.peek() {
            Some(token) if token.kind == kind => {
                self.at += 1;
                Ok(())
            }
            Some(token) => {
                let error = self.error(token.span, message.replace("should follow", "should stand here"));
                Err(error.help(self.unknown_operator(token)))
            }
            None => self.wrong(message),
        }
    }

    /// A sign stands where an operand should begin, and defines no operator of one operand.
    fn no_operator(&self, sign: char, span: Span) -> Diagnostic {
        let before = self.at.checked_sub(1).map(|at| self.tokens[at].kind);
        // Behind an operand it was to stand between two, and what stands before it is an item of its own by now.
        let is_behind_operand =
            matches!(before, Some(TokenKind::Identifier | TokenKind::Number(_) | TokenKind::Symbol(')')));
        let (which, definition) = match is_behind_operand && self.operators.precedence(sign).is_none() {
            true => ("with two operands", format!("def binary{sign} 10 (a b) …")),
            false => ("with one operand", format!("def unary{sign}(x) …")),
        };
        let error = self.error(span, format!("there is no operator `{sign}` {which}"));
        error.help(format!("it may be defined: {definition}"))
    }

    /// Advice where a word is an operator that is not defined.
    fn unknown_operator(&self, token: Token) -> Option<String> {
        let TokenKind::Symbol(sign) = token.kind else { return None };
        let is_unknown = Operators::is_sign(sign) && self.operators.precedence(sign).is_none();
        is_unknown
            .then(|| format!("there is no operator `{sign}`; it may be defined: def binary{sign} 10 (a b) …"))
    }

    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    fn take(&mut self, kind: TokenKind) -> Option<Token> {
        self.peek().filter(|token| token.kind == kind).inspect(|_| self.at += 1)
    }

    fn text(&self, token: Token) -> &'_ str {
        &self.source.text[token.span.start..token.span.end]
    }

    /// The place of the word behind which we are.
    fn before(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(self.end(), |token| token.span)
    }

    /// The place behind the last word.
    fn end(&self) -> Span {
        let end = self.tokens.last().map_or(0, |token| token.span.end);
        Span { start: end, end }
    }

    fn error(&self, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.source, span, message)
    }

    fn wrong_at<T>(&self, span: Span, message: impl Into<String>) -> Parsed<T> {
        Err(self.error(span, message))
    }

    /// The text ends too early.
    fn wrong<T>(&self, message: &str) -> Parsed<T> {
        Err(Diagnostic { is_incomplete: true, ..self.error(self.end(), message) })
    }
}

const TOO_DEEP: &str = "expressions are nested too deep here: define a function for a part of it";
