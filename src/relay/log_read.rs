//! Reads a `calls.jsonl` line by line and holds it to its own rules: the chain, the numbers, the order of records. Total: any bytes,
//! any length of line, bounded memory, no panic; the first line that does not hold ends it. Called by a relay that goes on with a log
//! and by `sanduk audit`.

use crate::limits;
use crate::relay::log_order::Order;
use crate::relay::record::{NO_PREV, Record, Start, VERSION};
use crate::wire::digest;
use crate::wire::json::{self, Kind, Scanner};
use crate::wire::json_text;
use serde::Deserialize;
use std::io::{self, BufRead, BufReader, Read};

/// One line that holds.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// Its number, from 1.
    pub n: u64,
    /// Wall clock, milliseconds since the epoch.
    pub at_ms: u64,
    /// What it says.
    pub record: Record,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Bytes after the last line end: a crash in mid-write leaves this, and so does a cut.
    Torn,
    /// `prev` is not the digest of the line before, or `n` is not the number after its number.
    Chain,
    /// Not a record: no JSON object, a member missing or of the wrong type, a name twice.
    Form,
    /// A kind of record that this version does not know.
    Kind,
    /// A version of the schema that this program does not know.
    Version,
    /// A record that cannot stand here: an outcome without a verdict, a number out of turn.
    Order,
    /// A line longer than any that a relay writes.
    Size,
    /// The file could not be read to its end, or is longer than what is read.
    Read,
}

impl What {
    /// One word, as `sanduk audit verify --json` says it.
    pub fn word(self) -> &'static str {
        match self {
            What::Torn => "torn",
            What::Chain => "chain",
            What::Form => "form",
            What::Kind => "kind",
            What::Version => "version",
            What::Order => "order",
            What::Size => "size",
            What::Read => "read",
        }
    }
}

/// The first line that does not hold.
#[derive(Debug, PartialEq)]
pub struct Bad {
    /// Its number, from 1.
    pub line: u64,
    /// The sort of fault.
    pub what: What,
    /// One clause for a person. Words of the log in it are as they stand there: escape it.
    pub why: String,
}

/// What stands after the last line end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Its length.
    pub bytes: u64,
    /// It is a record that lacks nothing but its line end.
    pub whole: bool,
}

/// Reads one log from its start. What `lines`, `head`… say is of the lines that were given out.
pub struct Reader<R> {
    from: BufReader<io::Take<R>>,
    most: u64,
    /// The line being read.
    buf: Vec<u8>,
    /// Bytes of whole lines.
    bytes: u64,
    lines: u64,
    head: String,
    order: Order,
    tail: Option<Tail>,
}

/// What every record has.
#[derive(Deserialize)]
struct Common {
    n: u64,
    prev: String,
    at_ms: u64,
    kind: String,
}

/// So much of a start record as any version has.
#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

impl<R: Read> Reader<R> {
    /// Of a log of at most `most` bytes.
    pub fn new(from: R, most: u64) -> Reader<R> {
        Reader {
            from: BufReader::with_capacity(limits::COPY_BYTES, from.take(most.saturating_add(1))),
            most,
            buf: Vec::new(),
            bytes: 0,
            lines: 0,
            head: NO_PREV.into(),
            order: Order::default(),
            tail: None,
        }
    }

    /// The next line. `None`: the log ends here and all of it holds. After an `Err` the reader must not be asked again.
    pub fn advance(&mut self) -> Result<Option<Line>, Bad> {
        self.buf.clear();
        let most = limits::LOG_LINE_BYTES.saturating_add(1);
        let read = (&mut self.from).take(most).read_until(b'\n', &mut self.buf);
        read.map_err(|e| self.bad(What::Read, e.to_string()))?;
        let length = u64::try_from(self.buf.len()).unwrap_or(u64::MAX);
        if self.bytes.saturating_add(length) > self.most {
            return Err(self.bad(What::Read, format!("it is longer than {} bytes", self.most)));
        }
        if length == 0 {
            return Ok(None);
        }
        if self.buf.pop_if(|b| *b == b'\n').is_none() {
            return Err(self.torn(length));
        }
        self.taken(length).map(Some)
    }

    /// The bytes of the line given out last, without its line end.
    pub fn text(&self) -> &[u8] {
        &self.buf
    }

    /// Whole lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Their bytes, line ends included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// SHA-256 of the last of them; 64 zeros: there is none.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Verdicts so far, which is the number of the last call.
    pub fn calls(&self) -> u64 {
        self.order.calls
    }

    /// Calls since the last `start` that have a verdict and no outcome yet.
    pub fn open(&self) -> u64 {
        u64::try_from(self.order.open.len()).unwrap_or(u64::MAX)
    }

    /// Whether the last record is an `end`.
    pub fn ended(&self) -> bool {
        self.order.ended
    }

    /// After an `Err` of `What::Torn`: what stands behind the last line end.
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// Counts a whole tail as the line that it is; for who gives it its line end.
    pub fn take_tail(&mut self) -> Result<Line, Bad> {
        let length = self.tail.take().map_or(0, |t| t.bytes.saturating_add(1));
        self.taken(length)
    }

    fn taken(&mut self, length: u64) -> Result<Line, Bad> {
        let line = self.holds()?;
        self.order.admit(line.n, &line.record).map_err(|why| self.bad(What::Order, why))?;
        self.bytes = self.bytes.saturating_add(length);
        (self.lines, self.head) = (line.n, digest::sha256_hex(&self.buf));
        Ok(line)
    }

    fn torn(&mut self, length: u64) -> Bad {
        if length > limits::LOG_LINE_BYTES {
            return self.bad(What::Size, format!("a line longer than {} bytes", limits::LOG_LINE_BYTES));
        }
        let whole = self.holds().is_ok();
        let why = if whole {
            "the last record has no line end".into()
        } else {
            format!("{length} bytes after the last line end are not a whole record")
        };
        self.tail = Some(Tail { bytes: length, whole });
        self.bad(What::Torn, why)
    }

    /// The line in `buf`, if it is a record that goes on with the chain.
    fn holds(&self) -> Result<Line, Bad> {
        let form = |why: String| self.bad(What::Form, why);
        if self.buf.first() != Some(&b'{') || self.buf.last() != Some(&b'}') {
            return Err(form(edges(&self.buf).into()));
        }
        strict(&self.buf).map_err(|e| form(format!("{} at byte {}", e.why, e.at)))?;
        let common: Common = self.parsed()?;
        let n = self.lines.saturating_add(1);
        if common.n != n {
            return Err(self.bad(What::Chain, format!("its number is {} and {n} is due", common.n)));
        }
        if common.prev != self.head {
            let why = if n == 1 {
                "the first line does not begin a chain: prev is not 64 zeros"
            } else {
                "prev is not the digest of the line before: one of the two is not as it was written"
            };
            return Err(self.bad(What::Chain, why.into()));
        }
        let record = self.record(&common.kind)?;
        Ok(Line { n, at_ms: common.at_ms, record })
    }

    fn record(&self, kind: &str) -> Result<Record, Bad> {
        Ok(match kind {
            "start" => {
                let Versioned { v } = self.parsed()?;
                if v != VERSION {
                    let why = format!("version {v} of the log's schema; this program knows {VERSION}");
                    return Err(self.bad(What::Version, why));
                }
                Record::Start(self.parsed::<Start>()?)
            }
            "verdict" => Record::Verdict(self.parsed()?),
            "retry" => Record::Retry(self.parsed()?),
            "outcome" => Record::Outcome(self.parsed()?),
            "denied" => Record::Denied(self.parsed()?),
            "denied_again" => Record::DeniedAgain(self.parsed()?),
            "end" => Record::End(self.parsed()?),
            other => return Err(self.bad(What::Kind, format!("no kind of record is called {other}"))),
        })
    }

    fn parsed<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Bad> {
        serde_json::from_slice(&self.buf).map_err(|e| self.bad(What::Form, e.to_string()))
    }

    fn bad(&self, what: What, why: String) -> Bad {
        Bad { line: self.lines.saturating_add(1), what, why }
    }
}

/// Stricter than the parser behind it where two readers could differ: names twice, bytes that are not UTF-8, half a surrogate pair,
/// depth, very many names, numbers that no 64-bit float holds.
fn strict(text: &[u8]) -> Result<(), json::Bad> {
    let mut scanner = Scanner::new(text)?;
    let mut names = 0usize;
    while let Some(token) = scanner.advance()? {
        let bad = |why| json::Bad { at: token.span.start, why };
        let source = text.get(token.span.clone()).unwrap_or_default();
        match token.kind {
            Kind::Object | Kind::Array if token.depth >= limits::LOG_DEPTH => {
                return Err(bad("nested too deeply"));
            }
            Kind::Number => {
                let number = std::str::from_utf8(source).ok().and_then(|s| s.parse::<f64>().ok());
                if !number.is_some_and(f64::is_finite) {
                    return Err(bad("a number out of range"));
                }
            }
            Kind::Name | Kind::String => {
                names = names.saturating_add(usize::from(token.kind == Kind::Name));
                if names > limits::JSON_NAMES {
                    return Err(bad("too many member names"));
                }
                let decoded = json_text::decoded(json_text::inside(text, &token.span));
                if std::str::from_utf8(&decoded).is_err() {
                    return Err(bad("half a surrogate pair is no text"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn edges(line: &[u8]) -> &'static str {
    match (line.first(), line.last()) {
        (None, _) => "an empty line",
        (_, Some(b'\r')) => "the line ends with CR LF; every line ends with LF alone",
        (Some(0xef), _) => "the line begins with a byte order mark",
        _ => "not one JSON object",
    }
}
