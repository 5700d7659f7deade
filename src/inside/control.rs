//! The control server: HTTP/1.1 on `control.sock`. Reads the peer's identity at accept and never mixes the two kinds of
//! peer: each has its own queue and its own threads, made before the agent starts, so that a box full of hostile processes
//! cannot keep the host out. Knows bytes and deadlines; what a route means is in `routes`.

use crate::inside::routes::{Answer, Asker, Route, Routes};
use crate::limits;
use crate::secret::Secret;
use crate::sys::net::{Conn, Listener, Peer};
use crate::sys::serve;
use crate::wire::body::Body;
use crate::wire::control::SECRET_HEADER;
use crate::wire::head::Writer;
use crate::wire::http::{self, Bad, Framing};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who is the host, by the peer's credentials. The shipped role passes `outside`; a test without a pid namespace passes its own.
pub type HostRule = fn(Peer) -> bool;

/// A peer outside our pid namespace shows pid 0 (`SO_PEERCRED`, unix(7)); no process in the box can.
pub fn outside(peer: Peer) -> bool {
    peer.pid == 0
}

/// Starts the server's threads and returns; they live as long as the process.
pub fn start(listener: Listener, routes: &Arc<Routes>, is_host: HostRule) -> io::Result<()> {
    let host = pool(Asker::Host, limits::CONTROL_HOST_THREADS, limits::CONTROL_HOST_QUEUE, routes)?;
    let inbox = pool(Asker::Box, limits::CONTROL_BOX_THREADS, limits::CONTROL_BOX_QUEUE, routes)?;
    let body = Box::new(move || accept(&listener, &host, &inbox, is_host));
    #[expect(clippy::disallowed_methods, reason = "THREAD-60 accepts control connections")]
    serve::spawn("accept", body)?;
    Ok(())
}

/// Threads of one kind of peer, and the queue that feeds them.
fn pool(asker: Asker, threads: usize, queue: usize, routes: &Arc<Routes>) -> io::Result<SyncSender<Conn>> {
    let (give, take) = sync_channel(queue);
    let take = Arc::new(Mutex::new(take));
    for _ in 0..threads {
        let (take, routes) = (Arc::clone(&take), Arc::clone(routes));
        let body = Box::new(move || work(&take, asker, &routes));
        #[expect(clippy::disallowed_methods, reason = "THREAD-61 answers control connections")]
        serve::spawn("control", body)?;
    }
    Ok(give)
}

/// A connection for which there is no place is closed at once: it never delays the next.
fn accept(listener: &Listener, host: &SyncSender<Conn>, inbox: &SyncSender<Conn>, is_host: HostRule) {
    loop {
        let Ok(conn) = listener.accept() else {
            // Out of descriptors or memory: the connections that hold them end within their deadlines.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if let Ok(peer) = conn.peer() {
            let queue = if is_host(peer) { host } else { inbox };
            let _ = queue.try_send(conn);
        }
    }
}

fn work(take: &Mutex<Receiver<Conn>>, asker: Asker, routes: &Routes) {
    loop {
        let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(conn) = next else { return };
        // A panic ends this connection and not the thread: the pool must not shrink.
        let _ = catch_unwind(AssertUnwindSafe(|| converse(&conn, asker, routes)));
    }
}

/// Why no further request is read from a connection.
enum Stop {
    /// The peer left, stalled, or cannot be written to.
    Gone,
    /// It is told why.
    Refuse(Answer),
}

impl From<Bad> for Stop {
    fn from(bad: Bad) -> Stop {
        Stop::Refuse(Answer::refuse(bad.status(), bad.why()))
    }
}

/// One connection: requests one after another until one is refused or asks for the end.
fn converse(conn: &Conn, asker: Asker, routes: &Routes) {
    let mut buf = Vec::new();
    let stop = loop {
        match exchange(conn, &mut buf, asker, routes) {
            Ok(true) => {}
            Ok(false) => return,
            Err(stop) => break stop,
        }
    };
    if let Stop::Refuse(answer) = stop {
        let _ = write(conn, &answer, true);
    }
}

/// One request and its answer; `false`: the connection is done.
fn exchange(conn: &Conn, buf: &mut Vec<u8>, asker: Asker, routes: &Routes) -> Result<bool, Stop> {
    let head = read_head(conn, buf)?;
    let route = routes.admit(asker, &head.method, &head.path, &head.secret).map_err(Stop::Refuse)?;
    let body = Secret::new(read_body(conn, buf, &head, route)?);
    let answer = routes.answer(route, head.query.as_deref(), &body, &|| conn.readable());
    drop(body);
    let done = head.close || answer.status != 200 || answer.ends;
    let written = write(conn, &answer, done);
    if answer.ends {
        routes.end();
    }
    written.map_err(|_| Stop::Gone)?;
    Ok(!done)
}

/// What is kept of a request's head.
struct Head {
    method: String,
    path: String,
    query: Option<String>,
    /// Value of the control secret's field; empty where there is none.
    secret: Vec<u8>,
    framing: Framing,
    close: bool,
    expect_continue: bool,
}

fn read_head(conn: &Conn, buf: &mut Vec<u8>) -> Result<Head, Stop> {
    let mut until = Instant::now() + limits::CONTROL_IDLE;
    loop {
        let parsed = match http::request(buf)? {
            None => None,
            Some((request, used)) => {
                let secret = http::one(&request.fields, SECRET_HEADER)?.unwrap_or_default();
                let head = Head {
                    method: request.method.to_owned(),
                    path: request.path.to_owned(),
                    query: request.query.map(str::to_owned),
                    secret: secret.to_vec(),
                    framing: request.framing,
                    close: request.close,
                    expect_continue: request.expect_continue,
                };
                Some((head, used))
            }
        };
        if let Some((head, used)) = parsed {
            buf.drain(..used);
            return Ok(head);
        }
        if buf.len() >= limits::CONTROL_HEAD_BYTES {
            return Err(Bad::TooLong("the head is over the limit").into());
        }
        let first = buf.is_empty();
        more(conn, buf, 4096, until)?;
        if first {
            until = Instant::now() + limits::CONTROL_HEAD_TIME;
        }
    }
}

/// The body whole, at most what the route takes; one that is longer by its own word is refused before it is read.
fn read_body(conn: &Conn, buf: &mut Vec<u8>, head: &Head, route: Route) -> Result<Vec<u8>, Stop> {
    let mut body = Body::new(head.framing, route.body_limit())?;
    let mut whole = Vec::new();
    if let Framing::Length(n) = head.framing {
        // Reserved at once: growing would leave copies of secrets behind. The limit was checked above.
        whole.reserve_exact(usize::try_from(n).unwrap_or(0));
    }
    if head.expect_continue && !body.done() && buf.is_empty() {
        let go_on = Writer::response(100).end();
        conn.write_all(&[&go_on], limits::CONTROL_HEAD_TIME).map_err(|_| Stop::Gone)?;
    }
    let until = Instant::now() + limits::CONTROL_BODY_TIME;
    loop {
        let mut at = 0;
        while !body.done() {
            let (used, payload) = body.next(buf.get(at..).unwrap_or_default())?;
            whole.extend_from_slice(payload);
            at += used;
            if used == 0 {
                break;
            }
        }
        buf.drain(..at);
        if body.done() {
            return Ok(whole);
        }
        more(conn, buf, limits::COPY_BYTES, until)?;
    }
}

/// Appends what comes next, before `until`.
fn more(conn: &Conn, buf: &mut Vec<u8>, most: usize, until: Instant) -> Result<(), Stop> {
    let left = until.saturating_duration_since(Instant::now());
    let have = buf.len();
    buf.resize(have + most, 0);
    let got = if left.is_zero() { 0 } else { conn.read(&mut buf[have..], left).unwrap_or(0) };
    buf.truncate(have + got);
    if got == 0 { Err(Stop::Gone) } else { Ok(()) }
}

fn write(conn: &Conn, answer: &Answer, close: bool) -> io::Result<()> {
    let mut head = Writer::response(answer.status);
    let length = answer.body.len().to_string();
    let fields = [
        Some(("content-type", "application/json")),
        Some(("content-length", length.as_str())),
        answer.allow.map(|method| ("allow", method)),
        close.then_some(("connection", "close")),
    ];
    for (name, value) in fields.into_iter().flatten() {
        // Our own names and values: digits and tokens.
        head.field(name, value.as_bytes()).map_err(|bad| io::Error::other(bad.why()))?;
    }
    conn.write_all(&[&head.end(), &answer.body], limits::CONTROL_HEAD_TIME)
}
