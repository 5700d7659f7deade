//! Strict HTTP/1.1 heads, both ways (RFC 9110, RFC 9112), and the writer of ours. A head has one reading or none: whatever
//! two servers are known to read differently is refused. Reads slices only, keeps nothing between calls, never looks past
//! the head. Called by the relay, the control server and their clients.

use super::framing::Seen;
use crate::limits;
use std::io::BufRead;

/// How the bytes after a head are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body follows.
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// A response body that ends with the connection.
    UntilClose,
}

/// One header field; the name as sent, the value without surrounding white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// A token (RFC 9110 5.6.2), case as sent.
    pub name: &'a str,
    /// May hold obs-text; never a control character but HTAB.
    pub value: &'a [u8],
}

/// A request head that passed every check of this file.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Upper-case letters and `-`, as sent.
    pub method: &'a str,
    /// Origin-form target as sent: starts with `/`, no fragment, visible ASCII only.
    pub target: &'a str,
    /// The bytes of `target` before the first `?`.
    pub path: &'a str,
    /// The bytes after it, where there is one.
    pub query: Option<&'a str>,
    /// In order, repeats kept; exactly one is `Host`, and it is `host[:port]`.
    pub fields: Vec<Field<'a>>,
    /// `None`, `Length` or `Chunked`.
    pub framing: Framing,
    /// `Connection: close` was sent.
    pub close: bool,
    /// `Expect: 100-continue` was sent.
    pub expect_continue: bool,
}

/// A response head that passed every check of this file.
#[derive(Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// 100 to 599.
    pub status: u16,
    /// In order, repeats kept.
    pub fields: Vec<Field<'a>>,
    /// Already accounts for HEAD, 1xx, 204 and 304, which have no body.
    pub framing: Framing,
    /// `Connection: close` was sent, or the body is delimited by close.
    pub close: bool,
}

/// Why a head, a chunk or a trailer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Anything that is not the grammar; the words name the rule.
    Syntax(&'static str),
    /// A framing that two readers could take differently.
    Framing(&'static str),
    /// The first line is over `limits::LINE_BYTES`.
    LineTooLong,
    /// A field, the whole head or the trailers are over their limit.
    TooLong(&'static str),
    /// The body is, or says it will be, over its limit.
    BodyTooLarge,
    /// A version other than HTTP/1.1.
    Version,
    /// A transfer coding before `chunked`.
    Coding,
    /// An expectation other than `100-continue`.
    Expectation,
}

impl Bad {
    /// The status a server answers with.
    pub fn status(self) -> u16 {
        match self {
            Bad::Syntax(_) | Bad::Framing(_) => 400,
            Bad::BodyTooLarge => 413,
            Bad::LineTooLong => 414,
            Bad::Expectation => 417,
            Bad::TooLong(_) => 431,
            Bad::Coding => 501,
            Bad::Version => 505,
        }
    }

    /// One clause for a person.
    pub fn why(self) -> &'static str {
        match self {
            Bad::Syntax(w) | Bad::Framing(w) | Bad::TooLong(w) => w,
            Bad::LineTooLong => "the first line is over the limit",
            Bad::BodyTooLarge => "the body is over the limit",
            Bad::Version => "only HTTP/1.1 is spoken here",
            Bad::Coding => "no transfer coding but chunked is spoken here",
            Bad::Expectation => "no expectation but 100-continue is met here",
        }
    }
}

/// Reads a request head from the start of `buf`. `Ok(None)`: not complete yet, and nothing of it known to be wrong. `Ok(Some((head,
/// n)))`: `n` bytes consumed, one leading CRLF included (RFC 9112 2.2). The first fault in byte order is the one reported,
/// however the bytes came; a first byte that starts no method and every limit are decided without the rest of the head.
pub fn request(buf: &[u8]) -> Result<Option<(Request<'_>, usize)>, Bad> {
    let start = match buf {
        [] | [b'\r'] | [b'\r', b'\n'] => return Ok(None),
        [b'\r', b'\n', b'A'..=b'Z', ..] => 2,
        [b'A'..=b'Z', ..] => 0,
        _ => return Err(Bad::Syntax("the first byte starts no method")),
    };
    let Some(lines) = lines(buf, start) else { return Ok(None) };
    let Some((first, at)) = line(buf, start, limits::LINE_BYTES, Bad::LineTooLong)? else { return Ok(None) };
    let (method, target) = request_line(first)?;
    let mut seen = Seen::new(true);
    let Some((fields, end)) = fields(buf, at, lines, &mut seen)? else { return Ok(None) };
    seen.host()?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let framing = seen.framing().unwrap_or(Framing::None);
    let (close, expect_continue) = (seen.close, seen.expect);
    Ok(Some((Request { method, target, path, query, fields, framing, close, expect_continue }, end)))
}

/// Reads a response head from the start of `buf`; `to` is the method that was asked (a HEAD answer has no body). As `request`,
/// but without the leading CRLF.
pub fn response<'a>(buf: &'a [u8], to: &str) -> Result<Option<(Response<'a>, usize)>, Bad> {
    if buf.iter().zip(b"HTTP/").any(|(is, must)| is != must) {
        return Err(Bad::Syntax("the first bytes are not those of HTTP"));
    }
    let Some(lines) = lines(buf, 0) else { return Ok(None) };
    let Some((first, at)) = line(buf, 0, limits::LINE_BYTES, Bad::LineTooLong)? else { return Ok(None) };
    let status = status_line(first)?;
    let mut seen = Seen::new(false);
    let Some((fields, end)) = fields(buf, at, lines, &mut seen)? else { return Ok(None) };
    // RFC 9112 6.3, rules 1 and 2: these have no body whatever their fields say.
    let framing = match status {
        100..=199 | 204 | 304 => Framing::None,
        _ if to == "HEAD" => Framing::None,
        _ => seen.framing().unwrap_or(Framing::UntilClose),
    };
    let close = seen.close || framing == Framing::UntilClose;
    Ok(Some((Response { status, fields, framing, close }, end)))
}

/// The one value of a field named `name` (case-insensitive); `Err` where it stands more than once.
pub fn one<'a>(fields: &[Field<'a>], name: &str) -> Result<Option<&'a [u8]>, Bad> {
    let mut found = fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(Bad::Syntax("a field that may stand once stands twice")),
        (first, None) => Ok(first.map(|f| f.value)),
    }
}

/// Lines before the end of the head or before what `line` refuses; `None` where neither is in sight, so that no verdict can be given yet.
/// Only looks for line ends, so that a head that comes byte by byte costs a memory search for each byte and not a parse.
fn lines(buf: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut most, mut lines) = (start, limits::LINE_BYTES, 0usize);
    loop {
        match line(buf, at, most, Bad::LineTooLong) {
            Ok(None) => return None,
            Ok(Some(([], _))) => return Some(lines),
            Ok(Some((_, next))) => at = next,
            Err(_) => return Some(lines),
        }
        (most, lines) = (limits::FIELD_BYTES, lines.saturating_add(1));
        if lines > limits::FIELDS.saturating_add(1) {
            return Some(lines);
        }
    }
}

/// The line at `at` without its CRLF, and where the next begins; `None` until it is whole. `long` is what a line over `most`
/// bytes is called; one that would pass the end of the largest head is refused the same way.
fn line(buf: &[u8], at: usize, most: usize, long: Bad) -> Result<Option<(&[u8], usize)>, Bad> {
    let over = Bad::TooLong("the head is over the limit");
    let left = limits::HEAD_BYTES.checked_sub(at).and_then(|room| room.checked_sub(2)).ok_or(over)?;
    let (most, long) = if left < most { (left, over) } else { (most, long) };
    let window = buf.get(at..).unwrap_or_default();
    let window = window.get(..most.saturating_add(2)).unwrap_or(window);
    // The standard library's only search for a byte that is not a loop over bytes; a slice never fails to read.
    let length = { window }.skip_until(b'\n').unwrap_or(0);
    match window.get(..length) {
        Some([content @ .., b'\r', b'\n']) => Ok(Some((content, at.saturating_add(length)))),
        Some([.., b'\n']) => Err(Bad::Syntax("a line ends in LF without CR")),
        Some([content @ .., b'\r']) if content.len() <= most => Ok(None),
        Some(content) if content.len() <= most => Ok(None),
        _ => Err(long),
    }
}

/// Method and target of a request line (RFC 9112 3): two single spaces, nothing repaired.
fn request_line(first: &[u8]) -> Result<(&str, &str), Bad> {
    let mut parts = first.splitn(3, |b| *b == b' ');
    let (Some(method), Some(target), Some(version)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Bad::Syntax("the request line is not METHOD target HTTP/1.1"));
    };
    let method = check_method(method)?;
    check_version(version)?;
    Ok((method, check_target(target)?))
}

/// The status of a status line (RFC 9112 4); the reason may be empty, its space too.
fn status_line(first: &[u8]) -> Result<u16, Bad> {
    let (version, rest) = first.split_at_checked(8).ok_or(Bad::Syntax("the status line is cut"))?;
    check_version(version)?;
    let [b' ', a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', reason @ ..] = rest else {
        return Err(Bad::Syntax("the status is not 100 to 599"));
    };
    match reason {
        [] => {}
        [b' ', text @ ..] => check_value(text)?,
        _ => return Err(Bad::Syntax("the status has not three digits")),
    }
    Ok([a, b, c].iter().fold(0, |sum: u16, d| {
        sum.saturating_mul(10).saturating_add(u16::from(**d)).saturating_sub(u16::from(b'0'))
    }))
}

pub(super) fn check_method(method: &[u8]) -> Result<&str, Bad> {
    match method {
        [b'A'..=b'Z', rest @ ..] if rest.iter().all(|b| matches!(b, b'A'..=b'Z' | b'-')) => text(method),
        _ => Err(Bad::Syntax("the method is not upper-case letters")),
    }
}

pub(super) fn check_target(target: &[u8]) -> Result<&str, Bad> {
    match target {
        [b'/', rest @ ..] if rest.iter().all(|b| matches!(b, b'!'..=b'~') && *b != b'#') => text(target),
        [b'/', ..] => Err(Bad::Syntax("the target holds a byte that is not visible ASCII, or a #")),
        _ => Err(Bad::Syntax("the target is not in origin-form")),
    }
}

fn check_version(version: &[u8]) -> Result<(), Bad> {
    match version {
        b"HTTP/1.1" => Ok(()),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Err(Bad::Version),
        _ => Err(Bad::Syntax("the version is not HTTP/digit.digit")),
    }
}

pub(super) fn check_name(name: &[u8]) -> Result<&str, Bad> {
    if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
        return Err(Bad::Syntax("a field name is not a token"));
    }
    text(name)
}

pub(super) fn check_value(value: &[u8]) -> Result<(), Bad> {
    // No early end: the compiler then looks at sixteen bytes at a time.
    if value.iter().fold(false, |bad, b| bad | !is_value(*b)) {
        return Err(Bad::Syntax("a control character stands in a value"));
    }
    Ok(())
}

/// `tchar` of RFC 9110 5.6.2.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// What a field value may hold (RFC 9110 5.5): HTAB, SP, VCHAR and obs-text.
pub(super) fn is_value(byte: u8) -> bool {
    (byte == b'\t') | ((byte >= b' ') & (byte != 0x7f))
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, Bad> {
    std::str::from_utf8(bytes).map_err(|_| Bad::Syntax("not ASCII"))
}

/// Without optional white space (RFC 9110 5.6.3): SP and HTAB, nothing else that Rust or Unicode calls white space.
pub(super) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The fields from `at` to the blank line, about as many as `lines`, and where the body begins; `None` until they are whole.
fn fields<'a>(
    buf: &'a [u8],
    mut at: usize,
    lines: usize,
    seen: &mut Seen,
) -> Result<Option<(Vec<Field<'a>>, usize)>, Bad> {
    let mut fields = Vec::with_capacity(lines);
    loop {
        let long = Bad::TooLong("a field is over the limit");
        let Some((content, next)) = line(buf, at, limits::FIELD_BYTES, long)? else { return Ok(None) };
        if content.is_empty() {
            return Ok(Some((fields, next)));
        }
        if fields.len() >= limits::FIELDS {
            return Err(Bad::TooLong("the head has too many fields"));
        }
        if let [b' ' | b'\t', ..] = content {
            return Err(Bad::Syntax("a field is folded")); // RFC 9112 5.2.
        }
        let mut halves = content.splitn(2, |b| *b == b':');
        let (Some(name), Some(value)) = (halves.next(), halves.next()) else {
            return Err(Bad::Syntax("a field has no colon"));
        };
        // Refuses a space before the colon too (RFC 9112 5.1): no token holds a space.
        let name = check_name(name)?;
        check_value(value)?;
        let field = Field { name, value: trimmed(value) };
        seen.take(field)?;
        fields.push(field);
        at = next;
    }
}
