//! The reader of a call log: what was written, and every way in which it can be damaged.

#[path = "support/call_log.rs"]
mod call_log;

use call_log::{denied, end, every_kind, log, outcome, start, tried, verdict};
use sanduk::relay::log_read::{Reader, Tail, What};
use sanduk::relay::record::{Again, Record, Resumed, Retry};
use sanduk::wire::digest::sha256_hex;

/// Lines that hold, and what ended the reading.
fn read(text: &[u8]) -> (u64, Option<(u64, What)>) {
    let mut reader = Reader::new(text, 1 << 30);
    loop {
        match reader.advance() {
            Ok(Some(_)) => {}
            Ok(None) => return (reader.lines(), None),
            Err(bad) => return (reader.lines(), Some((bad.line, bad.what))),
        }
    }
}

#[test]
fn what_was_written_is_read() {
    let records = every_kind();
    let text = log(&records);
    let mut reader = Reader::new(&text[..], 1 << 20);
    for record in &records {
        assert_eq!(reader.advance().unwrap().unwrap().record, *record);
    }
    assert_eq!(reader.advance(), Ok(None));
    assert_eq!((reader.lines(), reader.calls(), reader.open(), reader.ended()), (10, 3, 0, true));
    assert_eq!(reader.bytes(), text.len() as u64);
    assert_eq!(reader.head(), sha256_hex(text.split(|b| *b == b'\n').nth(9).unwrap()));
}

fn retry(call: u64, n: u32) -> Record {
    Record::Retry(Retry { call, r#try: n, status: 529, wait_ms: 500 })
}

#[test]
fn tries_of_a_call() {
    let records = |first, second| {
        let retries = [verdict(1), retry(1, 2), verdict(2), retry(2, 2), retry(1, 3)];
        [start(None)]
            .into_iter()
            .chain(retries)
            .chain([tried(1, first), tried(2, second)])
            .collect::<Vec<_>>()
    };
    assert_eq!(read(&log(&records(3, 2))), (8, None));
    for (first, second, line) in [(1, 2, 7), (2, 2, 7), (4, 2, 7), (3, 1, 8), (3, 3, 8)] {
        assert_eq!(read(&log(&records(first, second))), (line - 1, Some((line, What::Order))));
    }
}

#[test]
fn records_out_of_order() {
    let found = |open| Some(Resumed { lines: 2, calls: 1, open, torn: 0 });
    for (records, line) in [
        (vec![verdict(1)], 1),
        (vec![start(Some(Resumed::default()))], 1),
        (vec![start(None), start(None)], 2),
        (vec![start(None), verdict(1), start(found(0))], 3),
        (vec![start(None), verdict(1), start(found(1)), outcome(1)], 4),
        (vec![start(None), verdict(2)], 2),
        (vec![start(None), outcome(1)], 2),
        (vec![start(None), verdict(1), verdict(1)], 3),
        (vec![start(None), verdict(1), outcome(1), outcome(1)], 4),
        (vec![start(None), Record::DeniedAgain(Again { times: 1 })], 2),
        (vec![start(None), denied(), Record::DeniedAgain(Again { times: 0 })], 3),
        (vec![start(None), end(), denied()], 3),
        (vec![start(None), retry(1, 2)], 2),
        (vec![start(None), verdict(1), retry(1, 1)], 3),
        (vec![start(None), verdict(1), retry(1, 3)], 3),
        (vec![start(None), verdict(1), outcome(1), retry(1, 2)], 4),
    ] {
        assert_eq!(read(&log(&records)), (line - 1, Some((line, What::Order))), "{records:?}");
    }
}

#[test]
fn every_cut_and_every_changed_byte_is_found_but_in_the_last_line() {
    let text = log(&[start(None), verdict(1), outcome(1), denied()]);
    let ends: Vec<usize> =
        text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    for cut in 0..text.len() {
        let whole = ends.iter().filter(|e| **e <= cut).count() as u64;
        let clean = cut == 0 || ends.contains(&cut);
        assert_eq!(read(&text[..cut]), (whole, (!clean).then_some((whole + 1, What::Torn))), "{cut}");
    }
    for at in 0..ends[2] {
        for byte in [0, b' ', b'\r', b'\n', b'"', b'0', 0xff] {
            let mut changed = text.clone();
            changed[at] = byte;
            assert!(changed == text || read(&changed).1.is_some(), "{at} {byte}");
        }
    }
}

#[test]
fn a_tail_is_whole_or_not() {
    let text = log(&[start(None), verdict(1)]);
    for (cut, whole) in [(1, true), (2, false)] {
        let mut reader = Reader::new(&text[..text.len() - cut], 1 << 20);
        assert!(reader.advance().unwrap().is_some());
        assert_eq!(reader.advance().unwrap_err().what, What::Torn);
        let bytes = text.len() as u64 - cut as u64 - reader.bytes();
        assert_eq!(reader.tail(), Some(Tail { bytes, whole }));
        assert_eq!((reader.lines(), reader.calls()), (1, 0));
        assert_eq!(reader.take_tail().is_ok(), whole);
        assert_eq!((reader.lines(), reader.calls()), if whole { (2, 1) } else { (1, 0) });
    }
}

#[test]
fn forms_kinds_versions_sizes() {
    let first = log(&[start(None)]);
    let line = String::from_utf8(first.clone()).unwrap();
    for (text, what) in [
        (line.replace("\"v\":1", "\"v\":2"), What::Version),
        (line.replace("\"v\":1,", ""), What::Form),
        (line.replace("start", "begin"), What::Kind),
        (line.replace("\"n\":1", "\"n\":\"1\""), What::Form),
        (line.replace("\"n\":1", "\"n\":1.0"), What::Form),
        (line.replace("\"n\":1", "\"n\":2"), What::Chain),
        (line.replace("000", "001"), What::Chain),
        (line.replace("\"n\":1", "\"n\":1,\"x\":0,\"x\":0"), What::Form),
        (line.replace("\"n\":1", "\"n\":1,\"\\u006e\":1"), What::Form),
        (line.replace('\n', "\r\n"), What::Form),
        (format!("\u{feff}{line}"), What::Form),
        (format!(" {line}"), What::Form),
        (format!("\n{line}"), What::Form),
        (format!("{line}\n"), What::Form),
        (line.replace("https", "ht\0tps"), What::Form),
        (
            line.replace("\"n\":1", &format!("\"n\":1,\"x\":{}{}", "[".repeat(200), "]".repeat(200))),
            What::Form,
        ),
        (line.replace("\"n\":1", &format!("\"n\":1,\"x\":\"{}\"", "x".repeat(1 << 20))), What::Size),
    ] {
        assert_eq!(read(text.as_bytes()).1.map(|(_, what)| what), Some(what), "{text:.200}");
    }
    assert_eq!(read(&line.replace("https", "\u{e4}").into_bytes()), (1, None));
    let mut short = Reader::new(&first[..], 10);
    assert_eq!(short.advance().unwrap_err().what, What::Read);
}

#[test]
fn no_bytes_make_it_panic() {
    let text =
        log(&[start(None), verdict(1), outcome(1), denied(), Record::DeniedAgain(Again { times: 1 }), end()]);
    let mut seed = 1u64;
    for _ in 0..3000 {
        let mut changed = text.clone();
        for _ in 0..3 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % changed.len();
            changed[at] = (seed >> 20) as u8;
        }
        read(&changed);
    }
    assert_eq!(read(b""), (0, None));
    assert_eq!(read(&[0; 4096]).1, Some((1, What::Torn)));
}
