//! What the relay lets pass: the one way that leads out of a sealed box. A call that must pass comes first, so that the refusals
//! after it are the relay's and no dead socket's.

use crate::limits;
use crate::sys::net;
use crate::wire::probe::{Found, REFLECT, Way, holds, inverted};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// The forwarder of this box.
pub struct Relay {
    at: Option<SocketAddr>,
    host: String,
    token: String,
}

/// A body that every sealed policy lets pass.
const GOOD: &str = r#"{"model":"attest","max_tokens":8,"messages":[{"role":"user","content":"ATTEST"}]}"#;

impl Relay {
    /// `url`: as the agent gets it.
    pub fn new(url: &str, token: &str) -> Relay {
        let host = url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_string();
        Relay { at: host.parse().ok(), host, token: token.to_string() }
    }

    /// Everything but the last.
    pub fn probe(&self, all: &mut Vec<Found>) {
        let good = self.messages(GOOD, &self.token);
        let works = good.as_ref().is_ok_and(|(status, _)| *status == 200);
        all.push(match good {
            Ok((200, _)) => Found::new("relay-works", Way::Shut, "an allowed call is answered"),
            Ok((status, _)) => {
                Found::new("relay-works", Way::Untested, format!("an allowed call got {status}"))
            }
            Err(e) => Found::new("relay-works", Way::Untested, format!("an allowed call: {e}")),
        });
        let search = GOOD.replace(
            "\"messages\"",
            r#""tools":[{"type":"web_search_20250305","name":"web_search"}],"messages""#,
        );
        let connector = GOOD.replace(
            "\"messages\"",
            r#""mcp_servers":[{"type":"url","url":"https://attest.test/","name":"x"}],"messages""#,
        );
        let fetch = GOOD.replace(
            "\"ATTEST\"",
            r#"[{"type":"image","source":{"type":"url","url":"http://attest.test/"}}]"#,
        );
        let tries = [
            ("relay-path", self.request("POST", "/v1/files", GOOD, &self.token)),
            ("relay-method", self.request("DELETE", "/v1/messages", "", &self.token)),
            (
                "relay-absolute-form",
                self.request("GET", "http://169.254.169.254/latest/meta-data/", "", &self.token),
            ),
            ("relay-connect", self.request("CONNECT", "attest.test:443", "", &self.token)),
            ("relay-wrong-token", self.messages(GOOD, "sk-ant-not-the-token-of-this-run")),
            ("relay-no-token", self.messages(GOOD, "")),
            ("relay-web-search", self.messages(&search, &self.token)),
            ("relay-mcp-connector", self.messages(&connector, &self.token)),
            ("relay-url-source", self.messages(&fetch, &self.token)),
        ];
        for (id, got) in tries {
            all.push(judged(id, got, works));
        }
    }

    /// A provider that sends the key back: the relay must cut it out. It may end the run for it.
    pub fn reflection(&self, key: &str) -> Found {
        let id = "relay-key-reflected";
        let Some(key) = inverted(key) else { return Found::new(id, Way::Untested, "no key to look for") };
        match self.messages(&GOOD.replace("ATTEST", REFLECT), &self.token) {
            Ok((_, bytes)) if holds(&bytes, &key) => Found::new(id, Way::Open, "the key came back"),
            Ok((status, _)) => Found::new(id, Way::Silent, format!("{status} without the key")),
            Err(e) => Found::new(id, Way::Silent, e.to_string()),
        }
    }

    fn messages(&self, body: &str, token: &str) -> io::Result<(u16, Vec<u8>)> {
        self.request("POST", "/v1/messages", body, token)
    }

    /// One request as it is written, and everything that comes back: status, all bytes.
    fn request(&self, method: &str, target: &str, body: &str, token: &str) -> io::Result<(u16, Vec<u8>)> {
        let at = self.at.ok_or_else(|| io::Error::other("the relay's address is none"))?;
        #[expect(clippy::disallowed_methods, reason = "NET-73 attest: the relay by the forwarder")]
        let conn = net::connect_tcp(at, limits::CONNECT_TIME)?;
        let (host, length) = (&self.host, body.len());
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nx-api-key: {token}\r\nanthropic-version: 2023-06-01\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        conn.write_all(&[head.as_bytes()], limits::CONNECT_TIME)?;
        let until = Instant::now() + limits::PROBE_ANSWER;
        let mut all = Vec::new();
        let mut buf = [0u8; 4096];
        while all.len() < limits::PROBE_BYTES {
            match conn.read(&mut buf, until.saturating_duration_since(Instant::now())) {
                Ok(0) => break,
                Ok(n) => all.extend_from_slice(buf.get(..n).unwrap_or_default()),
                // A reset after some bytes: what came is judged.
                Err(e) if all.is_empty() => return Err(e),
                Err(_) => break,
            }
        }
        let status =
            std::str::from_utf8(all.get(9..12).unwrap_or_default()).ok().and_then(|t| t.parse().ok());
        Ok((status.ok_or_else(|| io::Error::other("closed without an answer"))?, all))
    }
}

/// A refusal counts only where the allowed call passed.
fn judged(id: &str, got: io::Result<(u16, Vec<u8>)>, works: bool) -> Found {
    match got {
        Ok((200..=299, _)) => Found::new(id, Way::Open, "it passed"),
        _ if !works => Found::new(id, Way::Untested, "the allowed call did not pass either"),
        Ok((status @ 400..=499, _)) => Found::new(id, Way::Shut, format!("refused with {status}")),
        Ok((status, _)) => Found::new(id, Way::Untested, format!("an answer {status}, which is no refusal")),
        // The forwarder or relay closed on it.
        Err(e) => Found::new(id, Way::Shut, e.to_string()),
    }
}
