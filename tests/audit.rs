//! `sanduk audit` and the second reader, `audit/verify-log`, on logs that hold and on logs that do not: they agree, and say where.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "support/call_log.rs"]
mod call_log;

use call_log::{denied, end, every_kind, log, outcome, start, tried, verdict};
use flate2::Compression;
use flate2::write::GzEncoder;
use sanduk::prove::verify;
use sanduk::relay::note::Denied;
use sanduk::relay::record::{Again, Record, Resumed, Retry};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

static FILES: AtomicUsize = AtomicUsize::new(0);

fn file(bytes: &[u8]) -> PathBuf {
    let n = FILES.fetch_add(1, Ordering::SeqCst);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("audit-{}-{n}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn sanduk(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sanduk")).arg("audit").args(args).output().unwrap()
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn second(logs: &[PathBuf], more: &[&str]) -> (i32, Vec<Value>) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/verify-log");
    let out = Command::new("python3").arg(script).args(logs).args(more).output().unwrap();
    let answers = String::from_utf8(out.stdout).unwrap();
    (out.status.code().unwrap(), answers.lines().map(|l| serde_json::from_str(l).unwrap()).collect())
}

/// What a reader says of a log: exit code, lines that hold, the line of the fault, its sort as ours names it.
type Said = (i32, u64, Option<u64>, String);

/// Both readers on each of these; what they say, which is the same.
fn both(logs: &[Vec<u8>]) -> Vec<Said> {
    let paths: Vec<PathBuf> = logs.iter().map(|l| file(l)).collect();
    let theirs = second(&paths, &[]).1;
    assert_eq!(theirs.len(), logs.len());
    let said = paths.iter().zip(&theirs).map(|(path, theirs)| {
        let ours = verify::verify(path, None, None);
        let shown = format!("{:.300}", String::from_utf8_lossy(&std::fs::read(path).unwrap()));
        let _ = std::fs::remove_file(path);
        let Ok(found) = ours else {
            assert_eq!(theirs["exit"], 2, "{theirs} {shown}");
            return (2, 0, None, String::new());
        };
        let fault = found.fault.as_ref();
        let code = i32::from(verify::exit(&found).code());
        let open = found.without_outcome;
        let ours = (code, found.lines, found.head.as_deref(), found.calls, open, fault.map(|f| f.line));
        let number = |name: &str| theirs[name].as_u64();
        let same = number("exit") == Some(code as u64)
            && number("lines") == Some(found.lines)
            && theirs["head"].as_str() == found.head.as_deref()
            && (number("calls"), number("open")) == (Some(found.calls), Some(open))
            && number("line") == fault.map(|f| f.line);
        assert!(same, "{ours:?} {theirs} {found:?} {shown}");
        (code, found.lines, fault.map(|f| f.line), fault.map(|f| f.what.to_string()).unwrap_or_default())
    });
    said.collect()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|b| *b == b'\n').collect()
}

#[test]
fn what_holds_and_what_does_not() {
    let whole = log(&every_kind());
    let all = lines(&whole);
    let good = (0, 10, None, String::new());
    let bad = |line: u64, what: &str| (3, line - 1, Some(line), what.to_string());
    let unreadable = (2, 0, None, String::new());
    let crlf: Vec<u8> = all.iter().flat_map(|l| [&l[..l.len() - 1], b"\r\n"].concat()).collect();
    let cases = [
        (whole.clone(), good.clone()),
        (gz(&whole), good.clone()),
        ([gz(&all[..4].concat()), gz(&all[4..].concat())].concat(), good.clone()),
        (b"".to_vec(), bad(1, "empty")),
        (gz(b""), bad(1, "empty")),
        // Cut at a line's end: only a receipt shows it.
        (all[..7].concat(), (0, 7, None, String::new())),
        (whole[..whole.len() - 1].to_vec(), bad(10, "torn")),
        (whole[..whole.len() - 9].to_vec(), bad(10, "torn")),
        (gz(&whole)[..200].to_vec(), unreadable.clone()),
        ([&gz(&whole)[..], b"more"].concat(), unreadable.clone()),
        ([&gz(&whole)[..], &[0; 64]].concat(), unreadable.clone()),
        ([&gz(&whole)[..], &gz(&whole)[..9]].concat(), unreadable.clone()),
        ([gz(b""), gz(&all[..3].concat()), gz(b""), gz(&all[3..].concat())].concat(), good.clone()),
        (gz(&whole)[..2].to_vec(), unreadable),
        ([&all[..2], &[all[3], all[2]], &all[4..]].concat().concat(), bad(3, "chain")),
        ([&all[..3], &all[2..]].concat().concat(), bad(4, "chain")),
        ([&all[..3], &all[4..]].concat().concat(), bad(4, "chain")),
        ([&whole[..], &whole[..]].concat(), bad(11, "chain")),
        (all[1..].concat(), bad(1, "chain")),
        (crlf, bad(1, "form")),
        (["\u{feff}".as_bytes(), &whole].concat(), bad(1, "form")),
        ([&whole[..], b"\n"].concat(), bad(11, "form")),
        ([&whole[..], &[0; 50], b"\n"].concat(), bad(11, "form")),
        ([&whole[..], &[b'x'; 2 << 20], b"\n"].concat(), bad(11, "size")),
        (b"[]\n".to_vec(), bad(1, "form")),
        (b"{}\n".to_vec(), bad(1, "form")),
        (vec![0; 100], bad(1, "torn")),
    ];
    let logs: Vec<Vec<u8>> = cases.iter().map(|(log, _)| log.clone()).collect();
    for (n, (said, (_, due))) in both(&logs).iter().zip(&cases).enumerate() {
        assert_eq!(said, due, "case {n}");
    }
}

/// A first line with these words instead of those.
fn changed(from: &str, to: &str) -> Vec<u8> {
    let line = String::from_utf8(log(&[start(None)])).unwrap();
    assert!(line.contains(from));
    line.replace(from, to).into_bytes()
}

#[test]
fn one_reading_of_every_form() {
    let deep = |n: usize| format!("\"n\":1,\"x\":{}{}", "[".repeat(n), "]".repeat(n));
    let mut cases: Vec<(Vec<u8>, i32)> = [
        ("\"v\":1", "\"v\":2".into(), 3),
        ("\"v\":1,", String::new(), 3),
        ("\"v\":1", "\"v\":true".into(), 3),
        ("\"n\":1", "\"n\":\"1\"".into(), 3),
        ("\"n\":1", "\"n\":1.0".into(), 3),
        ("\"n\":1", "\"n\":1e0".into(), 3),
        ("\"n\":1", "\"n\":01".into(), 3),
        ("\"n\":1", "\"n\":+1".into(), 3),
        ("\"n\":1", "\"n\": 1".into(), 0),
        ("\"n\":1", "\"n\":1,\"n\":1".into(), 3),
        ("\"n\":1", "\"n\":1,\"\\u006e\":1".into(), 3),
        ("\"n\":1", "\"n\":1,\"x\":{\"a\":1,\"a\":1}".into(), 3),
        ("\"n\":1", "\"n\":1,\"x\":NaN".into(), 3),
        ("\"n\":1", "\"n\":1,\"x\":-Infinity".into(), 3),
        ("\"n\":1", "\"n\":1,\"x\":1e999".into(), 3),
        ("\"n\":1", "\"n\":1,\"x\":-1.5e-300".into(), 0),
        ("\"n\":1", format!("\"n\":1,\"x\":{}", "9".repeat(5000)), 3),
        ("\"n\":1", format!("\"n\":1,\"x\":{}", "9".repeat(300)), 0),
        ("\"n\":1", "\"n\":1,\"x\":\"\\ud800\"".into(), 3),
        ("\"n\":1", "\"n\":1,\"x\":[\"\\udc00x\"]".into(), 3),
        ("\"n\":1", "\"n\":1,\"x\":\"\\ud83d\\ude00\"".into(), 0),
        ("\"n\":1", "\"n\":1,\"x\":'a'".into(), 3),
        ("\"n\":1", "\"n\":1,".into(), 3),
        ("\"n\":1", deep(31), 0),
        ("\"n\":1", deep(32), 3),
        ("\"n\":1", deep(100_000), 3),
        ("\"n\":1", "\"n\":1,\"x\":\"[[[\\\"[[\"".into(), 0),
        ("\"at_ms\":7", "\"at_ms\":-0".into(), 3),
        ("\"at_ms\":7", "\"at_ms\":-7".into(), 3),
        ("\"at_ms\":7", "\"at_ms\":18446744073709551615".into(), 0),
        ("\"at_ms\":7", "\"at_ms\":18446744073709551616".into(), 3),
        ("\"at_ms\":7", "\"at_ms\":null".into(), 3),
        ("https", "ht\0tps".into(), 3),
        ("https", "ht\ttps".into(), 3),
        ("https", "ht\\u0000tps".into(), 0),
        ("\"start\"", "\"begin\"".into(), 3),
        ("\"start\"", "\"end\"".into(), 3),
        ("\"allow_models\":[\"m\"]", "\"allow_models\":[1]".into(), 3),
        ("\"allow_models\":[\"m\"]", "\"allow_models\":null".into(), 3),
        ("\"sealed\":false", "\"sealed\":0".into(), 3),
    ]
    .into_iter()
    .map(|(from, to, code): (&str, String, i32)| (changed(from, &to), code))
    .collect();
    let latin = changed("https", "h").iter().map(|b| if *b == b'h' { 0xe4 } else { *b }).collect();
    cases.push((latin, 3));
    let logs: Vec<Vec<u8>> = cases.iter().map(|(log, _)| log.clone()).collect();
    for (said, (log, code)) in both(&logs).iter().zip(&cases) {
        assert_eq!(said.0, *code, "{:.200}", String::from_utf8_lossy(log));
    }
}

/// A last line with these words instead of those: no digest follows it.
#[test]
fn one_reading_of_every_last_line() {
    let names = |n: usize| (0..n).map(|i| format!("\"{i:x}\":1")).collect::<Vec<_>>().join(",");
    let many = |n: usize| format!("\"status\":200,\"x\":{{{}}}", names(n));
    let lists = |n: usize| format!("\"status\":200,\"x\":[{}]", vec!["{\"a\":1}"; n].join(","));
    let (verdict, outcome, denied) = (
        vec![start(None), verdict(1)],
        vec![start(None), verdict(1), outcome(1)],
        vec![start(None), denied()],
    );
    let cases = [
        // Only a start has a version.
        (&verdict, "\"call\":1", "\"call\":1,\"v\":2".to_string(), 0),
        (&verdict, "\"call\":1", "\"call\":1,\"body\":\"\"".into(), 3),
        (&verdict, "\"call\":1", "\"call\":1,\"body\":\"../../x\"".into(), 3),
        (&verdict, "\"call\":1", format!("\"call\":1,\"body\":\"{}\"", "a".repeat(64)), 3),
        (&verdict, "\"call\":1", "\"call\":true".into(), 3),
        (&outcome, "\"status\":200", "\"status\":65536".into(), 3),
        (&outcome, "\"status\":200", "\"status\":200,\"tries\":1".into(), 0),
        (&outcome, "\"status\":200", "\"status\":200,\"tries\":null".into(), 3),
        (&outcome, "\"status\":200", "\"status\":200,\"tries\":0".into(), 3),
        (&outcome, "\"status\":200", "\"status\":200,\"tries\":2".into(), 3),
        (&outcome, "\"status\":200", "\"status\":200,\"tries\":4294967297".into(), 3),
        (&outcome, "\"status\":200", "\"status\":200,\"cache_read\":null".into(), 0),
        (&outcome, "\"input\":1", "\"input\":-1".into(), 3),
        (&outcome, "\"input\":1", "\"input\":1.0".into(), 3),
        (&outcome, "\"status\":200", many(60_000), 0),
        (&outcome, "\"status\":200", many(66_000), 3),
        (&outcome, "\"status\":200", lists(60_000), 0),
        (&outcome, "\"status\":200", lists(66_000), 3),
        (&denied, "\"why\":\"no\"", "\"why\":\"no\",\"x\":\"\\ud800\"".into(), 3),
        (&denied, "\"why\":\"no\"", "\"why\":\"no\",\"x\":{\"\\udc00\":1}".into(), 3),
        (&denied, "\"why\":\"no\"", "\"why\":\"no\",\"x\":\"\\ud83d\\ude00\"".into(), 0),
        (&denied, "\"why\":\"no\"", "\"why\":\"no\",\"body\":5".into(), 0),
    ];
    let log = |records: &[Record], from: &str, to: &str| {
        let text = String::from_utf8(log(records)).unwrap();
        let (before, last) = text.rsplit_once("\n{").unwrap();
        assert!(last.contains(from), "{from}");
        format!("{before}\n{{{}", last.replacen(from, to, 1)).into_bytes()
    };
    let logs: Vec<Vec<u8>> = cases.iter().map(|(records, from, to, _)| log(records, from, to)).collect();
    for ((code, lines, ..), (records, _, to, due)) in both(&logs).into_iter().zip(&cases) {
        let whole = records.len() as u64 - u64::from(*due == 3);
        assert_eq!((code, lines), (*due, whole), "{to:.200}");
    }
}

#[test]
fn one_reading_of_every_order() {
    let found = |open, torn| Some(Resumed { lines: 2, calls: 1, open, torn });
    let nothing = |torn| start(Some(Resumed { lines: 0, calls: 0, open: 0, torn }));
    let cases = [
        (vec![verdict(1)], Some(1)),
        (vec![nothing(0)], Some(1)),
        (vec![nothing(9)], None),
        (vec![start(None), start(None)], Some(2)),
        (vec![start(None), verdict(1), start(found(0, 0))], Some(3)),
        (vec![start(None), verdict(1), start(found(1, 5))], None),
        (vec![start(None), verdict(1), start(found(1, 0)), outcome(1)], Some(4)),
        (vec![start(None), verdict(1), start(found(1, 0)), verdict(2), outcome(2)], None),
        (vec![start(None), verdict(2)], Some(2)),
        (vec![start(None), outcome(1)], Some(2)),
        (vec![start(None), verdict(1), verdict(1)], Some(3)),
        (vec![start(None), verdict(1), outcome(1), outcome(1)], Some(4)),
        (vec![start(None), Record::DeniedAgain(Again { times: 1 })], Some(2)),
        (vec![start(None), denied(), Record::DeniedAgain(Again { times: 0 })], Some(3)),
        (vec![start(None), end(), denied()], Some(3)),
    ];
    let logs: Vec<Vec<u8>> = cases.iter().map(|(records, _)| log(records)).collect();
    for ((code, _, at, what), (records, line)) in both(&logs).into_iter().zip(&cases) {
        assert_eq!((code, at), (if line.is_some() { 3 } else { 0 }, *line), "{records:?}");
        assert!(line.is_none() || what == "order", "{what}");
    }
}

/// Bytes changed, cut, doubled and moved by a seed: the same answer twice.
#[test]
fn two_readers_agree_on_damage() {
    let whole = log(&every_kind());
    let mut seed = 7u64;
    let mut next = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % most
    };
    let mut damaged = || {
        let mut bytes = whole.clone();
        for _ in 0..=next(2) {
            let (at, to) = (next(bytes.len()), next(bytes.len()));
            let (from, to) = (at.min(to), at.max(to));
            match next(4) {
                0 => bytes[from] = next(256) as u8,
                1 => bytes[from] ^= 1,
                2 => drop(bytes.drain(from..to.min(from + 40))),
                _ => bytes.splice(to..to, whole[..40].iter().copied()).for_each(drop),
            }
        }
        bytes
    };
    let logs: Vec<Vec<u8>> = (0..2000).map(|_| damaged()).collect();
    let said = both(&logs);
    assert!(said.iter().filter(|s| s.0 == 3).count() > 1500);
}

fn cut_short(log: &[u8]) -> PathBuf {
    file(&log[..log.len() - 9])
}

#[test]
fn a_receipt_shows_a_cut_tail() {
    let whole = log(&every_kind());
    let path = file(&whole);
    let found = verify::verify(&path, None, None).unwrap();
    let receipt = |count: u64, head: &str| {
        file(format!("{{\"version\":1,\"log\":{{\"count\":{count},\"head\":\"{head}\"}}}}").as_bytes())
    };
    let head = found.head.clone().unwrap();
    let right = receipt(10, &head);
    let run = |log: &Path, receipt: &Path| {
        let out = sanduk(&["verify", log.to_str().unwrap(), "--receipt", receipt.to_str().unwrap()]);
        let theirs = second(&[log.into()], &["--receipt", receipt.to_str().unwrap()]).0;
        assert_eq!(out.status.code(), Some(theirs), "{}", text(&out));
        (theirs, text(&out))
    };
    let (code, said) = run(&path, &right);
    assert!(code == 0 && said.contains("head and count are the receipt's"), "{said}");
    let cut = file(&lines(&whole)[..8].concat());
    let (code, said) = run(&cut, &right);
    assert!(
        code == 3 && said.contains("line 9 (receipt)") && said.contains("the last 2 are missing"),
        "{said}"
    );
    let (code, said) = run(&path, &receipt(10, &"0".repeat(64)));
    assert!(code == 3 && said.contains("line 10 (receipt)"), "{said}");
    let (code, said) = run(&path, &receipt(9, &head));
    assert!(code == 3 && said.contains("what follows was added"), "{said}");
    for odd in [
        "{}",
        "{\"log\":null}",
        "{\"log\":{}}",
        "{\"log\":{\"count\":true,\"head\":null}}",
        "{\"log\":{\"count\":10.0,\"head\":null}}",
        "{\"log\":{\"count\":10,\"head\":5}}",
    ] {
        let odd = file(odd.as_bytes());
        assert_eq!(run(&path, &odd).0, 2);
        // What cannot be read is said before what does not hold.
        assert_eq!(run(&cut_short(&whole), &odd).0, 2);
    }
    assert_eq!(run(Path::new("/nonexistent"), &right).0, 2);
    assert_eq!(sanduk(&["verify", "/"]).status.code(), Some(2));
    // A command line that cannot be read.
    for words in [&["--receipt"][..], &["--receipts", "x"], &["--bodies"]] {
        assert_eq!(second(std::slice::from_ref(&path), words).0, 2, "{words:?}");
    }
    assert_eq!(second(&[], &[]).0, 2);
}

#[test]
fn verify_says_it_in_words_and_in_json() {
    let whole = log(&every_kind());
    let path = file(&whole);
    let name = path.to_str().unwrap();
    let out = sanduk(&["verify", name]);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(0));
    assert!(said.contains(": holds\n  10 lines, 3 calls, 1 without an outcome, 5 refused\n"), "{said}");
    assert!(said.contains("2 relays wrote it") && said.contains("3 bytes of torn lines"), "{said}");
    let json: Value = serde_json::from_slice(&sanduk(&["verify", "--json", name]).stdout).unwrap();
    assert_eq!((&json["holds"], &json["lines"], &json["torn_bytes"]), (&true.into(), &10.into(), &3.into()));
    let broken = file(&[&whole[..], b"{\"\x1b[31m\n"].concat());
    let out = sanduk(&["verify", "--json", broken.to_str().unwrap()]);
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(3));
    assert_eq!((&json["fault"]["line"], &json["fault"]["what"]), (&11.into(), &"form".into()));
}

/// A log is hostile: nothing in it reaches a terminal.
#[test]
fn shown_and_explained_escaped() {
    let nasty = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}";
    let hostile = Record::Denied(Denied {
        method: "GET".into(),
        path: nasty.into(),
        status: 403,
        why: format!("field {nasty} is not on the list"),
        remedy: "--allow-field x".into(),
    });
    let mut all = every_kind();
    all[6] = hostile;
    let path = file(&log(&all));
    let name = path.to_str().unwrap();
    for args in [&["show", name][..], &["show", "--json", name], &["explain", name], &["explain", name, "7"]]
    {
        let out = sanduk(args);
        let said = text(&out);
        assert_eq!(out.status.code(), Some(0), "{said}");
        assert!(said.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{said:?}");
    }
    let shown = text(&sanduk(&["show", name]));
    assert!(
        shown.contains("call 2  POST /v1/x 3B clamped=max_tokens=9 -> 200 whole 2B in=1 $0.5000 0.0s"),
        "{shown}"
    );
    assert!(shown.contains("call 1  POST /v1/x 3B clamped=max_tokens=9 -> no outcome"), "{shown}");
    assert!(
        shown.contains("refused  the same 4 times more") && shown.contains("goes on after 4 lines"),
        "{shown}"
    );
    let records = text(&sanduk(&["show", "--json", name]));
    let same: Vec<Value> = records.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let written: Vec<Value> = lines(&log(&all)).iter().map(|l| serde_json::from_slice(l).unwrap()).collect();
    assert_eq!(same, written);
}

#[test]
fn explain_names_the_flag() {
    let mut all = every_kind();
    if let Record::Denied(d) = &mut all[6] {
        (d.why, d.remedy) = ("model x is not allowed".into(), "--allow-model x".into());
    }
    let path = file(&log(&all));
    let name = path.to_str().unwrap();
    let said = text(&sanduk(&["explain", name]));
    assert!(said.contains("Only these models could be asked for: m."), "{said}");
    assert!(said.contains("GET /x was refused with status 403: model x is not allowed."), "{said}");
    assert!(
        said.contains("What lifts it: --allow-model x.") && said.contains("This came 5 times."),
        "{said}"
    );
    let said = text(&sanduk(&["explain", name, "--call", "2"]));
    assert!(said.contains("Call 2 was allowed") && said.contains("Call 2 ended with status 200"), "{said}");
    let retry = Record::Retry(Retry { call: 1, r#try: 2, status: 529, wait_ms: 500 });
    let again = file(&log(&[start(None), verdict(1), retry, tried(1, 2)]));
    let said = text(&sanduk(&["explain", again.to_str().unwrap(), "--call", "1"]));
    assert!(said.contains("Call 1 was sent again, try 2: the provider answered 529"), "{said}");
    for (args, part) in [
        (&["explain", name, "99"][..], "the log has 10 lines"),
        (&["explain", name, "--call", "9"], "the log has 3 calls"),
        (&["explain", name, "x"], "no number of a line"),
        (&["explain", name, "--json"], "--json has no effect"),
        (&["show", name, "--call", "1"], "--call has no effect"),
        (&["show", name, "--receipt", "x"], "--receipt has no effect"),
        (&["verify", name, "2"], "one word too many"),
        (&["verify"], "say what"),
        (&["burn", name], "say what"),
    ] {
        let out = sanduk(args);
        assert!(out.status.code() == Some(2) && text(&out).contains(part), "{args:?}: {}", text(&out));
    }
    let cut = file(&lines(&log(&all))[..3].concat()[..700]);
    let out = sanduk(&["explain", cut.to_str().unwrap()]);
    assert!(out.status.code() == Some(3) && text(&out).contains("does not hold"), "{}", text(&out));
}
