//! A small control client: one request per connection, whole answers.

use sanduk::sys::net::{Conn, connect_unix};
use sanduk::wire::body::Body;
use sanduk::wire::control::{Event, SECRET_HEADER, Start, Status, Turn, VERSION, What};
use sanduk::wire::http;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
pub const WAIT: Duration = Duration::from_secs(60);

pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: serde_json::Value,
}

pub struct Client {
    pub dir: PathBuf,
}

impl Client {
    pub fn new(dir: &Path) -> Client {
        Client { dir: dir.to_owned() }
    }

    pub fn connect(&self) -> io::Result<Conn> {
        connect_unix(&self.dir, "control.sock", WAIT)
    }

    /// One call with the control secret.
    pub fn call(&self, method: &str, target: &str, body: &[u8]) -> io::Result<Reply> {
        self.call_as(method, target, &format!("{SECRET_HEADER}: {SECRET}\r\n"), body)
    }

    /// One call with these header lines.
    pub fn call_as(&self, method: &str, target: &str, fields: &str, body: &[u8]) -> io::Result<Reply> {
        let conn = self.connect()?;
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: box\r\n{fields}content-length: {}\r\n\r\n",
            body.len()
        );
        // A server that refuses the head may close before it took the body: its answer is what counts.
        let _ = conn.write_all(&[head.as_bytes(), body], WAIT);
        read_reply(&conn, method)
    }

    /// The events after `since` and the state.
    pub fn status(&self, since: u64, wait: u64) -> Status {
        let reply = self.call("GET", &format!("/status?since={since}&wait={wait}"), b"").unwrap();
        assert_eq!(reply.status, 200, "{}", reply.body);
        serde_json::from_value(reply.body).unwrap()
    }

    /// Every event from the first on, until the turn ended; checks that there is no gap.
    pub fn events(&self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        loop {
            let since = all.last().map_or(0, |e| e.n);
            let status = self.status(since, 20);
            assert!(
                status.events.iter().zip(since + 1..).all(|(e, n)| e.n == n),
                "events are numbered without gaps"
            );
            all.extend(status.events);
            if status.state == "idle" && matches!(all.last(), Some(e) if is_end(&e.what)) {
                return all;
            }
        }
    }
}

fn is_end(what: &What) -> bool {
    matches!(what, What::TurnEnd(_) | What::TurnFailed(_))
}

pub fn read_reply(conn: &Conn, method: &str) -> io::Result<Reply> {
    let (mut buf, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        if let Some((head, used)) = http::response(&buf, method).map_err(|b| io::Error::other(b.why()))? {
            let (status, framing) = (head.status, head.framing);
            let text = String::from_utf8_lossy(&buf[..used]).into_owned();
            buf.drain(..used);
            let mut body = Body::new(framing, u64::MAX).unwrap();
            let mut whole = Vec::new();
            while !body.done() {
                let (n, payload) = body.next(&buf).map_err(|b| io::Error::other(b.why()))?;
                whole.extend_from_slice(payload);
                buf.drain(..n);
                if n == 0 {
                    fill(conn, &mut buf, &mut chunk)?;
                }
            }
            let body = serde_json::from_slice(&whole).map_err(io::Error::other)?;
            return Ok(Reply { status, head: text, body });
        }
        fill(conn, &mut buf, &mut chunk)?;
    }
}

fn fill(conn: &Conn, buf: &mut Vec<u8>, chunk: &mut [u8]) -> io::Result<()> {
    match conn.read(chunk, WAIT)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n => {
            buf.extend_from_slice(&chunk[..n]);
            Ok(())
        }
    }
}

/// A turn that runs a shell script.
pub fn shell(script: &str) -> Turn {
    Turn {
        id: "t1".to_owned(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        env: [("PATH", "/usr/bin:/bin"), ("HOME", "/home/agent")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .to_vec(),
        files: Vec::new(),
        stdin: String::new(),
    }
}

pub fn start(turn: Turn) -> Start {
    Start {
        version: VERSION,
        control_secret: SECRET.to_owned(),
        turn,
        forward_port: 0,
        grace_seconds: 120,
        event_bytes: 4 * 1024 * 1024,
    }
}

/// The lines of one stream, pieces joined.
pub fn text(events: &[Event], stderr: bool) -> Vec<String> {
    let (mut out, mut open) = (Vec::new(), false);
    for event in events {
        let line = match &event.what {
            What::Stdout(line) if !stderr => line,
            What::Stderr(line) if stderr => line,
            _ => continue,
        };
        match out.last_mut() {
            Some(last) if open => String::push_str(last, &line.text),
            _ => out.push(line.text.clone()),
        }
        open = line.more;
    }
    out
}

/// Exit code and signal of the turn.
pub fn ending(events: &[Event]) -> (Option<i32>, Option<i32>) {
    match &events.last().unwrap().what {
        What::TurnEnd(end) => (end.code, end.signal),
        other => panic!("the turn did not end: {other:?}"),
    }
}
