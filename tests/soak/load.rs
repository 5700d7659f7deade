//! The clients of the soak: each thread does one thing after another, chosen by a seed, well behaved or not.

use crate::mutate::Random;
use crate::provider::{MODELS, Want};
use crate::rig::TOKEN;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What all clients share.
pub struct Load {
    pub at: SocketAddr,
    pub begun: Instant,
    pub time: Duration,
    /// Requests that the relay counts as refused; their number is held below what ends a run.
    pub refused: AtomicU64,
    pub most_refused: u64,
    /// What was done, and how often.
    pub done: Mutex<BTreeMap<String, u64>>,
}

impl Load {
    pub fn over(&self) -> bool {
        self.begun.elapsed() >= self.time
    }

    fn count(&self, what: &str) {
        *self.done.lock().unwrap().entry(what.to_string()).or_default() += 1;
    }

    /// One more refused request may be made: they are spread over the whole time.
    fn may_refuse(&self) -> bool {
        let share = self.begun.elapsed().as_secs_f64() / self.time.as_secs_f64();
        let allowed = (share * self.most_refused as f64) as u64;
        self.refused
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n < allowed).then_some(n + 1))
            .is_ok()
    }
}

thread_local! {
    /// The body of the last answer in which the relay spoke itself.
    static LAST_WORDS: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// An answer: status, body bytes, whether it was whole.
type Got = (u16, usize, bool);

/// Works until the time is over.
pub fn client(load: &Load, seed: u64) {
    let mut random = Random::new(seed);
    while !load.over() {
        match random.below(20) {
            0..6 => one(load, &mut random),
            6..9 => kept(load, &mut random),
            9 => half_closed(load),
            10 | 11 => leaves_in_mid_answer(load, &mut random),
            12 => slow_reader(load, &mut random),
            13 => silent(load, &mut random),
            14 => pipelined(load),
            _ => match load.may_refuse() {
                true => refused(load, &mut random),
                false => one(load, &mut random),
            },
        }
    }
}

/// After this much silence the relay hangs: longer than all that it may take for one call (a handshake, tries, a stalling provider), on a
/// slow machine too.
const PATIENCE: Duration = Duration::from_secs(180);

fn connect(load: &Load) -> TcpStream {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match TcpStream::connect_timeout(&load.at, Duration::from_secs(30)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                stream.set_nodelay(true).unwrap();
                return stream;
            }
            Err(e) => assert!(Instant::now() < until, "cannot connect: {e}"),
        }
    }
}

fn get() -> Vec<u8> {
    format!("GET /v1/models HTTP/1.1\r\nHost: relay.test\r\nx-api-key: {TOKEN}\r\n\r\n").into_bytes()
}

fn post(model: &str, size: usize, fields: &str) -> Vec<u8> {
    let stream = if model == "sse" { r#""stream":true,"# } else { "" };
    let body = format!(
        r#"{{"model":"{model}",{stream}"max_tokens":99,"messages":[{{"role":"user","content":"{}"}}]}}"#,
        "word ".repeat(size / 5)
    );
    let length = body.len();
    format!(
        "POST /v1/messages HTTP/1.1\r\nHost: relay.test\r\nx-api-key: {TOKEN}\r\n{fields}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Reads one answer; `None`: the connection ended before its head did. A hang is a failure.
fn read(stream: &mut TcpStream, buf: &mut Vec<u8>) -> Option<Got> {
    let head = loop {
        if let Some(at) = buf.windows(4).position(|w| w == b"\r\n\r\n") {
            break String::from_utf8_lossy(&buf.drain(..at + 4).collect::<Vec<_>>()).to_ascii_lowercase();
        }
        more(stream, buf)?;
    };
    let status = head[9..12].parse().unwrap();
    let field = |name: &str| head.lines().find_map(|l| l.strip_prefix(name));
    if let Some(length) = field("content-length: ") {
        let length: usize = length.parse().unwrap();
        while buf.len() < length {
            if more(stream, buf).is_none() {
                return Some((status, buf.len(), false));
            }
        }
        let body: Vec<u8> = buf.drain(..length).collect();
        if matches!(status, 502 | 504) {
            // Only looked at where it was not wanted.
            LAST_WORDS.with(|w| *w.borrow_mut() = String::from_utf8_lossy(&body).into_owned());
        }
        return Some((status, length, true));
    }
    if field("transfer-encoding: ").is_none() {
        return Some((status, 0, true));
    }
    let mut total = 0;
    loop {
        let line = loop {
            match buf.windows(2).position(|w| w == b"\r\n") {
                Some(at) => break buf.drain(..at + 2).collect::<Vec<_>>(),
                None if more(stream, buf).is_none() => return Some((status, total, false)),
                None => {}
            }
        };
        let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        while buf.len() < size + 2 {
            if more(stream, buf).is_none() {
                return Some((status, total, false));
            }
        }
        buf.drain(..size + 2);
        total += size;
        if size == 0 {
            return Some((status, total, true));
        }
    }
}

fn more(stream: &mut TcpStream, buf: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 32 * 1024];
    match stream.read(&mut piece) {
        Ok(0) => None,
        Ok(n) => {
            buf.extend_from_slice(&piece[..n]);
            Some(())
        }
        Err(e) => {
            assert!(!matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "the relay hangs");
            None
        }
    }
}

/// Calls whose handshake the machine was too busy for: the relay says so by itself, and the test bounds them.
pub static TOO_SLOW: AtomicU64 = AtomicU64::new(0);

/// False: a call that the machine was too busy for, whose connection is closed.
fn check(what: &str, want: Want, got: Option<Got>) -> bool {
    let good = match (want, got) {
        (Want::Any, _) => true,
        (Want::Whole(status, bytes), Some((s, b, true))) => (s, b) == (status, bytes),
        (Want::Whole(..), _) => false,
        (Want::Broken, None) => true,
        (Want::Broken, Some((status, _, whole))) => !whole || matches!(status, 502 | 504),
    };
    let words = LAST_WORDS.with(std::cell::RefCell::take);
    if got.is_some_and(|g| g.0 == 504) && words.contains("no answer within") {
        TOO_SLOW.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    assert!(good, "{what}: {got:?}, want {want:?}; the relay's last words: {words}");
    true
}

/// A refused provider or a relay at its limit of retries may take a fault for one of its own: whole answers only are exact.
fn one(load: &Load, random: &mut Random) {
    let mut stream = connect(load);
    let (model, want) = MODELS[random.below(MODELS.len())];
    let size = [20, 2000, 110_000][random.below(3)];
    let fields = if model == "gzip" { "Accept-Encoding: gzip\r\n" } else { "" };
    let (request, mut buf) = (post(model, size, fields), Vec::new());
    if random.below(8) == 0 {
        // In small pieces.
        for piece in request.chunks(1 + request.len() / 20) {
            let _ = stream.write_all(piece);
            std::thread::sleep(Duration::from_millis(1));
        }
    } else {
        let _ = stream.write_all(&request);
    }
    check(model, want, read(&mut stream, &mut buf));
    load.count(model);
}

/// Several requests one after the other on one connection.
fn kept(load: &Load, random: &mut Random) {
    let (mut stream, mut buf) = (connect(load), Vec::new());
    for _ in 0..5 {
        let (model, want) = MODELS[random.below(4)];
        let request = if random.below(2) == 0 { get() } else { post(model, 500, "") };
        let want = if request.starts_with(b"GET") { MODELS[0].1 } else { want };
        stream.write_all(&request).unwrap();
        if !check(model, want, read(&mut stream, &mut buf)) {
            return;
        }
        load.count("kept");
    }
}

fn pipelined(load: &Load) {
    let (mut stream, mut buf) = (connect(load), Vec::new());
    stream.write_all(&[get(), post("plain", 10, ""), get()].concat()).unwrap();
    for _ in 0..3 {
        if !check("pipelined", MODELS[0].1, read(&mut stream, &mut buf)) {
            return;
        }
    }
    load.count("pipelined");
}

fn half_closed(load: &Load) {
    let mut stream = connect(load);
    stream.write_all(&post("sse", 100, "")).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    check("half-closed", MODELS[1].1, read(&mut stream, &mut Vec::new()));
    load.count("half-closed");
}

fn leaves_in_mid_answer(load: &Load, random: &mut Random) {
    let mut stream = connect(load);
    stream.write_all(&post(["sse", "big", "stall", "plain"][random.below(4)], 100, "")).unwrap();
    if random.below(3) > 0 {
        let _ = stream.read(&mut [0; 700]);
    }
    if random.below(2) == 0 {
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }
    load.count("left in mid-answer");
}

fn slow_reader(load: &Load, random: &mut Random) {
    let (mut stream, mut buf) = (connect(load), Vec::new());
    stream.write_all(&post("big", 100, "")).unwrap();
    for _ in 0..20 {
        let mut piece = [0; 2048];
        let n = stream.read(&mut piece).unwrap();
        buf.extend_from_slice(&piece[..n]);
        std::thread::sleep(Duration::from_millis(20));
    }
    if random.below(2) == 0 {
        check("slow reader", MODELS[2].1, read(&mut stream, &mut buf));
    }
    load.count("slow reader");
}

/// Says nothing, or nothing whole, and goes. An unfinished head whose client leaves is no refusal.
fn silent(load: &Load, random: &mut Random) {
    let mut stream = connect(load);
    if random.below(2) == 0 {
        stream.write_all(b"GET /v1/models HTTP/1.1\r\nHost: rel").unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    load.count("silent");
}

fn refused(load: &Load, random: &mut Random) {
    let good = String::from_utf8(post("plain", 20, "")).unwrap();
    let cases: [(&str, Vec<u8>, u16); 11] = [
        ("no token", good.replace("x-api-key", "x-other").into(), 401),
        ("wrong token", good.replace(TOKEN, "RUNTOKEM").into(), 401),
        ("two lengths", good.replace("Content-Type", "Content-Length: 3\r\nContent-Type").into(), 400),
        ("two framings", good.replace("Content-Type", "Transfer-Encoding: chunked\r\nContent-Type").into(), 400),
        ("path", good.replace("/v1/messages", "/v1/files").into(), 403),
        ("method", good.replace("POST", "PATCH").into(), 405),
        ("host", good.replace("relay.test", "evil.test").into(), 421),
        ("no JSON", good.replace("{\"model\"", "[\"model\"").into(), 400),
        ("long head", format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(20_000)).into(), 431),
        ("bad chunk", b"POST /v1/messages HTTP/1.1\r\nHost: relay.test\r\nx-api-key: RUNTOKEN\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(), 400),
        ("half a body", Vec::new(), 0),
    ];
    let (what, bytes, status) = &cases[random.below(cases.len())];
    let mut stream = connect(load);
    if *status == 0 {
        let whole = post("plain", 50_000, "");
        stream.write_all(&whole[..whole.len() / 2]).unwrap();
        load.count(what);
        return;
    }
    let _ = stream.write_all(bytes);
    let got = read(&mut stream, &mut Vec::new());
    assert!(got.is_some_and(|g| g.0 == *status && g.2), "{what}: {got:?}, want {status}");
    load.count(what);
}

/// One call, whole.
pub fn one_get(at: SocketAddr) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&get()).unwrap();
    check("at rest", MODELS[0].1, read(&mut stream, &mut Vec::new()));
}
