//! `relay/tls` against a throw-away CA: who is refused before a byte, what passes unharmed, how a stream ends, what is left behind.
//! `must_NN` tests requirement NN at the head of `src/relay/tls.rs`. Needs openssl and python3.
#![expect(clippy::disallowed_methods, reason = "tests")]

use sanduk::relay::start::{Proxy, Upstream};
use sanduk::relay::tls::{End, Session, argv, check_openssl};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

const OPENSSL: &str = "/usr/bin/openssl";
/// Long enough for a loaded machine; nothing here asserts a time.
const LONG: Duration = Duration::from_secs(60);
const REQUEST: &[u8] =
    b"POST /v1/messages HTTP/1.1\r\nHost: api.test\r\nx-api-key: SECRET\r\nContent-Length: 0\r\n\r\n";

fn support(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support").join(name)
}

/// The directory with CA and certificates, made once per process; what dead processes left is removed.
fn ca() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let top = Path::new(env!("CARGO_TARGET_TMPDIR"));
        for entry in std::fs::read_dir(top).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.strip_prefix("tls-").is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let dir = top.join(format!("tls-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let made = tool("sh").arg(support("ca.sh")).arg(&dir).status().unwrap();
        assert!(made.success(), "ca.sh failed");
        dir
    })
}

/// A program of the test's own, without the environment that `must_16` sets.
fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command
}

fn pem(name: &str) -> String {
    ca().join(name).to_str().unwrap().to_string()
}

/// An executable that behaves as `tests/support/fake_openssl` says under `name`.
fn fake(name: &str) -> String {
    let link = ca().join(name);
    match std::os::unix::fs::symlink(support("fake_openssl"), &link) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => panic!("{e}"),
        _ => link.to_str().unwrap().to_string(),
    }
}

/// A running `tls_server.py`; ends with this value.
struct Server {
    child: Child,
    events: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(mode: &str, certificate: &str, version: &str) -> Server {
        Server::start_at(mode, certificate, version, "127.0.0.1")
    }

    fn start_at(mode: &str, certificate: &str, version: &str, ip: &str) -> Server {
        let (cert, key) = (pem(&format!("{certificate}.pem")), pem(&format!("{certificate}.key")));
        let mut child = tool("python3")
            .arg(support("tls_server.py"))
            .args([mode, &cert, &key, version, ip])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed");
        let mut events = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        events.read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("port ").expect("a port").parse().unwrap();
        Server { child, events, address: SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port) }
    }

    /// The next thing that happened, as words.
    fn event(&mut self) -> Vec<String> {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        line.split_whitespace().map(str::to_string).collect()
    }

    /// Skips to the end of the next connection: application bytes, their SHA-256, whether the key was among them.
    fn closed(&mut self) -> (u64, String, bool) {
        loop {
            let words = self.event();
            assert!(!words.is_empty(), "the server is gone");
            if words[0] == "closed" {
                return (words[1].parse().unwrap(), words[2].clone(), words[3] == "1");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn upstream(host: &str) -> Upstream {
    Upstream {
        tls: true,
        host: host.to_string(),
        port: 443,
        ca_file: Some(pem("ca.pem")),
        openssl: OPENSSL.to_string(),
        ..Upstream::default()
    }
}

fn connect(server: &Server) -> Session {
    Session::connect(&upstream("api.test"), server.address, Vec::new()).unwrap()
}

/// Why a connection is refused: one clean line.
fn refusal(upstream: &Upstream, address: SocketAddr) -> (ErrorKind, String) {
    let Err(e) = Session::connect_within(upstream, address, Vec::new(), LONG) else { panic!("not refused") };
    let why = e.to_string();
    assert!(!why.is_empty() && !why.contains(|c: char| c.is_control()), "{why:?}");
    (e.kind(), why)
}

/// Runs openssl with these arguments and `input` already in its pipe before it is started; returns what it printed on standard
/// output. The input stays open until the child ends or the server has ended the connection, unless `shut`.
fn pour(args: &[OsString], input: &[u8], shut: bool) -> Vec<u8> {
    let mut child = Command::new(OPENSSL)
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take();
    let _ = stdin.as_mut().unwrap().write_all(input);
    if shut {
        stdin = None;
    }
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    child.wait().unwrap();
    drop(stdin);
    out
}

fn without(args: &[OsString], flags: &[&str]) -> Vec<OsString> {
    let mut left: Vec<OsString> = args.to_vec();
    for flag in flags {
        let at = left.iter().position(|a| a == flag).expect("the flag is there");
        left.remove(at);
    }
    left
}

/// Reads to the end of the stream.
fn read_all(session: &mut Session) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), vec![0; 65536]);
    loop {
        match session.read(&mut buf, LONG).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

/// Children of this process by name, zombies included.
fn children() -> Vec<(u32, String)> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_str().unwrap_or("").parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let (name, rest) = stat.split_once(" (").unwrap().1.rsplit_once(") ").unwrap();
        if rest.split(' ').nth(1) == Some(&own) {
            found.push((pid, name.to_string()));
        }
    }
    found
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

const INNER: &str = "SANDUK_TEST_INNER";

/// True in the process that `alone` started for the test.
fn inner() -> Option<String> {
    std::env::var(INNER).ok()
}

/// Runs one test of this file again in a process of its own, with this environment and `word` for `inner`.
fn alone(test: &str, word: &str, env: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(env.iter().copied())
        .env(INNER, word)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// U41: every server that is not the one we mean is refused with a reason, and no application byte reaches it: neither by us nor
/// by an openssl that has the request in its pipe from the start.
#[test]
fn must_06_refused_before_a_byte() {
    let cases = [
        ("wrong", "1.3", "hostname mismatch"),
        ("wrong", "1.2", "hostname mismatch"),
        ("expired", "1.3", "certificate has expired"),
        ("future", "1.3", "certificate is not yet valid"),
        ("unknown", "1.3", "unable to get local issuer certificate"),
        ("selfsigned", "1.3", "self-signed certificate"),
        ("clientonly", "1.3", "un"), // "unsuitable" or "unsupported certificate purpose", by version
        ("good", "1.1", "protocol version"),
    ];
    for (certificate, version, reason) in cases {
        let mut server = Server::start("echo", certificate, version);
        let upstream = upstream("api.test");
        let (kind, why) = refusal(&upstream, server.address);
        assert_eq!(kind, ErrorKind::InvalidData, "{certificate}");
        assert!(why.contains(reason), "{certificate}: {why}");
        assert_eq!(server.closed().0, 0, "{certificate}");
        pour(&argv(&upstream, server.address).unwrap(), REQUEST, false);
        assert_eq!(server.closed().0, 0, "{certificate}, request poured in");
    }
}

#[test]
fn must_06_plaintext_server_sees_no_key() {
    let mut server = Server::start("plain", "good", "1.3");
    let upstream = upstream("api.test");
    let (kind, why) = refusal(&upstream, server.address);
    assert_eq!((kind, why.as_str()), (ErrorKind::InvalidData, "wrong version number"));
    assert!(!server.closed().2);
    pour(&argv(&upstream, server.address).unwrap(), REQUEST, false);
    assert!(!server.closed().2);
}

#[test]
fn must_06_refused_port_and_missing_ca_file() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (kind, why) = refusal(&upstream("api.test"), port);
    assert_eq!((kind, why.as_str()), (ErrorKind::ConnectionRefused, "Connection refused"));
    let server = Server::start("echo", "good", "1.3");
    let nowhere = Upstream { ca_file: Some("/nonexistent/ca.pem".into()), ..upstream("api.test") };
    assert_eq!(refusal(&nowhere, server.address).1, "CA file /nonexistent/ca.pem: No such file or directory");
}

/// Half a line, no name, no verdict: not ready, and nothing written.
#[test]
fn must_06_waits_for_every_line() {
    for name in ["half", "unnamed", "unverified"] {
        let up = Upstream { openssl: fake(name), ..upstream("api.test") };
        let Err(e) = Session::connect_within(
            &up,
            "127.0.0.1:1".parse().unwrap(),
            Vec::new(),
            Duration::from_millis(300),
        ) else {
            panic!("{name} was taken for verified");
        };
        assert_eq!(e.kind(), ErrorKind::TimedOut, "{name}");
    }
}

/// The control of the tests above: drop the flag and the key arrives.
#[test]
fn must_01_verify_return_error_is_what_refuses() {
    let mut server = Server::start("close", "unknown", "1.3");
    let args = argv(&upstream("api.test"), server.address).unwrap();
    pour(&without(&args, &["-verify_return_error"]), REQUEST, false);
    assert!(server.closed().2, "the flag no longer matters: has s_client changed?");
    pour(&args, REQUEST, false);
    assert_eq!(server.closed().0, 0);
}

#[test]
fn must_02_verify_hostname_is_what_refuses_a_wrong_name() {
    let mut server = Server::start("close", "wrong", "1.3");
    let args = argv(&upstream("api.test"), server.address).unwrap();
    let at = args.iter().position(|a| a == "-verify_hostname").unwrap();
    let bare: Vec<OsString> = [&args[..at], &args[at + 2..]].concat();
    pour(&bare, REQUEST, false);
    assert!(server.closed().2, "the flag no longer matters: has s_client changed?");
    pour(&args, REQUEST, false);
    assert_eq!(server.closed().0, 0);
}

#[test]
fn must_02_only_plain_host_names() {
    let address = "127.0.0.1:443".parse().unwrap();
    for bad in [
        "",
        ".",
        ".test",
        "api.test.",
        "-x.test",
        "a..test",
        "api test",
        "api\ntest",
        "api/test",
        "*.test",
        "ä.test",
        "a_b.test",
        "[::1]",
    ] {
        assert!(argv(&upstream(bad), address).is_err(), "{bad:?}");
    }
    assert!(argv(&upstream(&"a".repeat(254)), address).is_err());
    for good in ["api.test", "API.Test", "a-b.test", "localhost", "1.test"] {
        assert!(argv(&upstream(good), address).is_ok(), "{good}");
    }
    // Why a leading dot is refused: it would match any name below.
    let server = Server::start("close", "good", "1.3");
    let mut args = argv(&upstream("api.test"), server.address).unwrap();
    let at = args.iter().position(|a| a == "-verify_hostname").unwrap();
    args[at + 1] = ".test".into();
    assert_eq!(pour(&args, REQUEST, false), REQUEST);
}

#[test]
fn must_02_upper_case_names_match() {
    let server = Server::start("echo", "good", "1.3");
    Session::connect(&upstream("API.TEST"), server.address, Vec::new()).unwrap();
}

#[test]
fn must_03_address_instead_of_a_name() {
    for (ip, other) in [("127.0.0.1", "127.0.0.2"), ("::1", "::2")] {
        let mut server = Server::start_at("echo", "good", "1.3", ip);
        drop(Session::connect(&upstream(ip), server.address, Vec::new()).unwrap());
        assert_eq!(server.event(), ["open", "TLSv1.3", "http/1.1", "None"], "no SNI for an address");
        server.closed();
        drop(Session::connect(&upstream("api.test"), server.address, Vec::new()).unwrap());
        assert_eq!(server.event(), ["open", "TLSv1.3", "http/1.1", "api.test"]);
        server.closed();
        assert_eq!(refusal(&upstream(other), server.address).1, "IP address mismatch");
        assert_eq!(server.closed().0, 0);
    }
}

#[test]
fn must_04_one_source_of_trust() {
    let server = Server::start("echo", "good", "1.3");
    let other = Upstream { ca_file: Some(pem("other.pem")), ..upstream("api.test") };
    assert_eq!(refusal(&other, server.address).1, "unable to get local issuer certificate");
    let system = Upstream { ca_file: None, ..upstream("api.test") };
    assert_eq!(refusal(&system, server.address).1, "unable to get local issuer certificate");
    let relative = Upstream { ca_file: Some("ca.pem".into()), ..upstream("api.test") };
    assert_eq!(refusal(&relative, server.address).0, ErrorKind::InvalidInput);
}

#[test]
fn must_05_tls_12_and_13_and_http_11() {
    for (version, named) in [("1.2", "TLSv1.2"), ("1.3", "TLSv1.3")] {
        let mut server = Server::start("echo", "good", version);
        connect(&server);
        assert_eq!(server.event(), ["open", named, "http/1.1", "api.test"]);
    }
}

/// 10 MB whose lines begin with every letter that s_client takes for a command, NUL, EOT and SUB; the first bytes one write each.
#[test]
fn must_07_bodies_pass_unharmed_both_ways() {
    let lines: [&[u8]; 12] = [
        b"Q\n",
        b"R\r\n",
        b"r\n",
        b"k\n",
        b"K\r\n",
        b"B\n",
        b"\0\0\n",
        b"\x04\n",
        b"\x1a\r\n",
        b"\r\n",
        b"Q\r\n\xff\xfe",
        b"plain text\n",
    ];
    let mut body = Vec::new();
    let mut at = 7_usize;
    while body.len() < 10_000_000 {
        at = (at * 1_103_515_245 + 12_345) % (1 << 31);
        body.extend_from_slice(lines[(at >> 16) % lines.len()]);
    }
    for version in ["1.2", "1.3"] {
        let mut server = Server::start("echo", "good", version);
        let mut session = connect(&server);
        let mut back = Vec::new();
        let mut buf = vec![0; 65536];
        for byte in body[..40].chunks(1) {
            assert!(session.send(&[byte], LONG).unwrap());
            let n = session.read(&mut buf, LONG).unwrap();
            back.extend_from_slice(&buf[..n]);
        }
        // Each part fits in the pipe, so that its echo cannot stop `send`.
        for part in body[40..].chunks(30_000) {
            let (a, b) = part.split_at(part.len() / 3);
            assert!(session.send(&[a, b"", b], LONG).unwrap());
            let mut got = 0;
            while got < part.len() {
                let n = session.read(&mut buf, LONG).unwrap();
                back.extend_from_slice(&buf[..n]);
                got += n;
            }
        }
        assert!(back == body, "TLS {version}: changed on the way back");
        assert!(session.idle());
        drop(session);
        let (count, hash, _) = server.closed();
        assert_eq!((count, hash), (body.len() as u64, sha256(&body)), "TLS {version}: changed on the way");
    }
}

#[test]
fn must_07_without_nocommands_the_body_is_eaten() {
    let mut server = Server::start("echo", "good", "1.3");
    let args = argv(&upstream("api.test"), server.address).unwrap();
    pour(&without(&args, &["-nocommands"]), b"Q\n", false);
    assert_eq!(server.closed().0, 0, "the flag no longer matters: has s_client changed?");
}

/// An early 413 while 60 MB are on their way: no deadlock, the answer is read.
#[test]
fn must_08_early_answer_while_sending() {
    let server = Server::start("early", "good", "1.3");
    let mut session = connect(&server);
    let body = vec![b'x'; 60_000_000];
    assert!(!session.send(&[REQUEST, &body], LONG).unwrap());
    let mut buf = [0; 4096];
    let n = session.read(&mut buf, LONG).unwrap();
    assert!(buf[..n].starts_with(b"HTTP/1.1 413 "));
}

#[test]
fn must_08_a_peer_that_stops_reading_is_a_timeout() {
    let up = Upstream { openssl: fake("deaf"), ..upstream("api.test") };
    let mut session = Session::connect(&up, "127.0.0.1:1".parse().unwrap(), Vec::new()).unwrap();
    let e = session.send(&[&vec![b'x'; 2_000_000]], Duration::from_millis(200)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    let e = session.read(&mut [0; 16], Duration::from_millis(50)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TimedOut);
}

#[test]
fn must_09_input_stays_open_until_the_answer() {
    let mut server = Server::start("late", "good", "1.3");
    let args = argv(&upstream("api.test"), server.address).unwrap();
    assert_eq!(pour(&args, REQUEST, true), b"");
    server.event();
    assert_eq!(
        server.event(),
        ["hasty"],
        "an early end no longer ends the connection: has s_client changed?"
    );
    let mut session = connect(&server);
    assert!(session.send(&[REQUEST], LONG).unwrap());
    assert_eq!(read_all(&mut session), b"HTTP/1.1 200 OK\r\n\r\npart of a body");
}

/// U10, U11: only close_notify ends a body that has no length.
#[test]
fn must_10_cut_and_clean_ends() {
    for version in ["1.2", "1.3"] {
        for (mode, end) in [("clean", End::Clean), ("cut", End::Cut), ("reset", End::Cut)] {
            let server = Server::start(mode, "good", version);
            let mut session = connect(&server);
            assert!(session.send(&[REQUEST], LONG).unwrap());
            assert_eq!(read_all(&mut session), b"HTTP/1.1 200 OK\r\n\r\npart of a body", "{mode} {version}");
            assert_eq!(session.end(), end, "{mode} {version}");
        }
    }
}

#[test]
fn must_10_a_killed_child_and_an_unread_end_are_cuts() {
    let server = Server::start("clean", "good", "1.3");
    let mut session = connect(&server);
    assert!(Command::new("kill").args(["-9", &session.pid().to_string()]).status().unwrap().success());
    assert_eq!(read_all(&mut session), b"");
    assert_eq!(session.end(), End::Cut);
    let mut session = connect(&server);
    assert!(session.send(&[REQUEST], LONG).unwrap());
    assert_eq!(session.end(), End::Cut, "its end was not read");
}

#[test]
fn must_11_idle_only_when_silent_and_open() {
    let server = Server::start("clean", "good", "1.3");
    let mut session = connect(&server);
    assert!(session.idle());
    assert!(session.send(&[REQUEST], LONG).unwrap());
    let mut buf = [0; 4];
    assert_eq!(session.read(&mut buf, LONG).unwrap(), 4);
    assert!(!session.idle(), "bytes are waiting");
    assert!(!session.send(&[REQUEST], LONG).unwrap(), "an answer is waiting");
    read_all(&mut session);
    assert!(!session.idle(), "closed");
}

/// A pooled connection that its server closed meanwhile: not idle, and a send does not hang or succeed silently.
#[test]
fn must_11_closed_while_idle() {
    let mut server = Server::start("close", "good", "1.3");
    let mut session = connect(&server);
    assert!(session.send(&[b"x"], LONG).unwrap());
    assert_eq!(read_all(&mut session), b"x");
    server.closed();
    assert!(!session.idle());
    assert!(!session.send(&[REQUEST], LONG).unwrap());
    assert_eq!(session.read(&mut [0; 16], LONG).unwrap(), 0);
    assert_eq!(session.end(), End::Clean);
}

/// U42: neither a silent listener nor one whose handshake stalls holds a call up; the child is gone afterwards.
#[test]
fn must_12_stalled_handshake() {
    let mut server = Server::start("stall", "good", "1.3");
    let Err(e) =
        Session::connect_within(&upstream("api.test"), server.address, Vec::new(), Duration::from_secs(2))
    else {
        panic!("no handshake took place");
    };
    assert_eq!((e.kind(), e.to_string().as_str()), (ErrorKind::TimedOut, "no answer within 2 s"));
    // The server sees the connection end: the child is dead. It saw a ClientHello and no key.
    assert!(!server.closed().2);
}

#[test]
fn must_13_standard_error_never_blocks_the_child() {
    let up = Upstream { openssl: fake("talker"), ..upstream("api.test") };
    let mut session = Session::connect(&up, "127.0.0.1:1".parse().unwrap(), Vec::new()).unwrap();
    let mut buf = [0; 64];
    let n = session.read(&mut buf, LONG).unwrap();
    assert_eq!(&buf[..n], b"answer\n");
    // The same while sending.
    let mut session = Session::connect(&up, "127.0.0.1:1".parse().unwrap(), Vec::new()).unwrap();
    assert!(!session.send(&[&vec![b'x'; 1_000_000]], LONG).unwrap());
}

/// Dropped idle, in mid-answer, in mid-upload, refused, timed out, ended, unwilling: no child is left, zombie or not.
#[test]
fn must_14_every_child_is_waited_for() {
    if inner().is_none() {
        assert!(alone("must_14_every_child_is_waited_for", "1", &[]).wait().unwrap().success());
        return;
    }
    let mut server = Server::start("echo", "good", "1.3");
    let early = Server::start("early", "good", "1.3");
    let stall = Server::start("stall", "good", "1.3");
    let others = children();
    for _ in 0..20 {
        let mut session = connect(&server);
        assert_eq!(children().len(), others.len() + 1);
        session.send(&[REQUEST], LONG).unwrap();
    }
    server.closed();
    let mut session = connect(&early);
    assert!(!session.send(&[&vec![b'x'; 30_000_000]], LONG).unwrap());
    drop(session);
    refusal(&upstream("other.test"), server.address);
    assert!(
        Session::connect_within(&upstream("api.test"), stall.address, Vec::new(), Duration::from_millis(100))
            .is_err()
    );
    let clean = Server::start("clean", "good", "1.3");
    let mut session = connect(&clean);
    session.send(&[REQUEST], LONG).unwrap();
    read_all(&mut session);
    session.end();
    drop(clean);
    let deaf = Upstream { openssl: fake("deaf"), ..upstream("api.test") };
    drop(Session::connect(&deaf, "127.0.0.1:1".parse().unwrap(), Vec::new()).unwrap());
    check_openssl(OPENSSL).unwrap();
    assert_eq!(children(), others);
}

/// kill -9 of the process that holds a session: its openssl closes the connection and ends.
#[test]
fn must_15_no_orphan_when_we_are_killed() {
    if let Some(address) = inner() {
        let mut up = upstream("api.test");
        up.ca_file = Some(std::env::var("SANDUK_TEST_CA").unwrap());
        let mut session = Session::connect(&up, address.parse().unwrap(), Vec::new()).unwrap();
        session.send(&[REQUEST], LONG).unwrap();
        session.read(&mut [0; 4096], LONG).unwrap();
        std::io::stdout().write_all(format!("\nchild {}\n", session.pid()).as_bytes()).unwrap();
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let mut server = Server::start("echo", "good", "1.3");
    let mut holder = alone(
        "must_15_no_orphan_when_we_are_killed",
        &server.address.to_string(),
        &[("SANDUK_TEST_CA", &pem("ca.pem"))],
    );
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("child ").map(str::to_string)).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(server.closed().0, REQUEST.len() as u64);
    // It has closed its connection; give it the time to leave.
    let gone = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |s| s.contains(") Z "))
    });
    assert!(gone, "openssl {pid} is still there");
}

/// OPENSSL_CONF, SSL_CERT_FILE, LD_PRELOAD and the like in our environment: the child has none of it.
#[test]
fn must_16_the_environment_does_not_reach_the_child() {
    if inner().is_none() {
        let ca_file = pem("ca.pem");
        let env = [
            ("OPENSSL_CONF", "/nonexistent.cnf"),
            ("SSL_CERT_FILE", ca_file.as_str()),
            ("SSL_CERT_DIR", ca().to_str().unwrap()),
            ("LD_PRELOAD", "/nonexistent.so"),
            ("SSLKEYLOGFILE", "/nonexistent/keys"),
            ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ];
        let ran = alone("must_16_the_environment_does_not_reach_the_child", "1", &env).wait().unwrap();
        assert!(ran.success());
        return;
    }
    assert!(std::env::var("SSL_CERT_FILE").is_ok(), "the test has its own environment");
    let server = Server::start("echo", "good", "1.3");
    let session = connect(&server);
    let environ = std::fs::read(format!("/proc/{}/environ", session.pid())).unwrap();
    assert!(environ.is_empty(), "{}", String::from_utf8_lossy(&environ));
    assert_eq!(std::fs::read_link(format!("/proc/{}/cwd", session.pid())).unwrap(), Path::new("/"));
    let system = Upstream { ca_file: None, ..upstream("api.test") };
    assert_eq!(refusal(&system, server.address).1, "unable to get local issuer certificate");
    let relative = Upstream { openssl: "openssl".into(), ..upstream("api.test") };
    assert_eq!(refusal(&relative, server.address).0, ErrorKind::InvalidInput);
}

/// Every form of the arguments, as `audit/argv.txt` prints it, and the running child's are the same.
#[test]
fn must_17_arguments_are_those_of_the_ledger() {
    let file = |host, ca: Option<&str>| Upstream { ca_file: ca.map(str::to_string), ..upstream(host) };
    let through = |user: Option<&str>| {
        let proxy = Proxy { host: "proxy.test".into(), port: 3128, user: user.map(str::to_string) };
        Upstream { proxy: Some(proxy), ..file("HOST", None) }
    };
    let forms = [
        (file("HOST", None), "192.0.2.1:443"),
        (file("HOST", Some("/FILE")), "[2001:db8::1]:443"),
        (file("192.0.2.1", None), "192.0.2.1:8443"),
        (file("2001:db8::1", Some("/FILE")), "[2001:db8::1]:443"),
        (through(None), "192.0.2.1:3128"),
        (through(Some("USER")), "192.0.2.1:3128"),
    ];
    let ledger =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/argv.txt")).unwrap();
    let rows = |program: &str| -> Vec<String> {
        let start = format!("{program} | ");
        ledger.lines().filter_map(|l| l.strip_prefix(&start)).map(str::to_string).collect()
    };
    let ours: Vec<String> = forms
        .iter()
        .map(|(up, address)| {
            let args = argv(up, address.parse().unwrap()).unwrap();
            args.iter().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(rows("EXEC-20 openssl"), ours);
    assert_eq!(rows("EXEC-21 openssl"), ["version"]);
    let server = Server::start("echo", "good", "1.3");
    let session = connect(&server);
    let line = std::fs::read(format!("/proc/{}/cmdline", session.pid())).unwrap();
    let args: Vec<OsString> =
        line.split(|b| *b == 0).map(|a| String::from_utf8(a.to_vec()).unwrap().into()).collect();
    assert_eq!(args[1..args.len() - 1], argv(&upstream("api.test"), server.address).unwrap());
}

#[test]
fn must_18_no_session_on_disk_and_none_resumed() {
    for up in [upstream("api.test"), upstream("127.0.0.1")] {
        let args = argv(&up, "127.0.0.1:443".parse().unwrap()).unwrap();
        for never in
            ["-sess_out", "-sess_in", "-keylogfile", "-quiet", "-ign_eof", "-ignore_unexpected_eof", "-proxy"]
        {
            assert!(args.iter().all(|a| a != never), "{never}");
        }
    }
}

#[test]
fn must_19_only_openssl_3() {
    assert!(check_openssl(OPENSSL).unwrap().starts_with("OpenSSL 3."));
    assert_eq!(check_openssl(&fake("newer")).unwrap(), "OpenSSL 3.5.4");
    for (name, says) in
        [("libre", "LibreSSL 3.3.6"), ("old", "OpenSSL 1.1.1w"), ("odd", "Open"), ("mute", "\"\"")]
    {
        let why = check_openssl(&fake(name)).unwrap_err();
        assert!(why.contains(says) && why.contains("apt install openssl"), "{why}");
        assert!(!why.contains(|c: char| c.is_control()), "{why:?}");
    }
    for path in ["/nonexistent/openssl", "openssl"] {
        assert!(check_openssl(path).unwrap_err().starts_with(&format!("cannot run {path} version: ")));
    }
}

#[test]
fn must_20_unknown_lines_do_not_matter() {
    let up = Upstream { openssl: fake("chatty"), ..upstream("api.test") };
    let mut session = Session::connect(&up, "127.0.0.1:1".parse().unwrap(), Vec::new()).unwrap();
    assert!(session.send(&[b"ping"], LONG).unwrap());
    let mut buf = [0; 16];
    assert_eq!(session.read(&mut buf, LONG).unwrap(), 4);
}

/// A thousand requests over one session.
#[test]
fn one_session_serves_many_requests() {
    let server = Server::start("echo", "good", "1.3");
    let mut session = connect(&server);
    let mut buf = [0; 4096];
    for _ in 0..1000 {
        assert!(session.idle());
        assert!(session.send(&[REQUEST], LONG).unwrap());
        let n = session.read(&mut buf, LONG).unwrap();
        assert_eq!(&buf[..n], REQUEST);
    }
}
