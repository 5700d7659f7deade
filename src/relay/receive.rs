//! Reads a request's body: whole or not at all, bounded in size, time and over all connections. Called by `conn`.

use crate::limits;
use crate::relay::refuse::Refusal;
use crate::sys::net::Conn;
use crate::sys::proc;
use crate::wire::body::Body;
use crate::wire::http::Framing;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Body bytes, counted against the relay's total for as long as they are held.
pub struct Held<'t> {
    /// Memory, all of it initialised once: the payload, without framing, then room for more or an earlier body's remains.
    room: Vec<u8>,
    filled: usize,
    total: &'t AtomicUsize,
    counted: usize,
}

impl<'t> Held<'t> {
    /// Empty; `room` is memory of an earlier body.
    pub fn new(total: &'t AtomicUsize, room: Vec<u8>) -> Held<'t> {
        Held { room, filled: 0, total, counted: 0 }
    }

    /// The payload so far.
    pub fn bytes(&self) -> &[u8] {
        self.room.get(..self.filled).unwrap_or_default()
    }

    /// Gives the memory up for the next body.
    pub fn into_room(mut self) -> Vec<u8> {
        std::mem::take(&mut self.room)
    }

    /// Counts first, then grows.
    fn grow(&mut self, to: usize) -> Result<(), Refusal> {
        let more = to.saturating_sub(self.counted);
        let before = self.total.fetch_add(more, Ordering::Relaxed);
        self.counted = self.counted.saturating_add(more);
        if before.saturating_add(more) > limits::BODY_TOTAL {
            return Err(full());
        }
        if self.room.len() < to {
            self.room.resize(to, 0);
        }
        Ok(())
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let end = self.filled.saturating_add(piece.len());
        self.grow(end)?;
        if let Some(to) = self.room.get_mut(self.filled..end) {
            to.copy_from_slice(piece);
            self.filled = end;
        }
        Ok(())
    }

    /// Space for some of the `left` bytes that are to come: as much as has come already, or is here anyway. What was announced
    /// and not sent costs little.
    fn space(&mut self, left: usize) -> Result<&mut [u8], Refusal> {
        let here = self.room.len().saturating_sub(self.filled);
        let end = self.filled.saturating_add(left.min(self.filled.max(here).max(limits::COPY_BYTES)));
        self.grow(end)?;
        Ok(self.room.get_mut(self.filled..end).unwrap_or_default())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// Memory beside a body, counted like it for as long as this lives.
pub struct Beside<'t> {
    total: &'t AtomicUsize,
    counted: usize,
}

impl<'t> Beside<'t> {
    /// So many bytes, if there is room for them.
    pub fn new(total: &'t AtomicUsize, bytes: usize) -> Result<Beside<'t>, Refusal> {
        let of = Beside { total, counted: bytes };
        match total.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > limits::BODY_TOTAL {
            true => Err(full()),
            false => Ok(of),
        }
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

fn full() -> Refusal {
    Refusal::new(503, "too many large requests are under way")
}

/// What a connection had read when a request was whole: the body, and the bytes after it (the next head).
pub struct Received<'t> {
    /// Payload.
    pub body: Held<'t>,
    /// The start of the next request, where the client did not wait.
    pub after: Vec<u8>,
}

/// Reads the body that begins with `rest` and goes on in `conn`. `go_on`: the client waits for 100 Continue before it sends.
pub fn body<'t>(
    conn: &Conn,
    framing: Framing,
    rest: &[u8],
    go_on: bool,
    scratch: &mut [u8],
    mut held: Held<'t>,
) -> Result<Received<'t>, Refusal> {
    let most = u64::try_from(limits::BODY_BYTES).unwrap_or(u64::MAX);
    let mut state = Body::new(framing, most)?;
    let mut used = take(&mut state, rest, &mut held)?;
    if state.done() {
        return Ok(Received { body: held, after: rest.get(used..).unwrap_or_default().to_vec() });
    }
    if go_on && rest.is_empty() {
        conn.write_all(&[b"HTTP/1.1 100 Continue\r\n\r\n"], limits::CLIENT_STALL).map_err(|_| gone())?;
    }
    let begun = proc::monotonic();
    loop {
        let have = held.bytes().len();
        // A body of known length is read where it stays; one in chunks is freed of them on the way.
        let space = match framing {
            Framing::Length(n) => {
                held.space(usize::try_from(n).unwrap_or(usize::MAX).saturating_sub(have))?
            }
            _ => &mut *scratch,
        };
        let n = match conn.read(space, left(begun, have)) {
            Ok(0) => return Err(gone()),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::TimedOut => {
                return Err(Refusal::new(408, "the body comes too slowly"));
            }
            Err(_) => return Err(gone()),
        };
        let after = if let Framing::Length(_) = framing {
            state.next(space.get(..n).unwrap_or_default())?;
            held.filled = have.saturating_add(n);
            Vec::new()
        } else {
            let piece = scratch.get(..n).unwrap_or_default();
            used = take(&mut state, piece, &mut held)?;
            piece.get(used..).unwrap_or_default().to_vec()
        };
        if state.done() {
            return Ok(Received { body: held, after });
        }
        if left(begun, held.bytes().len()).is_zero() {
            return Err(Refusal::new(408, "the body comes too slowly"));
        }
    }
}

/// Feeds a piece to the framing and keeps its payload; returns how many bytes of it belong to the body.
fn take(state: &mut Body, piece: &[u8], held: &mut Held<'_>) -> Result<usize, Refusal> {
    let mut used = 0usize;
    loop {
        let (n, payload) = state.next(piece.get(used..).unwrap_or_default())?;
        used = used.saturating_add(n);
        held.add(payload)?;
        if n == 0 || state.done() {
            return Ok(used);
        }
    }
}

/// Time that a body of which `have` bytes came may still take.
fn left(begun: Duration, have: usize) -> Duration {
    let earned = u64::try_from(have).unwrap_or(u64::MAX).checked_div(limits::BODY_RATE).unwrap_or(0);
    let allowed = limits::BODY_TIME.saturating_add(Duration::from_secs(earned));
    allowed.saturating_sub(proc::monotonic().saturating_sub(begun))
}

/// Half a body is nobody's request.
fn gone() -> Refusal {
    Refusal::new(400, "the body ended early")
}

#[cfg(test)]
mod tests {
    use super::Held;
    use crate::limits;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// BOX B27: memory of bodies is bounded over all connections, and given back.
    #[test]
    fn box_b27_total_of_bodies() {
        let total = AtomicUsize::new(limits::BODY_TOTAL.saturating_sub(10));
        let mut a = Held::new(&total, Vec::new());
        assert!(a.add(&[0; 8]).is_ok());
        let mut b = Held::new(&total, Vec::new());
        assert_eq!(b.add(&[0; 3]).map_err(|r| r.status), Err(503));
        drop(b);
        assert!(a.add(&[0; 2]).is_ok());
        drop(a);
        assert_eq!(total.load(Ordering::Relaxed), limits::BODY_TOTAL.saturating_sub(10));
    }

    /// Memory of an earlier body is room, never content.
    #[test]
    fn an_earlier_body_is_not_seen() {
        let total = AtomicUsize::new(0);
        let mut held = Held::new(&total, b"earlier body".to_vec());
        assert!(held.add(b"new").is_ok());
        assert_eq!(held.bytes(), b"new");
        // What is here already is offered whole, and counted.
        assert_eq!(held.space(1000).map(|s| s.len()).ok(), Some(1000));
        assert_eq!((held.bytes(), total.load(Ordering::Relaxed)), (&b"new"[..], 1003));
        assert_eq!(held.into_room().len(), 1003);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
