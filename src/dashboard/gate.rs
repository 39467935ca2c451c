//! Admission: the `Host` that a request names, its token, its method; and what browsers are told about every answer.
//!
//! A page elsewhere can have a browser send requests here, and can have its own name point here. Neither lets it read an answer: the name is
//! refused, and answers are for pages of the same origin alone.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use uruk_core::sync::Arc;

/// The cookie that stands for the token.
const COOKIE: &str = "uruk_token";

/// The headers of every answer.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The conditions for a request.
#[derive(Clone)]
pub(super) struct Gate {
    /// Of the token. Hashes are compared in a time that says nothing about them.
    token: Option<blake3::Hash>,
    hosts: Arc<[String]>,
}

impl Gate {
    pub(super) fn new(token: Option<&str>, hosts: Vec<String>) -> Self {
        Self { token: token.map(|token| blake3::hash(token.as_bytes())), hosts: hosts.into() }
    }

    fn is_token(&self, shown: &str) -> bool {
        self.token == Some(blake3::hash(shown.as_bytes()))
    }

    /// Whether a name is the machine's own: an address, `localhost`, or one that was allowed.
    fn knows(&self, host: &str) -> bool {
        let name = without_port(host);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let text =
            |name| headers.get_all(name).into_iter().filter_map(|value: &HeaderValue| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION).filter_map(|value| value.strip_prefix("Bearer "));
        let cookies = text(header::COOKIE).flat_map(|value| value.split(';'));
        let cookies = cookies.filter_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='));
        self.token.is_none() || bearer.chain(cookies).any(|shown| self.is_token(&unescaped(shown)))
    }
}

/// Lets a request through, or answers it.
pub(super) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let mut answer = match refusal(&gate, &request) {
        Some(answer) => answer,
        None => next.run(request).await,
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn refusal(gate: &Gate, request: &Request) -> Option<Response> {
    let said = |status: StatusCode, why: &'static str| Some((status, why).into_response());
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_some() || !host.is_some_and(|host| gate.knows(host)) {
        return said(
            StatusCode::MISDIRECTED_REQUEST,
            "This name is not known here. Use the address, or allow the name: --dashboard-host NAME.\n",
        );
    }
    if request.method() != Method::GET {
        return Some(
            (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")], "There is nothing to change here.\n")
                .into_response(),
        );
    }
    if let Some(token) = token_in(request.uri()).filter(|token| gate.is_token(token)) {
        return Some(remembered(&token, request.uri().path()));
    }
    if !gate.admits(request.headers()) {
        return said(
            StatusCode::UNAUTHORIZED,
            "This page needs its token: open the address that the program printed, with ?token=….\n",
        );
    }
    None
}

/// The token goes into a cookie that scripts cannot read, and out of the address, which people copy.
fn remembered(token: &str, path: &str) -> Response {
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", escaped(token));
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned()), (header::SET_COOKIE, cookie)])
        .into_response()
}

fn token_in(uri: &Uri) -> Option<String> {
    let pairs = uri.query()?.split('&');
    pairs.filter_map(|pair| pair.strip_prefix("token=")).map(unescaped).next()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// As it stands in an address: each byte that is no letter or digit as a percent sign and two hexadecimal digits.
pub(super) fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits =
            after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_allowed_names_are_known() {
        let gate = Gate::new(None, vec!["build.example.com".to_owned()]);
        for host in
            ["127.0.0.1:80", "[::1]:80", "[::1]", "localhost", "LOCALHOST:1", "build.example.com:7070"]
        {
            assert!(gate.knows(host), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:80",
            "localhost.evil.example",
            "",
            "build.example.com.",
            "[::1].x",
        ] {
            assert!(!gate.knows(host), "{host}");
        }
    }

    #[test]
    fn a_token_survives_an_address() {
        for token in ["plain", "a b&c=d%é", "%", "100%25"] {
            assert_eq!(unescaped(&escaped(token)), token);
        }
    }
}
