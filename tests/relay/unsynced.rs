//! Syncs that fail, as on a broken disk: strace makes the call return EIO. Left out, with a line, where strace is missing.

use crate::rig::{PATIENCE, Provider, answer, fresh_dir, get, post, read_until, skipped, status};
use crate::role::{Role, log_path, role_by, role_with};
use sanduk::prove::verify;
use sanduk::relay::note::Note;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

const STRACE: &str = "/usr/bin/strace";
const BODY: &str = r#"{"model":"m","max_tokens":5,"messages":[]}"#;

fn there() -> bool {
    let there = Path::new(STRACE).exists();
    if !there {
        skipped("syncs that fail: no strace");
    }
    there
}

/// The role below strace, in which the `nth` of these calls fails in each thread. In its place another is made that the relay's
/// filter lets pass. The first sync of the main thread is that of the first record, the first of a connection's that of its first call.
fn failing(call: &str, nth: u32) -> Vec<String> {
    let inject = format!("inject={call}:error=EIO:syscall=gettid:when={nth}");
    ["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]
        .into_iter()
        .chain([env!("CARGO_BIN_EXE_sanduk"), "relay-role"])
        .map(String::from)
        .collect()
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

fn connect(role: &Role) -> TcpStream {
    let stream = TcpStream::connect(role.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What ended the run; the notes before it do not matter.
fn stopped(role: &mut Role) -> (String, u8) {
    loop {
        if let Note::End(stop) = role.note() {
            return (stop.why, stop.exit);
        }
    }
}

/// No record, no call: what was written and not synced counts as not recorded.
#[test]
fn a_verdict_that_cannot_be_synced() {
    if !there() {
        return;
    }
    let (provider, log) = (Provider::plain(), log_path());
    let mut role = role_by(&provider, &log, false, STRACE, &words(&failing("fdatasync", 2)));
    role.ready();
    let mut stream = connect(&role);
    let mut got = Vec::new();
    stream.write_all(post("/v1/messages", "", BODY).as_bytes()).unwrap();
    read_until(&mut stream, &mut got, "\r\n\r\n{}");
    stream.write_all(post("/v1/messages", "", BODY).as_bytes()).unwrap();
    got.clear();
    let _ = stream.read_to_end(&mut got);
    let got = String::from_utf8_lossy(&got);
    assert!(status(&got) == "503" && got.contains("cannot be recorded"), "{got}");
    let (why, exit) = stopped(&mut role);
    assert_eq!((why.as_str(), exit), ("the record of calls cannot be written: I/O error (os error 5)", 3));
    // Not by another thread either, whose own sync would not fail.
    assert_eq!(status(&role.ask(&get("/v1/models", ""))), "403");
    assert_eq!(provider.seen().len(), 1, "a byte of it went upstream");
    let found = verify::verify(Path::new(&log), None, None).unwrap();
    assert!(found.holds && found.calls == 2 && found.without_outcome == 0, "{found:?}");
    // It was not sent, so it is not charged.
    let text = std::fs::read_to_string(&log).unwrap();
    let last = text.lines().find(|l| l.contains(r#""kind":"outcome","call":2"#)).expect("an outcome");
    assert!(last.contains(r#""ended":"stopped""#) && last.contains(r#""owed":false"#), "{last}");
}

/// A second try is recorded before it is made, too.
#[test]
fn a_retry_that_cannot_be_synced() {
    if !there() {
        return;
    }
    let provider = Provider::start(|_, _| vec![answer("529 Overloaded", "Retry-After: 0\r\n", "{}")]);
    let log = log_path();
    let mut role = role_by(&provider, &log, false, STRACE, &words(&failing("fdatasync", 2)));
    role.ready();
    // Nobody is asked again for a client that half-closes.
    let mut stream = connect(&role);
    stream.write_all(post("/v1/messages", "", BODY).as_bytes()).unwrap();
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    assert!(!got.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&got));
    assert_eq!(provider.seen().len(), 1);
    let (why, exit) = stopped(&mut role);
    assert!(why.contains("os error 5") && exit == 3, "{why}");
    let found = verify::verify(Path::new(&log), None, None).unwrap();
    assert!(found.holds && found.calls == 1, "{found:?}");
}

/// A body that is not on the disk is not kept: the file's sync fails, or the directory's (the second of the first body).
#[test]
fn a_body_that_cannot_be_synced() {
    if !there() {
        return;
    }
    for nth in [1, 2] {
        let (provider, bodies) = (Provider::plain(), fresh_dir());
        let mut role = role_with(&bodies, &provider, STRACE, &words(&failing("fsync", nth)));
        role.ready();
        let got = role.ask(&post("/v1/messages", "", BODY));
        assert!(status(&got) == "503" && got.contains("cannot be kept"), "{nth}: {got}");
        let (why, exit) = stopped(&mut role);
        assert_eq!((why.as_str(), exit), ("a body cannot be kept: I/O error (os error 5)", 3));
        assert!(provider.seen().is_empty(), "{nth}: a byte of it went upstream");
    }
}
