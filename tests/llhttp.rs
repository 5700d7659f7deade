//! The cases of llhttp's own tests, read by our readers (`SANDUK_CORPORA=DIR`, DIR/llhttp/cases.jsonl). What strict llhttp refuses we refuse;
//! what we refuse and it takes stands in `STRICTER` with the reason. Any other difference is a failure.

#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

use sanduk::wire::body::Body;
use sanduk::wire::http::{self, Bad};
use serde_json::Value;
use std::collections::BTreeMap;

/// How a text ends for us.
#[derive(Clone, Debug, PartialEq)]
enum End {
    /// Whole messages and nothing else.
    Taken,
    /// Within a message.
    Waiting,
    /// Something follows a message behind which the connection is closed.
    Closed,
    /// Refused, in these words.
    Refused(&'static str),
}

/// Our words for what llhttp takes, and why we do not.
const STRICTER: &[(&str, &str)] = &[
    ("Content-Length is not a plain number", "003: leading zeros are octal to some readers"),
    ("Transfer-Encoding beside Content-Length", "two lengths, whatever the coding is called"),
    (
        "Transfer-Encoding is not chunked",
        "an answer in a coding that we do not take off has no end that we know",
    ),
    ("Transfer-Encoding stands twice", "one reader takes the first, another the last"),
    (
        "a field name is not a token",
        "a space before the colon (lenient): some take it for a part of the name",
    ),
    ("a chunk size is not plain hexadecimal", "a space behind the size (lenient)"),
    ("a chunk size line holds CR without LF", "a bare CR (lenient)"),
    ("a control character stands in a value", "readers differ on where such a value ends (lenient)"),
    ("a field is folded", "folding is obsolete (RFC 9112 5.2), and one reader's fold is another's field"),
    ("Host is not host[:port]", "the cases have an equals sign in it"),
    ("a line ends in LF without CR", "a bare LF (lenient)"),
    ("chunk data does not end in CRLF", "a bare CR or nothing (lenient)"),
    ("only HTTP/1.1 is spoken here", "HTTP/1.0 knows no chunks; other versions are unknown"),
    ("the first byte starts no method", "one CRLF may stand before a request (RFC 9112 2.2), not two"),
    ("the first bytes are not those of HTTP", "nothing may stand before an answer, nor behind a 304"),
    ("the request line is not METHOD target HTTP/1.1", "HTTP/0.9, and spaces"),
    ("the target holds a byte that is not visible ASCII, or a #", "a fragment is never sent (RFC 9112 3.2)"),
    (
        "the target is not in origin-form",
        "the relay is no proxy: *, authority and absolute form lead nowhere",
    ),
    ("the version is not HTTP/digit.digit", "RTSP, ICE"),
];

/// What llhttp calls an error and is none of the text, or one of its own: its tests stop it on purpose, or it leaves HTTP; it knows its
/// methods from a list, and so does the relay, in its route table.
const NO_FAULT: &[&str] = &["Pause on", "Expected space after method"];

/// Reads messages to the end. A request without Host gets one: nearly all cases lack it, and would say nothing else.
fn requests(text: &[u8]) -> End {
    let mut text = text.to_vec();
    let mut at = 0;
    let mut given = false;
    while at < text.len() {
        let (framing, close, used) = match http::request(&text[at..]) {
            Ok(None) => return End::Waiting,
            Ok(Some((head, used))) => (head.framing, head.close, used),
            Err(bad) if !given && bad.why() == "Host is missing" => {
                let Some(line) = text[at..].windows(2).skip(2).position(|w| w == b"\r\n") else {
                    return End::Refused(bad.why());
                };
                text.splice(at + line + 4..at + line + 4, *b"Host: a\r\n");
                given = true;
                continue;
            }
            Err(bad) => return End::Refused(bad.why()),
        };
        given = false;
        at += used;
        match body(&text[at..], Body::new(framing, u64::MAX)) {
            Ok(Some(used)) => at += used,
            Ok(None) => return End::Waiting,
            Err(bad) => return End::Refused(bad.why()),
        }
        if close {
            return if at < text.len() { End::Closed } else { End::Taken };
        }
    }
    End::Taken
}

fn responses(text: &[u8]) -> End {
    let mut at = 0;
    while at < text.len() {
        let (head, used) = match http::response(&text[at..], "GET") {
            Ok(None) => return End::Waiting,
            Ok(Some(got)) => got,
            Err(bad) => return End::Refused(bad.why()),
        };
        at += used;
        let until_close = head.framing == http::Framing::UntilClose;
        match body(&text[at..], Body::new(head.framing, u64::MAX)) {
            Ok(Some(used)) => at += used,
            Ok(None) if until_close => return End::Taken,
            Ok(None) => return End::Waiting,
            Err(bad) => return End::Refused(bad.why()),
        }
        if head.close {
            return if at < text.len() { End::Closed } else { End::Taken };
        }
    }
    End::Taken
}

/// Bytes of a whole body.
fn body(text: &[u8], body: Result<Body, Bad>) -> Result<Option<usize>, Bad> {
    let (mut body, mut at) = (body?, 0);
    while !body.done() {
        let (used, _) = body.next(&text[at..])?;
        at += used;
        if used == 0 {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn every_case_of_llhttp() {
    let Ok(corpora) = std::env::var("SANDUK_CORPORA") else {
        println!("skipped: SANDUK_CORPORA is not set");
        return;
    };
    let cases = std::fs::read_to_string(format!("{corpora}/llhttp/cases.jsonl")).unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut faults, mut used) = (Vec::new(), std::collections::BTreeSet::new());
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let word = |name: &str| case[name].as_str().unwrap_or_default();
        let text = hex(word("hex"));
        let error = case["error"].as_str().filter(|e| !NO_FAULT.iter().any(|n| e.starts_with(n)));
        let read = if word("type").starts_with("request") { requests } else { responses };
        let mut end = read(&text);
        if end == End::Waiting {
            // Nothing is decided before a head is whole: with its end, and a whole body behind it, it is.
            let whole = read(&[&text[..], b"\r\n\r\n0\r\n\r\n"].concat());
            end = if matches!(whole, End::Refused(_)) && error.is_some() { whole } else { end };
        }
        let lenient = word("type").contains("lenient");
        let verdict = match (&end, error) {
            (End::Refused(_) | End::Closed, Some(_)) => "refused by both",
            (End::Taken | End::Waiting, None) => "taken by both",
            (End::Refused(why), None) if STRICTER.iter().any(|(w, _)| w == why) => "refused by us alone",
            (End::Closed, None) if lenient => "refused by us alone",
            _ => "",
        };
        if let ("refused by us alone", End::Refused(why)) = (verdict, &end) {
            used.insert(*why);
        }
        if verdict.is_empty() {
            faults.push(format!(
                "{}: {} ({}): we {end:?}, llhttp {error:?}\n    {}",
                word("file"),
                word("name"),
                word("type"),
                text.escape_ascii()
            ));
        }
        *counts.entry(verdict.to_string()).or_default() += 1;
    }
    println!("{counts:?}");
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.join("\n"));
    let idle: Vec<&str> = STRICTER.iter().map(|(why, _)| *why).filter(|why| !used.contains(why)).collect();
    assert!(idle.is_empty(), "no case for {idle:?}");
    assert!(counts.values().sum::<usize>() > 240, "not the whole corpus: {counts:?}");
}
