//! Reads a whole connection with `wire::http` and `wire::body` the way a server or a client does: bytes come in pieces, heads
//! and bodies follow each other. Asserts on the way that nothing is read past what was given. For tests/wire.rs and tests/fuzz.rs.

use sanduk::limits;
use sanduk::wire::body::Body;
use sanduk::wire::http::{self, Bad, Field, Framing};

/// One message, as owned values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `GET` and `/x`, or `200` and "".
    pub first: (String, String),
    pub fields: Vec<(String, Vec<u8>)>,
    pub framing: Framing,
    pub close: bool,
    pub expect_continue: bool,
    pub body: Vec<u8>,
}

/// How a connection's bytes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Between two messages, or in a body that ends with the connection.
    Whole,
    /// In a head or a body.
    Cut,
    Refused(Bad),
}

/// What is read: requests, or the answers to this method.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Requests,
    Answers(&'static str),
}

/// All messages of a connection, and its end. Where the end is `Cut`, the last message may be a part of one.
pub fn read(side: Side, pieces: &[&[u8]]) -> (Vec<Message>, End) {
    let (mut messages, mut buf, mut body) = (Vec::new(), Vec::new(), None);
    for piece in pieces {
        buf.extend_from_slice(piece);
        if let Err(bad) = advance(side, &mut buf, &mut messages, &mut body) {
            if body.is_some() {
                messages.pop();
            }
            return (messages, End::Refused(bad));
        }
    }
    let whole = match &mut body {
        Some(body) => body.closed(),
        None => buf.is_empty() || buf == b"\r\n",
    };
    (messages, if whole { End::Whole } else { End::Cut })
}

fn advance(
    side: Side,
    buf: &mut Vec<u8>,
    messages: &mut Vec<Message>,
    body: &mut Option<Body>,
) -> Result<(), Bad> {
    loop {
        if let Some(open) = body {
            let (used, payload) = open.next(buf)?;
            assert!(used <= buf.len(), "the body took more than there was");
            assert!(
                payload.is_empty() || inside(&buf[..used], payload),
                "payload from outside what was taken"
            );
            messages.last_mut().unwrap().body.extend_from_slice(payload);
            buf.drain(..used);
            match (open.done(), used) {
                (true, _) => *body = None,
                (false, 0) => return Ok(()),
                (false, _) => {}
            }
        } else {
            let Some((message, used)) = head(side, buf)? else { return Ok(()) };
            assert!(used <= buf.len(), "the head took more than there was");
            assert!(buf[..used].ends_with(b"\r\n\r\n"));
            let limit = u64::try_from(limits::BODY_BYTES).unwrap();
            let open = Body::new(message.framing, limit)?;
            messages.push(message);
            *body = (!open.done()).then_some(open);
            buf.drain(..used);
        }
    }
}

/// One head, copied out.
pub fn head(side: Side, buf: &[u8]) -> Result<Option<(Message, usize)>, Bad> {
    match side {
        Side::Requests => Ok(http::request(buf)?.map(|(r, used)| {
            assert_eq!(r.target, r.query.map_or(r.path.to_owned(), |q| format!("{}?{q}", r.path)));
            let first = (r.method.to_owned(), r.target.to_owned());
            (message(first, &r.fields, r.framing, r.close, r.expect_continue), used)
        })),
        Side::Answers(to) => Ok(http::response(buf, to)?.map(|(r, used)| {
            let first = (r.status.to_string(), String::new());
            (message(first, &r.fields, r.framing, r.close, false), used)
        })),
    }
}

fn message(
    first: (String, String),
    fields: &[Field<'_>],
    framing: Framing,
    close: bool,
    expect_continue: bool,
) -> Message {
    let fields = fields.iter().map(|f| (f.name.to_owned(), f.value.to_vec())).collect();
    Message { first, fields, framing, close, expect_continue, body: Vec::new() }
}

fn inside(outer: &[u8], inner: &[u8]) -> bool {
    let (outer, inner) = (outer.as_ptr_range(), inner.as_ptr_range());
    outer.start <= inner.start && inner.end <= outer.end
}

/// The head of `message` written by our writer.
pub fn written(side: Side, message: &Message) -> Vec<u8> {
    let mut writer = match side {
        Side::Requests => sanduk::wire::head::Writer::request(&message.first.0, &message.first.1).unwrap(),
        Side::Answers(_) => sanduk::wire::head::Writer::response(message.first.0.parse().unwrap()),
    };
    for (name, value) in &message.fields {
        writer.field(name, value).unwrap();
    }
    writer.end()
}

/// parse(serialise(x)) == x for the head of `message`.
pub fn assert_written_reads_back(side: Side, message: &Message) {
    let bytes = written(side, message);
    let (again, used) = head(side, &bytes).unwrap().unwrap();
    assert_eq!(used, bytes.len());
    let bare = Message { body: Vec::new(), ..message.clone() };
    assert_eq!(again, bare);
}

/// Every case of tests/wire/`folder`: name, side, bytes; in order of name.
pub fn corpus(folder: &str) -> Vec<(String, Side, Vec<u8>)> {
    let folder = format!("{}/tests/wire/{folder}", env!("CARGO_MANIFEST_DIR"));
    let mut cases: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // What a provider sends is called U, alone or after the expected outcome.
            let side = if name.starts_with('U') || name.contains("-U") {
                Side::Answers("GET")
            } else {
                Side::Requests
            };
            (name, side, std::fs::read(path).unwrap())
        })
        .collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}
