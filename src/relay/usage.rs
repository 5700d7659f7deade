//! Counts from response bytes on the way through (`Reader`), for the three wire protocols. Reads typed positions only, never
//! a search for the word; a fault of the reader never touches the stream.

use crate::catalog::providers::Protocol;
use crate::limits::{INFLATE_RATIO, INFLATED_BYTES, SSE_EVENT_BYTES};
use crate::relay::usage_chat::Chat;
use crate::relay::usage_messages::Messages;
use crate::relay::usage_responses::Responses;
use crate::relay::usage_scan::{Facts, Scan};
use crate::wire::money::Money;
use crate::wire::sse;
use flate2::write::MultiGzDecoder;
use std::io;

/// What an answer reported. `None`: not reported, which is not zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Input tokens at the full rate, without cache reads and writes.
    pub input: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// The part of `cache_write` that is said to be kept for five minutes, the cheaper kind.
    pub cache_write_5m: Option<u64>,
    /// Input tokens read from a cache.
    pub cache_read: Option<u64>,
    /// All billed output, reasoning included.
    pub output: Option<u64>,
    /// The reasoning part of `output`.
    pub reasoning: Option<u64>,
    /// Cached tokens that were taken out of the wire's input count although nothing there says that they were in it.
    pub doubtful: u64,
    /// Money the server itself reports.
    pub cost: Option<Money>,
    /// The answer is charged (2xx on a generating route).
    pub owed: bool,
    /// The numbers are final.
    pub complete: bool,
    /// The model named in the answer.
    pub model: Option<String>,
}

/// Reads one response.
pub struct Reader {
    good: bool,
    source: Source,
}

/// What the payload bytes go through.
enum Source {
    /// Nothing is to be read: no generating route.
    Nothing,
    /// A content coding that is not read here.
    Opaque,
    Plain(Box<Content>),
    Gzip(Box<Gzip>),
}

impl Reader {
    /// `content_type`, `content_encoding`: header values as sent, empty where absent. `streamed`: the request asked for a stream.
    /// Whether the answer is a stream is decided by its first bytes: servers mislabel both.
    pub fn new(
        protocol: Protocol,
        status: u16,
        content_type: &[u8],
        content_encoding: &[u8],
        streamed: bool,
    ) -> Reader {
        let _ = (content_type, streamed);
        let tally = match protocol {
            Protocol::Messages => Some(Tally::Messages(Messages::default())),
            Protocol::Chat => Some(Tally::Chat(Chat::default())),
            Protocol::Responses => Some(Tally::Responses(Responses::default())),
            Protocol::CountTokens | Protocol::Plain => None,
        };
        let coding = content_encoding.trim_ascii();
        let source = match tally {
            None => Source::Nothing,
            Some(tally) if coding.is_empty() || coding.eq_ignore_ascii_case(b"identity") => {
                Source::Plain(Box::new(Content::new(tally)))
            }
            Some(tally) if coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip") => {
                Source::Gzip(Box::new(Gzip::new(Content::new(tally))))
            }
            Some(_) => Source::Opaque,
        };
        Reader { good: (200..300).contains(&status), source }
    }

    /// Payload bytes (after transfer framing, before content decoding).
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.source {
            Source::Nothing | Source::Opaque => {}
            Source::Plain(content) => content.push(bytes),
            Source::Gzip(gzip) => gzip.push(bytes),
        }
    }

    /// The answer ended, cleanly or not. Where nothing was to be read the (absent) numbers are final.
    pub fn finish(self) -> Usage {
        let good = self.good;
        let usage = match self.source {
            Source::Nothing => return Usage { complete: true, ..Usage::default() },
            Source::Opaque => Usage { owed: true, complete: !good, ..Usage::default() },
            Source::Plain(content) => content.finish(good),
            Source::Gzip(gzip) => gzip.finish(good),
        };
        Usage { owed: usage.owed && good, ..usage }
    }
}

/// The protocol's own bookkeeping.
enum Tally {
    Messages(Messages),
    Chat(Chat),
    Responses(Responses),
}

impl Tally {
    fn event(&mut self, name: &str, data: &[u8], scan: &mut Scan) {
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            if let Tally::Chat(chat) = self {
                chat.done();
            }
            return;
        }
        scan.reset();
        scan.push(data);
        // Half an event is no event.
        if scan.done() {
            match self {
                Tally::Messages(messages) => messages.event(name, scan.finish()),
                Tally::Chat(chat) => chat.event(name, scan.finish()),
                Tally::Responses(responses) => responses.event(name, scan.finish()),
            }
        }
    }

    fn stream_over(self) -> Usage {
        match self {
            Tally::Messages(messages) => messages.stream_over(),
            Tally::Chat(chat) => chat.stream_over(),
            Tally::Responses(responses) => responses.stream_over(),
        }
    }

    fn json_over(self, facts: &Facts, closed: bool) -> Usage {
        match self {
            Tally::Messages(messages) => messages.json_over(facts, closed),
            Tally::Chat(chat) => chat.json_over(facts, closed),
            Tally::Responses(responses) => responses.json_over(facts, closed),
        }
    }
}

/// Decoded bytes, a stream or one JSON value.
struct Content {
    tally: Tally,
    scan: Scan,
    shape: Shape,
}

enum Shape {
    /// No byte yet that tells; `true`: the line has begun with white space, which no SSE field may.
    Unknown(bool),
    Json,
    Stream(sse::Reader),
}

impl Content {
    fn new(tally: Tally) -> Content {
        Content { tally, scan: Scan::default(), shape: Shape::Unknown(false) }
    }

    fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let (Shape::Unknown(indented), Some((byte, tail))) = (&mut self.shape, rest.split_first()) {
            match byte {
                b'\r' | b'\n' => *indented = false,
                b' ' | b'\t' => *indented = true,
                // A byte order mark.
                0xEF | 0xBB | 0xBF => {}
                b'{' | b'[' => {
                    self.shape = Shape::Json;
                    break;
                }
                _ => {
                    let mut stream = sse::Reader::new(SSE_EVENT_BYTES);
                    if *indented {
                        stream.push(b" ", &mut |_, _| {});
                    }
                    self.shape = Shape::Stream(stream);
                    break;
                }
            }
            rest = tail;
        }
        let (tally, scan) = (&mut self.tally, &mut self.scan);
        match &mut self.shape {
            Shape::Unknown(_) => {}
            Shape::Json => scan.push(rest),
            Shape::Stream(stream) => stream.push(rest, &mut |name, data| tally.event(name, data, scan)),
        }
    }

    /// `good`: a 2xx. An error page in whatever shape is as final as an error can be.
    fn finish(mut self, good: bool) -> Usage {
        let (mut tally, scan) = (self.tally, &mut self.scan);
        match self.shape {
            Shape::Unknown(_) => (),
            Shape::Json => {
                let closed = scan.done();
                return tally.json_over(scan.finish(), closed);
            }
            Shape::Stream(mut stream) => stream.finish(&mut |name, data| tally.event(name, data, scan)),
        }
        let usage = tally.stream_over();
        Usage { complete: usage.complete || !good, ..usage }
    }
}

/// Inflates on the way, bounded: beyond the bounds nothing more is read, which leaves the usage unknown or a floor.
struct Gzip {
    decoder: MultiGzDecoder<Inflated>,
    broken: bool,
}

/// Takes the inflated bytes.
struct Inflated {
    content: Content,
    read: u64,
    written: u64,
}

impl Gzip {
    fn new(content: Content) -> Gzip {
        Gzip { decoder: MultiGzDecoder::new(Inflated { content, read: 0, written: 0 }), broken: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        use io::Write;
        if self.broken {
            return;
        }
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let inflated = self.decoder.get_mut();
        inflated.read = inflated.read.saturating_add(length);
        self.broken = self.decoder.write_all(bytes).is_err();
    }

    fn finish(mut self, good: bool) -> Usage {
        // A missing trailer is not our fault to report: what could be read was read.
        let _ = self.decoder.try_finish();
        let content = std::mem::replace(
            &mut self.decoder.get_mut().content,
            Content::new(Tally::Chat(Chat::default())),
        );
        content.finish(good)
    }
}

impl io::Write for Inflated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.written = self.written.saturating_add(length);
        let most = self.read.saturating_mul(INFLATE_RATIO).max(1 << 20);
        if self.written > INFLATED_BYTES || self.written > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.content.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
