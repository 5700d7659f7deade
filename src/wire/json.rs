//! A validating JSON pull scanner (RFC 8259): bytes in, tokens with kind, span and depth out. No tree, no recursion, nothing
//! is ever re-written. Stricter than the RFC where two readers could differ: duplicate member names are refused at every
//! depth, compared decoded; the text is UTF-8 without a byte order mark; depth and open names are bounded. Called by
//! `relay/policy.rs`, which edits by span.

use crate::limits::{JSON_DEPTH, JSON_NAMES};
use std::borrow::Cow;
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
                Expect::Value => return self.value(byte).map(Some),
                Expect::FirstElement if byte == b']' => return self.close(Kind::ArrayEnd).map(Some),
                Expect::FirstElement => return self.value(byte).map(Some),
                Expect::FirstName if byte == b'}' => return self.close(Kind::ObjectEnd).map(Some),
                Expect::FirstName | Expect::NextName => return self.name(byte).map(Some),
                Expect::CommaOrEnd => {
                    let object = self.frames.last().is_some_and(|f| f.object);
                    match (byte, object) {
                        (b',', true) => self.expect = Expect::NextName,
                        (b',', false) => self.expect = Expect::Value,
                        (b'}', true) => return self.close(Kind::ObjectEnd).map(Some),
                        (b']', false) => return self.close(Kind::ArrayEnd).map(Some),
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
            && path.iter().zip(&self.frames).enumerate().all(|(level, (step, frame))| match step {
                Step::Each => !frame.object,
                Step::Member(name) => {
                    frame.object && self.member_of(level).is_some_and(|n| n == name.as_bytes())
                }
            })
    }

    fn value(&mut self, byte: u8) -> Result<Token, Bad> {
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
        Ok(Token { kind, span: start..self.at, depth: self.frames.len() })
    }

    fn open(&mut self, kind: Kind) -> Result<Token, Bad> {
        let depth = self.frames.len();
        if depth >= JSON_DEPTH {
            return self.bad("nested too deeply");
        }
        let object = kind == Kind::Object;
        self.frames.push(Frame { object, names_from: self.names.len(), decoded_from: self.decoded.len() });
        self.expect = if object { Expect::FirstName } else { Expect::FirstElement };
        let start = self.at;
        self.step();
        Ok(Token { kind, span: start..self.at, depth })
    }

    fn close(&mut self, kind: Kind) -> Result<Token, Bad> {
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
        Ok(Token { kind, span: start..self.at, depth: self.frames.len() })
    }

    fn name(&mut self, byte: u8) -> Result<Token, Bad> {
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
        Ok(Token { kind: Kind::Name, span, depth: self.frames.len() })
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
        let mut escaped = false;
        self.step();
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            self.at = self.at.saturating_add(plain(rest));
            match self.peek() {
                Some(b'"') => {
                    self.step();
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.step();
                    self.escape()?;
                }
                Some(_) => return self.bad("a raw control character in a string"),
                None => return self.bad("the text ends too early"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Bad> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.step(),
            Some(b'u') => {
                self.step();
                for _ in 0..4 {
                    match self.peek() {
                        Some(b) if b.is_ascii_hexdigit() => self.step(),
                        _ => return self.bad("expected four hex digits"),
                    }
                }
            }
            _ => return self.bad("not an escape"),
        }
        Ok(())
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

/// A string or name token without its quotes, still escaped.
pub fn inside<'a>(text: &'a [u8], span: &Range<usize>) -> &'a [u8] {
    text.get(span.start.saturating_add(1)..span.end.saturating_sub(1)).unwrap_or_default()
}

/// The decoded bytes of a valid string token's inside, for comparing. A lone surrogate escape becomes the three bytes that
/// generalised UTF-8 (WTF-8) has for it; no UTF-8 text holds those, so strings that differ stay different.
pub fn decoded(inside: &[u8]) -> Cow<'_, [u8]> {
    if !inside.contains(&b'\\') {
        return Cow::Borrowed(inside);
    }
    let mut out = Vec::with_capacity(inside.len());
    decode_into(inside, &mut out);
    Cow::Owned(out)
}

/// The same for showing: lone surrogates become U+FFFD.
pub fn text(inside: &[u8]) -> Cow<'_, str> {
    match decoded(inside) {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Decodes escapes; total, so it may be given anything.
fn decode_into(mut rest: &[u8], out: &mut Vec<u8>) {
    while let Some(cut) = rest.iter().position(|&b| b == b'\\') {
        let (before, from) = rest.split_at(cut);
        out.extend_from_slice(before);
        let (unit, used) = escape_at(from);
        let (mut code, mut taken) = (unit, used);
        if (0xD800..0xDC00).contains(&unit) {
            let behind = from.get(used..).unwrap_or_default();
            if behind.starts_with(b"\\u") {
                let (low, more) = escape_at(behind);
                if (0xDC00..0xE000).contains(&low) {
                    let high = unit.wrapping_sub(0xD800).wrapping_shl(10);
                    code = high.wrapping_add(low.wrapping_sub(0xDC00)).wrapping_add(0x1_0000);
                    taken = used.saturating_add(more);
                }
            }
        }
        push_code(code, out);
        rest = from.get(taken..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

/// The code unit of the escape that `from` begins with, and its length.
fn escape_at(from: &[u8]) -> (u32, usize) {
    let simple = |c: u8| (u32::from(c), 2);
    match from.get(1) {
        Some(b'b') => simple(8),
        Some(b'f') => simple(12),
        Some(b'n') => simple(b'\n'),
        Some(b'r') => simple(b'\r'),
        Some(b't') => simple(b'\t'),
        Some(b'u') => {
            let digits = from.get(2..6).and_then(|d| std::str::from_utf8(d).ok());
            match digits.and_then(|d| u32::from_str_radix(d, 16).ok()) {
                Some(unit) => (unit, 6),
                None => (0xFFFD, 2),
            }
        }
        Some(&c) => simple(c),
        None => (0xFFFD, 1),
    }
}

fn push_code(code: u32, out: &mut Vec<u8>) {
    if let Some(c) = char::from_u32(code) {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        return;
    }
    // A lone surrogate, D800 to DFFF: 1110_1101 10_xxxxxx 10_xxxxxx.
    let six = |shift: u32| u8::try_from((code >> shift) & 0x3F).unwrap_or(0) | 0x80;
    out.extend_from_slice(&[0xED, six(6), six(0)]);
}

/// How many bytes from the start are neither a quote, nor a backslash, nor below 0x20. Eight at a time.
pub fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero_byte = |word: u64| word.wrapping_sub(ONES) & !word;
    let (words, _) = bytes.as_chunks::<8>();
    let mut at: usize = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let quote = zero_byte(word ^ ONES.wrapping_mul(0x22));
        let slash = zero_byte(word ^ ONES.wrapping_mul(0x5C));
        let control = word.wrapping_sub(ONES.wrapping_mul(0x20)) & !word;
        if (quote | slash | control) & HIGH != 0 {
            break;
        }
        at = at.wrapping_add(8);
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let more = rest.iter().take_while(|b| !matches!(b, b'"' | b'\\' | 0..=0x1F)).count();
    at.saturating_add(more)
}

/// FNV-1a. Only speeds up the comparison of names; equal hashes are compared in full.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}
