//! The whole relay, confined, with a provider behind TLS. What the TLS transport itself must do stands in `tests/tls.rs`.

use crate::rig::{KEY, Provider, Relay, fresh_dir, get, status};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

pub fn support(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(name)
}

pub fn pem(name: &str) -> String {
    static CA: OnceLock<PathBuf> = OnceLock::new();
    let dir = CA.get_or_init(|| {
        let dir = fresh_dir();
        assert!(Command::new("sh").arg(support("ca.sh")).arg(&dir).status().unwrap().success());
        dir
    });
    dir.join(name).display().to_string()
}

/// A `tls_server.py`.
pub struct Server {
    child: Child,
    events: BufReader<ChildStdout>,
    /// Where it is, by address.
    pub url: String,
}

impl Server {
    /// In this mode, with this certificate of `ca.sh`.
    pub fn start(mode: &str, certificate: &str) -> Server {
        let mut child = Command::new("python3")
            .arg(support("tls_server.py"))
            .args([mode, &pem(&format!("{certificate}.pem")), &pem(&format!("{certificate}.key"))])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed");
        let mut server =
            Server { events: BufReader::new(child.stdout.take().unwrap()), child, url: String::new() };
        server.url = format!("https://127.0.0.1:{}", server.word("port"));
        server
    }

    /// Its port.
    pub fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }

    /// The word behind the next line that begins with `first`.
    pub fn word(&mut self, first: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.events.read_line(&mut line).unwrap() > 0, "the server is gone");
            let mut words = line.split_whitespace();
            if words.next() == Some(first) {
                return words.next().unwrap_or_default().to_string();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// With this server as its provider.
pub fn relay(server: &Server) -> Relay {
    Relay::start(
        &Provider::plain(),
        &["--upstream", &server.url, "--ca-file", &pem("ca.pem"), "--log-dir", "log"],
    )
}

/// How the first call ended.
pub fn ended(relay: &Relay) -> String {
    let records = relay.records();
    let outcome = records.iter().find(|r| r["kind"] == "outcome").expect("an outcome");
    outcome["ended"].as_str().unwrap().to_string()
}

#[test]
fn u10_close_notify_ends_a_body() {
    let server = Server::start("clean", "good");
    let relay = relay(&server);
    let got = relay.ask(&get("/v1/models", ""));
    assert!(got.starts_with("HTTP/1.1 200") && got.contains("transfer-encoding: chunked"), "{got}");
    assert!(got.ends_with("e\r\npart of a body\r\n0\r\n\r\n"), "{got}");
    assert_eq!(ended(&relay), "whole");
}

#[test]
fn u11_fin_without_close_notify_is_a_cut() {
    for mode in ["cut", "reset"] {
        let server = Server::start(mode, "good");
        let relay = relay(&server);
        let got = relay.ask(&get("/v1/models", ""));
        assert!(!got.contains("0\r\n\r\n"), "{got}");
        assert_eq!(ended(&relay), "cut");
    }
}

#[test]
fn u26_early_answer_over_tls() {
    let server = Server::start("early", "good");
    let relay = relay(&server);
    assert_eq!(status(&relay.ask(&get("/v1/models", ""))), "413");
}

#[test]
fn u41_wrong_certificates_get_no_byte() {
    for certificate in ["wrong", "expired", "future", "unknown", "selfsigned", "clientonly"] {
        let mut server = Server::start("echo", certificate);
        let relay = relay(&server);
        let got = relay.ask(&get("/v1/models", ""));
        assert_eq!(status(&got), "502", "{certificate}: {got}");
        assert!(got.contains("cannot be reached") && !got.contains(KEY), "{got}");
        assert_eq!(server.word("closed"), "0", "{certificate}: application bytes");
        assert_eq!(ended(&relay), "unreachable");
    }
}

/// A server that never answers the handshake: 504 after the handshake's limit, no byte of ours, and no child of the relay stays.
#[test]
fn u42_a_handshake_that_stalls() {
    let mut server = Server::start("stall", "good");
    let relay = relay(&server);
    let got = relay.ask(&get("/v1/models", ""));
    assert!(status(&got) == "504" && got.contains("no answer within"), "{got}");
    // The child was killed in its handshake: what came was the first of it, and no HTTP.
    assert_ne!(server.word("closed"), "0");
    assert_eq!(ended(&relay), "unreachable");
    assert_eq!(children(relay.pid()), Vec::<u32>::new());
    assert!(relay.line("GET /v1/models -> 504").contains("no answer within"));
}

/// Children of a process, zombies too.
pub fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_str().unwrap_or("").parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let rest = stat.rsplit_once(") ").unwrap().1;
        if rest.split(' ').nth(1) == Some(&of.to_string()) {
            found.push(pid);
        }
    }
    found
}
