//! `kill -9` of a relay at seeded instants under load, again and again on one log: every call that the provider saw is in it, the
//! chain holds, nothing is counted twice; with `--log-bodies` every body that it names is there and whole. `SANDUK_KILLS` (40) and
//! `SANDUK_SEED` (1) set how often and when; `make kill` does 200.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "relay/rig.rs"]
#[expect(dead_code, reason = "shared with relay.rs")]
mod rig;

use rig::{Act, Place, Provider, Relay, answer, fresh_dir, post, send};
use sanduk::prove::verify;
use sanduk::relay::log_read::Reader;
use sanduk::relay::record::Record;
use sanduk::wire::digest::sha256_hex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
const TOKENS: u64 = 9;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Text that does not pack well, another for each `n`; up to 32 KiB, so that a kill meets bodies half written.
fn padding(n: u64) -> String {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..next() % 2048).map(|_| format!("{:016x}", next())).collect()
}

/// The body of answer `n`; with bodies kept they differ.
fn answered(n: usize, bodies: bool) -> String {
    let pad = if bodies { padding(n as u64 + 1_000_000) } else { String::new() };
    format!(
        r#"{{"type":"message","model":"m","usage":{{"input_tokens":7,"output_tokens":{TOKENS}}},"pad":"{pad}"}}"#
    )
}

/// Every other answer comes whole, the others as a stream in pieces.
fn script(n: usize, bodies: bool) -> Vec<Act> {
    let body = answered(n, bodies);
    if n.is_multiple_of(2) {
        return vec![answer("200 OK", "Content-Type: application/json\r\n", &body)];
    }
    let chunk = |text: &str| send(&format!("{:x}\r\n{text}\r\n", text.len()));
    vec![
        send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"),
        chunk(&body[..20]),
        chunk(&body[20..]),
        send("0\r\n\r\n"),
    ]
}

/// Asks until the relay is gone; the names of the calls whose answer came to its end.
fn client(address: SocketAddr, name: &str, bodies: bool, done: &AtomicUsize) -> Vec<String> {
    let mut whole = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address) else { return whole };
    stream.set_read_timeout(Some(rig::PATIENCE)).unwrap();
    for n in 0.. {
        let model = format!("{name}-{n}");
        let pad = if bodies {
            padding(model.bytes().fold(n, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b))))
        } else {
            String::new()
        };
        let body = format!(
            r#"{{"model":"{model}","max_tokens":5,"messages":[{{"role":"user","content":"{pad}"}}]}}"#
        );
        if stream.write_all(post("/v1/messages", "", &body).as_bytes()).is_err() || !to_its_end(&mut stream) {
            return whole;
        }
        whole.push(model);
        done.fetch_add(1, Ordering::SeqCst);
    }
    whole
}

fn to_its_end(stream: &mut TcpStream) -> bool {
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(n) if n > 0 => got.extend_from_slice(&piece[..n]),
            _ => return false,
        }
        let text = String::from_utf8_lossy(&got);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let length = rig::field(head, "content-length").map(|n| n.parse::<usize>().unwrap());
        if length.map_or(body.ends_with("0\r\n\r\n"), |length| body.len() >= length) {
            return true;
        }
    }
}

/// What the log says: outcomes by call, the name of each call.
#[derive(Default)]
struct Logged {
    names: BTreeMap<u64, String>,
    ended: BTreeMap<u64, (String, Option<u64>)>,
    /// Digests of the bodies, by call: of what went up, of what came down.
    sent: BTreeMap<u64, String>,
    came: BTreeMap<u64, String>,
    torn: u64,
}

fn logged(log: &Path) -> Logged {
    let mut reader = Reader::new(std::fs::File::open(log).unwrap(), 1 << 30);
    let mut all = Logged::default();
    while let Some(line) = reader.advance().unwrap() {
        match line.record {
            Record::Verdict(v) => {
                all.sent.extend(v.body.map(|digest| (v.call, digest)));
                assert!(all.names.insert(v.call, v.model.unwrap()).is_none());
            }
            Record::Outcome(o) => {
                all.came.extend(o.body.map(|digest| (o.call, digest)));
                assert!(all.ended.insert(o.call, (o.ended, o.counts.output)).is_none());
            }
            Record::Start(s) => all.torn += s.resumed.map_or(0, |r| r.torn),
            _ => {}
        }
    }
    all
}

#[test]
fn killed_under_load_and_nothing_is_lost() {
    killed(false);
}

/// No body is taken for whole that is not: what has a name is what the name says, and what the log names is there. What a kill
/// leaves half written has a name of its own, which no record names.
#[test]
fn killed_while_it_keeps_bodies() {
    killed(true);
}

fn killed(bodies: bool) {
    let (kills, mut seed) = (from_env("SANDUK_KILLS", 40), from_env("SANDUK_SEED", 1));
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let provider = Provider::start(move |n, _| script(n, bodies));
    let more: &[&str] = if bodies { &["--log-bodies"] } else { &[] };
    let dir = fresh_dir();
    let (logs, log) = (dir.join("log").display().to_string(), dir.join("log/calls.jsonl"));
    let (mut whole, mut seen, mut torn) = (BTreeSet::new(), BTreeSet::new(), 0u64);
    let done = Arc::new(AtomicUsize::new(0));
    // Packing and syncing take their time.
    let span = if bodies { 300_000 } else { 60_000 };
    for round in 0..kills {
        let mut relay = Relay::start(&provider, &[&["--log-dir", &logs, "-q"], more].concat());
        let Place::Tcp(address) = relay.place else { panic!("no address") };
        let ask = |n| {
            let (name, done) = (format!("r{round}-{n}"), Arc::clone(&done));
            std::thread::spawn(move || client(address, &name, bodies, &done))
        };
        let clients: Vec<_> = (0..CLIENTS).map(ask).collect();
        // However slow the machine: some calls come to their end.
        let until = Instant::now() + rig::PATIENCE;
        while round == 0 && done.load(Ordering::SeqCst) < 2 * CLIENTS {
            assert!(Instant::now() < until, "no call comes to its end");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(next(span)));
        relay.signal(9);
        assert_eq!(relay.ended(), None);
        whole.extend(clients.into_iter().flat_map(|c| c.join().unwrap()));
        // What a power cut leaves. A kill may tear a line too, where it crosses a page of the file.
        if next(5) == 0 {
            let half = &br#"{"n":12345,"prev":"00"#[..=usize::try_from(next(18)).unwrap()];
            std::fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(half).unwrap();
            torn += half.len() as u64;
        }
    }
    let mut last = Relay::start(&provider, &[&["--log-dir", &logs], more].concat());
    last.signal(15);
    last.ended();
    for call in provider.seen() {
        let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
        assert!(seen.insert(body["model"].as_str().unwrap().to_string()), "sent twice: {body}");
    }
    let said = logged(&log);
    let names: BTreeSet<String> = said.names.values().cloned().collect();
    let lost: Vec<&String> = seen.difference(&names).collect();
    assert!(lost.is_empty(), "the provider saw calls that are not in the log: {lost:?}");
    assert_eq!(names.len(), said.names.len(), "a call has two numbers");
    let calls = said.names.len() as u64;
    assert!(said.names.keys().copied().eq(1..=calls), "numbers of calls have gaps");
    assert!(said.torn >= torn, "{} bytes cut off, {torn} were torn", said.torn);
    let mut counted = 0;
    for (call, (ended, output)) in &said.ended {
        assert!(seen.contains(&said.names[call]) || *ended != "whole");
        counted += output.unwrap_or(0);
    }
    assert!(counted <= TOKENS * seen.len() as u64, "counted {counted} for {} calls", seen.len());
    let settled = |name: &String| {
        let call = said.names.iter().find(|(_, n)| *n == name).map(|(call, _)| call);
        call.is_some_and(|c| {
            said.ended.get(c).is_some_and(|(e, output)| e == "whole" && *output == Some(TOKENS))
        })
    };
    let unsettled: Vec<&String> = whole.iter().filter(|name| !settled(name)).collect();
    assert!(unsettled.is_empty(), "answers that clients have whole and the log has not: {unsettled:?}");
    if bodies {
        all_whole(&dir.join("log/bodies"), &said, &provider);
    }
    let found = verify::verify(&log, None, None).unwrap();
    assert!(found.holds && found.ended && found.calls == calls, "{found:?}");
    assert_eq!(found.starts, kills + 1);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/verify-log");
    let second = Command::new("python3").arg(script).arg(&log).output().unwrap();
    assert_eq!(second.status.code(), Some(0), "{}", String::from_utf8_lossy(&second.stdout));
    eprintln!(
        "{kills} kills: {calls} verdicts, {} seen by the provider, {} settled, {} answers whole at clients, {} torn bytes, {torn} of them by hand",
        seen.len(),
        said.ended.len(),
        whole.len(),
        said.torn
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

/// The files themselves, read by other code than ours.
fn all_whole(dir: &Path, said: &Logged, provider: &Provider) {
    let unpacked = |name: &str| {
        let out = Command::new("gzip").args(["-dc"]).arg(dir.join(name)).output().unwrap();
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    };
    let (mut kept, mut half) = (BTreeMap::new(), 0);
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        match name.strip_suffix(".gz") {
            Some(digest) => {
                let whole = unpacked(&name);
                assert_eq!(sha256_hex(&whole), digest, "a body that is not what its name says");
                kept.insert(digest.to_string(), whole);
            }
            None => {
                assert!(name.starts_with(".new-"), "{name}");
                half += 1;
            }
        }
    }
    assert_eq!(said.sent.len(), said.names.len(), "a verdict without its body");
    for digest in said.sent.values().chain(said.came.values()) {
        assert!(kept.contains_key(digest), "{digest} is named and not there");
    }
    // Each call that the provider saw, as it saw it; each answer that was recorded as whole, as it was sent.
    let calls: BTreeMap<&String, u64> = said.names.iter().map(|(call, name)| (name, *call)).collect();
    let mut answers = 0;
    for (n, seen) in provider.seen().iter().enumerate() {
        let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        let call = calls[&body["model"].as_str().unwrap().to_string()];
        assert!(kept[&said.sent[&call]] == seen.body, "call {call}: another body than the provider got");
        if said.ended.get(&call).is_some_and(|(ended, _)| ended == "whole") {
            assert!(kept[&said.came[&call]] == answered(n, true).into_bytes(), "call {call}: its answer");
            answers += 1;
        }
    }
    eprintln!("{} bodies whole by their digest, {answers} of them answers, {half} half written", kept.len());
    assert!(answers > 0 && kept.len() > answers);
}
