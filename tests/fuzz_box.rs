//! Seeded mutations of what a box says to its host: answers of the control server, statuses, the agent's own output. Counts and seeds as in
//! tests/fuzz.rs.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "support/mutate.rs"]
mod mutate;

use mutate::Random;
use sanduk::catalog::agents::{self, Agent};
use sanduk::run::control;
use sanduk::run::read::{Reader, Trace};
use sanduk::sys::net::Conn;
use sanduk::wire::control::{Event, Line, Status, TurnEnd, TurnFailed, VERSION, What};
use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const WORDS: [&[u8]; 20] = [
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\r\n\r\n",
    b"\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"\"n\":6",
    b"\"n\":18446744073709551615",
    b"\"version\":1",
    b"\"kind\":\"stdout\"",
    b"\"text\":\"\\u0000\\ud800\"",
    b"null",
    b"[[[[",
    b"{",
    b"}",
    b",",
    b"\xff",
    b"\0",
];

fn line(text: &str, more: bool) -> Line {
    Line { text: text.into(), more }
}

fn events() -> Vec<Event> {
    let what = [
        What::Stdout(line("a \u{1f642}\u{1b}[m", false)),
        What::Stderr(line("", true)),
        What::TurnFailed(TurnFailed { turn: "1".into(), why: "no".into() }),
        What::TurnEnd(TurnEnd { turn: "1".into(), code: Some(1), signal: None }),
    ];
    what.into_iter().zip(6..).map(|(what, n)| Event { n, what }).collect()
}

fn bodies() -> Vec<Vec<u8>> {
    let status = |events: Vec<Event>| Status { version: VERSION, state: "running".into(), events };
    [status(events()), status(Vec::new()), status(events()[..1].to_vec())]
        .iter()
        .map(|s| serde_json::to_vec(s).unwrap())
        .collect()
}

fn answers() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for body in bodies() {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        all.push([head.as_bytes(), &body].concat());
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
        all.push([head.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat());
        all.push([&b"HTTP/1.1 409 Conflict\r\n\r\n"[..], &body].concat());
    }
    all
}

/// What a host would make of these bytes on a control connection, given in these pieces.
fn asked(pieces: Vec<&[u8]>) -> Result<(u16, Vec<u8>), String> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A reader that has refused takes no more.
            let _ = pieces.iter().try_for_each(|piece| theirs.write_all(piece));
        });
        let until = Instant::now() + Duration::from_secs(60);
        control::answer(&Conn::new(ours.into()), "GET", until).map_err(|fault| fault.why())
    })
}

/// Any bytes for an answer, in any pieces: the same verdict, and a body no longer than what came.
#[test]
fn control_answers() {
    let whole_ones = Cell::new(0u64);
    let seeds = answers();
    let make = |random: &mut Random| mutate::one(random, &seeds, &WORDS);
    // Two sockets and a thread each, so fewer.
    mutate::generate("control-answer", mutate::rounds() / 10, &seeds, make, |random, bytes| {
        let whole = asked(vec![bytes]);
        let (a, b) = bytes.split_at(random.below(bytes.len() + 1));
        let (b, c) = b.split_at(random.below(b.len() + 1));
        assert_eq!(asked(vec![a, b, c]), whole);
        if let Ok((status, body)) = whole {
            assert!((200..600).contains(&status) && body.len() <= bytes.len());
            whole_ones.set(whole_ones.get() + 1);
        }
    });
    assert!(whole_ones.get() > mutate::rounds() / 200, "{}", whole_ones.get());
}

/// Any body for a status: what is taken goes on from the cursor, writes and reads back the same.
#[test]
fn statuses() {
    let taken = Cell::new(0u64);
    mutate::run("status", &bodies(), &WORDS, |random, bytes| {
        let since = [5, 5, 5, 0, u64::MAX][random.below(5)];
        let Ok(status) = control::status(bytes, since) else { return };
        for (event, n) in status.events.iter().zip(1..) {
            assert_eq!(Some(event.n), since.checked_add(n));
        }
        let again = control::status(&serde_json::to_vec(&status).unwrap(), since).unwrap();
        assert_eq!((again.events, again.state), (status.events, status.state));
        taken.set(taken.get() + 1);
    });
    assert!(taken.get() > mutate::rounds() / 50, "{}", taken.get());
}

/// Agents with rules, and lines that they were recorded with.
fn recorded() -> Vec<(Agent, Vec<Vec<u8>>)> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/agents");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let shipped = agents::names().into_iter().map(|n| (n.to_string(), agents::shipped(n).unwrap()));
    let given = files.iter().filter(|p| p.extension().is_some_and(|e| e == "json")).map(|p| {
        let name = p.file_stem().unwrap().to_string_lossy().into_owned();
        (name, Agent::parse(&std::fs::read(p).unwrap()).unwrap())
    });
    shipped
        .chain(given)
        .map(|(name, agent)| {
            let of = files
                .iter()
                .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(&format!("{name}-")));
            (agent, of.map(|p| std::fs::read(p).unwrap()).filter(|b| b.len() < 20_000).collect::<Vec<_>>())
        })
        .filter(|(_, lines)| !lines.is_empty())
        .collect()
}

/// What a reader shows and concludes of these lines, each cut as `cut` says.
fn shown(agent: &Agent, text: &str, cut: &mut dyn FnMut(&str) -> usize) -> (Vec<Trace>, String) {
    let (mut reader, mut traces) = (Reader::new(agent), Vec::new());
    for whole in text.lines() {
        let mut rest = whole;
        loop {
            let at = cut(rest);
            let (piece, tail) = rest.split_at(at);
            let more = !tail.is_empty();
            traces.extend(reader.push(&What::Stdout(line(piece, more))));
            if !more {
                break;
            }
            rest = tail;
        }
    }
    traces.extend(reader.push(&What::TurnEnd(TurnEnd { turn: "1".into(), code: Some(0), signal: None })));
    (traces, format!("{:?}", reader.outcome()))
}

/// Any bytes an agent may print: no panic, a bounded answer, and a line in pieces is the line.
#[test]
fn agents_output() {
    let all = recorded();
    assert!(all.len() >= 4, "{}", all.len());
    let words: [&[u8]; 10] = [
        b"\n",
        b"{",
        b"}",
        b"\"type\":\"result\"",
        b"\"is_error\":true",
        b"null",
        b"1e999",
        b"[[[[",
        b"\xff",
        b"\\ud800",
    ];
    for (agent, lines) in &all {
        let make = |random: &mut Random| mutate::one(random, lines, &words);
        mutate::generate("agent-output", mutate::rounds() / 20, lines, make, |random, bytes| {
            let text = String::from_utf8_lossy(bytes);
            let whole = shown(agent, &text, &mut str::len);
            let mut cut = |rest: &str| {
                let at = random.below(rest.len().min(200) + 1);
                (at..=rest.len()).find(|i| rest.is_char_boundary(*i) && *i > 0).unwrap_or(rest.len())
            };
            assert_eq!(shown(agent, &text, &mut cut), whole);
            assert!(whole.1.len() < 8 * bytes.len() + 4096);
        });
    }
}
