//! Strict HTTP/1.1 heads, both ways (RFC 9110, RFC 9112), and the writer of ours. A head has one reading or none: whatever
//! two servers are known to read differently is refused. Called by the relay, the control server and their clients.

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
    /// May hold obs-text; never CR, LF or NUL.
    pub value: &'a [u8],
}

/// A request head that passed every check of this file.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Upper-case token, as sent.
    pub method: &'a str,
    /// Origin-form target as sent: starts with `/`, no fragment, visible ASCII only.
    pub target: &'a str,
    /// The bytes of `target` before the first `?`.
    pub path: &'a str,
    /// The bytes after it, where there is one.
    pub query: Option<&'a str>,
    /// In order, repeats kept.
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
    /// Already accounts for 1xx, 204 and 304, which have no body.
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
    /// Longer than the limit for it.
    TooLong(&'static str),
    /// The body is, or says it will be, over its limit.
    BodyTooLarge,
    /// Not HTTP/1.1.
    Version,
    /// A transfer coding or an expectation that is not ours.
    Unsupported(&'static str),
}

impl Bad {
    /// The status a server answers with.
    pub fn status(self) -> u16 {
        match self {
            Bad::Syntax(_) | Bad::Framing(_) => 400,
            Bad::TooLong(_) => 431,
            Bad::BodyTooLarge => 413,
            Bad::Version => 505,
            Bad::Unsupported(_) => 400,
        }
    }

    /// One clause for a person.
    pub fn why(self) -> &'static str {
        match self {
            Bad::Syntax(w) | Bad::Framing(w) | Bad::TooLong(w) | Bad::Unsupported(w) => w,
            Bad::BodyTooLarge => "the body is over the limit",
            Bad::Version => "only HTTP/1.1 is spoken here",
        }
    }
}

/// Reads a request head from the start of `buf`. `Ok(None)`: not complete yet. `Ok(Some((head, n)))`: `n` bytes consumed, one
/// leading CRLF included (RFC 9112 2.2).
pub fn request(buf: &[u8]) -> Result<Option<(Request<'_>, usize)>, Bad> {
    let _ = buf;
    todo!()
}

/// Reads a response head from the start of `buf`; `to` is the method that was asked (a HEAD answer has no body).
pub fn response<'a>(buf: &'a [u8], to: &str) -> Result<Option<(Response<'a>, usize)>, Bad> {
    let _ = (buf, to);
    todo!()
}

/// The one value of a field named `name` (case-insensitive); `Err` where it stands more than once.
pub fn one<'a>(fields: &[Field<'a>], name: &str) -> Result<Option<&'a [u8]>, Bad> {
    let _ = (fields, name);
    todo!()
}

/// Builds a head. Values are checked: a CR, LF or NUL is an error, so that a value cannot add a field.
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// `METHOD target HTTP/1.1`.
    pub fn request(method: &str, target: &str) -> Result<Writer, Bad> {
        let _ = (method, target);
        todo!()
    }

    /// `HTTP/1.1 status reason`.
    pub fn response(status: u16) -> Writer {
        let _ = status;
        todo!()
    }

    /// Adds `name: value`.
    pub fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Bad> {
        let _ = (name, value, &self.out);
        todo!()
    }

    /// Ends the head and hands its bytes over.
    pub fn end(self) -> Vec<u8> {
        todo!()
    }
}

/// The reason phrase of a status; empty where none is known.
pub fn reason(status: u16) -> &'static str {
    let _ = status;
    todo!()
}
