//! Counts from response bytes on the way through (`Reader`), for the three wire protocols. Reads typed positions only, never
//! a search for the word; a fault of the reader never touches the stream.

use crate::catalog::providers::Protocol;
use crate::limits::{INFLATE_RATIO, INFLATED_BYTES, SSE_EVENT_BYTES};
use crate::relay::inflate::Inflater;
use crate::relay::usage_chat::Chat;
use crate::relay::usage_messages::Messages;
use crate::relay::usage_responses::Responses;
use crate::relay::usage_scan::{Facts, Scan};
use crate::wire::money::Money;
use crate::wire::sse;

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
    /// Tokens of another model that worked within the call (an advisor). They are billed at rates that are not this model's.
    pub elsewhere: u64,
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
    coding: Coding,
    /// None: no generating route, nothing is to be read.
    content: Option<Box<Content>>,
}

/// The content coding.
enum Coding {
    Plain,
    Gzip(Box<Inflater>, Bounds),
    /// One that is not read here, and that nobody asked for.
    Opaque,
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
        let is = |name: &[u8]| content_encoding.trim_ascii().eq_ignore_ascii_case(name);
        let coding = if is(b"") || is(b"identity") {
            Coding::Plain
        } else if is(b"gzip") || is(b"x-gzip") {
            Coding::Gzip(Box::default(), Bounds::default())
        } else {
            Coding::Opaque
        };
        let content = tally.map(|tally| Box::new(Content::new(tally)));
        Reader { good: (200..300).contains(&status), coding, content }
    }

    /// The answer is in a coding that cannot be read here.
    pub fn opaque(&self) -> bool {
        matches!(self.coding, Coding::Opaque)
    }

    /// The answer has to be inflated: `push` shows what it says.
    pub fn inflates(&self) -> bool {
        matches!(self.coding, Coding::Gzip(..))
    }

    /// Payload bytes (after transfer framing, before content decoding). `seen` gets what they say where that has to be inflated, all of it,
    /// however much: only the counting is bounded.
    pub fn push(&mut self, bytes: &[u8], seen: &mut dyn FnMut(&[u8])) {
        match (&mut self.coding, &mut self.content) {
            (Coding::Opaque, _) | (Coding::Plain, None) => {}
            (Coding::Plain, Some(content)) => content.push(bytes),
            (Coding::Gzip(inflater, bounds), content) => {
                bounds.read = bounds.read.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                inflater.push(bytes, &mut |inflated| {
                    if let Some(content) = content
                        && bounds.hold(inflated)
                    {
                        content.push(inflated);
                    }
                    seen(inflated);
                });
            }
        }
    }

    /// The answer ended, cleanly or not. Where nothing was to be read the (absent) numbers are final.
    pub fn finish(self) -> Usage {
        let good = self.good;
        let usage = match (self.coding, self.content) {
            (_, None) => return Usage { complete: true, ..Usage::default() },
            (Coding::Opaque, Some(_)) => Usage { owed: true, complete: !good, ..Usage::default() },
            (Coding::Plain | Coding::Gzip(..), Some(content)) => (*content).finish(good),
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
        if only_content(name, data) {
            match self {
                Tally::Messages(messages) => return messages.content(),
                Tally::Responses(responses) => return responses.content(),
                Tally::Chat(_) => {}
            }
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

/// An event that adds to the text and can report nothing: of these a stream consists but for a few, so they are not walked through. Its
/// name and its first member say that it is one, and what else could count has letters that do not stand in it: `error`, `message_…` or
/// `response.…` for another type, the member `response`, a name spelled with escapes. One that is doubted wrongly is walked through.
fn only_content(name: &str, data: &[u8]) -> bool {
    let delta = name == "content_block_delta" || name.starts_with("response.") && name.ends_with(".delta");
    let behind = data.strip_prefix(b"{\"type\":\"").and_then(|d| d.strip_prefix(name.as_bytes()));
    let Some([b'"', b',', rest @ .., b'}']) = behind.filter(|_| delta) else { return false };
    let (next, third) = (rest.get(1..).unwrap_or_default(), rest.get(2..).unwrap_or_default());
    // No branches: the compiler then looks at sixteen bytes at a time.
    let mut doubt = 0u8;
    for ((a, b), c) in rest.iter().zip(next).zip(third) {
        let error = u8::from(*a == b'r') & u8::from(*b == b'r');
        let message = u8::from(*a == b'g') & u8::from(*b == b'e') & u8::from(*c == b'_');
        let end = u8::from(*c == b'"') | u8::from(*c == b'.');
        let response = u8::from(*a == b's') & u8::from(*b == b'e') & end;
        let escape = u8::from(*a == b'\\') & u8::from(*b == b'u');
        doubt |= error | message | response | escape;
    }
    doubt == 0
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

/// How much of a gzip answer is counted from: beyond it nothing more is, which leaves the usage unknown or a floor.
#[derive(Default)]
struct Bounds {
    read: u64,
    written: u64,
    /// For good: what is read behind a gap counts wrong.
    over: bool,
}

impl Bounds {
    /// These bytes are still within.
    fn hold(&mut self, inflated: &[u8]) -> bool {
        self.written = self.written.saturating_add(u64::try_from(inflated.len()).unwrap_or(u64::MAX));
        let most = self.read.saturating_mul(INFLATE_RATIO).max(1 << 20);
        self.over |= self.written > INFLATED_BYTES.min(most);
        !self.over
    }
}
