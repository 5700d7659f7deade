//! Groups A to D of `tests/wire/http_cases.jsonl` (request line, fields, framing, JSON) against a relay process, over TCP and over
//! its Unix socket: the status, whether the connection goes on, what reached the provider.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "relay/rig.rs"]
#[expect(dead_code, reason = "shared with relay.rs")]
mod rig;

use rig::{KEY, Provider, Relay, TOKEN, get};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    id: String,
    /// `STATUS|STATUS CONN up=N`.
    expect: String,
    /// The client half-closes behind the bytes.
    eof: bool,
    parts: Vec<Part>,
}

/// Bytes in hex, once or many times.
#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Once(String),
    Times(String, usize),
}

impl Case {
    fn bytes(&self) -> Vec<u8> {
        self.parts
            .iter()
            .flat_map(|part| match part {
                Part::Once(hex) => unhex(hex),
                Part::Times(hex, n) => unhex(hex).repeat(*n),
            })
            .collect()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// Key-safe (as the rig has it): the table asks for unknown fields and queries to pass.
const ARGS: [&str; 4] = ["--allow-model", "allowed-model", "--max-tokens-cap", "1000"];
/// Sent behind each case: answered with 200 only on a connection that goes on.
const PROBE: &str = "probe-of-the-test";

#[test]
fn over_tcp() {
    all(false);
}

#[test]
fn over_unix() {
    all(true);
}

fn all(unix: bool) {
    let provider = Provider::plain();
    let relay = Relay::listening(&provider, unix, &ARGS);
    let text = include_str!("wire/http_cases.jsonl");
    let cases: Vec<Case> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(cases.len() > 150, "the table is whole");
    let wrong: Vec<String> = cases.iter().filter_map(|case| differs(case, &provider, &relay)).collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What is wrong, if anything.
fn differs(case: &Case, provider: &Provider, relay: &Relay) -> Option<String> {
    provider.forget();
    let mut bytes = case.bytes();
    if !case.eof {
        bytes.extend_from_slice(get(&format!("/v1/models?{PROBE}"), "").as_bytes());
    }
    let (got, reset) = relay.talk(&bytes);
    let seen = provider.seen();
    let probed = seen.iter().any(|s| s.head.contains(PROBE));
    let up = seen.iter().filter(|s| !s.head.contains(PROBE)).count();
    let text = String::from_utf8_lossy(&got);
    let first = text.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    let status = rig::status(&first);
    let conn = if probed { "keep" } else { "close" };
    let leak = seen.iter().find(|s| {
        let keys = s.head.matches(KEY).count();
        s.head.contains(TOKEN) || String::from_utf8_lossy(&s.body).contains(TOKEN) || keys != 1
    });
    let says = format!("{}: got {status} {conn} up={up} reset={reset}, want {}", case.id, case.expect);
    if let Some(leak) = leak {
        return Some(format!("{says}; credentials: {}", leak.head));
    }
    if text.contains(KEY) || reset {
        return Some(format!("{says}; key or reset towards the client"));
    }
    let mut want = case.expect.split(' ');
    let (statuses, want_conn, want_up) = (want.next()?, want.next()?, want.next()?);
    let up_ok = match want_up.strip_prefix("up<=") {
        Some(most) => up <= most.parse().unwrap(),
        None => want_up == format!("up={up}"),
    };
    let fits = statuses.split('|').any(|s| s == status) && (want_conn == "any" || want_conn == conn) && up_ok;
    (!fits || bad_refusal(&first)).then_some(says)
}

/// A refusal is JSON in the protocol's own shape, closes, and says that asking again is no use.
fn bad_refusal(answer: &str) -> bool {
    if !answer.starts_with("HTTP/1.1 4") && !answer.starts_with("HTTP/1.1 5") {
        return false;
    }
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return true };
    let value = |name: &str| rig::field(head, name);
    if value("connection").as_deref() != Some("close") || value("x-should-retry").as_deref() != Some("false")
    {
        return true;
    }
    // The answer to HEAD has no body (A29).
    if body.is_empty() {
        return !head.contains(" 405 ");
    }
    let json: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    value("content-length") != Some(body.len().to_string())
        || json["type"] != "error"
        || !json["error"]["message"].is_string()
}
