//! The host's client of the control server. The box is an enemy: its socket is opened without following a link, every answer is
//! bounded in bytes and time, numbers are checked, and a box that does not answer ends the run. Called by `life`.

use crate::limits;
use crate::sys::net::{self, Conn};
use crate::wire::body::Body;
use crate::wire::control::{Event, SECRET_HEADER, Status, VERSION};
use crate::wire::head::Writer;
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
        status(&self.call("GET", &target, b"", wait + limits::CONTROL_TIME)?, since)
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
        let mut head = Writer::request(method, target)?;
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

/// The body of an answer to `GET /status?since=…`: events that go on from there, none missing.
pub fn status(bytes: &[u8], since: u64) -> Result<Status, Fault> {
    let status: Status = serde_json::from_slice(bytes).map_err(|_| Fault::Nonsense("not a status"))?;
    if status.version != VERSION {
        return Err(Fault::Nonsense("another version"));
    }
    let numbered = status.events.iter().zip(1u64..).all(|(e, i)| since.checked_add(i) == Some(e.n));
    if numbered { Ok(status) } else { Err(Fault::Nonsense("events are not numbered in order")) }
}

/// Reads a whole answer: status and body.
pub fn answer(conn: &Conn, method: &str, until: Instant) -> Result<(u16, Vec<u8>), Fault> {
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

/// BOX B14: a box that answers whatever it likes, or not at all.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A control socket in a directory of its own, which goes with it.
    struct Hostile(Client);

    impl std::ops::Deref for Hostile {
        type Target = Client;
        fn deref(&self) -> &Client {
            &self.0
        }
    }

    impl Drop for Hostile {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0.dir);
        }
    }

    /// An empty one.
    fn place() -> Hostile {
        let dir = std::env::temp_dir().join(format!("control-{}", crate::sys::proc::random_hex(6).unwrap()));
        std::fs::create_dir(&dir).unwrap();
        Hostile(Client { dir, secret: "s".into() })
    }

    /// One whose every connection is given to `serve`.
    fn hostile(serve: impl Fn(UnixStream) + Send + 'static) -> Hostile {
        let place = place();
        let listener = UnixListener::bind(place.dir.join("control.sock")).unwrap();
        std::thread::spawn(move || listener.incoming().for_each(|c| serve(c.unwrap())));
        place
    }

    /// A box that answers every request with these bytes and closes.
    fn says(answer: impl AsRef<[u8]> + Send + 'static) -> Hostile {
        hostile(move |mut conn| {
            let _ = conn.read(&mut [0; 4096]);
            let _ = conn.write_all(answer.as_ref());
        })
    }

    fn status_of(body: &str) -> Result<Status, Fault> {
        says(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).status(5)
    }

    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn box_b14_answers_that_are_none() {
        for answer in [
            &b""[..],
            b"\xff\xfe",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\n\x1b[m",
        ] {
            assert!(says(answer).status(0).is_err(), "{:?}", String::from_utf8_lossy(answer));
        }
        let Err(Fault::Refused(500, words)) =
            says(&b"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\n\x1b[m"[..]).status(0)
        else {
            panic!("not refused")
        };
        assert_eq!(words, "\\u{1b}[m");
    }

    #[test]
    fn box_b14_events_are_numbered_on_from_the_cursor() {
        let event = |n: &str| format!(r#"{{"n":{n},"what":{{"kind":"stdout","text":"x","more":false}}}}"#);
        let status =
            |events: &str| format!(r#"{{"version":{VERSION},"state":"running","events":[{events}]}}"#);
        assert_eq!(status_of(&status(&format!("{},{}", event("6"), event("7")))).unwrap().events.len(), 2);
        for bad in ["7", "5", "0", "18446744073709551615", "-1", "6.5"] {
            assert!(status_of(&status(&event(bad))).is_err(), "{bad}");
        }
        assert!(status_of(&status(&format!("{},{}", event("6"), event("6")))).is_err());
        let other = status("").replace(&format!("\"version\":{VERSION}"), "\"version\":99");
        assert!(matches!(status_of(&other), Err(Fault::Nonsense("another version"))));
        for body in ["", "null", "[]", "{}", "{\"version\":1,\"events\":{}}"] {
            assert!(status_of(body).is_err(), "{body}");
        }
        assert!(status_of(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn box_b14_hung_control_socket() {
        // Accepts and says nothing; drips a byte now and then; never ends its head, its body, its trailers.
        let silent = hostile(std::mem::forget);
        let drip = hostile(|mut conn| {
            while conn.write_all(b"H").is_ok() {
                std::thread::sleep(SHORT / 10)
            }
        });
        let endless = |start: &'static [u8], more: &'static [u8]| {
            hostile(move |mut conn| {
                let _ = conn.write_all(start);
                while conn.write_all(more).is_ok() {}
            })
        };
        let head = endless(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n");
        let body = endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4000\r\n");
        let close = endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096]);
        for client in [silent, drip, head, body, close] {
            // Ended by the time or by a size, whichever comes first; a hang would fail the whole test run.
            assert!(client.call("GET", "/status?since=0", b"", Duration::from_secs(2)).is_err());
        }
        // A backlog that is full: connect(2) itself would wait for ever.
        let full = place();
        let _listener = UnixListener::bind(full.dir.join("control.sock")).unwrap();
        let mut parked = Vec::new();
        loop {
            #[expect(clippy::disallowed_methods, reason = "tests")]
            match net::connect_unix(&full.dir, "control.sock", Duration::from_millis(50)) {
                Ok(conn) if parked.len() < 10_000 => parked.push(conn),
                _ => break,
            }
        }
        assert!(matches!(full.call("GET", "/", b"", SHORT), Err(Fault::Broken(_))), "{}", parked.len());
    }

    #[test]
    fn box_b14_what_is_no_socket_is_not_connected_to() {
        let bait = says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(bait.call("GET", "/", b"", SHORT).is_ok());
        let link = place();
        std::os::unix::fs::symlink(bait.dir.join("control.sock"), link.dir.join("control.sock")).unwrap();
        assert!(matches!(link.call("GET", "/", b"", SHORT), Err(Fault::Broken(_))));
    }

    #[test]
    fn a_box_that_fails_is_given_up_after_a_few_calls() {
        let calls = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let seen = std::sync::Arc::clone(&calls);
        let client = hostile(move |mut conn| {
            let _ = conn.read(&mut [0; 4096]);
            let first = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            let _ =
                conn.write_all(if first { b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" } else { b"no" });
        });
        let told = std::cell::RefCell::new(Vec::new());
        client.follow(b"{}", &|news| {
            told.borrow_mut().push(match news {
                News::Started => "started",
                News::Events(_) => "events",
                News::Lost(_) => "lost",
            });
            true
        });
        assert_eq!(told.into_inner(), ["started", "lost"]);
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1 + limits::CONTROL_FAILURES);
    }
}
