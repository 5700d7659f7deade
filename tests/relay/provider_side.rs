//! What the provider may do to us: interim answers, cuts, wrong framing, closed connections.

use crate::rig::{Act, Provider, Relay, answer, get, post, read_until, send, status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MODELS: &str = "/v1/models";
const MESSAGES: &str = "/v1/messages";
const BODY: &str = r#"{"model":"m","max_tokens":1,"messages":[]}"#;

/// One GET against a provider that sends this for every request; the answer, and whether it ended by a reset.
fn got(acts: Vec<Act>) -> (String, bool) {
    let provider = Provider::start(move |_, _| acts.clone());
    let relay = Relay::start(&provider, &[]);
    let (got, reset) = relay.talk(get(MODELS, "").as_bytes());
    (String::from_utf8_lossy(&got).into_owned(), reset)
}

fn bad(text: &str) {
    let (got, _) = got(vec![send(text), Act::Close]);
    assert_eq!(status(&got), "502", "{text:?} gave {got:?}");
    assert!(got.contains("\"api_error\"") && got.contains("connection: close"), "{got}");
}

#[test]
fn u01_u02_interim_answers_are_swallowed() {
    for first in ["100 Continue", "103 Early Hints"] {
        let (got, _) =
            got(vec![send(&format!("HTTP/1.1 {first}\r\nlink: x\r\n\r\n")), answer("200 OK", "", "{}")]);
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\n{}"), "{got}");
        assert!(!got.contains("link"), "{got}");
    }
    // TRAPS 69: in one write, and split in the middle.
    let (got, _) =
        got(vec![send("HTTP/1.1 103 E\r\n\r\nHTTP/1.1 2"), send("00 OK\r\nContent-Length: 2\r\n\r\n{}")]);
    assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
}

#[test]
fn u03_an_upgrade_is_no_answer() {
    bad("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    bad(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(50));
}

/// TRAPS 68 too: no framing where there is no body.
#[test]
fn u04_u05_answers_without_a_body() {
    for status_line in ["204 No Content", "304 Not Modified"] {
        let one = send(&format!("HTTP/1.1 {status_line}\r\nContent-Length: 5\r\n\r\nhello"));
        let provider = Provider::start(move |_, _| vec![one.clone()]);
        let relay = Relay::start(&provider, &[]);
        let got = relay.ask(&(get(MODELS, "") + &get(MODELS, "")));
        assert_eq!(got.matches(&format!("HTTP/1.1 {status_line}\r\n")).count(), 2, "{got}");
        let lower = got.to_ascii_lowercase();
        assert!(
            !lower.contains("content-length")
                && !lower.contains("transfer-encoding")
                && !got.contains("hello"),
            "{got}"
        );
        // The bytes behind the head were nobody's: each call had a connection of its own.
        assert_eq!(provider.connections(), 2);
    }
}

#[test]
fn u06_u07_u09_u19_u21_u23_heads_that_are_refused() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nnocolon\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 99 Low\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 1000 High\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 2xx OK\r\nContent-Length: 2\r\n\r\n{}",
        "SSH-2.0-OpenSSH\r\n",
    ] {
        bad(text);
    }
}

#[test]
fn u08_a_head_without_end() {
    bad(&format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(20_000)));
}

/// The plain part of the row: over TCP the FIN is taken for the end (see `Link::ended_cleanly`), and the client gets chunks.
#[test]
fn u10_close_delimited_gets_chunks() {
    let (got, _) = got(vec![send("HTTP/1.1 200 OK\r\n\r\nhello"), send(" world"), Act::Close]);
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("transfer-encoding: chunked"), "{got}");
    assert!(body.ends_with("\r\n0\r\n\r\n"), "{got}");
    let text: String = body.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(text, "hello world");
}

#[test]
fn u11_a_reset_is_no_end() {
    let (got, _) = got(vec![send("HTTP/1.1 200 OK\r\n\r\nhello"), Act::Reset]);
    assert!(!got.contains("0\r\n\r\n"), "{got}");
}

/// TRAPS 67.
#[test]
fn u12_content_length_cut() {
    let half = "a".repeat(500);
    let (got, _) =
        got(vec![send(&format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{half}")), Act::Close]);
    let body = got.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    assert!(got.is_empty() || got.contains("content-length: 1000"), "{got}");
    assert!(body.len() <= 500, "padded to {}", body.len());
}

#[test]
fn u13_chunked_cut() {
    let (got, reset) =
        got(vec![send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), Act::Close]);
    assert!(!got.contains("0\r\n\r\n"), "{got}");
    assert!(reset, "the cut shows as a reset on TCP");
}

/// Over the box's Unix socket there is no reset; the missing last chunk says it.
#[test]
fn u13_chunked_cut_over_unix() {
    let provider = Provider::start(|_, _| {
        vec![send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), Act::Close]
    });
    let relay = Relay::listening(&provider, true, &[]);
    let got = relay.ask(&get(MODELS, ""));
    assert!(got.ends_with("\r\n\r\n5\r\nhello\r\n"), "{got}");
}

#[test]
fn u14_bad_chunk_in_mid_stream() {
    let (got, _) = got(vec![
        send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        send("0x5\r\nhello\r\n0\r\n\r\n"),
    ]);
    assert!(!got.contains("0\r\n\r\n"), "{got}");
}

#[test]
fn u15_bytes_behind_an_answer_are_dropped_with_the_connection() {
    let provider = Provider::start(|_, _| {
        vec![send(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        )]
    });
    let relay = Relay::start(&provider, &[]);
    let got = relay.ask(&(get(MODELS, "") + &get(MODELS, "")));
    assert_eq!(got.matches("\r\n\r\n{}").count(), 2, "{got}");
    assert!(!got.contains("evil"));
    assert_eq!(provider.connections(), 2);
}

#[test]
fn u16_unasked_bytes_on_an_idle_connection() {
    let provider = Provider::start(|n, _| match n {
        0 => vec![
            answer("200 OK", "", "{}"),
            Act::Wait,
            send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"),
        ],
        _ => vec![answer("200 OK", "", "[]")],
    });
    let relay = Relay::start(&provider, &[]);
    assert_eq!(status(&relay.ask(&get(MODELS, ""))), "200");
    provider.go();
    // The stray answer is on its way or there; a retry covers the moment before it is there.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let got = relay.ask(&get(MODELS, ""));
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("[]"), "{got}");
    assert_eq!(provider.connections(), 2);
}

#[test]
fn connections_are_reused() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let twice = get(MODELS, "") + &get(MODELS, "");
    assert_eq!(relay.ask(&twice).matches("HTTP/1.1 200").count(), 2);
    assert_eq!(relay.ask(&post(MESSAGES, "", BODY)).matches("HTTP/1.1 200").count(), 1);
    assert_eq!(provider.connections(), 1);
    // One that the provider wants closed is not.
    let provider = Provider::start(|_, _| vec![answer("200 OK", "Connection: close\r\n", "{}")]);
    let relay = Relay::start(&provider, &[]);
    assert_eq!(relay.ask(&twice).matches("HTTP/1.1 200").count(), 2);
    assert_eq!(provider.connections(), 2);
}

#[test]
fn u17_a_kept_connection_that_died_is_tried_again_once() {
    // The provider closes without an answer when the second request comes on the kept connection.
    let provider = Provider::start(|n, _| match n {
        1 => vec![Act::Close],
        _ => vec![answer("200 OK", "", "{}")],
    });
    let relay = Relay::start(&provider, &[]);
    let got = relay.ask(&(get(MODELS, "") + &post(MESSAGES, "", BODY)));
    assert_eq!(got.matches("HTTP/1.1 200").count(), 2, "{got}");
    assert_eq!((provider.connections(), provider.seen().len()), (2, 3));
}

#[test]
fn u17_not_once_a_byte_has_come() {
    let provider = Provider::start(|n, _| match n {
        1 => vec![send("HTTP/1.1 2"), Act::Close],
        _ => vec![answer("200 OK", "", "{}")],
    });
    let relay = Relay::start(&provider, &[]);
    let got = relay.ask(&(get(MODELS, "") + &post(MESSAGES, "", BODY)));
    assert_eq!(got.matches("HTTP/1.1 502").count(), 1, "{got}");
    assert_eq!(provider.seen().len(), 2);
}

#[test]
fn u18_a_fresh_connection_is_never_tried_again() {
    for act in [Act::Close, Act::Reset] {
        let provider = Provider::start(move |_, _| vec![act.clone()]);
        let relay = Relay::start(&provider, &[]);
        assert_eq!(status(&relay.ask(&post(MESSAGES, "", BODY))), "502");
        assert_eq!(provider.seen().len(), 1);
    }
}

#[test]
fn u22_a_status_line_without_reason() {
    let (got, _) = got(vec![send("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}")]);
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("{}"), "{got}");
}

#[test]
fn u26_an_early_answer_reaches_the_client() {
    // A provider that reads the head only, answers, and closes: the body is still on its way.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut piece = [0; 1024];
        let _ = stream.read(&mut piece);
        let _ = stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
        // Stays open: the relay must not wait to be rid of its body first.
        std::thread::sleep(crate::rig::PATIENCE);
    });
    let idle = Provider::plain();
    let upstream = format!("http://{address}");
    let relay = Relay::start(&idle, &["--upstream", &upstream]);
    let big = format!(r#"{{"model":"m","max_tokens":1,"messages":["{}"]}}"#, "x".repeat(20_000_000));
    let got = relay.ask(&post(MESSAGES, "", &big));
    assert!(got.starts_with("HTTP/1.1 413") && got.ends_with("big"), "{:?}", &got[..got.len().min(300)]);
}

/// TRAPS 71: an event is not held back until the next.
#[test]
fn t10_events_pass_one_by_one() {
    let event = |n: usize| format!("9\r\ndata: {n}\n\n\r\n");
    let provider = Provider::start(move |_, _| {
        vec![
            send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Act::Wait,
            send(&event(1)),
            Act::Wait,
            send(&event(2)),
            Act::Wait,
            send("0\r\n\r\n"),
        ]
    });
    let relay = Relay::start(&provider, &[]);
    let mut stream = relay.connect();
    stream.write_all(post(MESSAGES, "", BODY).as_bytes()).unwrap();
    let mut got = Vec::new();
    // Each is read before the provider is let on to the next: held back, this would never end.
    for part in ["\r\n\r\n", "data: 1\n\n", "data: 2\n\n", "0\r\n\r\n"] {
        read_until(&mut stream, &mut got, part);
        provider.go();
    }
    let text = String::from_utf8_lossy(&got);
    // Chunk framing is the provider's own, untouched.
    assert!(text.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"), "{text}");
}

#[test]
fn t06_a_half_closed_client_gets_its_answer() {
    let provider = Provider::start(|_, _| vec![Act::Wait, answer("200 OK", "", "late")]);
    let relay = Relay::start(&provider, &[]);
    let mut stream = relay.connect();
    stream.write_all(get(MODELS, "").as_bytes()).unwrap();
    stream.half_close();
    provider.go();
    let mut got = String::new();
    std::io::Read::read_to_string(&mut stream, &mut got).unwrap();
    assert!(got.ends_with("late"), "{got}");
}

#[test]
fn large_bodies_pass_whole_both_ways() {
    let body: String = (0..3_000_000u32).map(|n| char::from(b'a' + u8::try_from(n % 26).unwrap())).collect();
    let back = body.clone();
    let provider = Provider::start(move |_, _| vec![answer("200 OK", "", &back)]);
    let relay = Relay::start(&provider, &[]);
    let ask = format!(r#"{{"model":"m","max_tokens":1,"messages":["{body}"]}}"#);
    let got = relay.ask(&post(MESSAGES, "", &ask));
    assert!(got.split_once("\r\n\r\n").is_some_and(|(_, b)| b == body), "{} bytes", got.len());
    assert_eq!(String::from_utf8_lossy(&provider.seen()[0].body), ask);
}

/// TRAPS 54: sixty-four clients at once are all served.
#[test]
fn trap_54_many_at_once() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let mut streams: Vec<_> = (0..64).map(|_| relay.connect()).collect();
    for stream in &mut streams {
        stream.write_all(get(MODELS, "").as_bytes()).unwrap();
    }
    for stream in &mut streams {
        read_until(stream, &mut Vec::new(), "\r\n\r\n{}");
    }
}

/// TRAPS 55: head and body leave in one piece, both ways; in two, with Nagle's rule, every call on a kept connection stalls.
#[test]
fn trap_55_head_and_body_in_one_piece() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let first = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut piece = [0; 65536];
        let n = stream.read(&mut piece).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody").unwrap();
        String::from_utf8_lossy(&piece[..n]).into_owned()
    });
    let relay = Relay::start(&Provider::plain(), &["--upstream", &upstream]);
    let mut stream = relay.connect();
    stream.write_all(post(MESSAGES, "", BODY).as_bytes()).unwrap();
    let mut piece = [0; 65536];
    let n = stream.read(&mut piece).unwrap();
    assert!(String::from_utf8_lossy(&piece[..n]).ends_with("\r\n\r\nbody"));
    assert!(first.join().unwrap().ends_with(BODY));
}

/// A connection that says nothing is closed without an answer; one that begins a head and stops is told so.
#[test]
fn t01_t03_silent_and_slow_clients() {
    let relay = Relay::start(&Provider::plain(), &[]);
    let (mut silent, mut slow) = (relay.connect(), relay.connect());
    slow.write_all(b"GET /v1/models HTTP/1.1\r\nHost: rel").unwrap();
    let mut got = Vec::new();
    silent.read_to_end(&mut got).unwrap();
    assert!(got.is_empty());
    read_until(&mut slow, &mut got, "\r\n\r\n");
    assert_eq!(status(&String::from_utf8_lossy(&got)), "408");
}

/// T02: a body that stops in its middle is not waited for without end. Half a minute, as long as the limit.
#[test]
fn t02_a_slow_body() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let mut slow = relay.connect();
    let whole = post(MESSAGES, "", BODY);
    slow.write_all(&whole.as_bytes()[..whole.len() - 5]).unwrap();
    let mut got = Vec::new();
    // The rig's own patience is shorter.
    while slow.read_to_end(&mut got).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock) {}
    assert_eq!(status(&String::from_utf8_lossy(&got)), "408");
    assert!(provider.seen().is_empty());
}

/// Each byte in time, and no end to it: the head as a whole has a bound.
#[test]
fn a_head_that_drips() {
    let mut acts = vec![send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-A: ")];
    for _ in 0..10_000 {
        acts.extend([Act::Wait, send("a")]);
    }
    let provider = Provider::start(move |_, _| acts.clone());
    let relay = Relay::start(&provider, &[]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                provider.go();
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let mut stream = relay.connect();
        stream.write_all(get(MODELS, "Connection: close\r\n").as_bytes()).unwrap();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        over.store(true, Ordering::Relaxed);
        let got = String::from_utf8_lossy(&got);
        assert!(status(&got) == "502" && got.contains("the head of its answer comes too slowly"), "{got}");
    });
}
