//! Seeded mutations of providers' answers: the usage reader over any bytes, in any pieces and codings; the search for the key against a plain
//! search. Counts and seeds as in tests/fuzz.rs.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "support/mutate.rs"]
mod mutate;

use flate2::{Compression, write::GzEncoder};
use mutate::Random;
use sanduk::catalog::providers::Protocol;
use sanduk::relay::leak::{Guard, Window, begun};
use sanduk::relay::usage::{Reader, Usage};
use sanduk::secret::Secret;
use serde_json::Value;
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::AtomicUsize;

const PROTOCOLS: [Protocol; 5] =
    [Protocol::Chat, Protocol::Messages, Protocol::Responses, Protocol::CountTokens, Protocol::Plain];

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// The recorded answers of tests/usage.rs, and each protocol's stream.
fn answers() -> Vec<Vec<u8>> {
    let vectors = include_str!("data/usage_vectors.jsonl").lines();
    let whole = vectors.map(|line| {
        let vector: Value = serde_json::from_str(line).unwrap();
        vector["chunks"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|c| hex(c.as_str().unwrap()))
            .collect::<Vec<u8>>()
    });
    whole.filter(|bytes| (1..8000).contains(&bytes.len())).collect()
}

fn pieces<'a>(random: &mut Random, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let (mut all, mut rest) = (Vec::new(), bytes);
    let most = [1, 7, 60, 4000][random.below(4)];
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at((1 + random.below(most)).min(rest.len()));
        all.push(piece);
        rest = tail;
    }
    all
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn told(protocol: Protocol, kind: (&[u8], &[u8], bool), pieces: &[&[u8]]) -> Usage {
    let (content_type, coding, streamed) = kind;
    let mut reader = Reader::new(protocol, 200, content_type, coding, streamed);
    pieces.iter().for_each(|piece| reader.push(piece, &mut |_| {}));
    reader.finish()
}

/// Any bytes, any split: no panic, the split changes nothing, and neither does gzip around the same bytes. Money is money.
#[test]
fn usage() {
    let words: [&[u8]; 14] = [
        b"\"usage\":{",
        b"\"usage\":null,",
        b"\"input_tokens\":7",
        b"\"completion_tokens\":1e3",
        b"\"cost\":-1",
        b"\"cost\":1e999",
        b"data: ",
        b"\n\n",
        b"data: [DONE]\n\n",
        b"event: message_delta\n",
        b"9007199254740993",
        b"\\u",
        b"{",
        b"}",
    ];
    let counted = Cell::new(0u64);
    mutate::run("usage", &answers(), &words, |random, bytes| {
        let protocol = PROTOCOLS[random.below(PROTOCOLS.len())];
        let content: &[u8] = [&b"application/json"[..], b"text/event-stream", b""][random.below(3)];
        let streamed = random.below(2) == 0;
        let coding: &[u8] = if bytes.starts_with(&[0x1f, 0x8b]) { b"gzip" } else { b"" };
        let whole = told(protocol, (content, coding, streamed), &[bytes]);
        let split = told(protocol, (content, coding, streamed), &pieces(random, bytes));
        assert_eq!(split, whole, "{protocol:?} {content:?} {streamed}");
        assert!(whole.cost.is_none_or(|c| c.picos() <= 1_000_000_000_000_000_000), "{whole:?}");
        counted.set(counted.get() + u64::from(whole.output.is_some()));
        if coding.is_empty() && random.below(8) == 0 {
            let packed = gzip(bytes);
            let unpacked = told(protocol, (content, b"gzip", streamed), &pieces(random, &packed));
            assert_eq!(unpacked, whole, "gzip, {protocol:?} {content:?} {streamed}");
        }
    });
    println!("counted {} of {}", counted.get(), mutate::rounds());
    assert!(counted.get() > mutate::rounds() / 20, "the mutations leave too little");
}

/// Few letters, so that beginnings of the key are everywhere.
fn letters(random: &mut Random, most: usize) -> Vec<u8> {
    (0..random.below(most)).map(|_| b"aab-"[random.below(4)]).collect()
}

fn plain(key: &[u8], hay: &[u8]) -> bool {
    !key.is_empty() && hay.windows(key.len()).any(|w| w == key)
}

/// The quick search finds what a plain one finds, whole and in any pieces; what waits is the longest beginning at the end.
#[test]
fn key_search() {
    let make = |random: &mut Random| {
        let mut bytes = letters(random, 9);
        bytes.push(b' ');
        bytes.extend(letters(random, 60));
        bytes
    };
    let hits = Cell::new(0u64);
    mutate::generate("key-search", mutate::rounds(), &[b"aab aaab"], make, |random, bytes| {
        let (key, hay) = bytes.split_at(bytes.iter().position(|b| *b == b' ').unwrap_or(0));
        let guard = Guard::new(Secret::new(key.to_vec()), Vec::new());
        let found = plain(key, hay);
        hits.set(hits.get() + u64::from(found));
        assert_eq!(guard.key_in(hay), found);
        let mut window = Window::default();
        assert_eq!(pieces(random, hay).iter().any(|p| window.push(&guard, p)), found);
        let longest =
            (0..key.len().min(hay.len() + 1)).rev().find(|n| hay.ends_with(&key[..*n])).unwrap_or(0);
        assert_eq!(begun(&guard, hay), longest);
    });
    assert!(hits.get() > mutate::rounds() / 50 && hits.get() < mutate::rounds(), "{}", hits.get());
}

const KEY: &str = "sk-a/u005Cb9";

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(members) => {
            members.iter().flat_map(|(k, v)| [vec![k.clone()], strings(v)].concat()).collect()
        }
        _ => Vec::new(),
    }
}

/// In a JSON body the key is found exactly where a decoding parser has it in a string, however it is spelt.
#[test]
fn key_in_json() {
    let spelt = |random: &mut Random| -> String {
        let one = |c: char, n: usize| match n {
            0 => format!("\\u{:04x}", u32::from(c)),
            1 => format!("\\u{:04X}", u32::from(c)),
            2 if c == '/' => "\\/".into(),
            _ => c.to_string(),
        };
        KEY.chars().map(|c| one(c, random.below(6))).collect()
    };
    let make = |random: &mut Random| {
        let pad = |random: &mut Random| ["", "x", "\\n", "\\\\", "\\u2019", "é", "s", "sk-"][random.below(8)];
        let mut inner = String::new();
        for _ in 0..random.below(40) {
            inner.push_str(pad(random));
        }
        let mut key = spelt(random);
        if random.below(3) == 0 {
            let at = random.below(key.len());
            key.remove(at);
        }
        inner.push_str(&key);
        inner.push_str(pad(random));
        match random.below(3) {
            0 => format!(r#"{{"a":"{inner}"}}"#),
            1 => format!(r#"{{"{inner}":[1,"x"]}}"#),
            _ => format!(r#"["{inner}",{{"b":"\\{inner}"}}]"#),
        }
        .into_bytes()
    };
    let guard = Guard::new(Secret::new(KEY.as_bytes().to_vec()), Vec::new());
    // Strings within strings are looked into as well: what they hold there is no false alarm.
    let deep = |text: &str| {
        let mut text = text.as_bytes().to_vec();
        (0..sanduk::limits::SPELLINGS).any(|_| {
            let found = plain(KEY.as_bytes(), &text);
            let mut next = Vec::new();
            sanduk::wire::json_text::decode_into(&text, &mut next);
            text = next;
            found || plain(KEY.as_bytes(), &text)
        })
    };
    let (held, free) = (Cell::new(0u64), Cell::new(0u64));
    mutate::generate(
        "key-in-json",
        mutate::rounds(),
        &[br#"{"a":"\u0073k-a\/u005Cb9"}"#],
        make,
        |_, bytes| {
            let refused = guard.request(bytes, &AtomicUsize::new(0)).is_err();
            let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
                return assert!(refused || !plain(KEY.as_bytes(), bytes));
            };
            let has = plain(KEY.as_bytes(), bytes) || strings(&value).iter().any(|s| s.contains(KEY));
            assert!(refused || !has, "missed");
            assert!(!refused || has || strings(&value).iter().any(|s| deep(s)), "false alarm");
            let count = if refused { &held } else { &free };
            count.set(count.get() + 1);
        },
    );
    assert!(held.get() > mutate::rounds() / 20 && free.get() > mutate::rounds() / 20, "{held:?} {free:?}");
}
