//! Hands an answer back: head from the provider's table, body as it comes and with the framing it came with, counted on the
//! way. The last bytes wait until the call is settled and recorded. An answer that was cut, or that holds the key, is never
//! completed: the client's connection is aborted.

use crate::catalog::providers::{Protocol, Provider};
use crate::limits;
use crate::relay::bodies::{Bodies, Body as Kept};
use crate::relay::exchange::Answer;
use crate::relay::inject;
use crate::relay::leak::{self, Window};
use crate::relay::pool::Link;
use crate::relay::serving::Serving;
use crate::relay::usage::{Reader, Usage};
use crate::sys::net::Conn;
use crate::sys::proc;
use crate::wire::body::Body;
use crate::wire::head::Writer;
use crate::wire::http::{self, Bad, Field, Framing, Response};
use std::io;
use std::time::Duration;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client has all of it.
    Whole,
    /// The provider broke off.
    Cut,
    /// The client left; the rest was read for its usage.
    ClientLeft,
    /// It held the key.
    KeyReflected,
    /// The record could not be written: the last bytes were kept back.
    Unrecorded,
}

impl Ended {
    /// As the log says it.
    pub fn word(self) -> &'static str {
        match self {
            Ended::Whole => "whole",
            Ended::Cut => "cut",
            Ended::ClientLeft => "client-left",
            Ended::KeyReflected => "key-reflected",
            Ended::Unrecorded => "unrecorded",
        }
    }
}

/// What is needed of an answer's head once its buffer is used for the body.
pub struct Head {
    /// Of the answer.
    pub status: u16,
    /// Of the answer.
    pub framing: Framing,
    /// The provider closes after it.
    pub close: bool,
    /// Where its body begins in the buffer.
    pub body_at: usize,
    /// The head for the client, ready to send.
    pub bytes: Vec<u8>,
    /// Reads the usage.
    pub reader: Reader,
}

/// The call that is answered.
pub struct Asked<'a> {
    /// Of its route.
    pub protocol: Protocol,
    /// Of the request.
    pub method: &'a str,
    /// It asked for a stream.
    pub streamed: bool,
    /// The client's connection is closed after it.
    pub last: bool,
}

/// Reads the head of `answer` in `buf` and makes the client's, in `room`. `None`: a head that `exchange` accepted is not there (a fault).
pub fn head(
    provider: &Provider,
    asked: &Asked<'_>,
    buf: &[u8],
    answer: &Answer,
    room: Vec<u8>,
) -> Result<Option<Head>, Bad> {
    let (start, filled) = (answer.start, answer.filled);
    let Some((r, used)) = http::response(buf.get(start..filled).unwrap_or_default(), asked.method)? else {
        return Ok(None);
    };
    let value = |name: &str| {
        r.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name)).map_or(&b""[..], |f| f.value)
    };
    let (kind, coding) = (value("content-type"), value("content-encoding"));
    let reader = Reader::new(asked.protocol, r.status, kind, coding, asked.streamed);
    let bytes = client_head(provider, &r, asked.last, answer.given_up, room)?;
    Ok(Some(Head {
        status: r.status,
        framing: r.framing,
        close: r.close,
        body_at: start.saturating_add(used),
        bytes,
        reader,
    }))
}

fn client_head(
    provider: &Provider,
    r: &Response<'_>,
    last: bool,
    given_up: bool,
    room: Vec<u8>,
) -> Result<Vec<u8>, Bad> {
    let mut w = Writer::response_in(room, r.status);
    if given_up {
        w.field("x-should-retry", b"false")?;
    }
    for f in &r.fields {
        let said = given_up && f.name.eq_ignore_ascii_case("x-should-retry");
        if goes_back(provider, f) && !said && !inject::named_by_connection(&r.fields, f.name) {
            w.field(f.name, f.value)?;
        }
    }
    match r.framing {
        Framing::None => {}
        Framing::Length(n) => w.number("content-length", n)?,
        // A body that ends with the connection gets chunks here, so that the client can tell its end from a cut.
        Framing::Chunked | Framing::UntilClose => w.field("transfer-encoding", b"chunked")?,
    }
    if last {
        w.field("connection", b"close")?;
    }
    Ok(w.end())
}

fn goes_back(provider: &Provider, f: &Field<'_>) -> bool {
    provider.response_headers.iter().any(|n| match n.strip_suffix('*') {
        Some(prefix) => f.name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)),
        None => n.eq_ignore_ascii_case(f.name),
    })
}

/// What came of it.
pub struct Handed {
    /// How it ended.
    pub ended: Ended,
    /// The connection to the provider, where it may serve again.
    pub link: Option<Link>,
    /// The memory of the client's head.
    pub room: Vec<u8>,
}

/// Settles and records: gets what the answer reported, body bytes, how it ended, the body's name where it is kept. False: the record could not be written.
pub type Settle<'s> = &'s mut dyn FnMut(Usage, u64, Ended, Option<String>) -> bool;

/// An answer under way. In `buf` stand, in this order: bytes read on but kept back, bytes not looked at yet.
struct Passage<'a> {
    relay: &'a Serving,
    client: &'a Conn,
    buf: &'a mut [u8],
    /// Bytes of the client's head that are still to be sent.
    head: Vec<u8>,
    body: Body,
    /// The client gets chunks although the provider sent none.
    rechunk: bool,
    /// The provider sends chunks.
    chunked: bool,
    reader: Reader,
    /// The search for the key, over all bytes and over the payload alone: chunk framing could split it.
    raw: Window,
    payload: Window,
    /// The same over what a compressed payload says.
    inflated: Window,
    /// Body bytes so far.
    bytes: u64,
    /// When the client was found to have left, and the body bytes then.
    left: Option<(Duration, u64)>,
    /// With `--log-bodies`: the body's file, or why there is none.
    kept: Option<io::Result<Kept<'a>>>,
}

/// Hands the whole answer on. `settle` is called exactly once, before the client can see the end.
pub fn pass(
    relay: &Serving,
    client: &Conn,
    answer: Answer,
    head: Head,
    buf: &mut [u8],
    settle: Settle<'_>,
) -> Handed {
    let Ok(body) = Body::new(head.framing, u64::MAX) else {
        settle(head.reader.finish(), 0, Ended::Cut, None);
        return Handed { ended: Ended::Cut, link: None, room: head.bytes };
    };
    let reflected = relay.guard.key_in(&head.bytes);
    let passage = Passage {
        relay,
        client,
        buf,
        head: head.bytes,
        body,
        rechunk: head.framing == Framing::UntilClose,
        chunked: head.framing == Framing::Chunked,
        reader: head.reader,
        raw: Window::default(),
        payload: Window::default(),
        inflated: Window::default(),
        bytes: 0,
        left: None,
        kept: relay.bodies.as_ref().map(Bodies::begin),
    };
    if reflected {
        return passage.abort(settle, Ended::KeyReflected);
    }
    let reusable = answer.sent_whole && !head.close;
    passage.run(answer.link, (head.body_at, answer.filled), reusable, settle)
}

impl Passage<'_> {
    fn run(mut self, mut link: Link, at: (usize, usize), reusable: bool, settle: Settle<'_>) -> Handed {
        let (mut from, mut filled) = at;
        let mut parsed = from;
        loop {
            if let Err(ended) = self.look(&mut parsed, filled) {
                return self.abort(settle, ended);
            }
            if self.body.done() {
                // Bytes after the end belong to nobody's answer: such a connection is not used again.
                let link = (reusable && parsed == filled).then_some(link);
                return self.complete(settle, (from, parsed), link);
            }
            // Compressed bytes that may make the beginning of a key readable wait whole: what has gone before them ends in none of it.
            let begun = match self.inflated.within() {
                true => parsed.saturating_sub(from),
                false => leak::begun(&self.relay.guard, self.buf.get(from..parsed).unwrap_or_default()),
            };
            let ready = parsed.saturating_sub(begun);
            self.send((from, ready), false);
            self.buf.copy_within(ready..filled, 0);
            (from, parsed, filled) = (0, begun, filled.saturating_sub(ready));
            match self.more(&mut link, filled) {
                Ok(0) if !self.body.closed() => return self.abort(settle, Ended::Cut),
                Ok(0) => {
                    // Only now is it worth asking how the stream ended: a length or a last chunk proves more.
                    return match link.ended_cleanly() {
                        true => self.complete(settle, (from, parsed), None),
                        false => self.abort(settle, Ended::Cut),
                    };
                }
                Ok(n) => filled = filled.saturating_add(n),
                Err(ended) => return self.abort(settle, ended),
            }
        }
    }

    /// Reads the framing on, counts, searches. Stops at the end of the body.
    fn look(&mut self, parsed: &mut usize, filled: usize) -> Result<(), Ended> {
        let guard = &self.relay.guard;
        let fresh = *parsed;
        while *parsed < filled && !self.body.done() {
            let unread = self.buf.get(*parsed..filled).unwrap_or_default();
            let (used, payload) = self.body.next(unread).map_err(|_| Ended::Cut)?;
            if used == 0 {
                break;
            }
            let (mut reflected, inflated) = (false, &mut self.inflated);
            self.reader.push(payload, &mut |piece| reflected = reflected || inflated.push(guard, piece));
            self.bytes = self.bytes.saturating_add(u64::try_from(payload.len()).unwrap_or(u64::MAX));
            if reflected || (self.chunked && self.payload.push(guard, payload)) {
                return Err(Ended::KeyReflected);
            }
            // Nothing is kept that was not searched: without chunks that is done below.
            if let (true, Some(Ok(kept))) = (self.chunked, &mut self.kept) {
                kept.push(payload);
            }
            *parsed = parsed.saturating_add(used);
        }
        let raw = self.buf.get(fresh..*parsed).unwrap_or_default();
        if self.raw.push(guard, raw) {
            return Err(Ended::KeyReflected);
        }
        if let (false, Some(Ok(kept))) = (self.chunked, &mut self.kept) {
            kept.push(raw);
        }
        Ok(())
    }

    /// Sends what is ready, the head before it; `end`: the last of a body that gets chunks here. A client that does not take it has left.
    fn send(&mut self, piece: (usize, usize), end: bool) {
        if self.left.is_some() {
            return;
        }
        let head = self.head.as_slice();
        let piece = self.buf.get(piece.0..piece.1).unwrap_or_default();
        let sent = if self.rechunk {
            let size = if piece.is_empty() { String::new() } else { format!("{:x}\r\n", piece.len()) };
            let close: &[u8] = if piece.is_empty() { b"" } else { b"\r\n" };
            let last: &[u8] = if end { b"0\r\n\r\n" } else { b"" };
            write(self.client, &[head, size.as_bytes(), piece, close, last])
        } else {
            write(self.client, &[head, piece])
        };
        self.head.clear();
        if !sent {
            self.left = Some((proc::monotonic(), self.bytes));
        }
    }

    /// Waits for more of the body. For a client that has left only so long and so much.
    fn more(&mut self, link: &mut Link, filled: usize) -> Result<usize, Ended> {
        let wait = match self.left {
            None => limits::UPSTREAM_IDLE,
            Some((since, bytes)) => {
                let time = limits::ORPHAN_TIME.saturating_sub(proc::monotonic().saturating_sub(since));
                if time.is_zero() || self.bytes.saturating_sub(bytes) > limits::ORPHAN_BYTES {
                    return Err(Ended::ClientLeft);
                }
                time
            }
        };
        let space = self.buf.get_mut(filled..).unwrap_or_default();
        link.read(space, wait).map_err(|_| if self.left.is_some() { Ended::ClientLeft } else { Ended::Cut })
    }

    /// Settles, and only then lets the last bytes go.
    fn complete(mut self, settle: Settle<'_>, piece: (usize, usize), link: Option<Link>) -> Handed {
        let ended = if self.left.is_some() { Ended::ClientLeft } else { Ended::Whole };
        let reader = std::mem::replace(&mut self.reader, Reader::new(Protocol::Plain, 0, b"", b"", false));
        let kept = self.kept();
        if !settle(reader.finish(), self.bytes, ended, kept) {
            self.client.reset_on_close();
            return Handed { ended: Ended::Unrecorded, link, room: self.head };
        }
        self.send(piece, true);
        Handed { ended, link, room: self.head }
    }

    /// The name of the body that was kept. Where that failed the run is over, and with it this call.
    fn kept(&mut self) -> Option<String> {
        let done = self.kept.take()?.and_then(|body| body.done());
        done.map_err(|e| self.relay.unkept(&e)).ok()
    }

    /// Settles an answer that has no end; the client must not take it for whole.
    fn abort(mut self, settle: Settle<'_>, ended: Ended) -> Handed {
        self.client.reset_on_close();
        let kept = self.kept();
        settle(self.reader.finish(), self.bytes, ended, kept);
        Handed { ended, link: None, room: self.head }
    }
}

/// One write where it fits; false: the client is gone, or takes nothing any more.
fn write(client: &Conn, parts: &[&[u8]]) -> bool {
    parts.iter().all(|p| p.is_empty()) || client.write_all(parts, limits::CLIENT_STALL).is_ok()
}
