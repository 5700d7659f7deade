//! The fields of a head that decide where its body ends or whose message it is: each may stand once and has one reading
//! (RFC 9112 6). Called by `http` for each field in order, so that the first fault in the bytes is the one reported.

use super::http::{Bad, Field, Framing, is_token};

/// Fields with a rule of their own; a name with `_` for `-` is the same field to CGI-like readers.
const RULED: [(&str, Rule); 12] = [
    ("host", Rule::Host),
    ("content-length", Rule::Length),
    ("transfer-encoding", Rule::Coding),
    ("connection", Rule::Connection),
    ("expect", Rule::Expect),
    ("content-type", Rule::Type),
    ("content-encoding", Rule::Encoding),
    ("authorization", Rule::Credential),
    ("proxy-authorization", Rule::Credential),
    ("x-api-key", Rule::Credential),
    ("api-key", Rule::Credential),
    ("x-goog-api-key", Rule::Credential),
];

/// What a `Connection` field must not name: a hop that obeyed would take the framing or the host out of the message.
const NEVER_LISTED: [&str; 6] =
    ["host", "content-length", "transfer-encoding", "content-type", "content-encoding", "expect"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Host,
    Length,
    Coding,
    Connection,
    Expect,
    Type,
    Encoding,
    Credential,
}

/// What has been seen of one head.
pub(super) struct Seen {
    /// `Connection: close`.
    pub(super) close: bool,
    /// `Expect: 100-continue`.
    pub(super) expect: bool,
    request: bool,
    host: bool,
    content_type: bool,
    content_encoding: bool,
    length: Option<u64>,
    chunked: bool,
}

impl Seen {
    /// `request`: whether `Host` and `Expect` mean anything.
    pub(super) fn new(request: bool) -> Seen {
        Seen {
            close: false,
            expect: false,
            request,
            host: false,
            content_type: false,
            content_encoding: false,
            length: None,
            chunked: false,
        }
    }

    /// Takes the next field in.
    pub(super) fn take(&mut self, field: Field<'_>) -> Result<(), Bad> {
        let Some((name, rule)) = RULED.iter().find(|(name, _)| same(name, field.name)) else { return Ok(()) };
        if *rule == Rule::Credential {
            return ascii(field.value);
        }
        if !name.eq_ignore_ascii_case(field.name) {
            return Err(Bad::Framing("a framing field is spelt with an underscore"));
        }
        ascii(field.value)?;
        match rule {
            Rule::Host if self.request => {
                once(&mut self.host)?;
                host(field.value)
            }
            Rule::Expect if self.request => {
                once(&mut self.expect)?;
                if field.value.eq_ignore_ascii_case(b"100-continue") { Ok(()) } else { Err(Bad::Expectation) }
            }
            Rule::Type => once(&mut self.content_type),
            Rule::Encoding => once(&mut self.content_encoding),
            Rule::Connection => self.connection(field.value),
            Rule::Length | Rule::Coding => self.delimit(*rule, field.value),
            Rule::Host | Rule::Expect | Rule::Credential => Ok(()),
        }
    }

    /// `Err` where a request had no `Host` (RFC 9112 3.2).
    pub(super) fn host(&self) -> Result<(), Bad> {
        if self.host { Ok(()) } else { Err(Bad::Syntax("Host is missing")) }
    }

    /// `None` where no field said.
    pub(super) fn framing(&self) -> Option<Framing> {
        if self.chunked { Some(Framing::Chunked) } else { self.length.map(Framing::Length) }
    }

    fn delimit(&mut self, rule: Rule, value: &[u8]) -> Result<(), Bad> {
        match rule {
            Rule::Length if self.length.is_some() => Err(Bad::Framing("Content-Length stands twice")),
            Rule::Coding if self.chunked => Err(Bad::Framing("Transfer-Encoding stands twice")),
            Rule::Length if self.chunked => Err(Bad::Framing("Content-Length beside Transfer-Encoding")),
            Rule::Coding if self.length.is_some() => {
                Err(Bad::Framing("Transfer-Encoding beside Content-Length"))
            }
            Rule::Length => {
                self.length = Some(length(value)?);
                Ok(())
            }
            _ => {
                self.chunked = true;
                coding(value)
            }
        }
    }

    /// RFC 9110 7.6.1. Empty elements are legal in a list (RFC 9110 5.6.1).
    fn connection(&mut self, value: &[u8]) -> Result<(), Bad> {
        for element in value.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|e| !e.is_empty()) {
            let Ok(name) = std::str::from_utf8(element) else { return Err(Bad::Syntax("not ASCII")) };
            if !element.iter().all(|b| is_token(*b)) {
                return Err(Bad::Syntax("Connection lists something that is not a token"));
            }
            if NEVER_LISTED.iter().any(|never| same(never, name)) {
                return Err(Bad::Framing("Connection lists a field that it must not"));
            }
            self.close |= name.eq_ignore_ascii_case("close");
        }
        Ok(())
    }
}

/// Whether two names are one field, case and `_` for `-` aside.
fn same(ours: &str, theirs: &str) -> bool {
    let fold = |b: u8| if b == b'_' { b'-' } else { b.to_ascii_lowercase() };
    ours.len() == theirs.len() && ours.bytes().zip(theirs.bytes()).all(|(a, b)| a == fold(b))
}

fn once(seen: &mut bool) -> Result<(), Bad> {
    if std::mem::replace(seen, true) {
        return Err(Bad::Syntax("a field that may stand once stands twice"));
    }
    Ok(())
}

fn ascii(value: &[u8]) -> Result<(), Bad> {
    if value.is_ascii() {
        Ok(())
    } else {
        Err(Bad::Syntax("a byte that is not ASCII in a field that decides"))
    }
}

/// `host[:port]`: a name, an IPv4 address or an IPv6 literal. No list, user, path, percent-encoding or empty port.
fn host(value: &[u8]) -> Result<(), Bad> {
    let bad = Err(Bad::Syntax("Host is not host[:port]"));
    let (name_fits, rest) = match value {
        [b'[', inner @ ..] => {
            let mut parts = inner.splitn(2, |b| *b == b']');
            let (Some(address), Some(rest)) = (parts.next(), parts.next()) else { return bad };
            let fits = address.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'));
            (fits && !address.is_empty(), rest)
        }
        _ => {
            let end = value.iter().position(|b| *b == b':').unwrap_or(value.len());
            let (name, rest) = value.split_at_checked(end).unwrap_or((value, b""));
            let fits = name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
            (fits && !name.is_empty(), rest)
        }
    };
    let port_fits = match rest {
        [] => true,
        [b':', digits @ ..] => (1..=5).contains(&digits.len()) && number(digits).is_some_and(|n| n <= 65535),
        _ => false,
    };
    if name_fits && port_fits { Ok(()) } else { bad }
}

/// Digits only; no sign, no leading zero (octal to some), nothing over a u64 (RFC 9110 8.6 allows more, one reader wraps).
fn length(value: &[u8]) -> Result<u64, Bad> {
    match value {
        [b'0', _, ..] => None,
        _ => number(value),
    }
    .ok_or(Bad::Framing("Content-Length is not a plain number"))
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, d| match d {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(d.saturating_sub(b'0'))),
        _ => None,
    })
}

/// `chunked` alone. A list of codings that ends in it once is 501 (RFC 9112 6.1), all else has no sure end.
fn coding(value: &[u8]) -> Result<(), Bad> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut elements = value.split(|b| *b == b',').map(<[u8]>::trim_ascii).rev();
    let last = elements.next().unwrap_or_default();
    let other =
        |e: &[u8]| !e.is_empty() && e.iter().all(|b| is_token(*b)) && !e.eq_ignore_ascii_case(b"chunked");
    if last.eq_ignore_ascii_case(b"chunked") && elements.all(other) {
        return Err(Bad::Coding);
    }
    Err(Bad::Framing("Transfer-Encoding is not chunked"))
}
