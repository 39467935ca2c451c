//! The meaning of programs, and errors for mistakes.

use std::sync::Arc;

use uruk_kaleidoscope::{Diagnostic, Expr, ExprKind, Item, Operator, Operators, Source, parse};

fn items(text: &str) -> Result<Vec<Item>, Diagnostic> {
    let source = Source { name: "test.k".into(), first_line: 1, text: text.to_owned() };
    parse(&Arc::new(source), &mut Operators::new())
}

fn mistake(text: &str) -> Diagnostic {
    items(text).expect_err("there is a mistake in it")
}

/// The last item of a text, with a parenthesis around everything.
fn grouped(text: &str) -> String {
    fn write(expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Number(number) => number.to_string(),
            ExprKind::Variable(name) => name.clone(),
            ExprKind::Negate(operand) => format!("(-{})", write(operand)),
            ExprKind::Chain { first, rest } => rest.iter().fold(write(first), |left, (operator, right)| {
                let operator = match operator {
                    Operator::Arithmetic(operator) => format!("{operator:?}"),
                    Operator::Call(callee) => callee.name.clone(),
                };
                format!("({operator} {left} {})", write(right))
            }),
            ExprKind::Assign(name, value) => format!("({name} = {})", write(value)),
            ExprKind::Call { callee, arguments, .. } => {
                format!("({} {})", callee.name, arguments.iter().map(write).collect::<Vec<_>>().join(" "))
            }
            ExprKind::If { condition, then, otherwise } => {
                format!("(if {} {} {})", write(condition), write(then), write(otherwise))
            }
            ExprKind::For { body, .. } | ExprKind::Var { body, .. } => format!("(in {})", write(body)),
        }
    }
    match items(text).expect("it is right").last().expect("there is an item") {
        Item::Definition(definition) | Item::Expression(definition) => write(&definition.body),
        Item::Extern(prototype) => prototype.name.clone(),
    }
}

#[test]
fn operators_group_by_precedence_and_from_the_left() {
    assert_eq!(grouped("1 - 2 - 3 * 4 < 5"), "(Less (Subtract (Subtract 1 2) (Multiply 3 4)) 5)");
    assert_eq!(grouped("-1 * 2"), "(Multiply (-1) 2)");
    assert_eq!(grouped("def f(x y) x = y = 1 + 2"), "(x = (y = (Add 1 2)))");
    assert_eq!(grouped("def binary: 1 (a b) b; def f(x) x = 1 : x"), "(binary: (x = 1) x)");
    assert_eq!(grouped("def binary^ 50 (a b) b; 2 * 3 ^ 4 ^ 5"), "(Multiply 2 (binary^ (binary^ 3 4) 5))");
    assert_eq!(grouped("def unary-(x) x; - -1"), "(unary- (unary- 1))");
    assert_eq!(grouped("if 1 then 2 else 3 + 4"), "(if 1 2 (Add 3 4))");
    assert_eq!(grouped("(1 + 2) * 3"), "(Multiply (Add 1 2) 3)");
}

#[test]
fn an_operator_may_be_used_in_its_own_body() {
    assert_eq!(grouped("def binary| 5 (a b) if a then 1 | 0 else b"), "(if a (binary| 1 0) b)");
}

#[test]
fn mistakes_point_at_their_place() {
    let told = |text| {
        let mistake = mistake(text);
        assert!(!mistake.is_incomplete, "{mistake}");
        let (line, column) = mistake.position();
        format!("{line}:{column} {}", mistake.message)
    };
    assert_eq!(told("def f(x)\n  x + zz"), "2:7 there is no variable `zz` here");
    assert_eq!(told("def f(x x) x"), "1:9 there is a parameter `x` already");
    assert_eq!(told("def f(x) 1 = x"), "1:10 only a variable can be given a value");
    assert_eq!(told("1.2.3"), "1:1 this is no number");
    assert_eq!(told("f(1 2)"), "1:5 `,`, `)` or an operator should stand here");
    assert_eq!(told("for i = 1 in i"), "1:11 `,` should stand here: for i = 1, i < 10 in …");
    assert_eq!(told("def binary+ 5 (a b) a"), "1:11 the language has `+` already");
    assert_eq!(told("def binary| 101 (a b) a"), "1:13 a precedence is a whole number from 1 to 100");
    assert_eq!(told("def unary!(a b) a"), "1:5 an operator with 1 operands has 2 parameters");
    assert_eq!(told("1 | 2"), "1:3 there is no operator `|` with two operands");
    assert_eq!(told("(1 | 2)"), "1:4 a `)` or an operator should stand here");
    assert_eq!(told("1 + !2"), "1:5 there is no operator `!` with one operand");
    assert_eq!(told("é"), "1:1 an expression should stand here");
}

#[test]
fn carets_stand_below_the_mistake_whatever_is_before_it() {
    let shown = mistake("# é\n\tvar ähm = 1 in 2").to_string();
    assert_eq!(
        shown,
        "a variable's name should stand here\n --> test.k:2:6\n  |\n2 | \tvar ähm = 1 in 2\n  | \t    ^"
    );
    let shown = mistake("def f(value)\n  vaule + 1").to_string();
    assert!(shown.ends_with("2 |   vaule + 1\n  |   ^^^^^\n  = is `value` meant?"), "{shown}");
}

#[test]
fn what_only_breaks_off_is_incomplete() {
    let beginnings = [
        "def",
        "def f",
        "def f(",
        "def f(x)",
        "extern",
        "extern f(",
        "1 +",
        "(1",
        "f(",
        "f(1,",
        "if 1",
        "if 1 then",
        "if 1 then 2",
        "if 1 then 2 else",
        "for",
        "for i",
        "for i =",
        "for i = 1,",
        "for i = 1, i in",
        "var",
        "var a =",
        "var a in",
        "def unary",
        "def binary|",
        "-",
        "def f(x) x =",
    ];
    for beginning in beginnings {
        assert!(mistake(beginning).is_incomplete, "{beginning}");
    }
    assert!(items("1 # and no more\n ; ;").is_ok_and(|items| items.len() == 1));
}

#[test]
fn what_is_nested_too_deep_is_a_mistake_and_no_overflow() {
    let assignments = format!("var x in {}1", "x = ".repeat(100_000));
    let nested = ["(".repeat(10_000), "-".repeat(10_000), "f(".repeat(10_000), assignments];
    for text in nested {
        assert!(mistake(&text).message.contains("nested too deep"), "{}", mistake(&text));
    }
}

#[test]
fn operators_after_one_another_nest_nothing() {
    for terms in ["+1", "-2*3", "<4+5", "|6"] {
        let text = format!("def binary| 5 (a b) a; 1{}", terms.repeat(20_000));
        assert!(items(&text).is_ok(), "{terms}");
    }
    assert_eq!(grouped("(1 + 2) * 3 - 4"), "(Subtract (Multiply (Add 1 2) 3) 4)");
    assert_eq!(grouped("1 + (2 + 3 - 4)"), "(Add 1 (Subtract (Add 2 3) 4))");
}

#[test]
fn a_byte_order_mark_stands_between_words() {
    assert_eq!(grouped("\u{feff}1 + 2"), "(Add 1 2)");
}
