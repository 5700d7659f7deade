//! Body framing as a state machine over raw bytes (RFC 9112 6 and 7): tells payload from framing, so that the relay can
//! forward the framing untouched and read the payload on the way. Never allocates, never keeps payload; any split of the
//! bytes gives the same payload and the same end. Trailers are checked, bounded and dropped.

use super::http::{Bad, Framing, is_token, is_value};
use crate::limits;

/// Where a body stands.
pub struct Body {
    at: At,
    /// Payload bytes that may still come or be announced.
    room: u64,
}

/// The place of the next byte.
#[derive(Clone, Copy)]
enum At {
    /// In a body of known length: bytes left, never 0.
    Length(u64),
    UntilClose,
    /// In a chunk size: digits seen and their value.
    Size(usize, u64),
    /// In the chunk extensions, after so many bytes of them, of a chunk of this size.
    Extension(Ext, usize, u64),
    /// Before the LF of a size line, of a chunk of this size.
    SizeEnd(u64),
    /// In chunk data: bytes left, never 0.
    Data(u64),
    /// Before the CR, then the LF, after chunk data.
    DataCr,
    DataLf,
    /// In the trailer section, with the bytes seen of it: where a line starts, in a name, in a value, before an LF.
    LineStart(usize),
    Name(usize),
    Value(usize),
    LineEnd(usize),
    /// Before the LF of the blank line that ends all.
    LastLf,
    Done,
    /// Refused; stays so.
    Refused(Bad),
}

/// The place in a chunk extension (RFC 9112 7.1.1, without the white space that it calls bad).
#[derive(Clone, Copy)]
enum Ext {
    /// Behind a semicolon.
    Start,
    Name,
    /// Behind the equals sign.
    ValueStart,
    Value,
    /// In a quoted string, and behind a backslash in it.
    Quoted,
    Escaped,
    /// Behind a quoted string.
    Closed,
}

impl Body {
    /// `limit`: most payload bytes allowed; `u64::MAX` for none. A `Length` over it is `BodyTooLarge` at once.
    pub fn new(framing: Framing, limit: u64) -> Result<Body, Bad> {
        let at = match framing {
            Framing::Length(n) if n > limit => return Err(Bad::BodyTooLarge),
            Framing::None | Framing::Length(0) => At::Done,
            Framing::Length(n) => At::Length(n),
            Framing::Chunked => At::Size(0, 0),
            Framing::UntilClose => At::UntilClose,
        };
        Ok(Body { at, room: limit })
    }

    /// Takes from the front of `buf`: returns how many bytes belong to this body (framing and payload) and the payload among
    /// them, one contiguous piece at most. Call again with the rest until nothing is consumed or `done`. After an error the
    /// same error comes again.
    pub fn next<'a>(&mut self, buf: &'a [u8]) -> Result<(usize, &'a [u8]), Bad> {
        let mut used = 0usize;
        loop {
            let rest = buf.get(used..).unwrap_or_default();
            if let At::Refused(bad) = self.at {
                return Err(bad);
            }
            let Some(byte) = rest.first() else { return Ok((used, b"")) };
            let left = match self.at {
                At::Done => return Ok((used, b"")),
                At::Length(left) | At::Data(left) => left,
                At::UntilClose => u64::MAX,
                _ => {
                    self.at = self.framing(*byte).unwrap_or_else(At::Refused);
                    used = used.saturating_add(1);
                    continue;
                }
            };
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let piece = rest.get(..most).unwrap_or(rest);
            self.pass(piece)?;
            return Ok((used.saturating_add(piece.len()), piece));
        }
    }

    /// The last byte of the body was consumed (for chunked: the blank line after the trailers).
    pub fn done(&self) -> bool {
        matches!(self.at, At::Done)
    }

    /// The peer closed: `true` where that ends the body (`UntilClose`, or it was done), `false` where the body was cut.
    pub fn closed(&mut self) -> bool {
        if matches!(self.at, At::UntilClose) {
            self.at = At::Done;
        }
        self.done()
    }

    /// Steps over payload.
    fn pass(&mut self, piece: &[u8]) -> Result<(), Bad> {
        let taken = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.at = match self.at {
            At::Length(left) if left == taken => At::Done,
            At::Length(left) => At::Length(left.saturating_sub(taken)),
            At::Data(left) if left == taken => At::DataCr,
            At::Data(left) => At::Data(left.saturating_sub(taken)),
            At::UntilClose => match self.room.checked_sub(taken) {
                Some(room) => {
                    self.room = room;
                    At::UntilClose
                }
                None => At::Refused(Bad::BodyTooLarge),
            },
            other => other,
        };
        if let At::Refused(bad) = self.at { Err(bad) } else { Ok(()) }
    }

    /// Steps over one byte of chunked framing (RFC 9112 7.1).
    fn framing(&mut self, byte: u8) -> Result<At, Bad> {
        match (self.at, byte) {
            (At::Size(digits, size), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits >= limits::CHUNK_DIGITS {
                    return Err(Bad::Framing("a chunk size has too many digits"));
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                let size = size.checked_mul(16).and_then(|s| s.checked_add(u64::from(digit)));
                Ok(At::Size(digits.saturating_add(1), size.ok_or(Bad::BodyTooLarge)?))
            }
            (At::Size(1.., size), b'\r') => self.announced(size).map(At::SizeEnd),
            (At::Size(1.., size), b';') => {
                self.announced(size).map(|size| At::Extension(Ext::Start, 0, size))
            }
            (At::Size(..), _) => Err(Bad::Framing("a chunk size is not plain hexadecimal")),
            (At::Extension(Ext::Name | Ext::Value | Ext::Closed, _, size), b'\r') => Ok(At::SizeEnd(size)),
            (At::Extension(_, limits::CHUNK_EXT_BYTES.., _), _) => {
                Err(Bad::TooLong("a chunk extension is over the limit"))
            }
            (At::Extension(at, seen, size), _) => extension(at, byte)
                .map(|next| At::Extension(next, seen.saturating_add(1), size))
                .ok_or(Bad::Framing("a chunk extension is not name, name=token or name=\"text\"")),
            (At::SizeEnd(0), b'\n') => Ok(At::LineStart(0)),
            (At::SizeEnd(size), b'\n') => Ok(At::Data(size)),
            (At::SizeEnd(_), _) => Err(Bad::Framing("a chunk size line holds CR without LF")),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::Size(0, 0)),
            (At::DataCr | At::DataLf, _) => Err(Bad::Framing("chunk data does not end in CRLF")),
            (at, _) => trailer(at, byte),
        }
    }

    /// A size line said how much comes.
    fn announced(&mut self, size: u64) -> Result<u64, Bad> {
        self.room = self.room.checked_sub(size).ok_or(Bad::BodyTooLarge)?;
        Ok(size)
    }
}

/// Steps over one byte of the chunk extensions.
fn extension(at: Ext, byte: u8) -> Option<Ext> {
    match (at, byte) {
        (Ext::Start | Ext::Name, _) if is_token(byte) => Some(Ext::Name),
        (Ext::Name, b'=') => Some(Ext::ValueStart),
        (Ext::ValueStart, b'"') => Some(Ext::Quoted),
        (Ext::ValueStart | Ext::Value, _) if is_token(byte) => Some(Ext::Value),
        (Ext::Name | Ext::Value | Ext::Closed, b';') => Some(Ext::Start),
        (Ext::Quoted, b'\\') => Some(Ext::Escaped),
        (Ext::Quoted, b'"') => Some(Ext::Closed),
        (Ext::Quoted | Ext::Escaped, _) if is_value(byte) => Some(Ext::Quoted),
        _ => None,
    }
}

/// Steps over one byte of the trailer section; the grammar of header fields (RFC 9112 7.1.2), CRLF only, nothing folded.
fn trailer(at: At, byte: u8) -> Result<At, Bad> {
    let (At::LineStart(seen) | At::Name(seen) | At::Value(seen) | At::LineEnd(seen)) = at else {
        // Only `LastLf` is left of the states that come here.
        return match byte {
            b'\n' => Ok(At::Done),
            _ => Err(Bad::Framing("the trailer section does not end in CRLF")),
        };
    };
    if matches!((at, byte), (At::LineStart(_), b'\r')) {
        return Ok(At::LastLf);
    }
    if seen >= limits::TRAILER_BYTES {
        return Err(Bad::TooLong("the trailers are over the limit"));
    }
    let seen = seen.saturating_add(1);
    match (at, byte) {
        (At::LineStart(_), _) if is_token(byte) => Ok(At::Name(seen)),
        (At::Name(_), b':') => Ok(At::Value(seen)),
        (At::Name(_), _) if is_token(byte) => Ok(At::Name(seen)),
        (At::Value(_), b'\r') => Ok(At::LineEnd(seen)),
        (At::Value(_), _) if is_value(byte) => Ok(At::Value(seen)),
        (At::LineEnd(_), b'\n') => Ok(At::LineStart(seen)),
        _ => Err(Bad::Syntax("a trailer is not a header field")),
    }
}
