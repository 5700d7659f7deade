//! Caps of a relay process, by the provider's own sum: dollars, calls, tokens; with calls at once, after `kill -9`, and for every way an
//! answer can tell, hide or garble what it cost.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "budget/charges.rs"]
mod charges;
#[path = "budget/crash.rs"]
mod crash;
#[path = "budget/parallel.rs"]
mod parallel;
#[path = "budget/refusals.rs"]
mod refusals;
#[path = "relay/rig.rs"]
#[expect(dead_code, reason = "shared with relay.rs")]
mod rig;

use rig::{KEY, PATIENCE, Provider, Relay, TOKEN, answer, status};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A dollar.
pub const DOLLAR: u64 = 1_000_000_000_000;
/// Picodollars a token: input, output, cache read, cache write for five minutes and for an hour.
pub const RATES: [u64; 5] = [3_000_000, 15_000_000, 300_000, 3_750_000, 6_000_000];
/// The same as a file.
pub const PRICES: &str = "date = \"2026-11-30\"\n[models.\"m\"]\nalso = [\"m-also\"]\ninput = \"3\"\noutput = \"15.00\"\n\
    cache_read = \"0.30\"\ncache_write_5m = \"3.75\"\ncache_write_1h = \"6.00\"\n";

/// The prices as a file of the test's own.
pub fn prices(text: &str) -> String {
    let path = rig::fresh_dir().join("prices.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// A request, whose client does not half-close: one that does while it waits for its turn has left.
pub fn request(provider: &str, path: &str, body: &str) -> String {
    let auth = match provider {
        "anthropic" => format!("x-api-key: {TOKEN}"),
        _ => format!("Authorization: Bearer {TOKEN}"),
    };
    format!(
        "POST {path} HTTP/1.1\r\nHost: relay.test\r\n{auth}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends it and reads to the end.
pub fn ask(relay: &Relay, request: &str) -> String {
    let rig::Place::Tcp(at) = relay.place else { panic!("these tests are over TCP") };
    // A relay that was killed takes no more connections.
    let Ok(mut stream) = std::net::TcpStream::connect(at) else { return String::new() };
    let mut got = Vec::new();
    if stream.write_all(request.as_bytes()).is_ok() {
        let _ = stream.read_to_end(&mut got);
    }
    String::from_utf8_lossy(&got).into_owned()
}

/// A Messages call of this much content.
pub fn messages(content: usize) -> String {
    let body = json!({"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": "x".repeat(content)}]});
    request("anthropic", "/v1/messages", &body.to_string())
}

/// An OpenRouter call.
pub fn chat() -> String {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    request("openrouter", "/api/v1/chat/completions", &body.to_string())
}

/// All of the outcome records.
pub fn outcomes(relay: &Relay) -> Vec<Value> {
    relay.records().into_iter().filter(|r| r["kind"] == "outcome").collect()
}

/// What the provider itself books: the sum, the calls, the dearest call, and how many it had at once.
#[derive(Default)]
pub struct Books {
    /// Picodollars.
    pub sum: AtomicU64,
    /// Calls.
    pub calls: AtomicUsize,
    /// The dearest call.
    pub dearest: AtomicU64,
    now: AtomicUsize,
    /// Calls at the same time, at most.
    pub at_once: AtomicUsize,
}

impl Books {
    /// A call that costs so much begins.
    pub fn book(&self, picos: u64) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.sum.fetch_add(picos, Ordering::SeqCst);
        self.dearest.fetch_max(picos, Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once.fetch_max(now, Ordering::SeqCst);
    }

    /// It ends.
    pub fn done(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    /// Picodollars.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::SeqCst)
    }
}

/// A number below `below` that only the call's own number decides.
pub fn lot(n: usize, below: u64) -> u64 {
    let mut x = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x >> 33) % below.max(1)
}

/// A Messages provider that uses up all it may: never more input than the body has bytes, never more output than asked for.
pub fn dear_provider(books: &Arc<Books>, pause_ms: u64) -> Provider {
    let books = Arc::clone(books);
    Provider::start(move |n, head| {
        let bytes: u64 = rig::field(head, "content-length").unwrap().parse().unwrap();
        // Every third call is as dear as a call can be.
        let (input, output) = if n % 3 == 0 { (bytes, 1000) } else { (lot(n, bytes), lot(n + 7, 1000)) };
        let write = if n % 3 == 0 { input } else { lot(n, input + 1) };
        let usage = json!({"input_tokens": input - write, "output_tokens": output, "cache_creation_input_tokens": write,
            "cache_read_input_tokens": 0, "cache_creation": {"ephemeral_1h_input_tokens": write, "ephemeral_5m_input_tokens": 0}});
        books.book((input - write) * RATES[0] + write * RATES[4] + output * RATES[1]);
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
        books.done();
        let body =
            json!({"type": "message", "model": "m", "stop_reason": "end_turn", "usage": usage}).to_string();
        vec![answer("200 OK", "Content-Type: application/json\r\n", &body)]
    })
}

/// An OpenRouter that names a cost of its own choice, in so many picodollars.
pub fn costly_provider(books: &Arc<Books>, cost: impl Fn(usize) -> u64 + Send + Sync + 'static) -> Provider {
    let books = Arc::clone(books);
    Provider::start(move |n, _| {
        let picos = cost(n);
        books.book(picos);
        std::thread::sleep(std::time::Duration::from_millis(2));
        books.done();
        let cost = format!("{}.{:012}", picos / DOLLAR, picos % DOLLAR);
        let body = format!(
            r#"{{"model":"m","choices":[{{"finish_reason":"stop"}}],"usage":{{"prompt_tokens":5,"completion_tokens":2,"cost":{cost}}}}}"#
        );
        vec![answer("200 OK", "Content-Type: application/json\r\n", &body)]
    })
}

/// The exit code and the words of a relay that is refused at its start.
pub fn start_refused(more: &[&str]) -> (Option<i32>, String) {
    let dir = rig::fresh_dir();
    std::fs::write(dir.join("token"), TOKEN).unwrap();
    std::fs::write(dir.join("key"), KEY).unwrap();
    let mut args = vec!["relay", "--listen", "tcp:127.0.0.1:0", "--token-file", "token", "--key-file", "key"];
    args.extend(["--upstream", "http://127.0.0.1:9"]);
    args.extend(more);
    let child = Command::new(env!("CARGO_BIN_EXE_sanduk"))
        .args(&args)
        .env_clear()
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    // One that is not refused would serve for ever.
    let watchdog = std::thread::spawn(move || {
        std::thread::sleep(PATIENCE);
        let _ = sanduk::sys::proc::signal(pid, 9);
    });
    let out = child.wait_with_output().unwrap();
    drop(watchdog);
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// 64 clients at once, each with `each` calls; the statuses.
pub fn at_once(relay: &Relay, requests: impl Fn(usize) -> String + Sync) -> Vec<String> {
    std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..64).map(|n| (n, &requests)).map(|(n, r)| scope.spawn(move || ask(relay, &r(n)))).collect();
        calls.into_iter().map(|c| status(&c.join().unwrap()).to_string()).collect()
    })
}
