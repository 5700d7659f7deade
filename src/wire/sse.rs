//! Server-sent events (WHATWG HTML 9.2), as a line machine: bounded, any split of the bytes gives the same events.

/// Splits a byte stream into the `data` of its events.
pub struct Reader {
    most: usize,
}

impl Reader {
    /// `most`: bytes of one event's data that are kept; a longer event is skipped to its end and reported as `None` data.
    pub fn new(most: usize) -> Reader {
        Reader { most }
    }

    /// Feeds bytes; `each` gets (event name or "", data) for every event that ended.
    pub fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(&str, &[u8])) {
        let _ = (bytes, each, self.most);
        todo!()
    }

    /// The stream ended: an event without its final blank line is given too.
    pub fn finish(&mut self, each: &mut dyn FnMut(&str, &[u8])) {
        let _ = each;
        todo!()
    }
}
