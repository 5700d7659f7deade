//! Seeded generation and mutation of what we read back from disk: TOML files (with Python's tomllib as a second reader), records of
//! runs, logs of calls. Counts and seeds as in tests/fuzz.rs; `SANDUK_TOMLLIB=1` asks tomllib.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "support/mutate.rs"]
mod mutate;

use mutate::Random;
use sanduk::relay::log_read::Reader;
use sanduk::relay::note::Denied;
use sanduk::relay::record::{
    Again, Counts, End, Line, NO_PREV, Outcome, Record, Resumed, Start, VERSION, Verdict,
};
use sanduk::relay::start::Grants;
use sanduk::run::state;
use sanduk::wire::digest::sha256_hex;
use sanduk::wire::money::Money;
use sanduk::wire::toml::{self, Table, Value};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::io::Read;

const TOML: [&str; 4] = [
    "# note\nname = \"a\"\n[a.b]\nc-d = [1, [2, 'x'], true,]\n\"e f\" = 0xff\n[a]\ng.h = -1_000\n",
    "a = \"\"\"\nx \\\n  \\u00e9\"\"\"\"\nb = '''\n'y'''\r\nc = \"\\U0001F642\"\n",
    "[[x]]\na = 1.5\nb = {c = 1}\nd = 1979-05-27T07:32:00Z\n",
    "[a]\nb.c = 1\nb.d = [\n 1, # one\n]\n[a.e.f]\n'' = \"\"\n[a.e]\ng = +0\nh = 0o17\n",
];

fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::String(s) => json!(s),
        Value::Integer(n) => json!(n),
        Value::Boolean(b) => json!(b),
        Value::Array(list) => list.iter().map(as_json).collect(),
        Value::Table(table) => table_json(table),
    }
}

fn table_json(table: &Table) -> serde_json::Value {
    table.entries.iter().map(|(name, entry)| (name.clone(), as_json(&entry.value))).collect()
}

/// The place of a fault is in the text. What is read is put down for tomllib.
#[test]
fn toml_files() {
    let words: [&[u8]; 26] = [
        b"\"\"\"",
        b"'''",
        b"\"",
        b"'",
        b"\\",
        b"[",
        b"]",
        b"[[",
        b"=",
        b".",
        b"#",
        b"\r\n",
        b"\r",
        b"\\u",
        b"\\ud800",
        b"_",
        b"\xc3\xa9",
        b"a = 1\n",
        b"[a]\n",
        b"[a.b]\n",
        b"a.b = 1\n",
        b"b = {}\n",
        b"\t",
        b"\0",
        b"-",
        b"0",
    ];
    let lines = RefCell::new(String::new());
    mutate::run("toml", &TOML, &words, |_, bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (value, why) = match toml::parse(&text) {
            Ok(table) => (table_json(&table), None),
            Err(bad) => {
                let line = text.split('\n').nth(bad.at.line - 1).expect("the line is there");
                let line = line.trim_start_matches('\u{feff}');
                assert!((1..=line.chars().count() + 1).contains(&bad.at.column), "{bad} in {line:?}");
                (json!(null), Some(bad.to_string()))
            }
        };
        let hex = text.bytes().fold(String::new(), |out, b| out + &format!("{b:02x}"));
        writeln!(lines.borrow_mut(), "{}", json!({"text": hex, "value": value, "why": why})).unwrap();
    });
    if std::env::var_os("SANDUK_TOMLLIB").is_none() {
        return println!("tomllib as a second reader: not run, SANDUK_TOMLLIB is not set");
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let cases = format!("{root}/target/toml.jsonl");
    // ASCII only: what is not is escaped by hand, as serde_json leaves it.
    let ascii: String = lines.borrow().chars().map(escaped).collect();
    std::fs::write(&cases, ascii).unwrap();
    let script = format!("{root}/tests/support/toml_second.py");
    let status = std::process::Command::new("python3").args([&script, &cases]).status().unwrap();
    match status.code() {
        Some(2) => println!("tomllib as a second reader: not run, Python is older than 3.11"),
        code => assert_eq!(code, Some(0), "tomllib reads something differently, see above"),
    }
}

fn escaped(c: char) -> String {
    if c.is_ascii() {
        return c.to_string();
    }
    let mut units = [0; 2];
    c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")).collect()
}

/// What is written of a run is read back; cut anywhere, the whole lines before the cut are, and nothing of the line that was cut.
#[test]
fn records_of_runs() {
    const NAMES: [&str; 6] = ["kind", "box_pid", "boot", "channel", "work", "secret"];
    let make = |random: &mut Random| {
        let mut text = String::new();
        for _ in 0..random.below(8) {
            let value: String = (0..random.below(20))
                .map(|_| ['a', '=', '/', ' ', '\r', '\t', 'é', '"', '0'][random.below(9)])
                .collect();
            text.push_str(&state::lines(&[(NAMES[random.below(6)], value)]));
        }
        text.into_bytes()
    };
    mutate::generate(
        "record",
        mutate::rounds(),
        &[b"kind=run\nbox_pid=1\nbox_pid=22\nx\n\n=\n"],
        make,
        |random, bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let read = state::fields(&text);
            let pairs: Vec<(&str, String)> = read.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
            // A key of ours holds neither `=` nor a line end, so what was read writes and reads back the same.
            assert_eq!(state::fields(&state::lines(&pairs)), read);
            let cut =
                (0..=random.below(text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let whole = text[..cut].rfind('\n').map_or(0, |end| end + 1);
            assert_eq!(state::fields(&text[..cut]), state::fields(&text[..whole]), "cut at {cut}");
            // Line by line, by hand: the last of a name counts.
            for line in text[..whole].split_terminator('\n') {
                if let Some((name, _)) = line.split_once('=') {
                    let last = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
                    let last =
                        last.filter_map(|l| l.trim_end_matches('\n').strip_prefix(name)?.strip_prefix('='));
                    assert_eq!(read.get(name).map(String::as_str), last.fold(None, |_, v| Some(v)), "{name}");
                }
            }
        },
    );
}

fn text(random: &mut Random) -> String {
    (0..random.below(12))
        .map(|_| ['a', '"', '\\', '\n', '\u{1b}', 'é', '\u{1f642}', '}'][random.below(8)])
        .collect()
}

fn number(random: &mut Random) -> u64 {
    [0, 1, 7, 1 << 53, u64::MAX][random.below(5)]
}

fn maybe(random: &mut Random) -> Option<u64> {
    (random.below(2) == 0).then(|| number(random))
}

/// Records in an order that can be: calls counted on, outcomes of open calls, a start after a crash says what it found.
fn records(random: &mut Random) -> Vec<Record> {
    let (mut all, mut calls, mut open) = (Vec::new(), 0, Vec::new());
    start(random, &mut all, calls, &mut open);
    for _ in 0..random.below(12) {
        match random.below(6) {
            0 | 1 => {
                calls += 1;
                open.push(calls);
                let (model, clamped) = (Some(text(random)), vec![text(random)]);
                let (method, path) = ("POST".into(), text(random));
                let (bytes, streamed) = (number(random), random.below(2) == 0);
                all.push(Record::Verdict(Verdict {
                    call: calls,
                    method,
                    path,
                    bytes,
                    model,
                    streamed,
                    clamped,
                    reserved_picodollars: maybe(random).map(Money::from_picos),
                    reserved_tokens: maybe(random),
                    body: None,
                }));
            }
            2 | 3 if !open.is_empty() => {
                let call = open.swap_remove(random.below(open.len()));
                let cost = (random.below(2) == 0).then(|| number(random) as f64 / 1e6);
                let counts = Counts {
                    input: maybe(random),
                    cache_read: maybe(random),
                    output: maybe(random),
                    cost,
                    owed: random.below(2) == 0,
                    model: (random.below(2) == 0).then(|| text(random)),
                    ..Counts::default()
                };
                let (bytes, millis) = (number(random), number(random));
                all.push(Record::Outcome(Outcome {
                    call,
                    status: 200,
                    ended: text(random),
                    bytes,
                    millis,
                    tries: 1,
                    charged_picodollars: maybe(random).map(Money::from_picos),
                    charged_tokens: maybe(random),
                    counts,
                    body: None,
                }));
            }
            4 => {
                let (method, path, why) = (text(random), text(random), text(random));
                all.push(Record::Denied(Denied { method, path, status: 403, why, remedy: text(random) }));
                if random.below(2) == 0 {
                    all.push(Record::DeniedAgain(Again { times: 1 + number(random) / 2 }));
                }
            }
            5 => {
                if open.is_empty() && random.below(2) == 0 {
                    all.push(Record::End(End { why: text(random) }));
                }
                start(random, &mut all, calls, &mut open);
            }
            _ => {}
        }
    }
    all
}

fn start(random: &mut Random, all: &mut Vec<Record>, calls: u64, open: &mut Vec<u64>) {
    let (lines, left) = (all.len() as u64, open.len() as u64);
    let resumed = (lines > 0).then(|| Resumed { lines, calls, open: left, torn: number(random) });
    open.clear();
    let grants =
        Grants { allow_models: vec![text(random)], max_tokens_cap: maybe(random), ..Grants::default() };
    let (version, provider, upstream) = (text(random), text(random), text(random));
    all.push(Record::Start(Start {
        v: VERSION,
        version,
        provider,
        upstream,
        resumed,
        grants,
        caps: None,
        secrets: None,
    }));
}

fn log(records: &[Record]) -> Vec<u8> {
    let (mut all, mut prev) = (Vec::new(), NO_PREV.to_string());
    for (record, n) in records.iter().zip(1..) {
        let line = serde_json::to_vec(&Line { n, prev: &prev, at_ms: n * 1000, record }).unwrap();
        prev = sha256_hex(&line);
        all.extend_from_slice(&line);
        all.push(b'\n');
    }
    all
}

/// Gives bytes in pieces of any size, as a file system may.
struct Pieces<'a>(&'a [u8], Random);

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = (1 + self.1.below(700)).min(buf.len()).min(self.0.len());
        let (piece, rest) = self.0.split_at(n);
        buf[..n].copy_from_slice(piece);
        self.0 = rest;
        Ok(n)
    }
}

/// Records, head, calls, open calls, and what ended it.
type Found = (Vec<Record>, String, u64, u64, Option<String>);

fn found(from: impl Read) -> Found {
    let (mut reader, mut all) = (Reader::new(from, 1 << 20), Vec::new());
    let bad = loop {
        match reader.advance() {
            Ok(Some(line)) => all.push(line.record),
            Ok(None) => break None,
            Err(bad) => break Some(format!("{bad:?}")),
        }
    };
    (all, reader.head().to_string(), reader.calls(), reader.open(), bad)
}

/// What was written is read, in any pieces. Any change of it is found: at once, or by head and count of lines, which the run's
/// receipt has.
#[test]
fn logs_of_calls() {
    let make = |random: &mut Random| {
        let seed = random.next();
        seed.to_le_bytes().to_vec()
    };
    let caught = Cell::new([0u64; 2]);
    mutate::generate("log", mutate::rounds() / 20, &[[0u8; 8]], make, |random, seed| {
        let mut of = Random::new(u64::from_le_bytes(*seed.first_chunk().unwrap_or(&[0; 8])));
        let records = records(&mut of);
        let text = log(&records);
        let whole = found(&text[..]);
        assert_eq!((whole.0.len(), &whole.4), (records.len(), &None));
        assert_eq!(whole.0, records);
        assert_eq!(found(Pieces(&text, Random::new(random.next()))), whole);
        for _ in 0..8 {
            let changed = damaged(random, &text);
            if changed == text {
                continue;
            }
            let seen = found(&changed[..]);
            assert_eq!(found(Pieces(&changed, Random::new(random.next()))), seen);
            let mut counts = caught.get();
            counts[usize::from(seen.4.is_none())] += 1;
            caught.set(counts);
            let anchored = (seen.0.len(), &seen.1) == (whole.0.len(), &whole.1);
            assert!(seen.4.is_some() || !anchored, "not found: {}", changed.escape_ascii());
            // Without its anchor too, all but the last line is fixed by the line behind it.
            let last = text[..text.len() - 1].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let same_lines = changed.len() == text.len() && changed[last..] == text[last..];
            assert!(seen.4.is_some() || !same_lines, "found by the anchor only: {}", changed.escape_ascii());
        }
    });
    println!("found by itself {}, by the anchor {}", caught.get()[0], caught.get()[1]);
    assert!(caught.get()[0] > mutate::rounds() / 20);
}

/// One byte, one bit, a line gone, twice or elsewhere, a cut.
fn damaged(random: &mut Random, text: &[u8]) -> Vec<u8> {
    let (mut bytes, at) = (text.to_vec(), random.below(text.len()));
    let mut lines: Vec<Vec<u8>> = text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let (a, b) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(8) {
        0 | 1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = b"0123456789{}\",: \n\\"[random.below(18)],
        3 => bytes.truncate(at),
        4 => drop(bytes.remove(at)),
        5 => {
            lines.remove(a);
            bytes = lines.concat();
        }
        6 => {
            lines.swap(a, b);
            bytes = lines.concat();
        }
        _ => {
            let again = lines[a].clone();
            lines.insert(b, again);
            bytes = lines.concat();
        }
    }
    bytes
}
