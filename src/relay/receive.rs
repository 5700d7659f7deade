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
    /// The payload, without framing.
    pub bytes: Vec<u8>,
    total: &'t AtomicUsize,
    counted: usize,
}

impl<'t> Held<'t> {
    /// Empty; `room` is memory of an earlier body.
    pub fn new(total: &'t AtomicUsize, mut room: Vec<u8>) -> Held<'t> {
        room.clear();
        Held { bytes: room, total, counted: 0 }
    }

    /// Counts first, then grows: what was announced and not sent costs nothing.
    fn add(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let before = self.total.fetch_add(piece.len(), Ordering::Relaxed);
        self.counted = self.counted.saturating_add(piece.len());
        if before.saturating_add(piece.len()) > limits::BODY_TOTAL {
            return Err(Refusal::new(503, "too many large requests are under way"));
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.total.fetch_sub(self.counted, Ordering::Relaxed);
    }
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
        let wait = left(begun, held.bytes.len());
        let n = match conn.read(scratch, wait) {
            Ok(0) => return Err(gone()),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::TimedOut => {
                return Err(Refusal::new(408, "the body comes too slowly"));
            }
            Err(_) => return Err(gone()),
        };
        let piece = scratch.get(..n).unwrap_or_default();
        used = take(&mut state, piece, &mut held)?;
        if state.done() {
            return Ok(Received { body: held, after: piece.get(used..).unwrap_or_default().to_vec() });
        }
        if left(begun, held.bytes.len()).is_zero() {
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
}
