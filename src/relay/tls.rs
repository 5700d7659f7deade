//! `openssl s_client` as a TLS transport: one child per upstream connection. The numbered MUSTs stand here, each with a test of
//! the same number in `tests/tls.rs`.

use crate::relay::start::Upstream;
use std::io;
use std::time::Duration;

/// A verified TLS connection: bytes written are encrypted to the checked peer, bytes read came from it.
pub struct Session {
    _child: (),
}

/// How a session's byte stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer said close_notify: a close-delimited body is whole.
    Clean,
    /// Anything else.
    Cut,
}

impl Session {
    /// Starts the child, waits for the handshake and the two verification lines. Writes nothing before. The error text is one
    /// line: `certificate has expired`, `no answer within 10 s`…
    pub fn connect(upstream: &Upstream, address: std::net::SocketAddr) -> io::Result<Session> {
        let _ = (upstream, address);
        todo!()
    }

    /// Reads what there is; 0 at the end of the stream. `TimedOut` after `wait` without a byte.
    pub fn read(&mut self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        let _ = (buf, wait);
        todo!()
    }

    /// Writes all parts in order. Stops early with `Ok(false)` when the peer has begun to answer (an early 413).
    pub fn send(&mut self, parts: &[&[u8]], wait: Duration) -> io::Result<bool> {
        let _ = (parts, wait);
        todo!()
    }

    /// Nothing to read and not closed: may be reused.
    pub fn idle(&self) -> bool {
        todo!()
    }

    /// After a read of 0: waits for the child (bounded) and says how the stream ended.
    pub fn end(self) -> End {
        todo!()
    }
}
