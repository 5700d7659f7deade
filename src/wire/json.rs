//! A validating JSON pull scanner (RFC 8259): bytes in, tokens with kind, span and depth out. No tree, no recursion, nothing
//! is ever re-written. Stricter than the RFC where two readers could differ: duplicate member names are refused at every
//! depth, compared decoded; the text is UTF-8 without a byte order mark; depth and open names are bounded. Called by
//! `relay/policy.rs`, which edits by span.

use crate::limits::{JSON_DEPTH, JSON_NAMES};
use crate::wire::json_text::{self, decode_into, inside};
use std::ops::Range;

/// What a token is. `Name` is a member name; `String` only a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{`
    Object,
    /// `}`
    ObjectEnd,
    /// `[`
    Array,
    /// `]`
    ArrayEnd,
    /// A member name, quotes included in the span.
    Name,
    /// A string value, quotes included in the span.
    String,
    /// A number, as written.
    Number,
    /// `true`
    True,
    /// `false`
    False,
    /// `null`
    Null,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Its bytes in the text.
    pub span: Range<usize>,
    /// Containers open around it: 0 for the top-level value, and for its end; 1 for a member of a top-level object.
    pub depth: usize,
}

/// Why a text was refused, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Offset of the first byte that cannot be accepted.
    pub at: usize,
    /// One clause.
    pub why: &'static str,
}

/// One step of a path from the top-level value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The member of this (decoded) name.
    Member(&'a str),
    /// Any element of an array.
    Each,
}

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    FirstName,
    NextName,
    FirstElement,
    CommaOrEnd,
    Nothing,
}

/// An open container.
struct Frame {
    object: bool,
    /// Where its names begin in `Scanner::names`, and their decoded bytes in `Scanner::decoded`.
    names_from: usize,
    decoded_from: usize,
}

/// A member name of an open object. `start..end` are its decoded bytes: in the text, or in `Scanner::decoded` where it held
/// escapes.
#[derive(Clone, Copy)]
struct Name {
    hash: u64,
    start: usize,
    end: usize,
    escaped: bool,
}

/// Reads one text from its start to its end.
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    expect: Expect,
    frames: Vec<Frame>,
    names: Vec<Name>,
    decoded: Vec<u8>,
}

impl<'a> Scanner<'a> {
    /// Checks that the text is UTF-8, once and for all.
    pub fn new(bytes: &'a [u8]) -> Result<Scanner<'a>, Bad> {
        if let Err(e) = std::str::from_utf8(bytes) {
            return Err(Bad { at: e.valid_up_to(), why: "not UTF-8" });
        }
        Ok(Scanner {
            bytes,
            at: 0,
            expect: Expect::Value,
            frames: Vec::new(),
            names: Vec::new(),
            decoded: Vec::new(),
        })
    }

    /// The next token; `None` once the top-level value and the white space behind it are over. After an `Err` the scanner
    /// must not be asked again.
    pub fn advance(&mut self) -> Result<Option<Token>, Bad> {
        loop {
            self.skip_space();
            let Some(byte) = self.peek() else {
                return match self.expect {
                    Expect::Nothing => Ok(None),
                    _ => self.bad("the text ends too early"),
                };
            };
            match self.expect {
                Expect::Value => return self.value(byte),
                Expect::FirstElement if byte == b']' => return self.close(Kind::ArrayEnd),
                Expect::FirstElement => return self.value(byte),
                Expect::FirstName if byte == b'}' => return self.close(Kind::ObjectEnd),
                Expect::FirstName | Expect::NextName => return self.name(byte),
                Expect::CommaOrEnd => {
                    let object = self.frames.last().is_some_and(|f| f.object);
                    match (byte, object) {
                        (b',', true) => self.expect = Expect::NextName,
                        (b',', false) => self.expect = Expect::Value,
                        (b'}', true) => return self.close(Kind::ObjectEnd),
                        (b']', false) => return self.close(Kind::ArrayEnd),
                        _ => return self.bad("expected a comma or the end of the container"),
                    }
                    self.step();
                }
                Expect::Nothing => return self.bad("more than one value"),
            }
        }
    }

    /// The whole span of the value that `token` begins: a container is read to its end, a scalar is itself.
    pub fn whole(&mut self, token: &Token) -> Result<Range<usize>, Bad> {
        if !matches!(token.kind, Kind::Object | Kind::Array) {
            return Ok(token.span.clone());
        }
        while let Some(next) = self.advance()? {
            let end = matches!(next.kind, Kind::ObjectEnd | Kind::ArrayEnd);
            if end && next.depth == token.depth {
                return Ok(token.span.start..next.span.end);
            }
        }
        self.bad("the text ends too early")
    }

    /// Whether the value whose token was just given stands at this path. For a container: right after its opening token the
    /// scanner is inside it already, so ask with the token's depth.
    pub fn at_path(&self, token: &Token, path: &[Step<'_>]) -> bool {
        token.depth == path.len() && self.matches(path)
    }

    /// Whether the name token just given stands where the last step of this path does: all steps before it match.
    pub fn beside(&self, token: &Token, path: &[Step<'_>]) -> bool {
        token.depth == path.len() && self.matches(path.split_last().map_or(path, |(_, before)| before))
    }

    /// The decoded name of the member being read at this level (0: of the top-level object).
    pub fn member_of(&self, level: usize) -> Option<&[u8]> {
        let frame = self.frames.get(level).filter(|f| f.object)?;
        let end = match self.frames.get(level.saturating_add(1)) {
            Some(inner) => inner.names_from,
            None => self.names.len(),
        };
        self.names.get(frame.names_from..end)?.last().map(|n| self.name_bytes(n))
    }

    fn matches(&self, path: &[Step<'_>]) -> bool {
        self.frames.len() >= path.len()
            // From its end: that is where paths differ.
            && path.iter().zip(&self.frames).enumerate().rev().all(|(level, (step, frame))| match step {
                Step::Each => !frame.object,
                Step::Member(name) => {
                    frame.object && self.member_of(level).is_some_and(|n| n == name.as_bytes())
                }
            })
    }

    /// The four below give `Some` always: the type is that of `advance`, so that no token is copied on its way out.
    fn value(&mut self, byte: u8) -> Result<Option<Token>, Bad> {
        let start = self.at;
        let kind = match byte {
            b'{' => return self.open(Kind::Object),
            b'[' => return self.open(Kind::Array),
            b'"' => {
                self.string()?;
                Kind::String
            }
            b't' => self.word(b"true", Kind::True)?,
            b'f' => self.word(b"false", Kind::False)?,
            b'n' => self.word(b"null", Kind::Null)?,
            b'-' | b'0'..=b'9' => {
                self.number()?;
                Kind::Number
            }
            _ => return self.bad("expected a value"),
        };
        self.expect = self.after_value();
        Ok(Some(Token { kind, span: start..self.at, depth: self.frames.len() }))
    }

    fn open(&mut self, kind: Kind) -> Result<Option<Token>, Bad> {
        let depth = self.frames.len();
        if depth >= JSON_DEPTH {
            return self.bad("nested too deeply");
        }
        let object = kind == Kind::Object;
        self.frames.push(Frame { object, names_from: self.names.len(), decoded_from: self.decoded.len() });
        self.expect = if object { Expect::FirstName } else { Expect::FirstElement };
        let start = self.at;
        self.step();
        Ok(Some(Token { kind, span: start..self.at, depth }))
    }

    fn close(&mut self, kind: Kind) -> Result<Option<Token>, Bad> {
        if let Some(frame) = self.frames.pop() {
            if frame.object {
                self.refuse_duplicates(frame.names_from)?;
            }
            self.names.truncate(frame.names_from);
            self.decoded.truncate(frame.decoded_from);
        }
        let start = self.at;
        self.step();
        self.expect = self.after_value();
        Ok(Some(Token { kind, span: start..self.at, depth: self.frames.len() }))
    }

    fn name(&mut self, byte: u8) -> Result<Option<Token>, Bad> {
        if byte != b'"' {
            return self.bad("expected a member name");
        }
        if self.names.len() >= JSON_NAMES {
            return self.bad("too many member names");
        }
        let start = self.at;
        let escaped = self.string()?;
        let span = start..self.at;
        let inner = inside(self.bytes, &span);
        let name = if escaped {
            let from = self.decoded.len();
            decode_into(inner, &mut self.decoded);
            let bytes = self.decoded.get(from..).unwrap_or_default();
            Name { hash: hash(bytes), start: from, end: self.decoded.len(), escaped }
        } else {
            let from = start.saturating_add(1);
            Name { hash: hash(inner), start: from, end: from.saturating_add(inner.len()), escaped }
        };
        self.names.push(name);
        self.skip_space();
        if self.peek() != Some(b':') {
            return self.bad("expected a colon");
        }
        self.step();
        self.expect = Expect::Value;
        Ok(Some(Token { kind: Kind::Name, span, depth: self.frames.len() }))
    }

    /// Few names are compared in pairs, many are sorted: by hash, then by bytes, so that even names made to collide cost no more
    /// than sorting them.
    fn refuse_duplicates(&mut self, from: usize) -> Result<(), Bad> {
        let mut names = std::mem::take(&mut self.names);
        let own = names.get_mut(from..).unwrap_or_default();
        let twice = if own.len() <= 16 {
            let mut rest = &own[..];
            let mut found = false;
            while let Some((first, others)) = rest.split_first() {
                found |= others
                    .iter()
                    .any(|o| o.hash == first.hash && self.name_bytes(o) == self.name_bytes(first));
                rest = others;
            }
            found
        } else {
            own.sort_by(|a, b| a.hash.cmp(&b.hash).then_with(|| self.name_bytes(a).cmp(self.name_bytes(b))));
            own.windows(2).any(|pair| match pair {
                [a, b] => a.hash == b.hash && self.name_bytes(a) == self.name_bytes(b),
                _ => false,
            })
        };
        self.names = names;
        if twice { self.bad("a member name stands twice in one object") } else { Ok(()) }
    }

    fn name_bytes(&self, name: &Name) -> &[u8] {
        let store: &[u8] = if name.escaped { &self.decoded } else { self.bytes };
        store.get(name.start..name.end).unwrap_or_default()
    }

    /// Reads a string from its opening quote; says whether it held an escape.
    fn string(&mut self) -> Result<bool, Bad> {
        self.step();
        let (read, found) = match json_text::string(self.bytes.get(self.at..).unwrap_or_default()) {
            Ok((read, escaped)) => (read, Ok(escaped)),
            Err((read, why)) => (read, Err(why)),
        };
        self.at = self.at.saturating_add(read);
        found.or_else(|why| self.bad(why))
    }

    fn number(&mut self) -> Result<(), Bad> {
        if self.peek() == Some(b'-') {
            self.step();
        }
        if self.peek() == Some(b'0') {
            self.step();
            if self.peek().is_some_and(|b| b.is_ascii_digit()) {
                return self.bad("a number with a leading zero");
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.step();
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.step();
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.step();
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Bad> {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return self.bad("expected a digit");
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.step();
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<Kind, Bad> {
        if !self.bytes.get(self.at..).unwrap_or_default().starts_with(word) {
            return self.bad("expected a value");
        }
        self.at = self.at.saturating_add(word.len());
        Ok(kind)
    }

    fn after_value(&self) -> Expect {
        if self.frames.is_empty() { Expect::Nothing } else { Expect::CommaOrEnd }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.step();
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn bad<T>(&self, why: &'static str) -> Result<T, Bad> {
        Err(Bad { at: self.at, why })
    }
}

/// FNV-1a. Only speeds up the comparison of names; equal hashes are compared in full.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}
