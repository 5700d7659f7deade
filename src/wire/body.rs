//! Body framing as a state machine over raw bytes (RFC 9112 6 and 7): tells payload from framing, so that the relay can
//! forward the framing untouched and read the payload on the way. Never allocates per chunk.

use super::http::{Bad, Framing};

/// Where a body stands.
pub struct Body {
    framing: Framing,
}

impl Body {
    /// `limit`: most payload bytes allowed; `u64::MAX` for none. A `Length` over it is `BodyTooLarge` at once.
    pub fn new(framing: Framing, limit: u64) -> Result<Body, Bad> {
        let _ = limit;
        Ok(Body { framing })
    }

    /// Takes from the front of `buf`: returns how many bytes belong to this body (framing and payload) and the payload among
    /// them, one contiguous piece at most. Call again with the rest until nothing is consumed or `done`.
    pub fn next<'a>(&mut self, buf: &'a [u8]) -> Result<(usize, &'a [u8]), Bad> {
        let _ = (buf, self.framing);
        todo!()
    }

    /// The last byte of the body was consumed (for chunked: the blank line after the trailers).
    pub fn done(&self) -> bool {
        todo!()
    }

    /// The peer closed: `true` where that ends the body (`UntilClose`, or it was done), `false` where the body was cut.
    pub fn closed(&mut self) -> bool {
        todo!()
    }
}
