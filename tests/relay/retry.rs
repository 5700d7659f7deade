//! `--retry-for`: an overloaded provider is asked again, everything else is not, and the record says how often.

use crate::rig::{Act, Provider, Relay, answer, get, post, read_until, send, status};
use serde_json::Value;
use std::io::Write as _;

const MESSAGES: &str = "/v1/messages";
const BODY: &str = r#"{"model":"m","max_tokens":1,"messages":[]}"#;
/// Who keeps the connection open waits; `Relay::ask` half-closes.
fn ask(relay: &Relay, request: &str, end: &str) -> String {
    let mut stream = relay.connect();
    stream.write_all(request.as_bytes()).unwrap();
    let mut got = Vec::new();
    read_until(&mut stream, &mut got, end);
    String::from_utf8(got).unwrap()
}

fn busy(status: &str, fields: &str) -> Act {
    answer(status, &format!("Content-Type: application/json\r\n{fields}"), r#"{"error":"busy"}"#)
}

fn of_kind(relay: &Relay, kind: &str) -> Vec<Value> {
    relay.records().into_iter().filter(|r| r["kind"] == kind).collect()
}

/// A relay that records, and the outcome of its only call, waited for.
fn outcome(relay: &Relay) -> Value {
    let until = std::time::Instant::now() + crate::rig::PATIENCE;
    loop {
        if let Some(outcome) = of_kind(relay, "outcome").pop() {
            return outcome;
        }
        assert!(std::time::Instant::now() < until, "no outcome");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn an_overloaded_provider_is_asked_again() {
    let provider = Provider::start(|n, _| match n {
        0 => vec![busy("529 Overloaded", "")],
        1 => vec![busy("429 Too Many Requests", "Retry-After-Ms: 5\r\n")],
        2 => vec![busy("503 Service Unavailable", "Retry-After: 0\r\n")],
        _ => vec![Act::Wait, answer("200 OK", "Content-Type: application/json\r\n", r#"{"ok":1}"#)],
    });
    let relay = Relay::start(&provider, &["--log-dir", "log"]);
    let mut stream = relay.connect();
    stream.write_all(post(MESSAGES, "", BODY).as_bytes()).unwrap();
    // The record of the fourth try is there before the provider has answered it.
    relay.line("the provider is overloaded (503); try 4");
    let until = std::time::Instant::now() + crate::rig::PATIENCE;
    while provider.seen().len() < 4 {
        assert!(std::time::Instant::now() < until, "not asked again");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let retries = of_kind(&relay, "retry");
    provider.go();
    let mut got = Vec::new();
    read_until(&mut stream, &mut got, r#"{"ok":1}"#);
    // The client has seen nothing of what came before.
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&got));
    let told: Vec<_> = retries.iter().map(|r| (r["try"].as_u64(), r["status"].as_u64())).collect();
    assert_eq!(told, [(Some(2), Some(529)), (Some(3), Some(429)), (Some(4), Some(503))]);
    let outcome = outcome(&relay);
    assert_eq!((&outcome["status"], &outcome["tries"]), (&200.into(), &4.into()));
    assert_eq!(of_kind(&relay, "verdict").len(), 1);
    assert!(relay.line("POST /v1/messages -> 200").contains("tries=4"));
    // The same bytes each time, and over one connection: each answer had been read to its end.
    let seen = provider.seen();
    assert!(seen.iter().all(|s| s.head == seen[0].head && s.body == BODY.as_bytes()));
    assert_eq!(provider.connections(), 1);
}

#[test]
fn the_last_answer_is_handed_on_when_the_time_is_up() {
    let provider = Provider::start(|_, _| vec![busy("503 Service Unavailable", "Retry-After: 0\r\n")]);
    let relay = Relay::start(&provider, &["--log-dir", "log", "--retry-for", "2"]);
    let got = ask(&relay, &post(MESSAGES, "", BODY), "busy\"}");
    assert!(status(&got) == "503" && got.contains("Retry-After: 0\r\n"), "{got}");
    // The client would only have the same again.
    assert!(got.contains("x-should-retry: false\r\n"), "{got}");
    let tries = provider.seen().len();
    assert!(tries > 1, "asked once");
    assert_eq!(outcome(&relay)["tries"], tries);
    assert_eq!(of_kind(&relay, "retry").len(), tries - 1);
}

/// Switched off, asked to wait longer than we would, told that it is pointless, and whatever is no overload: once.
#[test]
fn what_is_not_asked_again() {
    let once = |code: &'static str, fields: &'static str, more: &[&str]| {
        let provider = Provider::start(move |_, _| vec![busy(code, fields)]);
        let relay = Relay::start(&provider, more);
        let got = ask(&relay, &post(MESSAGES, "", BODY), "}");
        assert_eq!(status(&got), &code[..3], "{got}");
        assert_eq!(provider.seen().len(), 1, "{code} {fields}");
    };
    once("529 Overloaded", "", &["--retry-for", "0"]);
    once("429 Too Many Requests", "Retry-After: 3600\r\n", &[]);
    once("429 Too Many Requests", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n", &[]);
    once("429 Too Many Requests", "Retry-After-Ms: 99999999999999999999999\r\n", &[]);
    once("429 Too Many Requests", "X-Should-Retry: false\r\n", &[]);
    for code in ["500 Internal Server Error", "502 Bad Gateway", "504 Gateway Timeout", "400 Bad Request"] {
        once(code, "Retry-After: 0\r\n", &[]);
    }
}

/// No money left: as a 429 it looks like an overload, and its body says what it is. The client gets that at once, and all of it.
#[test]
fn a_quota_that_is_used_up_is_not_asked_for_again() {
    const QUOTA: &str = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
    let json = "Content-Type: application/json\r\n";
    let whole = answer("429 Too Many Requests", json, QUOTA);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(QUOTA.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let head =
        format!("HTTP/1.1 429 No\r\n{json}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", gzip.len());
    let (first, second) = QUOTA.split_at(70);
    let chunks = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
    let ways = [
        vec![whole],
        // In pieces, of which each is waited for.
        vec![
            send(&format!("HTTP/1.1 429 No\r\n{json}Transfer-Encoding: chunked\r\n\r\n")),
            send(&chunks(first)),
            send(&(chunks(second) + "0\r\n\r\n")),
        ],
        vec![Act::Send([head.as_bytes(), &gzip].concat())],
        vec![send(&format!("HTTP/1.1 429 No\r\n{json}\r\n{QUOTA}")), Act::Close],
    ];
    for (way, gzipped) in ways.into_iter().zip([false, false, true, false]) {
        let provider = Provider::start(move |_, _| way.clone());
        let relay = Relay::start(&provider, &[]);
        let fields = if gzipped { "Accept-Encoding: gzip\r\n" } else { "" };
        let mut stream = relay.connect();
        stream.write_all(post(MESSAGES, &format!("Connection: close\r\n{fields}"), BODY).as_bytes()).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        let text = String::from_utf8_lossy(&got);
        assert!(status(&text) == "429" && text.contains("x-should-retry: false\r\n"), "{text}");
        match gzipped {
            true => assert!(got.ends_with(&gzip), "{text}"),
            false => assert!(text.contains(first) && text.contains(second), "{text}"),
        }
        assert_eq!(provider.seen().len(), 1, "{text}");
    }
    // Behind an overload too; and one that only speaks of quotas is one.
    let provider = Provider::start(move |n, _| match n {
        0 => vec![busy("503 Busy", "")],
        1 => vec![answer(
            "429 Slow",
            json,
            r#"{"error":{"type":"rate_limit_error","message":"insufficient_quota"}}"#,
        )],
        _ => vec![answer("429 No", json, QUOTA)],
    });
    let relay = Relay::start(&provider, &[]);
    assert_eq!(status(&ask(&relay, &post(MESSAGES, "", BODY), QUOTA)), "429");
    assert_eq!((provider.seen().len(), provider.connections()), (3, 1));
}

/// The second try goes by a fresh connection, which dies silent: never a third.
#[test]
fn a_fresh_connection_that_dies_is_not_tried_again() {
    for act in [Act::Close, Act::Reset] {
        let provider = Provider::start(move |n, _| match n {
            0 => vec![busy("529 Overloaded", "Connection: close\r\n"), Act::Close],
            _ => vec![act.clone()],
        });
        let relay = Relay::start(&provider, &["--log-dir", "log"]);
        let got = ask(&relay, &post(MESSAGES, "", BODY), "\"type\":\"error\"}");
        assert_eq!(status(&got), "502");
        assert_eq!((provider.seen().len(), provider.connections()), (2, 2));
        let outcome = outcome(&relay);
        assert_eq!((&outcome["tries"], &outcome["owed"]), (&2.into(), &true.into()));
    }
}

/// An overload that is told within a stream (status 200) has gone to the client already.
#[test]
fn nothing_is_tried_again_once_a_byte_has_gone_on() {
    let provider = Provider::start(|_, _| {
        let event = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
        vec![
            send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
            send(&format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len())),
        ]
    });
    let relay = Relay::start(&provider, &[]);
    let got = ask(&relay, &post(MESSAGES, "", BODY), "0\r\n\r\n");
    assert!(status(&got) == "200" && got.contains("overloaded_error"), "{got}");
    assert_eq!(provider.seen().len(), 1);
}

/// Which connections serve the next try: none that is to be closed, holds more than its answer, or has too much of one.
#[test]
fn which_connections_are_used_again() {
    let long = "x".repeat(100_000);
    let ways = [
        (busy("503 Busy", ""), 1),
        (send("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"), 1),
        (busy("503 Busy", "Connection: close\r\n"), 2),
        (send("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}more"), 2),
        (answer("503 Busy", "", &long), 2),
        (send("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 2),
    ];
    for (way, connections) in ways {
        let first = way.clone();
        let provider = Provider::start(move |n, _| match n {
            0 => vec![first.clone()],
            _ => vec![answer("200 OK", "", r#"{"ok":1}"#)],
        });
        let relay = Relay::start(&provider, &[]);
        assert_eq!(status(&ask(&relay, &get("/v1/models", ""), r#"{"ok":1}"#)), "200");
        assert_eq!((provider.seen().len(), provider.connections()), (2, connections));
    }
}

/// A client that leaves while it waits is not asked for; one that has only ended its side gets the answer that there is.
#[test]
fn a_client_that_leaves_while_it_waits() {
    let busy = |_: usize, _: &str| vec![busy("429 Too Many Requests", "Retry-After: 50\r\n")];
    let provider = Provider::start(busy);
    let relay = Relay::start(&provider, &["--log-dir", "log"]);
    let mut stream = relay.connect();
    stream.write_all(post(MESSAGES, "", BODY).as_bytes()).unwrap();
    relay.line("the provider is overloaded (429); try 2 in 50");
    drop(stream);
    // The wait would last longer than this test's patience.
    let outcome = outcome(&relay);
    // Absent: once.
    assert_eq!(
        (&outcome["tries"], &outcome["status"], provider.seen().len()),
        (&Value::Null, &429.into(), 1)
    );
    let relay = Relay::listening(&provider, true, &[]);
    assert_eq!(status(&relay.ask(&post(MESSAGES, "", BODY))), "429");
    assert_eq!(provider.seen().len(), 2);
}

#[test]
fn times_that_are_refused() {
    for bad in ["-1", "soon", "1.5", "", "61m", "2h"] {
        let mut given = std::process::Command::new(env!("CARGO_BIN_EXE_sanduk"));
        given
            .args(["relay", "--listen", "tcp:127.0.0.1:0", "--token-file", "t"])
            .arg(format!("--retry-for={bad}"));
        let out = given.output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{bad}");
        assert!(String::from_utf8_lossy(&out.stderr).contains("--retry-for"), "{bad}");
    }
}
