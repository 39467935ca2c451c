//! Clients that stall, lie or ask too much. The engine does not notice them, and others are served beside them.

use std::net::TcpStream;

use uruk::dashboard::{DashboardError, DashboardOptions};
use uruk::prelude::*;

use crate::client::{connect, get, rest, status};
use crate::recording::{Recording, chain};

fn jit() -> Jit {
    Jit::builder().threads(1).build().expect("an engine for this machine")
}

#[test]
fn an_address_that_others_reach_demands_a_token() {
    let jit = jit();
    for options in [
        DashboardOptions::at("0.0.0.0:0"),
        DashboardOptions::at("[::]:0"),
        DashboardOptions::at("0.0.0.0:0").token("short"),
        DashboardOptions::at("127.0.0.1:0").token(""),
    ] {
        let refused = jit.dashboard(options).expect_err("it would be open to all");
        assert!(matches!(refused, DashboardError::NoToken { .. }), "{refused:?}");
        assert!(refused.to_string().contains("127.0.0.1"), "it says what to do: {refused}");
    }
    assert!(matches!(jit.dashboard("nonsense").unwrap_err(), DashboardError::Address { .. }));
}

#[test]
fn a_token_opens_the_page_and_nothing_else_does() {
    let token = "correct horse battery";
    let jit = jit();
    let dashboard = jit.dashboard(DashboardOptions::at("127.0.0.1:0").token(token)).expect("a port is free");
    let address = dashboard.local_addr();
    for headers in [
        "",
        "Authorization: Bearer correct horse batterz\r\n",
        "Authorization: Bearer \r\n",
        "Cookie: uruk_token=\r\n",
    ] {
        assert_eq!(status(&get(address, "/", headers)), "401", "{headers}");
        assert_eq!(status(&get(address, "/notes", headers)), "401", "{headers}");
    }
    assert_eq!(status(&get(address, "/?token=correct", "")), "401");
    assert_eq!(status(&get(address, "/", "Authorization: Bearer correct horse battery\r\n")), "200");
    let path = dashboard.url().split_once(&address.to_string()).expect("the address is there").1;
    let entered = get(address, path, "");
    assert_eq!(status(&entered), "303");
    let cookie = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a value");
    assert_eq!(status(&get(address, "/", &format!("Cookie: a=b; {cookie}\r\n"))), "200");
    assert!(!format!("{dashboard:?}").contains("horse"));
}

#[test]
fn a_name_that_others_may_own_is_no_host() {
    let jit = jit();
    let dashboard =
        jit.dashboard(DashboardOptions::default().host("build.example.com")).expect("a port is free");
    let address = dashboard.local_addr();
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", ""] {
        let answer = get(address, "/notes", &format!("Host: {host}\r\n"));
        assert!(["400", "421"].contains(&status(&answer)), "{host}: {answer}");
    }
    let twice = format!("Host: {address}\r\nHost: evil.example\r\n");
    assert_ne!(status(&get(address, "/", &twice)), "200");
    for host in ["localhost", "build.example.com:99", "[::1]:1"] {
        assert_eq!(status(&get(address, "/", &format!("Host: {host}\r\n"))), "200", "{host}");
    }
}

#[test]
fn answers_tell_browsers_what_they_may_do() {
    let jit = jit();
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    for (path, code) in [("/", "200"), ("/nowhere", "404"), ("/why", "400")] {
        let answer = get(dashboard.local_addr(), path, "").to_ascii_lowercase();
        assert_eq!(status(&answer), code);
        for header in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "cross-origin-resource-policy: same-origin",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.contains(header), "{path} lacks {header}: {answer}");
        }
        assert!(!answer.contains("access-control-allow"), "{answer}");
    }
}

#[test]
fn there_is_nothing_to_change() {
    let jit = jit();
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    let address = dashboard.local_addr();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        let request = format!(
            "{method} / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        let answer = String::from_utf8_lossy(&rest(connect(address, request.as_bytes()))).into_owned();
        assert_eq!(status(&answer), "405", "{method}: {answer}");
    }
}

#[test]
fn clients_that_speak_no_http_are_sent_away() {
    let jit = jit();
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    let address = dashboard.local_addr();
    let huge = format!("GET / HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{}\r\n", "X: y\r\n".repeat(100_000));
    let half = format!("GET / HTTP/1.1\r\nHost: {address}\r\n"); // and no more, for as long as the server waits
    for bytes in [
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc".as_slice(),
        huge.as_bytes(),
        many.as_bytes(),
        half.as_bytes(),
        b"\0",
    ] {
        let answer = String::from_utf8_lossy(&rest(connect(address, bytes))).into_owned();
        assert!(answer.is_empty() || ["400", "408", "431"].contains(&status(&answer)), "{answer}");
    }
    assert_eq!(status(&get(address, "/", "")), "200");
}

#[test]
fn clients_that_hold_on_to_connections_shut_none_out() {
    let jit = jit();
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    let address = dashboard.local_addr();
    let held: Vec<TcpStream> = (0..200).map(|_| connect(address, b"GET / HT")).collect();
    assert_eq!(status(&get(address, "/", "")), "200");
    // The first ones have made room.
    assert!(rest(held.into_iter().next().expect("there are many")).is_empty());
}

#[test]
fn clients_that_take_no_notes_cost_the_engine_nothing() {
    let jit = jit();
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    let request = format!("GET /notes HTTP/1.1\r\nHost: {}\r\n\r\n", dashboard.local_addr());
    let _stalled: Vec<TcpStream> =
        (0..8).map(|_| connect(dashboard.local_addr(), request.as_bytes())).collect();
    static ANSWER: u64 = 42;
    jit.define_data("answer", &raw const ANSWER).expect("the name is new");
    assert!(jit.lookup("answer").is_ok());
    assert_eq!(status(&get(dashboard.local_addr(), "/info", "")), "200");
    drop(dashboard); // It does not wait for them either.
}

#[test]
fn why_is_asked_of_the_engine_while_there_is_one() {
    let jit = jit();
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    let address = dashboard.local_addr();
    let answer = get(address, "/why?symbol=no%20such%20%22symbol%22", "");
    assert_eq!(status(&answer), "200");
    assert!(answer.contains(r#"no such \"symbol\""#) && answer.contains("is not defined here"), "{answer}");
    assert_eq!(status(&get(address, "/why?symbol=", "")), "400");
    let unit = get(address, "/unit?name=..%2Fetc%2Fpasswd", "");
    assert_eq!(status(&unit), "200");
    assert!(unit.contains(r#""code":[]"#) && unit.contains(r#""ir":[]"#), "{unit}");
    assert_eq!(status(&get(address, "/unit?name=", "")), "400");
    drop(jit);
    for gone in ["/why?symbol=main", "/unit?name=main.c"] {
        assert_eq!(status(&get(address, gone, "")), "404");
    }
}

#[test]
fn the_path_of_a_lookup_is_told_once_it_has_ended() {
    let recording = Recording::of("path", &chain());
    let dashboard = recording.dashboard();
    let get = |path| get(dashboard.local_addr(), path, "");
    let answer = get("/path?session=1&lookup=101");
    let body = answer.split_once("\r\n\r\n").expect("it has a body").1;
    let steps: serde_json::Value = serde_json::from_str(body).expect("it is JSON");
    let steps = steps.as_array().expect("it is a list").iter();
    let told: Vec<_> = steps.map(|step| (step["kind"].as_str(), step["claim"].as_u64())).collect();
    let kinds = [("queued", 201), ("work", 201), ("queued", 202), ("work", 202), ("work", 201)];
    assert_eq!(told, kinds.map(|(kind, claim)| (Some(kind), Some(claim))));
    for open in ["/path?session=1&lookup=103", "/path?session=7&lookup=101"] {
        assert_eq!(status(&get(open)), "404");
    }
    for wrong in ["/path", "/path?session=1", "/path?session=99999&lookup=1", "/path?session=1&lookup=x"] {
        assert_eq!(status(&get(wrong)), "400");
    }
}

#[test]
fn the_dashboard_is_gone_when_it_is_dropped() {
    let jit = jit();
    let dashboard = jit.dashboard("127.0.0.1:0").expect("a port is free");
    let address = dashboard.local_addr();
    let open = connect(address, format!("GET /notes HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    drop(dashboard);
    rest(open); // ends
    assert!(TcpStream::connect(address).is_err());
}
