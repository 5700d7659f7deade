//! Server-sent events (WHATWG HTML 9.2.6), as a line machine: bounded, any split of the bytes gives the same events. Departs
//! from the standard in one point: an event that the end of the stream cut from its blank line is given too, because
//! providers put the usage there. Never fails. Called by whoever reads a provider's stream.

/// Bytes of a line beside its data: `data: ` or `event: ` and a byte order mark.
const LINE_EXTRA: usize = 16;

/// Splits a byte stream into the `data` of its events.
pub struct Reader {
    most: usize,
    /// The start of a line whose end has not come.
    line: Vec<u8>,
    /// That line is longer than can be kept.
    cut: bool,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// No line has ended yet: a byte order mark may stand before this one.
    first: bool,
    name: String,
    data: Vec<u8>,
    /// A `data` line was seen since the last blank line.
    has_data: bool,
    /// This event is over `most`.
    over: bool,
    skipped: u64,
}

impl Reader {
    /// `most`: bytes of one event's data that are kept; a longer event is skipped to its end and counted by `skipped`.
    pub fn new(most: usize) -> Reader {
        Reader {
            most,
            line: Vec::new(),
            cut: false,
            after_cr: false,
            first: true,
            name: String::new(),
            data: Vec::new(),
            has_data: false,
            over: false,
            skipped: 0,
        }
    }

    /// Feeds bytes; `each` gets (event name or "", data) for every event that ended. Data of several lines is joined by LF.
    pub fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(&str, &[u8])) {
        let mut rest = bytes;
        while let Some(byte) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *byte == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let (part, after) = rest.split_at_checked(line_end(rest)).unwrap_or((rest, b""));
            rest = match after {
                [ending, after @ ..] => {
                    self.after_cr = *ending == b'\r';
                    self.end_line(part, each);
                    after
                }
                [] => {
                    self.keep(part);
                    after
                }
            };
        }
    }

    /// The stream ended: an event without its final blank line, or line end, is given too.
    pub fn finish(&mut self, each: &mut dyn FnMut(&str, &[u8])) {
        if !self.line.is_empty() {
            self.end_line(b"", each);
        }
        self.end_event(each);
    }

    /// Events that were over `most` and so were not given.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn keep(&mut self, part: &[u8]) {
        let room = self.most.saturating_add(LINE_EXTRA).saturating_sub(self.line.len());
        self.cut |= part.len() > room;
        self.line.extend_from_slice(part.get(..room).unwrap_or(part));
    }

    /// `part`: the end of the line. Most lines come whole and are read where they are.
    fn end_line(&mut self, part: &[u8], each: &mut dyn FnMut(&str, &[u8])) {
        let most = self.most.saturating_add(LINE_EXTRA);
        if self.line.is_empty() {
            return self.read_line(part.get(..most).unwrap_or(part), part.len() > most, each);
        }
        self.keep(part);
        let mut kept = std::mem::take(&mut self.line);
        let cut = std::mem::take(&mut self.cut);
        self.read_line(&kept, cut, each);
        // The buffer is used again for the next line.
        kept.clear();
        self.line = kept;
    }

    fn read_line(&mut self, line: &[u8], cut: bool, each: &mut dyn FnMut(&str, &[u8])) {
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(marked) if self.first => marked,
            _ => line,
        };
        self.first = false;
        if line.is_empty() {
            self.end_event(each);
        } else {
            self.field(line, cut);
        }
    }

    /// `name: value`, `name:value` or `name`; a name that is empty makes it a comment.
    fn field(&mut self, line: &[u8], cut: bool) {
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let (name, value) = line.split_at_checked(colon).unwrap_or((line, b""));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let joined = if self.has_data { self.data.len().saturating_add(1) } else { 0 };
                // A line that was cut is longer than `most` by what `LINE_EXTRA` holds beside `data: `.
                if joined.saturating_add(value.len()) > self.most {
                    self.over = true;
                    self.data = Vec::new();
                } else {
                    self.data.resize(joined, b'\n');
                    self.data.extend_from_slice(value);
                }
                self.has_data = true;
            }
            b"event" => {
                self.over |= cut;
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            _ => {}
        }
    }

    fn end_event(&mut self, each: &mut dyn FnMut(&str, &[u8])) {
        if std::mem::take(&mut self.over) {
            self.skipped = self.skipped.saturating_add(1);
        } else if self.has_data {
            each(&self.name, &self.data);
        }
        self.has_data = false;
        self.name.clear();
        self.data.clear();
    }
}

/// How many bytes stand before the next CR or LF, all where there is none. A block is looked at without branches first, so that the
/// compiler looks at sixteen bytes at a time.
fn line_end(bytes: &[u8]) -> usize {
    let ends = |b: &u8| (*b == b'\r') | (*b == b'\n');
    let (blocks, _) = bytes.as_chunks::<32>();
    let clear = blocks.iter().take_while(|block| !block.iter().fold(false, |any, b| any | ends(b))).count();
    let from = clear.saturating_mul(32);
    let rest = bytes.get(from..).unwrap_or_default();
    from.saturating_add(rest.iter().position(ends).unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::Reader;

    fn read(most: usize, pieces: &[&[u8]]) -> (Vec<String>, u64) {
        let (mut seen, mut reader) = (Vec::new(), Reader::new(most));
        let mut each = |name: &str, data: &[u8]| {
            seen.push(format!("{name}|{}", String::from_utf8_lossy(data)));
        };
        for piece in pieces {
            reader.push(piece, &mut each);
        }
        reader.finish(&mut each);
        (seen, reader.skipped())
    }

    /// (stream, the events in it); each is also read byte by byte and split in two everywhere.
    const STREAMS: [(&[u8], &[&str]); 22] = [
        (b"data: a\n\n", &["|a"]),
        (b"data:a\n\ndata:  b\n\ndata:\tc\n\n", &["|a", "| b", "|\tc"]),
        (b"data\n\n", &["|"]),
        (b"data:\n\n", &["|"]),
        (b"event: x\ndata: a\n\ndata: b\n\n", &["x|a", "|b"]),
        (b"event:x\nevent: y\ndata: a\n\n", &["y|a"]),
        (b"event: x\n\ndata: a\n\n", &["|a"]),
        (b": note\ndata: a\n:data: b\n\n", &["|a"]),
        (b"data: a\ndata: b\ndata:\ndata: c\n\n", &["|a\nb\n\nc"]),
        (b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", &["|a\nb", "|c"]),
        (b"data: a\rdata: b\r\rdata: c\r\r", &["|a\nb", "|c"]),
        (b"data: a\rdata: b\n\r\ndata: c\n\rdata: d\r\n\n", &["|a\nb", "|c", "|d"]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", &["|a"]),
        (b"\xef\xbb\xbfevent: x\ndata: a\n\n", &["x|a"]),
        (b"\xef\xbb\xbf\ndata: a\n\n", &["|a"]),
        (b"data: a\n\ndata: b\n", &["|a", "|b"]),
        (b"data: a\n\ndata: b", &["|a", "|b"]),
        (b"data: a\n\nevent: end", &["|a"]),
        (b"Data: a\n\n data: a\n\ndatas: a\n\nid: 1\nretry: 2\n\n", &[]),
        (b"\n\n\r\n\r", &[]),
        (b"", &[]),
        (b"data: {\"a\": \"x:y\"}\n\n", &["|{\"a\": \"x:y\"}"]),
    ];

    #[test]
    fn quirks_of_real_streams_however_split() {
        for (stream, events) in STREAMS {
            let whole = read(1024, &[stream]);
            assert_eq!(whole.0, events, "{}", stream.escape_ascii());
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            assert_eq!(read(1024, &bytes), whole, "byte by byte: {}", stream.escape_ascii());
            for at in 0..=stream.len() {
                let (a, b) = stream.split_at(at);
                assert_eq!(read(1024, &[a, b]), whole, "at {at}: {}", stream.escape_ascii());
            }
        }
    }

    #[test]
    fn an_event_over_the_limit_is_skipped_and_the_next_is_read() {
        for (stream, events, skipped) in [
            (b"data: 12345678\n\ndata: b\n\n".as_slice(), ["|12345678", "|b"].as_slice(), 0),
            (b"data: 123456789\n\ndata: b\n\n", &["|b"], 1),
            (b"data: 1234\ndata: 678\n\ndata: b\n\n", &["|1234\n678", "|b"], 0),
            (b"data: 1234\ndata: 6789\ndata: x\n\ndata: b\n\n", &["|b"], 1),
            (b": a comment that is longer than all that is kept of a line\ndata: b\n\n", &["|b"], 0),
            (b"id: a field that is longer than all that is kept of a line\ndata: b\n\n", &["|b"], 0),
            (b"event: a name that is longer than all that is kept\ndata: a\n\ndata: b\n\n", &["|b"], 1),
            (b"data: x\n\ndata: a line that is longer than all that is kept of one", &["|x"], 1),
        ] {
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            for pieces in [&[stream][..], &bytes[..]] {
                let (seen, count) = read(8, pieces);
                assert_eq!(seen, events, "{}", stream.escape_ascii());
                assert_eq!(count, skipped, "{}", stream.escape_ascii());
            }
        }
    }

    #[test]
    fn an_endless_line_takes_no_more_memory_than_the_limit() {
        let mut reader = Reader::new(1000);
        let mut count = 0usize;
        let piece = [b'x'; 4096];
        reader.push(b"data: ", &mut |_, _| count += 1);
        for _ in 0..1000 {
            reader.push(&piece, &mut |_, _| count += 1);
        }
        assert!(reader.line.capacity() <= 4096, "{}", reader.line.capacity());
        reader.push(b"\n\ndata: y\n\n", &mut |_, data| {
            assert_eq!(data, b"y");
            count += 1;
        });
        assert_eq!((count, reader.skipped()), (1, 1));
    }
}
