//! `kill -9` of a relay at seeded instants under load, again and again on one log: every call that the provider saw is in it, the
//! chain holds, nothing is counted twice. `SANDUK_KILLS` (40) and `SANDUK_SEED` (1) set how often and when; `make kill` does 200.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "relay/rig.rs"]
#[expect(dead_code, reason = "shared with relay.rs")]
mod rig;

use rig::{Act, Place, Provider, Relay, answer, fresh_dir, post, send};
use sanduk::prove::verify;
use sanduk::relay::log_read::Reader;
use sanduk::relay::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const CLIENTS: usize = 4;
const TOKENS: u64 = 9;

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Every other answer comes whole, the others as a stream in pieces.
fn script(n: usize, _: &str) -> Vec<Act> {
    let usage =
        format!(r#"{{"type":"message","model":"m","usage":{{"input_tokens":7,"output_tokens":{TOKENS}}}}}"#);
    if n.is_multiple_of(2) {
        return vec![answer("200 OK", "Content-Type: application/json\r\n", &usage)];
    }
    let chunk = |text: &str| send(&format!("{:x}\r\n{text}\r\n", text.len()));
    vec![
        send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"),
        chunk(&usage[..20]),
        chunk(&usage[20..]),
        send("0\r\n\r\n"),
    ]
}

/// Asks until the relay is gone; the names of the calls whose answer came to its end.
fn client(address: SocketAddr, name: &str) -> Vec<String> {
    let mut whole = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address) else { return whole };
    stream.set_read_timeout(Some(rig::PATIENCE)).unwrap();
    for n in 0.. {
        let model = format!("{name}-{n}");
        let body = format!(r#"{{"model":"{model}","max_tokens":5,"messages":[]}}"#);
        if stream.write_all(post("/v1/messages", "", &body).as_bytes()).is_err() || !to_its_end(&mut stream) {
            return whole;
        }
        whole.push(model);
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
    torn: u64,
}

fn logged(log: &Path) -> Logged {
    let mut reader = Reader::new(std::fs::File::open(log).unwrap(), 1 << 30);
    let mut all = Logged::default();
    while let Some(line) = reader.advance().unwrap() {
        match line.record {
            Record::Verdict(v) => assert!(all.names.insert(v.call, v.model.unwrap()).is_none()),
            Record::Outcome(o) => {
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
    let (kills, mut seed) = (from_env("SANDUK_KILLS", 40), from_env("SANDUK_SEED", 1));
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let provider = Provider::start(script);
    let dir = fresh_dir();
    let (logs, log) = (dir.join("log").display().to_string(), dir.join("log/calls.jsonl"));
    let (mut whole, mut seen, mut torn) = (BTreeSet::new(), BTreeSet::new(), 0u64);
    for round in 0..kills {
        let mut relay = Relay::start(&provider, &["--log-dir", &logs, "-q"]);
        let Place::Tcp(address) = relay.place else { panic!("no address") };
        let ask = |n| std::thread::spawn(move || client(address, &format!("r{round}-{n}")));
        let clients: Vec<_> = (0..CLIENTS).map(ask).collect();
        std::thread::sleep(Duration::from_micros(next(60_000)));
        relay.signal(9);
        assert_eq!(relay.ended(), None);
        whole.extend(clients.into_iter().flat_map(|c| c.join().unwrap()));
        // A power cut tears what a kill does not.
        if next(5) == 0 {
            let half = &br#"{"n":12345,"prev":"00"#[..=usize::try_from(next(18)).unwrap()];
            std::fs::OpenOptions::new().append(true).open(&log).unwrap().write_all(half).unwrap();
            torn += half.len() as u64;
        }
    }
    let mut last = Relay::start(&provider, &["--log-dir", &logs]);
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
    assert_eq!(said.torn, torn);
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
    let found = verify::verify(&log, None, None).unwrap();
    assert!(found.holds && found.ended && found.calls == calls, "{found:?}");
    assert_eq!(found.starts, kills + 1);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/verify-log");
    let second = Command::new("python3").arg(script).arg(&log).output().unwrap();
    assert_eq!(second.status.code(), Some(0), "{}", String::from_utf8_lossy(&second.stdout));
    eprintln!(
        "{kills} kills: {calls} verdicts, {} seen by the provider, {} settled, {} answers whole at clients, {torn} torn bytes",
        seen.len(),
        said.ended.len(),
        whole.len()
    );
    std::fs::remove_dir_all(&dir).unwrap();
}
