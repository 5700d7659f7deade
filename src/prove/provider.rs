//! The model provider of `attest`: it answers every call, remembers what it was asked, and sends the key back when a body asks for
//! that. On loopback, in this process. Called by `attest`.

use crate::limits;
use crate::sys::net::{self, Conn};
use crate::sys::serve;
use crate::wire::probe::REFLECT;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

/// What it was asked.
#[derive(Clone, Default)]
pub struct Seen {
    /// Method and target, a line for each request.
    pub requests: Vec<String>,
    /// Requests that carried the key where it belongs.
    pub with_key: usize,
    /// Bodies that a sealed relay must not have let pass: their telling word.
    pub passed: Vec<String>,
    /// The key was sent back.
    pub reflected: bool,
}

/// See the file's head.
pub struct Provider {
    /// Where it listens.
    pub at: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// Words of the probe's bodies that must not arrive.
const FORBIDDEN: [&str; 4] = ["web_search", "mcp_servers", "attest.test", "meta-data"];
const ANSWER: &str = r#"{"id":"msg_attest","type":"message","role":"assistant","model":"attest","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;

impl Provider {
    /// Listens on a free port.
    pub fn start(key: &str) -> io::Result<Provider> {
        #[expect(clippy::disallowed_methods, reason = "NET-187 attest: the scripted provider, on loopback")]
        let listener = net::listen_tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
        let at = listener.address().ok_or_else(|| io::Error::other("it has no address"))?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (to, key) = (Arc::clone(&seen), key.to_string());
        let each: Arc<dyn Fn(Conn) + Send + Sync> = Arc::new(move |conn| drop(answer(&conn, &key, &to)));
        let accept = move || {
            #[expect(clippy::disallowed_methods, reason = "THREAD-182 attest: the provider's connections")]
            let _ = serve::serve(&listener, limits::CONNECTIONS, each);
        };
        #[expect(clippy::disallowed_methods, reason = "THREAD-183 attest: the provider accepts")]
        serve::spawn("provider", Box::new(accept))?;
        Ok(Provider { at, seen })
    }

    /// What it was asked so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// One request of the relay's, which builds its heads itself: a length, no chunks.
fn answer(conn: &Conn, key: &str, seen: &Mutex<Seen>) -> io::Result<()> {
    let mut all = Vec::new();
    let mut buf = [0u8; 8192];
    let (head, body) = loop {
        let text = String::from_utf8_lossy(&all);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0usize) {
                break (head.to_string(), body.to_string());
            }
        }
        match conn.read(&mut buf, limits::PROBE_ANSWER)? {
            0 => return Ok(()),
            n if all.len() < limits::PROBE_BYTES => all.extend_from_slice(&buf[..n]),
            _ => return Ok(()),
        }
    };
    let reflect = body.contains(REFLECT);
    if let Ok(mut seen) = seen.lock() {
        let line = head.lines().next().unwrap_or_default();
        seen.requests.push(line.split(' ').take(2).collect::<Vec<_>>().join(" "));
        seen.with_key += usize::from(
            head.lines().any(|l| l.to_ascii_lowercase().starts_with("x-api-key:") && l.ends_with(key)),
        );
        let whole = format!("{head}{body}");
        seen.passed.extend(FORBIDDEN.iter().filter(|w| whole.contains(**w)).map(|w| w.to_string()));
        seen.reflected |= reflect;
    }
    let text = if reflect { ANSWER.replace("\"ok\"", &format!("\"{key}\"")) } else { ANSWER.to_string() };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    conn.write_all(&[head.as_bytes(), text.as_bytes()], limits::PROBE_ANSWER)
}
