//! Seeded mutations of the wire corpus, no crate needed: 20,000 each of request streams, answer streams, bare bodies and event
//! streams by default, `SANDUK_FUZZ=N` for N, `SANDUK_SEED=N` for another seed. Invariants: no panic, nothing read past what
//! was given, what was read writes and reads back the same, every split gives the same result.
//!
//! `SANDUK_H11=1` also gives every request that is read to h11, a second reader (tests/support/h11_second.py).
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "support/mutate.rs"]
mod mutate;
#[path = "support/reading.rs"]
mod reading;

use mutate::{Random, rounds};
use reading::{End, Message, Side, corpus, read};
use sanduk::wire::body::Body;
use sanduk::wire::http::{Bad, Framing};
use sanduk::wire::sse::Reader;
use std::fmt::Write as _;
use std::io::Write as _;

/// Fragments that change what a message means.
const WORDS: [&[u8]; 30] = [
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding:CHUNKED\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer_Encoding: chunked\r\n",
    b"Host: a\r\n",
    b"Connection: close\r\n",
    b"Connection: content-length\r\n",
    b"Expect: 100-continue\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"GET / HTTP/1.1\r\n",
    b"HEAD",
    b" HTTP/1.1",
    b"HTTP/1.0",
    b"\r\n\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"0\r\n\r\n",
    b"\r\n0\r\n\r\n",
    b"1\r\nx\r\n",
    b"ffffffffffffffff\r\n",
    b"\0",
    b"\xff",
];

/// Two random cuts, one case in sixteen byte by byte.
fn pieces<'a>(random: &mut Random, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    if random.below(16) == 0 && bytes.len() < 4096 {
        return bytes.chunks(1).collect();
    }
    let (a, b) = bytes.split_at(random.below(bytes.len() + 1));
    let (b, c) = b.split_at(random.below(b.len() + 1));
    vec![a, b, c]
}

/// The corpus of one side; good cases four times, so that about as many as the bad ones are changed.
fn streams(requests: bool) -> Vec<Vec<u8>> {
    let good = std::iter::repeat_n(corpus("ok"), 4).flatten();
    let cases = good.chain(corpus("bad"));
    cases.filter(|case| matches!(case.1, Side::Requests) == requests).map(|case| case.2).collect()
}

#[test]
fn request_streams() {
    mutate::run("requests", &streams(true), &WORDS, |random, bytes| {
        let whole = read(Side::Requests, &[bytes]);
        for message in &whole.0 {
            reading::assert_written_reads_back(Side::Requests, message);
            assert_request_is_plain(message);
        }
        assert_eq!(read(Side::Requests, &pieces(random, bytes)), whole);
    });
}

/// What the relay relies on, said again without the parser's own words.
fn assert_request_is_plain(message: &Message) {
    let (method, target) = &message.first;
    assert!(!method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-'));
    assert!(target.starts_with('/') && target.bytes().all(|b| b.is_ascii_graphic()) && !target.contains('#'));
    let count = |name: &str| message.fields.iter().filter(|f| f.0.eq_ignore_ascii_case(name)).count();
    assert_eq!(count("host"), 1);
    let framing = (count("content-length"), count("transfer-encoding"));
    assert_eq!(
        framing,
        match message.framing {
            Framing::Length(_) => (1, 0),
            Framing::Chunked => (0, 1),
            Framing::None => (0, 0),
            Framing::UntilClose => panic!("a request that ends with the connection"),
        }
    );
    for (name, value) in &message.fields {
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':'), "{name}");
        assert!(!value.iter().any(|b| b"\r\n\0".contains(b)));
        assert!(
            !value.first().is_some_and(|b| b" \t".contains(b))
                && !value.last().is_some_and(|b| b" \t".contains(b))
        );
    }
}

#[test]
fn answer_streams() {
    mutate::run("answers", &streams(false), &WORDS, |random, bytes| {
        let side = Side::Answers(if random.below(4) == 0 { "HEAD" } else { "POST" });
        let whole = read(side, &[bytes]);
        for message in &whole.0 {
            if !matches!(message.framing, Framing::None) {
                reading::assert_written_reads_back(side, message);
            }
            assert!((100..=599).contains(&message.first.0.parse::<u16>().unwrap()));
        }
        assert_eq!(read(side, &pieces(random, bytes)), whole);
    });
}

/// Payload, bytes taken and outcome of one body.
fn drain(framing: Framing, limit: u64, pieces: &[&[u8]]) -> (Vec<u8>, usize, Result<bool, Bad>) {
    let (mut payload, mut taken, mut kept) = (Vec::new(), 0, Vec::new());
    let mut body = match Body::new(framing, limit) {
        Ok(body) => body,
        Err(bad) => return (payload, taken, Err(bad)),
    };
    for piece in pieces {
        kept.extend_from_slice(piece);
        loop {
            match body.next(&kept) {
                Err(bad) => {
                    assert_eq!(body.next(&kept), Err(bad), "a refusal does not change");
                    // How much came before the refusal depends on the pieces where the limit itself was passed.
                    return (Vec::new(), 0, Err(bad));
                }
                Ok((0, _)) => break,
                Ok((used, piece)) => {
                    assert!(piece.len() <= used && used <= kept.len());
                    payload.extend_from_slice(piece);
                    taken += used;
                    kept.drain(..used);
                }
            }
        }
    }
    assert!(payload.len() as u64 <= limit);
    (payload, taken, Ok(body.done()))
}

#[test]
fn bodies() {
    let seeds: Vec<Vec<u8>> = streams(true)
        .into_iter()
        .filter_map(|s| s.windows(4).position(|w| w == b"\r\n\r\n").map(|at| s[at + 4..].to_vec()))
        .filter(|body| body.len() > 2)
        .collect();
    mutate::run("bodies", &seeds, &WORDS, |random, bytes| {
        let limit = [0, 1, 60, 1000, u64::MAX][random.below(5)];
        let length = [0, 1, 55, 400, u64::MAX][random.below(5)];
        for framing in [Framing::Chunked, Framing::Length(length), Framing::UntilClose, Framing::None] {
            let whole = drain(framing, limit, &[bytes]);
            assert_eq!(drain(framing, limit, &pieces(random, bytes)), whole, "{framing:?}");
        }
    });
}

#[test]
fn event_streams() {
    let seeds = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25}}}\n\n",
        "\u{feff}data: a\r\ndata:b\r\n\r\n: note\r\rdata\rdata: c\r\r",
        "event:x\nid: 7\nretry: 10\ndata: {\"a\":1}\n\ndata: [DONE]\n\n",
        "data: \u{e4}\u{1f642}\n\ndata:  two\ndata:\ttab\n\ndata: end",
        "data: 0123456789012345678901234567890123456789012345678901234567890123456789\n\ndata: b\n\n",
    ]
    .map(|s| s.as_bytes().to_vec());
    let words: [&[u8]; 12] = [
        b"data: ",
        b"data",
        b"data:",
        b"event: y\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"\r\n\r\n",
        b":\n",
        b"\xef\xbb\xbf",
        b"\n",
        b"\xff",
    ];
    let events = |most: usize, pieces: &[&[u8]]| {
        let (mut reader, mut seen) = (Reader::new(most), Vec::new());
        let mut each = |name: &str, data: &[u8]| {
            assert!(data.len() <= most);
            assert!(!name.contains(['\r', '\n']) && !data.contains(&b'\r'));
            seen.push((name.to_owned(), data.to_vec()));
        };
        for piece in pieces {
            reader.push(piece, &mut each);
        }
        reader.finish(&mut each);
        (seen, reader.skipped())
    };
    mutate::run("events", &seeds, &words, |random, bytes| {
        let most = [0, 10, 50, 10_000][random.below(4)];
        let whole = events(most, &[bytes]);
        assert_eq!(events(most, &pieces(random, bytes)), whole);
    });
}

/// A request that we read and that h11 reads differently would pass our policy as one thing and act as another. h11 may
/// refuse what we read; the script counts that and says why.
#[test]
fn h11_reads_what_we_read() {
    if std::env::var_os("SANDUK_H11").is_none() {
        writeln!(std::io::stderr(), "h11 as a second reader: not run, SANDUK_H11 is not set").unwrap();
        return;
    }
    let mut lines = String::new();
    let seeds = streams(true);
    let mut add = |bytes: &[u8]| {
        let (mut messages, end) = read(Side::Requests, &[bytes]);
        if end == End::Cut {
            messages.pop();
        }
        // Nothing is read behind a request that closes.
        let last = messages.iter().position(|m| m.close).map_or(messages.len(), |at| at + 1);
        messages.truncate(last);
        if !messages.is_empty() {
            write_case(&mut lines, bytes, &messages);
        }
    };
    seeds.iter().for_each(|bytes| add(bytes));
    let mut random = Random::new(mutate::seed());
    for _ in 0..rounds() {
        let bytes = mutate::one(&mut random, &seeds, &WORDS);
        add(&bytes);
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let cases = format!("{root}/target/h11.jsonl");
    std::fs::write(&cases, lines).unwrap();
    let script = format!("{root}/tests/support/h11_second.py");
    let status = std::process::Command::new("python3").args([&script, &cases]).status().unwrap();
    assert!(status.success(), "h11 reads something differently, see above");
}

fn write_case(lines: &mut String, bytes: &[u8], messages: &[Message]) {
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |out, b| out + &format!("{b:02x}"));
    write!(lines, "{{\"bytes\":\"{}\",\"messages\":[", hex(bytes)).unwrap();
    for (n, message) in messages.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        let fields: Vec<_> = message
            .fields
            .iter()
            .map(|(name, value)| format!("[\"{}\",\"{}\"]", hex(name.as_bytes()), hex(value)))
            .collect();
        write!(
            lines,
            "{comma}{{\"method\":\"{}\",\"target\":\"{}\",\"fields\":[{}],\"body\":\"{}\"}}",
            hex(message.first.0.as_bytes()),
            hex(message.first.1.as_bytes()),
            fields.join(","),
            hex(&message.body)
        )
        .unwrap();
    }
    lines.push_str("]}\n");
}
