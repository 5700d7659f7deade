//! `--log-bodies`: what is kept is what passed, and what cannot be kept is not sent.

use crate::rig::{Provider, Relay, answer, fresh_dir, get, post, status};
use flate2::read::GzDecoder;
use sanduk::prove::verify;
use sanduk::wire::digest::sha256_hex;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const BODY: &str =
    r#"{"model":"m","max_tokens":5000,"messages":[{"role":"user","content":"x"}],"tools":null}"#;
const ANSWER: &str = r#"{"type":"message","model":"m","usage":{"input_tokens":7,"output_tokens":9}}"#;

fn unpacked(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn provider() -> Provider {
    Provider::start(|_, _| vec![answer("200 OK", "Content-Type: application/json\r\n", ANSWER)])
}

#[test]
fn whole_bodies_by_digest() {
    let (provider, dir) = (provider(), fresh_dir());
    let logs = dir.join("log").display().to_string();
    let mut relay =
        Relay::start(&provider, &["--log-dir", &logs, "--log-bodies", "--max-tokens-cap", "1000"]);
    assert_eq!(status(&relay.ask(&post("/v1/messages", "", BODY))), "200");
    assert_eq!(status(&relay.ask(&get("/v1/models", ""))), "200");
    let line =
        relay.line("body 001 0.0KB model=m max_tokens=1000 effort=- msgs=1 tools=0 stream=false -> bodies/");
    relay.signal(15);
    relay.ended();
    let sent = provider.seen()[0].body.clone();
    let text = std::fs::read_to_string(dir.join("log/calls.jsonl")).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let bodies = dir.join("log/bodies");
    for (record, whole) in [(&records[1], &sent[..]), (&records[2], ANSWER.as_bytes())] {
        assert_eq!(record["body"], sha256_hex(whole), "{record}");
        let path = bodies.join(format!("{}.gz", sha256_hex(whole)));
        assert_eq!(unpacked(&path), whole);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(line.ends_with(&format!("{}.gz", sha256_hex(&sent))), "{line}");
    assert_eq!(std::fs::metadata(&bodies).unwrap().permissions().mode() & 0o777, 0o700);
    // The call without a body has none; its answer is the same, and one file.
    assert!(records[3].get("body").is_none() && records[4]["body"] == records[2]["body"], "{text}");
    assert_eq!(std::fs::read_dir(&bodies).unwrap().count(), 2);
    let log = dir.join("log/calls.jsonl");
    let both = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/verify-log");
        let second = Command::new("python3").arg(script).arg(&log).output().unwrap();
        let found = verify::verify(&log, None, None).unwrap();
        assert_eq!(second.status.code(), Some(i32::from(verify::exit(&found).code())), "{found:?}");
        found
    };
    let found = both();
    assert!(found.holds && found.bodies == 3, "{found:?}");
    // One that is not what its name says, one that is cut, one that is missing.
    let file = bodies.join(format!("{}.gz", sha256_hex(&sent)));
    let good = std::fs::read(&file).unwrap();
    std::fs::copy(bodies.join(format!("{}.gz", sha256_hex(ANSWER.as_bytes()))), &file).unwrap();
    let fault = both().fault.unwrap();
    assert!(fault.line == 2 && fault.what == "body" && fault.why.contains("not what its name"), "{fault:?}");
    std::fs::write(&file, &good[..good.len() - 9]).unwrap();
    assert_eq!(both().fault.unwrap().line, 2);
    std::fs::remove_file(&file).unwrap();
    assert!(both().fault.unwrap().why.contains("No such file"));
}

/// As a log that cannot be written: the directory is gone, so no file can be made in it.
#[test]
fn what_cannot_be_kept_is_not_sent() {
    let (provider, dir) = (provider(), fresh_dir());
    let logs = dir.join("log").display().to_string();
    let mut relay = Relay::start(&provider, &["--log-dir", &logs, "--log-bodies"]);
    std::fs::remove_dir(dir.join("log/bodies")).unwrap();
    let answer = relay.ask(&post("/v1/messages", "", BODY));
    assert!(!answer.contains("200 OK"), "{answer}");
    assert_eq!(relay.ended(), Some(3));
    relay.line("ended: a body cannot be kept");
    assert!(provider.seen().is_empty());
    assert!(verify::verify(&dir.join("log/calls.jsonl"), None, None).unwrap().holds);
}

#[test]
fn bodies_need_a_place() {
    let out = Command::new(env!("CARGO_BIN_EXE_sanduk"))
        .args([
            "relay",
            "--listen",
            "tcp:127.0.0.1:0",
            "--token-file",
            "x",
            "--key-file",
            "x",
            "--log-bodies",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("give --log-dir"), "{said}");
}
