//! Mixed load with faults on one relay for a while: no growth of memory, threads, descriptors, children; every answer right; the chain of the
//! record whole. `SANDUK_SOAK=SECONDS` (20 by default; `make soak` takes 900). Once with a plain provider, once with TLS and the
//! box's forwarder in front.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "soak/load.rs"]
mod load;
#[path = "support/mutate.rs"]
#[expect(dead_code, reason = "shared with the fuzz tests")]
mod mutate;
#[path = "soak/provider.rs"]
mod provider;
#[path = "relay/rig.rs"]
#[expect(dead_code, reason = "shared with the other tests of the relay")]
mod rig;
#[path = "soak/watch.rs"]
mod watch;

use load::Load;
use rig::{Place, Relay};
use sanduk::limits;
use sanduk::relay::log_read::Reader;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use watch::{Sample, assert_back_to, assert_no_trend};

/// Client threads of one variant; some hold a second connection for a moment.
const CLIENTS: u64 = 32;

/// As long as a client of an overloaded provider waits; the default, a minute, would leave the clients mostly waiting, and be as long as
/// their own patience.
const RETRY_FOR: &str = "2s";

fn seconds() -> u64 {
    std::env::var("SANDUK_SOAK").ok().map_or(20, |n| n.parse().unwrap())
}

/// A helper process, ended with the test.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that prints `port N` among its lines.
fn helper(command: &mut Command) -> (Helper, u16) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = out.lines().map_while(Result::ok);
    let port = lines.find_map(|l| l.split("port ").nth(1).map(|n| n.trim().parse().unwrap())).unwrap();
    // What else it prints is read, so that it never waits for us.
    std::thread::spawn(move || lines.for_each(drop));
    (Helper(child), port)
}

#[test]
fn plain() {
    let provider = provider::start();
    let upstream = format!("http://{provider}");
    let mut relay = start(&upstream, &[], false);
    let Place::Tcp(at) = relay.place else { panic!() };
    soak("plain", at, &mut relay, None);
}

#[test]
fn tls_behind_the_forwarder() {
    let provider = provider::start();
    let dir = rig::fresh_dir();
    let support = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support");
    assert!(Command::new("sh").arg(support.join("ca.sh")).arg(&dir).status().unwrap().success());
    let mut front = Command::new("python3");
    front.arg(support.join("tls_soak.py")).args([dir.join("good.pem"), dir.join("good.key")]);
    let (_front, port) = helper(front.arg(provider.port().to_string()));
    let ca = dir.join("ca.pem").display().to_string();
    let mut relay = start(&format!("https://127.0.0.1:{port}"), &["--ca-file", &ca], true);
    let mut role = Command::new(std::env::current_exe().unwrap());
    role.args(["--exact", "forwarder_role", "--nocapture"]).env("SANDUK_SOAK_FORWARD", &relay.dir);
    let (forwarder, port) = helper(&mut role);
    soak("tls", SocketAddr::from(([127, 0, 0, 1], port)), &mut relay, Some(forwarder.0.id()));
    drop(forwarder);
    let _ = std::fs::remove_dir_all(&dir);
}

/// No test: the other one starts this program again as the forwarder of a box, so that it can be measured as a process.
#[test]
fn forwarder_role() {
    let Some(dir) = std::env::var_os("SANDUK_SOAK_FORWARD") else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    sanduk::inside::forward::start(port, dir.into(), Duration::from_secs(5)).unwrap();
    println!("port {port}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

fn start(upstream: &str, more: &[&str], unix: bool) -> Relay {
    let anywhere = rig::Provider::plain();
    let mut args = vec!["--upstream", upstream, "--log-dir", "log", "-q", "--retry-for", RETRY_FOR];
    args.extend(more);
    Relay::listening(&anywhere, unix, &args)
}

fn load(at: SocketAddr, time: Duration) -> Load {
    Load {
        at,
        begun: Instant::now(),
        time,
        refused: AtomicU64::new(0),
        most_refused: limits::REFUSALS * 8 / 10,
        done: Mutex::default(),
    }
}

fn soak(what: &str, at: SocketAddr, relay: &mut Relay, forwarder: Option<u32>) {
    let time = Duration::from_secs(seconds());
    // A moment of load first, so that what is made once is made; then the baseline, with one call's connection kept.
    clients(&load(at, Duration::from_secs(2)), |_| {});
    let before = at_rest(at, relay.pid());
    let forwarder_before = forwarder.map(|pid| Sample::of(pid).unwrap());
    let (mut samples, mut forwarder_samples) = (Vec::new(), Vec::new());
    let main = load(at, time);
    clients(&main, |load| {
        while !load.over() {
            samples.push(Sample::of(relay.pid()).expect("the relay lives"));
            forwarder_samples.extend(forwarder.and_then(Sample::of));
            std::thread::sleep((time / 80).clamp(Duration::from_millis(200), Duration::from_secs(5)));
        }
    });
    let done = main.done.lock().unwrap();
    println!("{what}: {} done in {} s: {done:?}", done.values().sum::<u64>(), time.as_secs());
    let slow = load::TOO_SLOW.load(Ordering::Relaxed);
    println!("{what}: {slow} calls for which the machine was too busy");
    assert!(slow * 10 <= done.values().sum::<u64>(), "{slow} handshakes took too long");
    assert_no_trend(what, &samples);
    assert_back_to(
        what,
        relay.pid(),
        {
            at_rest(at, relay.pid());
            before
        },
        // Kept connections, and the spare, are closed after their time.
        limits::POOL_IDLE + limits::SPARE_TIME + rig::PATIENCE,
    );
    if let (Some(pid), Some(before)) = (forwarder, forwarder_before) {
        assert_no_trend("forwarder", &forwarder_samples);
        assert_back_to("forwarder", pid, before, Duration::from_secs(60));
    }
    let panicked: Vec<String> = relay.lines().into_iter().filter(|l| l.contains("panicked")).collect();
    assert!(panicked.is_empty(), "{panicked:?}");
    relay.signal(15);
    assert_eq!(relay.ended(), Some(143));
    assert_chain(&relay.dir.join("log/calls.jsonl"));
}

/// Idle workers have gone, idle connections to the provider too: one call drops those that are too old. Then what is there.
fn at_rest(at: SocketAddr, pid: u32) -> Sample {
    let until = Instant::now() + Duration::from_secs(90);
    let few = 4;
    while Sample::of(pid).expect("the relay lives").threads > few {
        assert!(Instant::now() < until, "workers do not end: {:?}", Sample::of(pid));
        std::thread::sleep(Duration::from_millis(200));
    }
    std::thread::sleep(Duration::from_secs(1));
    load::one_get(at);
    Sample::of(pid).unwrap()
}

fn clients(load: &Load, beside: impl FnOnce(&Load)) {
    std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            scope.spawn(move || load::client(load, mutate::seed() * 1000 + n));
        }
        beside(load);
    });
}

/// The whole record holds by the program's own reader: chain, numbers, an outcome for each verdict.
fn assert_chain(path: &Path) {
    let mut reader = Reader::new(std::fs::File::open(path).unwrap(), u64::MAX - 1);
    while reader.advance().unwrap_or_else(|bad| panic!("{bad:?}")).is_some() {}
    assert!(reader.ended() && reader.open() == 0, "{} without an outcome", reader.open());
    println!("record: {} lines, {} calls, chain whole", reader.lines(), reader.calls());
}
