//! Counts from response bytes on the way through (`Reader`), for the three wire protocols. Reads typed positions only, never
//! a search for the word; a fault of the reader never touches the stream.

use crate::catalog::providers::Protocol;

/// What an answer reported. `None`: not reported, which is not zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Input tokens at the full rate, without cache reads and writes.
    pub input: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// Input tokens read from a cache.
    pub cache_read: Option<u64>,
    /// All billed output, reasoning included.
    pub output: Option<u64>,
    /// The reasoning part of `output`.
    pub reasoning: Option<u64>,
    /// Money the server itself reports, in dollars.
    pub cost: Option<f64>,
    /// The answer is charged (2xx on a generating route).
    pub owed: bool,
    /// The numbers are final.
    pub complete: bool,
    /// The model named in the answer.
    pub model: Option<String>,
}

/// Reads one response.
pub struct Reader {
    protocol: Protocol,
}

impl Reader {
    /// `content_type`, `content_encoding`: header values as sent, empty where absent. `streamed`: the request asked for a stream.
    pub fn new(
        protocol: Protocol,
        status: u16,
        content_type: &[u8],
        content_encoding: &[u8],
        streamed: bool,
    ) -> Reader {
        let _ = (status, content_type, content_encoding, streamed);
        Reader { protocol }
    }

    /// Payload bytes (after transfer framing, before content decoding).
    pub fn push(&mut self, bytes: &[u8]) {
        let _ = (bytes, self.protocol);
        todo!()
    }

    /// The answer ended, cleanly or not.
    pub fn finish(self) -> Usage {
        todo!()
    }
}
