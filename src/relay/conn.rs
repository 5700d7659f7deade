//! One connection of the box, from its first byte to its last. `call` is the road of a request, in order; each step is a function of
//! one of the files beside this one. A request that is refused anywhere closes the connection.

use crate::catalog::providers::Protocol;
use crate::error::Exit;
use crate::limits;
use crate::relay::answer::{self, Asked, Ended};
use crate::relay::budget::{Asking, Hold};
use crate::relay::exchange::Failed;
use crate::relay::inject::{self, Outgoing};
use crate::relay::open::Open;
use crate::relay::policy::{self, Judged};
use crate::relay::receive::Held;
use crate::relay::refuse::{self, Refusal};
use crate::relay::retry::{self, Asker};
use crate::relay::serving::Serving;
use crate::relay::usage::Usage;
use crate::relay::{admit, receive};
use crate::sys::net::Conn;
use crate::sys::proc;
use crate::wire::http::{self, Framing, Request};
use std::io::ErrorKind;
use std::time::Duration;

/// Serves one connection until it ends, is refused, or the run is over.
pub fn serve(relay: &Serving, conn: &Conn) {
    if !admit::ours(relay, conn) {
        return;
    }
    let mut c = Client {
        relay,
        conn,
        buf: vec![0; limits::HEAD_BYTES],
        filled: 0,
        scratch: vec![0; limits::COPY_BYTES],
        room: Room::default(),
    };
    // A new connection that says nothing is closed sooner than one that has been of use.
    let mut idle = limits::HEAD_TIME;
    while let Next::Go = c.request(idle) {
        idle = limits::KEEPALIVE_TIME;
    }
}

/// What follows a request on its connection.
enum Next {
    /// The next one.
    Go,
    /// Nothing.
    Close,
}

struct Client<'a> {
    relay: &'a Serving,
    conn: &'a Conn,
    /// The head being read; what came behind a request is moved to its front.
    buf: Vec<u8>,
    filled: usize,
    /// Request bodies on their way in, then answers on their way back.
    scratch: Vec<u8>,
    room: Room,
}

/// Memory of the last call, for the next: allocating takes a lock that all connections share.
#[derive(Default)]
struct Room {
    /// Of the request's body.
    body: Vec<u8>,
    /// Of the head to the provider, wiped.
    sent: Vec<u8>,
    /// Of the head to the client.
    back: Vec<u8>,
}

impl Client<'_> {
    /// Reads a head and serves its request.
    fn request(&mut self, idle: Duration) -> Next {
        let mut deadline = None;
        loop {
            let read = self.buf.get(..self.filled).unwrap_or_default();
            match http::request(read) {
                Ok(Some((head, used))) => {
                    let rest = read.get(used..).unwrap_or_default();
                    let next =
                        match call(self.relay, self.conn, &head, rest, &mut self.scratch, &mut self.room) {
                            Ok(Served::Keep(after)) => self.keep(&after),
                            Ok(Served::Close) => Next::Close,
                            Err(refusal) => {
                                let of = (head.method, head.path);
                                refused(self.relay, self.conn, &refusal, of, &mut self.scratch)
                            }
                        };
                    self.relay.capped();
                    return next;
                }
                Err(bad) => return refused(self.relay, self.conn, &bad.into(), ("", ""), &mut self.scratch),
                Ok(None) => {}
            }
            if self.filled > 0 && deadline.is_none() {
                deadline = Some(proc::monotonic().saturating_add(limits::HEAD_TIME));
            }
            let wait = deadline.map_or(idle, |d| d.saturating_sub(proc::monotonic()));
            // What comes behind the head is better read to its own place: most heads fit, and little of a body comes with them.
            let most = self.filled.saturating_add(limits::HEAD_READ).min(self.buf.len());
            let Some(space) = self.buf.get_mut(self.filled..most).filter(|s| !s.is_empty()) else {
                let long = Refusal::new(431, "the head is too long");
                return refused(self.relay, self.conn, &long, ("", ""), &mut self.scratch);
            };
            match self.conn.read(space, wait) {
                Ok(n) if n > 0 => self.filled = self.filled.saturating_add(n),
                Err(e) if e.kind() == ErrorKind::TimedOut && self.filled > 0 => {
                    let slow = Refusal::new(408, "the head comes too slowly");
                    return refused(self.relay, self.conn, &slow, ("", ""), &mut self.scratch);
                }
                // Closed, or silent: an idle connection is owed no answer.
                _ => return Next::Close,
            }
        }
    }

    /// Puts what came behind the request in front.
    fn keep(&mut self, after: &[u8]) -> Next {
        let Some(front) = self.buf.get_mut(..after.len()) else {
            return Next::Close;
        };
        front.copy_from_slice(after);
        self.filled = after.len();
        Next::Go
    }
}

/// What is left of a connection after a served request.
enum Served {
    /// It goes on; these bytes of the next request are here already.
    Keep(Vec<u8>),
    /// It must be closed.
    Close,
}

/// The road of a request: admit, receive, judge, record, inject, forward, settle.
fn call(
    relay: &Serving,
    conn: &Conn,
    head: &Request<'_>,
    rest: &[u8],
    scratch: &mut [u8],
    room: &mut Room,
) -> Result<Served, Refusal> {
    if relay.over() {
        return Err(Refusal::new(403, "the run has ended"));
    }
    admit::keyless(relay, head)?;
    admit::host(relay, head)?;
    admit::singletons(&head.fields)?;
    admit::token(relay, head)?;
    let route = admit::route(relay, head)?;
    admit::content(head)?;
    let held = Held::new(&relay.body_bytes, std::mem::take(&mut room.body));
    let received = receive::body(conn, head.framing, rest, head.expect_continue, scratch, held)?;
    let body = received.body.bytes();
    admit::switches(&relay.provider, &relay.grants, route, head)?;
    relay.guard.request(body, &relay.body_bytes)?;
    let judged = match head.method {
        "GET" => policy::bodyless(),
        _ => policy::body(route.protocol, body, &relay.grants, &relay.rules)?,
    };
    let pieces = inject::spliced(body, &judged);
    let length = pieces.iter().map(|p| p.len()).sum::<usize>();
    let hold = admitted(relay, conn, route.protocol, &judged, length)?;
    let _busy = relay.meter.busy(&hold);
    let mut open = Open::new(relay, head, &judged, hold);
    open.record_verdict(length, &pieces)?;
    let out = Outgoing {
        method: head.method,
        target: head.target,
        fields: &head.fields,
        length: (head.method == "POST").then_some(length),
    };
    let memory = std::mem::take(&mut room.sent);
    let sent = inject::head(&judged, &relay.provider, &relay.upstream_host, relay.guard.key(), &out, memory)
        .inspect_err(|refusal| open.unsent(refusal.status()))?;
    let mut parts = Vec::with_capacity(pieces.len().saturating_add(1));
    #[expect(clippy::disallowed_methods, reason = "KEY-25 the head with the key, to the provider")]
    parts.push(sent.expose());
    parts.extend_from_slice(&pieces);
    let asker = Asker { relay, client: conn, call: open.number, method: head.method };
    let answer = match retry::ask(&asker, &parts, scratch) {
        Ok(answer) => answer,
        Err(failed) => return Err(open.failed(failed)),
    };
    drop(parts);
    room.sent = sent.into_room();
    let asked =
        Asked { protocol: route.protocol, method: head.method, streamed: judged.streamed, last: head.close };
    let back = answer::head(&relay.provider, &asked, scratch, &answer, std::mem::take(&mut room.back));
    let Ok(Some(back)) = back else {
        return Err(open.failed(Failed::Broken("the head of its answer cannot be read".into())));
    };
    let status = back.status;
    if back.reader.opaque() && relay.grants.sealed && back.framing != Framing::None {
        return Err(open.unreadable());
    }
    if matches!(status, 401 | 403) {
        return Err(open.key_refused(status));
    }
    let mut settle = |usage: Usage, bytes: u64, ended: Ended, kept: Option<String>| {
        open.kept = kept;
        open.settle(status, bytes, ended.word(), usage)
    };
    let handed = answer::pass(relay, conn, answer, back, scratch, &mut settle);
    if let Some(link) = handed.link {
        relay.pool.put(link);
    }
    relay.pool.called();
    if handed.ended == Ended::KeyReflected {
        relay.end("the provider sent the key back in an answer, which was cut", Exit::Policy);
    }
    room.back = handed.room;
    room.body = received.body.into_room();
    if room.body.capacity() > limits::BODY_KEPT {
        room.body = Vec::new();
    }
    if handed.ended == Ended::Whole && !head.close {
        Ok(Served::Keep(received.after))
    } else {
        Ok(Served::Close)
    }
}

/// The caps have room for the call, and it has its turn.
fn admitted(
    relay: &Serving,
    conn: &Conn,
    protocol: Protocol,
    judged: &Judged,
    length: usize,
) -> Result<Hold, Refusal> {
    let bytes = u64::try_from(length).unwrap_or(u64::MAX);
    let asking = Asking { protocol, model: judged.model.as_deref(), bytes, terms: &judged.terms };
    let gone = || conn.hung_up() || relay.over();
    relay.meter.admit(&asking, &gone).inspect_err(|_| relay.reached())
}

/// A request that is refused closes its connection.
fn refused(relay: &Serving, conn: &Conn, refusal: &Refusal, of: (&str, &str), scratch: &mut [u8]) -> Next {
    refuse::away(relay, conn, refusal, of, scratch);
    Next::Close
}
