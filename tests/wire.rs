//! The wire corpus and the rules that no single case shows: how bytes are split changes nothing, what we write we read back,
//! each limit holds from both sides, pipelined messages are taken exactly.
//!
//! `tests/wire/ok/NAME` must be read to its end (tests/wire/ok.txt says as what); `tests/wire/bad/OUTCOME-NAME` must be
//! refused: OUTCOME is the status for a request, the variant for an answer, `cut` where only the end of the connection shows it.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "support/reading.rs"]
mod reading;

use reading::{End, Message, Side, corpus, read};
use sanduk::limits;
use sanduk::wire::body::Body;
use sanduk::wire::head::Writer;
use sanduk::wire::http::{self, Bad, Framing};

const HOST: &str = "Host: relay.test\r\n";

fn get(extra: &str) -> Vec<u8> {
    format!("GET /v1/models HTTP/1.1\r\n{HOST}{extra}\r\n").into_bytes()
}

fn post(extra: &str, body: &[u8]) -> Vec<u8> {
    [format!("POST /v1/messages HTTP/1.1\r\n{HOST}{extra}\r\n").as_bytes(), body].concat()
}

fn chunked(body: &str) -> Vec<u8> {
    post("Transfer-Encoding: chunked\r\n", body.as_bytes())
}

fn refusal(bytes: &[u8]) -> Option<Bad> {
    match read(Side::Requests, &[bytes]) {
        (_, End::Refused(bad)) => Some(bad),
        _ => None,
    }
}

fn status(bytes: &[u8]) -> u16 {
    refusal(bytes).map_or(200, Bad::status)
}

fn summary(message: &Message) -> String {
    let (method, target) = &message.first;
    let names: Vec<_> = message.fields.iter().map(|(name, _)| name.as_str()).collect();
    let mut marks = String::new();
    for (mark, set) in [(" close", message.close), (" expect", message.expect_continue)] {
        if set {
            marks.push_str(mark);
        }
    }
    format!(
        "{method} {target} [{}] {:?} body={}{marks}",
        names.join(" "),
        message.framing,
        message.body.len()
    )
}

#[test]
fn good_cases_are_read_as_the_table_says() {
    let mut table = String::new();
    for (name, side, bytes) in corpus("ok") {
        let (messages, end) = read(side, &[&bytes]);
        assert_eq!(end, End::Whole, "{name}");
        for message in messages {
            table.push_str(&format!("{name}: {}\n", summary(&message)));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/ok.txt");
    if std::env::var_os("SANDUK_BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    for (is, must) in table.lines().zip(expected.lines()) {
        assert_eq!(is, must);
    }
    assert_eq!(table.lines().count(), expected.lines().count());
}

#[test]
fn bad_cases_are_refused_as_their_names_say() {
    let cases = corpus("bad");
    assert!(cases.len() > 200, "the corpus is not here");
    for (name, _, bytes) in &cases {
        let (outcome, rest) = name.split_once('-').unwrap();
        let side = if rest.starts_with('U') { Side::Answers("GET") } else { Side::Requests };
        let (_, end) = read(side, &[bytes]);
        let is = match (side, end) {
            (_, End::Whole) => "read".to_owned(),
            (_, End::Cut) => "cut".to_owned(),
            (Side::Requests, End::Refused(bad)) => bad.status().to_string(),
            (Side::Answers(_), End::Refused(bad)) => format!("{bad:?}").split('(').next().unwrap().to_owned(),
        };
        assert_eq!(is, outcome, "{name}: {end:?}");
    }
}

#[test]
fn a_split_anywhere_changes_nothing() {
    for (name, side, bytes) in corpus("ok").into_iter().chain(corpus("bad")) {
        let whole = read(side, &[&bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(side, &single), whole, "{name} byte by byte");
        // Every place in a short case; in a long one its start, its end and a sample.
        for at in (0..bytes.len()).filter(|at| *at < 600 || at % 97 == 0 || at + 40 > bytes.len()) {
            let (a, b) = bytes.split_at(at);
            assert_eq!(read(side, &[a, b]), whole, "{name} at {at}");
        }
    }
}

#[test]
fn what_the_writer_writes_reads_back_the_same() {
    for (name, side, bytes) in corpus("ok") {
        let (messages, _) = read(side, &[&bytes]);
        assert!(!messages.is_empty(), "{name}");
        for message in messages {
            reading::assert_written_reads_back(side, &message);
        }
    }
    let mut writer = Writer::request("GET", "/").unwrap();
    writer.field("host", b" \t a b\t ").unwrap();
    assert_eq!(writer.end(), b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n");
    assert!(Writer::response(429).end().starts_with(b"HTTP/1.1 429 Too Many Requests\r\n"));
    assert!(Writer::response(7).end().starts_with(b"HTTP/1.1 500 "));
}

#[test]
fn the_writer_takes_nothing_that_would_add_a_line() {
    for (method, target) in [
        ("GET", "/ HTTP/1.1\r\nx: y"),
        ("GET", "/a b"),
        ("GET", "/\n"),
        ("GET", "/#a"),
        ("GET", "http://a/"),
        ("GET", ""),
        ("GET /", "/"),
        ("get", "/"),
        ("", "/"),
        ("G\r\n", "/"),
    ] {
        assert!(Writer::request(method, target).is_err(), "{method:?} {target:?}");
    }
    for (name, value) in [
        ("a", "b\r\nc: d"),
        ("a", "\n"),
        ("a", "\r"),
        ("a", "\0"),
        ("a", "\u{7f}"),
        ("a:", "b"),
        ("a b", "b"),
        ("", "b"),
        ("a\r\nb", "c"),
        ("ä", "b"),
    ] {
        let mut writer = Writer::response(200);
        assert!(writer.field(name, value.as_bytes()).is_err(), "{name:?} {value:?}");
        assert_eq!(writer.end(), b"HTTP/1.1 200 OK\r\n\r\n");
    }
}

#[test]
fn pipelined_messages_are_taken_exactly() {
    let (mut all, mut expected) = (Vec::new(), Vec::new());
    for (_, side, bytes) in corpus("ok") {
        if matches!(side, Side::Requests) {
            expected.extend(read(side, &[&bytes]).0);
            all.extend_from_slice(&bytes);
        }
    }
    assert!(expected.len() > 70);
    assert_eq!(read(Side::Requests, &[&all]), (expected, End::Whole));
    let two = [get(""), get("x: y\r\n")].concat();
    assert_eq!(http::request(&two).unwrap().unwrap().1, get("").len());
}

#[test]
fn the_first_line_ends_at_its_limit() {
    let line = |n: usize| format!("GET /{} HTTP/1.1", "a".repeat(n - "GET / HTTP/1.1".len()));
    let head = |n: usize| format!("{}\r\n{HOST}\r\n", line(n)).into_bytes();
    assert_eq!(status(&head(limits::LINE_BYTES)), 200);
    assert_eq!(status(&head(limits::LINE_BYTES + 1)), 414);
    // Undecided at the limit, and with the CR that may end it; refused one byte later, without its end.
    let long = line(limits::LINE_BYTES);
    assert_eq!(http::request(long.as_bytes()), Ok(None));
    assert_eq!(http::request(format!("{long}\r").as_bytes()), Ok(None));
    assert_eq!(http::request(format!("{long}a").as_bytes()), Err(Bad::LineTooLong));
    assert_eq!(http::request(format!("{long}\rX").as_bytes()), Err(Bad::LineTooLong));
    let long = format!("HTTP/1.1 200 {}", "a".repeat(limits::LINE_BYTES - 13));
    assert_eq!(http::response(long.as_bytes(), "GET"), Ok(None));
    assert_eq!(http::response(format!("{long}a").as_bytes(), "GET"), Err(Bad::LineTooLong));
}

#[test]
fn a_field_ends_at_its_limit() {
    let field = |n: usize| format!("x-a: {}", "a".repeat(n - 5));
    assert_eq!(status(&get(&format!("{}\r\n", field(limits::FIELD_BYTES)))), 200);
    assert_eq!(status(&get(&format!("{}\r\n", field(limits::FIELD_BYTES + 1)))), 431);
    let open = |n: usize| format!("GET / HTTP/1.1\r\n{HOST}{}", field(n)).into_bytes();
    assert_eq!(http::request(&open(limits::FIELD_BYTES)), Ok(None));
    assert_eq!(http::request(&open(limits::FIELD_BYTES + 1)).unwrap_err().status(), 431);
}

#[test]
fn a_head_ends_at_its_limit() {
    let head = |n: usize| {
        let mut head = format!("GET / HTTP/1.1\r\n{HOST}");
        while n - head.len() > 2 {
            let left = n - head.len() - 2;
            // A line of at least `x: \r\n` must be left for the next.
            let take = if left <= 10_000 { left } else { 9_000 };
            head.push_str(&format!("x: {}\r\n", "a".repeat(take - 5)));
        }
        head + "\r\n"
    };
    let (most, over) = (head(limits::HEAD_BYTES), head(limits::HEAD_BYTES + 1));
    assert_eq!((most.len(), over.len()), (limits::HEAD_BYTES, limits::HEAD_BYTES + 1));
    assert_eq!(http::request(most.as_bytes()).unwrap().unwrap().1, limits::HEAD_BYTES);
    assert_eq!(http::request(over.as_bytes()).unwrap_err().status(), 431);
    // Never undecided with the limit reached: a caller's buffer of HEAD_BYTES is enough.
    for byte in [b'a', b'\r', b'\n', b':'] {
        let mut endless = over.clone().into_bytes();
        endless.truncate(limits::HEAD_BYTES - 2);
        endless.extend_from_slice(&[byte; 2]);
        assert_eq!(endless.len(), limits::HEAD_BYTES);
        assert!(http::request(&endless).is_err(), "{byte}");
    }
    // A head that comes byte by byte is undecided until its last byte.
    for at in 0..most.len() {
        assert_eq!(http::request(&most.as_bytes()[..at]), Ok(None), "{at}");
    }
}

#[test]
fn fields_end_at_their_number() {
    assert_eq!(status(&get(&"x: y\r\n".repeat(limits::FIELDS - 1))), 200);
    assert_eq!(status(&get(&"x: y\r\n".repeat(limits::FIELDS))), 431);
    let open = |n: usize| format!("GET / HTTP/1.1\r\n{}", "x: y\r\n".repeat(n)).into_bytes();
    assert_eq!(http::request(&open(limits::FIELDS)), Ok(None));
    assert_eq!(http::request(&open(limits::FIELDS + 1)).unwrap_err().status(), 431);
}

#[test]
fn chunk_framing_ends_at_its_limits() {
    let digits = |n: usize| chunked(&format!("{:0>n$}\r\nhi\r\n0\r\n\r\n", 2));
    assert_eq!(status(&digits(limits::CHUNK_DIGITS)), 200);
    assert_eq!(status(&digits(limits::CHUNK_DIGITS + 1)), 400);
    let extension = |n: usize| chunked(&format!("2;{}\r\nhi\r\n0\r\n\r\n", "a".repeat(n)));
    assert_eq!(status(&extension(limits::CHUNK_EXT_BYTES)), 200);
    assert_eq!(status(&extension(limits::CHUNK_EXT_BYTES + 1)), 431);
    let trailer = |n: usize| chunked(&format!("0\r\nx: y\r\nx: {}\r\n\r\n", "a".repeat(n - 11)));
    assert_eq!(status(&trailer(limits::TRAILER_BYTES)), 200);
    assert_eq!(status(&trailer(limits::TRAILER_BYTES + 1)), 431);
}

#[test]
fn a_body_ends_at_its_limit() {
    assert!(Body::new(Framing::Length(10), 10).is_ok());
    assert_eq!(Body::new(Framing::Length(11), 10).err(), Some(Bad::BodyTooLarge));
    assert!(Body::new(Framing::Length(u64::MAX), u64::MAX).is_ok());
    for (bytes, fits) in [
        ("a\r\n0123456789\r\n0\r\n\r\n", true),
        ("5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", true),
        ("b\r\n", false),
        ("5\r\n01234\r\n6\r\n", false),
        ("5\r\n01234\r\n6;", false),
        ("1\r\n0\r\nffffffffffffffff\r\n", false),
    ] {
        let mut body = Body::new(Framing::Chunked, 10).unwrap();
        let mut rest = bytes.as_bytes();
        let end = loop {
            match body.next(rest) {
                Err(bad) => break Err(bad),
                Ok(_) if body.done() => break Ok(()),
                Ok((used, _)) => rest = &rest[used..],
            }
        };
        assert_eq!(end, if fits { Ok(()) } else { Err(Bad::BodyTooLarge) }, "{bytes:?}");
        assert_eq!(body.next(b"").is_ok(), fits, "a refused body stays refused");
    }
    let mut body = Body::new(Framing::UntilClose, 10).unwrap();
    assert_eq!(body.next(b"0123456789"), Ok((10, b"0123456789".as_slice())));
    assert_eq!(body.next(b"0"), Err(Bad::BodyTooLarge));
    assert!(!body.closed(), "a refused body does not end well");
    // The largest sums do not wrap.
    let mut body = Body::new(Framing::Chunked, u64::MAX).unwrap();
    assert_eq!(body.next(b"1\r\nx"), Ok((4, b"x".as_slice())));
    assert_eq!(body.next(b"\r\nffffffffffffffff\r\n"), Err(Bad::BodyTooLarge));
}

#[test]
fn the_end_of_the_connection_ends_only_what_it_may() {
    for (framing, fed, ends) in [
        (Framing::None, "", true),
        (Framing::UntilClose, "", true),
        (Framing::UntilClose, "x", true),
        (Framing::Length(2), "x", false),
        (Framing::Length(2), "xy", true),
        (Framing::Length(0), "", true),
        (Framing::Chunked, "1\r\nx\r\n0\r\n", false),
        (Framing::Chunked, "1\r\nx\r\n0\r\n\r", false),
        (Framing::Chunked, "", false),
    ] {
        let mut body = Body::new(framing, 100).unwrap();
        let mut rest = fed.as_bytes();
        while !rest.is_empty() {
            let (used, _) = body.next(rest).unwrap();
            rest = &rest[used..];
        }
        assert_eq!(body.closed(), ends, "{framing:?} {fed:?}");
    }
}

#[test]
fn a_body_takes_nothing_of_what_follows_it() {
    let mut body = Body::new(Framing::Length(2), 100).unwrap();
    assert_eq!(body.next(b"xyz"), Ok((2, b"xy".as_slice())));
    assert!(body.done());
    assert_eq!(body.next(b"z"), Ok((0, b"".as_slice())));
    let mut body = Body::new(Framing::Chunked, 100).unwrap();
    assert_eq!(body.next(b"0\r\n\r\nGET"), Ok((5, b"".as_slice())));
    assert!(body.done());
}

#[test]
fn answers_without_a_body_have_none_whatever_they_say() {
    for (status, to, framing) in [
        (200, "HEAD", Framing::None),
        (204, "GET", Framing::None),
        (304, "GET", Framing::None),
        (100, "POST", Framing::None),
        (101, "GET", Framing::None),
        (199, "GET", Framing::None),
        (200, "GET", Framing::Length(5)),
        (205, "GET", Framing::Length(5)),
        (404, "POST", Framing::Length(5)),
    ] {
        let bytes = format!("HTTP/1.1 {status} x\r\nContent-Length: 5\r\n\r\n");
        let (head, _) = http::response(bytes.as_bytes(), to).unwrap().unwrap();
        assert_eq!((head.status, head.framing, head.close), (status, framing, false));
    }
    let (head, _) = http::response(b"HTTP/1.1 200\r\n\r\n", "GET").unwrap().unwrap();
    assert_eq!((head.framing, head.close), (Framing::UntilClose, true));
}

#[test]
fn what_starts_no_head_is_refused_at_its_first_bytes() {
    for bytes in ["\x16", "\x00", " ", "g", "\n", "\r\r", "\r\n\r", "\r\n ", "1", "\u{feff}"] {
        assert_eq!(http::request(bytes.as_bytes()).unwrap_err().status(), 400, "{bytes:?}");
    }
    for bytes in ["", "\r", "\r\n", "G", "\r\nG", "GET / HTTP/1.1\r\n"] {
        assert_eq!(http::request(bytes.as_bytes()), Ok(None), "{bytes:?}");
    }
    for bytes in ["\x15", "h", "HTTQ", "\r\n"] {
        assert!(http::response(bytes.as_bytes(), "GET").is_err(), "{bytes:?}");
    }
    for bytes in ["", "H", "HTTP/", "HTTP/1.1 200 OK\r\n"] {
        assert_eq!(http::response(bytes.as_bytes(), "GET"), Ok(None), "{bytes:?}");
    }
    // A line that ends in LF alone is refused before the head is whole: its end may never come.
    assert_eq!(http::request(b"GET / HTTP/1.1\r\nHost: a\n").unwrap_err().status(), 400);
}

#[test]
fn one_takes_one() {
    let (head, _) =
        http::request(b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\nX-B: 3\r\n\r\n").unwrap().unwrap();
    assert_eq!(http::one(&head.fields, "HOST"), Ok(Some(b"a".as_slice())));
    assert_eq!(http::one(&head.fields, "x-b"), Ok(Some(b"3".as_slice())));
    assert_eq!(http::one(&head.fields, "x-c"), Ok(None));
    assert!(http::one(&head.fields, "x-a").is_err());
}

/// Trap 48: an absolute-form target, or a fragment, passed an allowlist and was forwarded with the key.
#[test]
fn trap_48_absolute_form() {
    for target in [
        "http://evil/v1/models",
        "HTTP://evil/v1/models",
        "/v1/models#/../../v1/files",
        "//evil/ x",
        "evil:80",
        "*",
    ] {
        let bytes = format!("GET {target} HTTP/1.1\r\n{HOST}\r\n");
        assert_eq!(status(bytes.as_bytes()), 400, "{target}");
    }
}

/// Trap 57: chunk sizes with a sign or a prefix, data that does not end in CRLF, two framings, a short body taken for whole.
#[test]
fn trap_57_framing() {
    for bytes in [
        chunked("-1\r\nx\r\n0\r\n\r\n"),
        chunked("0x2\r\nhi\r\n0\r\n\r\n"),
        chunked("2\r\nhi0\r\n\r\n"),
        post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"hi"),
        post("Content-Length: 2\r\nContent-Length: 3\r\n", b"hi"),
    ] {
        assert_eq!(status(&bytes), 400, "{}", bytes.escape_ascii());
    }
    let short = post("Content-Length: 3\r\n", b"hi");
    assert_eq!(read(Side::Requests, &[&short]).1, End::Cut);
}
