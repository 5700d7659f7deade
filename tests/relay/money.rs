//! The record of calls and what is charged.

use crate::rig::{Act, KEY, PATIENCE, Provider, Relay, TOKEN, answer, get, post, read_until, send, status};
use serde_json::Value;
use sha2::{Digest, Sha256};

const BODY: &str =
    r#"{"model":"m","max_tokens":5000,"messages":[{"role":"user","content":"SECRET-OF-THE-USER"}]}"#;
const ANSWER: &str = r#"{"type":"message","model":"m-1","usage":{"input_tokens":7,"cache_creation_input_tokens":1,"cache_read_input_tokens":2,"output_tokens":9}}"#;
const LOGGED: [&str; 2] = ["--log-dir", "log"];

fn json() -> Act {
    answer("200 OK", "Content-Type: application/json\r\n", ANSWER)
}

fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|r| r["kind"] == kind).collect()
}

/// Each line holds the digest of the one before, and numbers without a gap.
fn chained(relay: &Relay) -> usize {
    let text = std::fs::read_to_string(relay.dir.join("log/calls.jsonl")).unwrap();
    assert!(text.ends_with('\n'));
    let mut prev = "0".repeat(64);
    for (i, line) in text.lines().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["n"], i + 1);
        assert_eq!(record["prev"], prev, "line {}", i + 1);
        prev = Sha256::digest(line.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    }
    text.lines().count()
}

#[test]
fn a_call_has_a_verdict_and_an_outcome() {
    let provider = Provider::start(|_, _| vec![json()]);
    let mut relay = Relay::start(&provider, &["--log-dir", "log", "--max-tokens-cap", "1000"]);
    assert_eq!(status(&relay.ask(&post("/v1/messages?beta=true", "", BODY))), "200");
    assert_eq!(status(&relay.ask(&get("/v1/files", ""))), "403");
    relay.line("POST /v1/messages -> 200 in=7 cache_write=1 cache_read=2 out=9");
    relay.line("REFUSED GET /v1/files -> 403");
    relay.signal(15);
    assert_eq!(relay.ended(), Some(128 + 15));
    let records = relay.records();
    assert_eq!(chained(&relay), 5);
    let kinds: Vec<&str> = records.iter().filter_map(|r| r["kind"].as_str()).collect();
    assert_eq!(kinds, ["start", "verdict", "outcome", "denied", "end"]);
    let verdict = &records[1];
    assert_eq!((&verdict["method"], &verdict["path"]), (&"POST".into(), &"/v1/messages".into()));
    assert!(verdict["clamped"][0].as_str().unwrap().contains("5000"), "{verdict}");
    let outcome = &records[2];
    for (name, value) in
        [("call", 1), ("status", 200), ("input", 7), ("cache_write", 1), ("cache_read", 2), ("output", 9)]
    {
        assert_eq!(outcome[name], value, "{name} in {outcome}");
    }
    assert_eq!((&outcome["owed"], &outcome["ended"]), (&Value::Bool(true), &"whole".into()));
    // No bodies, no credentials.
    let text =
        std::fs::read_to_string(relay.dir.join("log/calls.jsonl")).unwrap() + &relay.lines().join("\n");
    for secret in [KEY, TOKEN, "SECRET-OF-THE-USER"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(permissions(&relay, "log"), 0o700);
    assert_eq!(permissions(&relay, "log/calls.jsonl"), 0o600);
}

fn permissions(relay: &Relay, name: &str) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(relay.dir.join(name)).unwrap().permissions().mode() & 0o777
}

/// Promise 3: the verdict is in the file when the provider gets the request.
#[test]
fn recorded_before_it_is_made() {
    let provider = Provider::start(|_, _| vec![Act::Wait, json()]);
    let relay = Relay::start(&provider, &LOGGED);
    let mut stream = relay.connect();
    stream.write_all(post("/v1/messages", "", BODY).as_bytes()).unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    while provider.seen().is_empty() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let records = relay.records();
    assert_eq!((of_kind(&records, "verdict").len(), of_kind(&records, "outcome").len()), (1, 0));
    provider.go();
    read_until(&mut stream, &mut Vec::new(), ANSWER);
    // The end was seen, so the outcome stands.
    assert_eq!(of_kind(&relay.records(), "outcome").len(), 1);
}

/// The record before the end, for a body in chunks: the outcome is in the file when the last chunk is seen.
#[test]
fn the_last_chunk_waits_for_the_record() {
    let provider = Provider::start(|_, _| {
        vec![
            send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
            Act::Wait,
            send("0\r\n\r\n"),
        ]
    });
    let relay = Relay::start(&provider, &LOGGED);
    let mut stream = relay.connect();
    let mut got = Vec::new();
    stream.write_all(get("/v1/models", "").as_bytes()).unwrap();
    read_until(&mut stream, &mut got, "hello\r\n");
    assert_eq!(of_kind(&relay.records(), "outcome").len(), 0);
    provider.go();
    read_until(&mut stream, &mut got, "0\r\n\r\n");
    assert_eq!(of_kind(&relay.records(), "outcome").len(), 1);
}

/// No record, no call: `/dev/full` takes the opening and no byte. The relay in the foreground does not even start.
#[test]
fn a_log_that_cannot_be_written_stops_the_start() {
    let provider = Provider::plain();
    let dir = crate::rig::fresh_dir();
    std::fs::create_dir(dir.join("log")).unwrap();
    std::fs::create_dir(dir.join("log/calls.jsonl")).unwrap();
    std::fs::write(dir.join("token"), TOKEN).unwrap();
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_sanduk"))
        .args([
            "relay",
            "--listen",
            "tcp:127.0.0.1:0",
            "--provider",
            "anthropic",
            "--mode",
            "key-safe",
            "--log-dir",
            "log",
        ])
        .args([
            "--token-file",
            "token",
            "--key-file",
            "token",
            "--upstream",
            &format!("http://{}", provider.address),
        ])
        .current_dir(&dir)
        .output()
        .unwrap();
    let line = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{line}");
    assert!(line.contains("calls.jsonl") && line.lines().count() == 1, "{line}");
}

#[test]
fn a_second_relay_goes_on_with_the_chain() {
    let provider = Provider::plain();
    let mut first = Relay::start(&provider, &LOGGED);
    first.ask(&get("/v1/models", ""));
    first.signal(2);
    assert_eq!(first.ended(), Some(130));
    let log = first.dir.join("log").display().to_string();
    let before = chained(&first);
    let mut second = Relay::start(&provider, &["--log-dir", &log]);
    second.ask(&get("/v1/models", ""));
    second.signal(15);
    second.ended();
    assert_eq!(chained(&first), before + 4);
}

/// TRAPS 73 and 78: a client that leaves in mid-answer is charged for the whole of it.
#[test]
fn trap_73_client_gone_is_still_charged() {
    let provider = Provider::start(|_, _| {
        vec![
            send(&format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                ANSWER.len()
            )),
            send(&ANSWER[..20]),
            Act::Wait,
            send(&ANSWER[20..60]),
            Act::Wait,
            send(&ANSWER[60..]),
        ]
    });
    let relay = Relay::start(&provider, &LOGGED);
    let mut stream = relay.connect();
    stream.write_all(post("/v1/messages", "", BODY).as_bytes()).unwrap();
    read_until(&mut stream, &mut Vec::new(), &ANSWER[..20]);
    drop(stream);
    provider.go();
    provider.go();
    relay.line("POST /v1/messages -> 200 in=7");
    let records = relay.records();
    assert_eq!(of_kind(&records, "outcome")[0]["output"], 9);
}

#[test]
fn a_cut_answer_is_owed_and_said_to_be_cut() {
    let provider = Provider::start(|_, _| {
        vec![
            send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"),
            Act::Close,
        ]
    });
    let relay = Relay::start(&provider, &LOGGED);
    relay.ask(&post("/v1/messages", "", BODY));
    relay.line("-> 200 usage=?");
    let records = relay.records();
    let outcome = of_kind(&records, "outcome")[0];
    assert_eq!(
        (&outcome["ended"], &outcome["owed"], &outcome["complete"]),
        (&"cut".into(), &true.into(), &false.into())
    );
}

#[test]
fn a_provider_that_cannot_be_reached_is_not_owed() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let provider = Provider::plain();
    let upstream = format!("http://{closed}");
    let relay = Relay::start(&provider, &["--log-dir", "log", "--upstream", &upstream]);
    let got = relay.ask(&post("/v1/messages", "", BODY));
    assert_eq!(status(&got), "502");
    assert!(got.contains("cannot be reached") && !got.contains("x-should-retry"), "{got}");
    let records = relay.records();
    let outcome = of_kind(&records, "outcome")[0];
    assert_eq!((&outcome["ended"], &outcome["owed"]), (&"unreachable".into(), &false.into()));
    assert!(of_kind(&records, "denied").is_empty());
}

/// A refusal that comes again and again is one line and a count.
#[test]
fn refusals_are_aggregated() {
    let provider = Provider::plain();
    let mut relay = Relay::start(&provider, &LOGGED);
    for _ in 0..20 {
        assert_eq!(status(&relay.ask(&get("/v1/files", ""))), "403");
    }
    relay.signal(15);
    relay.ended();
    let records = relay.records();
    chained(&relay);
    assert_eq!(of_kind(&records, "denied").len(), 1);
    assert_eq!(of_kind(&records, "denied_again")[0]["times"], 19);
}

/// BOX B8: refused calls end the run before they fill the disk.
#[test]
fn box_b8_a_flood_of_refusals_ends_the_run() {
    let provider = Provider::plain();
    let mut relay = Relay::start(&provider, &["--log-dir", "log", "-q"]);
    let mut refused = 0usize;
    while refused < sanduk::limits::REFUSALS as usize {
        let got = relay.ask(&get(&format!("/v1/files/{refused}"), ""));
        assert_eq!(status(&got), "403");
        refused += 1;
    }
    relay.line("ended: 1000 requests were refused");
    assert_eq!(relay.ended(), Some(3));
    assert!(provider.seen().is_empty());
    let size = std::fs::metadata(relay.dir.join("log/calls.jsonl")).unwrap().len();
    assert!(size < 1_000_000, "{size}");
}

/// TRAPS 79: a call in flight when the relay ends is not forgotten: it may be billed, so it is owed, and the record says so.
#[test]
fn trap_79_in_flight_at_the_end() {
    let provider = Provider::start(|_, _| vec![Act::Wait]);
    let mut relay = Relay::start(&provider, &LOGGED);
    let mut stream = relay.connect();
    stream.write_all(post("/v1/messages", "", BODY).as_bytes()).unwrap();
    while provider.seen().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    relay.signal(15);
    relay.line("POST /v1/messages -> 0 usage=?");
    relay.ended();
    let records = relay.records();
    let outcome = of_kind(&records, "outcome")[0];
    assert_eq!((&outcome["ended"], &outcome["owed"]), (&"stopped".into(), &true.into()));
    assert_eq!(records.last().unwrap()["kind"], "end");
}
