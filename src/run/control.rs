//! The host's client of the control server. The box is an enemy: its socket is opened without following a link, every answer is
//! bounded in bytes and time, numbers are checked, and a box that does not answer ends the run. Called by `life`.

use crate::limits;
use crate::sys::net::{self, Conn};
use crate::wire::body::Body;
use crate::wire::control::{Event, SECRET_HEADER, Status, VERSION};
use crate::wire::http::{self, Bad};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Whom to call.
#[derive(Clone)]
pub struct Client {
    /// The channel's `box/` directory on the host.
    pub dir: PathBuf,
    /// Said with every call.
    pub secret: String,
}

/// Why a call failed.
#[derive(Debug)]
pub enum Fault {
    /// Nobody listens (yet).
    Absent(io::Error),
    /// The connection broke, or the time was up.
    Broken(io::Error),
    /// Answered, but not 200: status and the first words of the body.
    Refused(u16, String),
    /// Answered what no box of ours answers.
    Nonsense(&'static str),
}

impl Fault {
    /// One clause for a person.
    pub fn why(&self) -> String {
        match self {
            Fault::Absent(e) => format!("nobody listens on the control socket: {e}"),
            Fault::Broken(e) => format!("the control call broke: {e}"),
            Fault::Refused(status, words) => format!("the box answered {status} {words}"),
            Fault::Nonsense(why) => format!("the box answered nonsense: {why}"),
        }
    }
}

impl From<Bad> for Fault {
    fn from(bad: Bad) -> Fault {
        Fault::Nonsense(bad.why())
    }
}

/// What the box tells while it lives.
pub enum News {
    /// `POST /start` was taken.
    Started,
    /// Events in order, none missing, and whether the box says it is done with its turn.
    Events(Vec<Event>),
    /// It did not start or no longer answers; nothing follows.
    Lost(String),
}

impl Client {
    /// Starts the first turn as soon as the box listens, then reads events until `tell` returns false or the box is lost.
    /// `body`: a `wire::control::Start` as JSON. Runs on a thread of its own.
    pub fn follow(&self, body: &[u8], tell: &dyn Fn(News) -> bool) {
        match self.start(body) {
            Ok(()) if tell(News::Started) => {}
            Ok(()) => return,
            Err(fault) => {
                tell(News::Lost(fault.why()));
                return;
            }
        }
        let (mut since, mut failures) = (0, 0);
        loop {
            match self.status(since) {
                Ok(status) => {
                    failures = 0;
                    since = status.events.last().map_or(since, |e| e.n);
                    if !tell(News::Events(status.events)) {
                        return;
                    }
                }
                Err(fault) => {
                    failures += 1;
                    if failures >= limits::CONTROL_FAILURES {
                        tell(News::Lost(fault.why()));
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }

    /// `POST /start`, tried again while nobody listens yet.
    fn start(&self, body: &[u8]) -> Result<(), Fault> {
        let until = Instant::now() + limits::BOX_START;
        loop {
            // Sent once only: a box that took it and lost the answer would refuse a second.
            match self.call("POST", "/start", body, limits::CONTROL_TIME) {
                Err(Fault::Absent(_)) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                other => return other.map(|_| ()),
            }
        }
    }

    /// The events after `since`, which acknowledges all up to it.
    fn status(&self, since: u64) -> Result<Status, Fault> {
        let wait = limits::LONG_POLL;
        let target = format!("/status?since={since}&wait={}", wait.as_secs());
        let bytes = self.call("GET", &target, b"", wait + limits::CONTROL_TIME)?;
        let status: Status = serde_json::from_slice(&bytes).map_err(|_| Fault::Nonsense("not a status"))?;
        if status.version != VERSION {
            return Err(Fault::Nonsense("another version"));
        }
        let numbered = status.events.iter().zip(1u64..).all(|(e, i)| since.checked_add(i) == Some(e.n));
        if numbered { Ok(status) } else { Err(Fault::Nonsense("events are not numbered in order")) }
    }

    /// Asks the box to end.
    pub fn shutdown(&self) -> Result<(), Fault> {
        self.call("DELETE", "/shutdown", b"", Duration::from_secs(2)).map(|_| ())
    }

    /// One call on a connection of its own; `time` bounds the whole of it.
    fn call(&self, method: &str, target: &str, body: &[u8], time: Duration) -> Result<Vec<u8>, Fault> {
        let until = Instant::now() + time;
        #[expect(clippy::disallowed_methods, reason = "NET-45 the control socket of the box")]
        let conn = net::connect_unix(&self.dir, "control.sock", time).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Fault::Absent(e),
            _ => Fault::Broken(e),
        })?;
        let head = self.head(method, target, body.len())?;
        // A refusal may come before the body is read: then what was sent so far is enough.
        conn.send(&[&head, body], left(until)?).map_err(Fault::Broken)?;
        let (status, bytes) = answer(&conn, method, until)?;
        match status {
            200 => Ok(bytes),
            _ => Err(Fault::Refused(status, words(&bytes))),
        }
    }

    fn head(&self, method: &str, target: &str, length: usize) -> Result<Vec<u8>, Bad> {
        let mut head = http::Writer::request(method, target)?;
        head.field("Host", b"box")?;
        head.field(SECRET_HEADER, self.secret.as_bytes())?;
        head.field("Connection", b"close")?;
        if length > 0 {
            head.field("Content-Type", b"application/json")?;
            head.field("Content-Length", length.to_string().as_bytes())?;
        }
        Ok(head.end())
    }
}

/// Reads a whole answer: status and body.
fn answer(conn: &Conn, method: &str, until: Instant) -> Result<(u16, Vec<u8>), Fault> {
    let mut buf = Vec::new();
    let (status, framing, used) = loop {
        if let Some((head, used)) = http::response(&buf, method)? {
            if head.status >= 200 {
                break (head.status, head.framing, used);
            }
            return Err(Fault::Nonsense("an interim answer"));
        }
        if buf.len() > limits::HEAD_BYTES {
            return Err(Fault::Nonsense("an endless head"));
        }
        if more(conn, &mut buf, until)? == 0 {
            return Err(Fault::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
    };
    let mut body = Body::new(framing, limits::CONTROL_BODY_BYTES)?;
    let mut raw = buf.split_off(used);
    let mut out = Vec::new();
    loop {
        let mut at = 0;
        while !body.done() {
            let (n, payload) = body.next(&raw[at..])?;
            out.extend_from_slice(payload);
            at += n;
            if n == 0 {
                break;
            }
        }
        if body.done() {
            return Ok((status, out));
        }
        raw.drain(..at);
        if more(conn, &mut raw, until)? == 0 {
            return match body.closed() {
                true => Ok((status, out)),
                false => Err(Fault::Broken(io::ErrorKind::UnexpectedEof.into())),
            };
        }
    }
}

/// Reads once to the end of `buf`; 0 at the end of the stream.
fn more(conn: &Conn, buf: &mut Vec<u8>, until: Instant) -> Result<usize, Fault> {
    let mut piece = [0u8; 16 * 1024];
    let n = conn.read(&mut piece, left(until)?).map_err(Fault::Broken)?;
    buf.extend_from_slice(&piece[..n]);
    Ok(n)
}

/// The time that is left of a call.
fn left(until: Instant) -> Result<Duration, Fault> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(Fault::Broken(io::ErrorKind::TimedOut.into())),
        left => Ok(left),
    }
}

/// The start of an error body, for a person.
fn words(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(400)];
    crate::wire::text::short(String::from_utf8_lossy(start).trim(), 200)
}
