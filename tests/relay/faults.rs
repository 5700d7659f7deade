//! A fault of our own, a panic in the thread of a connection: it is told, recorded, charged, and holds up nobody.

use crate::rig::{KEY, PATIENCE, Provider, TOKEN, answer, fresh_dir, post, status};
use sanduk::catalog::providers;
use sanduk::prove::verify;
use sanduk::relay::budget::Meter;
use sanduk::relay::caps::Caps;
use sanduk::relay::log::Log;
use sanduk::relay::note::Note;
use sanduk::relay::pool::Pool;
use sanduk::relay::serving::{Parts, Serving};
use sanduk::relay::start::{self, Grants, Upstream};
use sanduk::secret::Secret;
use sanduk::sys::net;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const BODY: &str = r#"{"model":"m","max_tokens":5,"messages":[]}"#;

/// A relay in this process, capped, that panics where `at` says so of what it is about to tell.
fn relay(
    provider: &Provider,
    log: &Path,
    at: fn(&Note) -> bool,
) -> (Arc<Serving>, SocketAddr, mpsc::Receiver<Note>) {
    let listener = net::listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let (send, notes) = mpsc::channel();
    let of = providers::shipped("anthropic").unwrap();
    let upstream = Upstream {
        host: "127.0.0.1".into(),
        port: provider.address.port(),
        addresses: vec![provider.address],
        retry_for: Duration::from_secs(60),
        ..Upstream::default()
    };
    let file = std::fs::OpenOptions::new().read(true).append(true).create(true).open(log).unwrap();
    let serving = Arc::new(Serving::new(Parts {
        rules: start::rules_of(&of).unwrap(),
        hosts: vec!["relay.test".into()],
        peer_uid: None,
        grants: Grants::default(),
        meter: Meter::new(Caps { max_tokens_total: Some(1_000_000), ..Caps::default() }, &of),
        provider: of,
        token: Secret::new(TOKEN.into()),
        key: Secret::new(KEY.into()),
        named: Vec::new(),
        pool: Pool::new(upstream, None),
        log: Log::open(file, &mut |_| {}).unwrap(),
        bodies: None,
        tell: Box::new(move |note| {
            assert!(!at(&note), "on purpose");
            let _ = send.send(note);
        }),
        ended: Box::new(|_| {}),
    }));
    start::started(&serving).unwrap();
    start::in_background(listener, &serving).unwrap();
    (serving, address, notes)
}

fn ask(address: SocketAddr, half_closed: bool) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let close = if half_closed { "Connection: close\r\n" } else { "" };
    stream.write_all(post("/v1/messages", close, BODY).as_bytes()).unwrap();
    if half_closed {
        stream.shutdown(Shutdown::Write).unwrap();
    }
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    String::from_utf8_lossy(&got).into_owned()
}

/// Before its answer (while it waits to be sent again), and behind its outcome: each time the next call has its turn, which it would not
/// get while another is in flight.
#[test]
fn a_panic_keeps_nothing_of_the_caps() {
    let before: fn(&Note) -> bool = |note| matches!(note, Note::Again(_));
    let behind: fn(&Note) -> bool = |note| matches!(note, Note::Call(call) if call.status == 201);
    for (at, first, ended) in [(before, "529 Overloaded", "fault"), (behind, "201 Created", "whole")] {
        let provider = Provider::start(move |n, _| {
            vec![answer(
                if n == 0 { first } else { "200 OK" },
                "Content-Type: application/json\r\n",
                r#"{"type":"message"}"#,
            )]
        });
        let dir = fresh_dir();
        let log = dir.join("calls.jsonl");
        let (serving, address, notes) = relay(&provider, &log, at);
        // Closed without an answer.
        assert_eq!(ask(address, false), "");
        let told = |notes: &mpsc::Receiver<Note>| loop {
            match notes.recv_timeout(PATIENCE).expect("it is not told") {
                Note::Warning(warning) => return warning.line,
                Note::Spent(spent) => assert!(spent.tokens > 5, "{spent:?}"),
                _ => {}
            }
        };
        assert!(told(&notes).contains("a fault of sanduk: the thread of a connection panicked"));
        let spent = serving.meter.spent();
        assert!(spent.tokens > 5 && spent.reached.is_none(), "charged at its most: {spent:?}");
        assert_eq!(status(&ask(address, true)), "200");
        serving.close("the test is over").unwrap();
        let text = std::fs::read_to_string(&log).unwrap();
        let records: Vec<serde_json::Value> =
            text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let outcome = records.iter().find(|r| r["kind"] == "outcome").unwrap();
        assert_eq!((&outcome["call"], &outcome["ended"]), (&1.into(), &ended.into()), "{text}");
        assert!(verify::verify(&log, None, None).unwrap().holds, "{text}");
    }
}
