//! The log when something goes wrong with it: a crash before, another writer, a full disk, a broken line.

use crate::rig::{KEY, PATIENCE, Provider, Relay, TOKEN, fresh_dir, get, post, skipped, status};
use sanduk::prove::verify::{self, Found};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

const BODY: &str = r#"{"model":"m","max_tokens":5,"messages":[]}"#;

/// A log of one call and its relay's end.
fn one_call(provider: &Provider, dir: &Path) {
    let mut relay = Relay::start(provider, &["--log-dir", &dir.join("log").display().to_string()]);
    assert_eq!(status(&relay.ask(&post("/v1/messages", "", BODY))), "200");
    relay.signal(15);
    relay.ended();
}

fn verified(dir: &Path) -> Found {
    verify::verify(&dir.join("log/calls.jsonl"), None, None).unwrap()
}

/// A relay on this directory that is expected not to start.
fn refused(provider: &Provider, dir: &Path) -> Output {
    std::fs::write(dir.join("token"), TOKEN).unwrap();
    std::fs::write(dir.join("key"), KEY).unwrap();
    let upstream = format!("http://{}", provider.address);
    let args = ["relay", "--listen", "tcp:127.0.0.1:0", "--mode", "key-safe", "--log-dir", "log"];
    let more = ["--token-file", "token", "--key-file", "key", "--upstream", &upstream];
    Command::new(env!("CARGO_BIN_EXE_sanduk")).args(args).args(more).current_dir(dir).output().unwrap()
}

#[test]
fn a_torn_line_is_cut_and_said() {
    let (provider, dir) = (Provider::plain(), fresh_dir());
    one_call(&provider, &dir);
    let log = dir.join("log/calls.jsonl");
    let before = std::fs::read(&log).unwrap();
    let lines = before.split_inclusive(|b| *b == b'\n').count() as u64;
    // Cut within its last record: what is left of it is no record.
    std::fs::write(&log, &before[..before.len() - 20]).unwrap();
    assert_eq!(verified(&dir).fault.unwrap().what, "torn");
    one_call(&provider, &dir);
    let found = verified(&dir);
    assert!(found.holds, "{found:?}");
    assert_eq!((found.lines, found.calls, found.starts), (lines - 1 + 4, 2, 2));
    assert!(found.torn_bytes > 20);
    // Whole but for its line end: nothing is lost.
    let before = std::fs::read(&log).unwrap();
    std::fs::write(&log, &before[..before.len() - 1]).unwrap();
    assert_eq!(verified(&dir).fault.unwrap().what, "torn");
    one_call(&provider, &dir);
    let again = verified(&dir);
    assert!(again.holds, "{again:?}");
    assert_eq!((again.lines, again.calls, again.torn_bytes), (found.lines + 4, 3, found.torn_bytes));
    assert!(std::fs::read(&log).unwrap().starts_with(&before));
}

#[test]
fn calls_left_open_are_said_by_the_next_relay() {
    let (provider, dir) = (Provider::start(|_, _| vec![crate::rig::Act::Wait]), fresh_dir());
    let mut relay = Relay::start(&provider, &["--log-dir", &dir.join("log").display().to_string()]);
    let mut stream = relay.connect();
    stream.write_all(post("/v1/messages", "", BODY).as_bytes()).unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    while provider.seen().is_empty() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    relay.signal(9);
    relay.ended();
    let found = verified(&dir);
    assert!(found.holds && !found.ended && found.without_outcome == 1, "{found:?}");
    one_call(&Provider::plain(), &dir);
    let text = std::fs::read_to_string(dir.join("log/calls.jsonl")).unwrap();
    assert!(text.contains(r#""resumed":{"lines":2,"calls":1,"open":1,"torn":0}"#), "{text}");
    assert!(text.contains(r#""kind":"verdict","call":2"#), "{text}");
    assert!(verified(&dir).holds);
}

#[test]
fn a_log_that_does_not_hold_is_not_gone_on_with() {
    let (provider, dir) = (Provider::plain(), fresh_dir());
    one_call(&provider, &dir);
    let log = dir.join("log/calls.jsonl");
    let text = std::fs::read_to_string(&log).unwrap().replacen("/v1/messages", "/v1/massages", 1);
    std::fs::write(&log, &text).unwrap();
    let out = refused(&provider, &dir);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("line 3: prev is not"), "{said}");
    assert!(said.contains("sanduk audit verify") && said.lines().count() == 1, "{said}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), text, "it is left as it was");
}

#[test]
fn one_writer_at_a_time() {
    let (provider, dir) = (Provider::plain(), fresh_dir());
    let relay = Relay::start(&provider, &["--log-dir", &dir.join("log").display().to_string()]);
    let out = refused(&provider, &dir);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("another relay is writing it"), "{said}");
    relay.ask(&get("/v1/models", ""));
    drop(relay);
    one_call(&provider, &dir);
    assert!(verified(&dir).holds);
}

/// No record, no call, on a real file system that fills up; and what was recorded before holds.
#[test]
fn a_disk_that_fills_up_stops_the_relay() {
    let dir = fresh_dir();
    std::fs::create_dir(dir.join("log")).unwrap();
    let provider = Provider::plain();
    std::fs::write(dir.join("token"), TOKEN).unwrap();
    std::fs::write(dir.join("key"), KEY).unwrap();
    // In a mount namespace of its own: a file system of 16 KiB, and the log copied out of it after the relay's end.
    let inner = r#"mount -t tmpfs -o size=16k sanduk-test log && "$0" "$@" 2>said; echo $? >code; cp log/calls.jsonl out"#;
    let upstream = format!("http://{}", provider.address);
    let args = [
        "relay",
        "--listen",
        "unix:relay.sock",
        "--mode",
        "key-safe",
        "--log-dir",
        "log",
        "--host",
        "relay.test",
    ];
    let more = ["--token-file", "token", "--key-file", "key", "--upstream", &upstream];
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--map-root-user", "sh", "-c", inner, env!("CARGO_BIN_EXE_sanduk")]);
    let mut child = unshare.args(args).args(more).current_dir(&dir).spawn().unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    let mut served = 0;
    while child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < until, "it does not end");
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(dir.join("relay.sock")) else {
            std::thread::sleep(std::time::Duration::from_millis(5));
            continue;
        };
        let _ = stream.write_all(post("/v1/messages", "Connection: close\r\n", BODY).as_bytes());
        let mut got = String::new();
        let _ = std::io::Read::read_to_string(&mut stream, &mut got);
        served += usize::from(got.starts_with("HTTP/1.1 200"));
    }
    let said = std::fs::read_to_string(dir.join("said")).unwrap_or_default();
    if !dir.join("code").exists() || said.contains("mount:") {
        return skipped("this user may not mount a tmpfs");
    }
    assert_eq!(std::fs::read_to_string(dir.join("code")).unwrap().trim(), "3", "{said}");
    assert!(said.contains("the record of calls cannot be written"), "{said}");
    let log = std::fs::read(dir.join("out")).unwrap();
    let whole = log.iter().rposition(|b| *b == b'\n').unwrap() + 1;
    std::fs::write(dir.join("whole"), &log[..whole]).unwrap();
    let found = verify::verify(&dir.join("whole"), None, None).unwrap();
    assert!(found.holds, "{found:?}");
    // The provider got nothing that is not recorded.
    assert!(served > 0 && provider.seen().len() as u64 <= found.calls, "{served} {found:?}");
}
