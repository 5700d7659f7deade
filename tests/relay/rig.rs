//! A relay process, a provider that does exactly what a test says, and a client that sees raw bytes. For `tests/relay*.rs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The provider's key; nothing of it may reach a client or a log.
pub const KEY: &str = "sk-ant-REALKEY-0123456789abcdef";
/// What the client presents.
pub const TOKEN: &str = "RUNTOKEN";
/// Long enough for a loaded machine; only a failing test waits it out.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One thing a scripted provider does on a connection.
#[derive(Clone)]
pub enum Act {
    /// Sends these bytes at once.
    Send(Vec<u8>),
    /// Waits until the test calls `Provider::go`.
    Wait,
    /// Closes in order (FIN).
    Close,
    /// Closes with a reset.
    Reset,
}

/// `Act::Send` of a text.
pub fn send(text: &str) -> Act {
    Act::Send(text.as_bytes().to_vec())
}

/// A whole answer with a length.
pub fn answer(status: &str, fields: &str, body: &str) -> Act {
    send(&format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()))
}

/// One request as the provider got it.
#[derive(Clone)]
pub struct Seen {
    /// Request line and fields.
    pub head: String,
    /// Without framing.
    pub body: Vec<u8>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    go: Mutex<usize>,
    gone: Condvar,
    connections: AtomicUsize,
}

/// The scripted provider.
pub struct Provider {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

/// What to do for request number `n` (from 0, over all connections) with this head.
pub type Script = dyn Fn(usize, &str) -> Vec<Act> + Send + Sync;

impl Provider {
    /// Serves until the test ends.
    pub fn start(script: impl Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let script: Arc<Script> = Arc::new(script);
        let of = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, script) = (Arc::clone(&of), Arc::clone(&script));
                shared.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(&stream.unwrap(), &shared, &*script));
            }
        });
        Provider { address, shared }
    }

    /// Answers `{}` to everything.
    pub fn plain() -> Provider {
        Provider::start(|_, _| vec![answer("200 OK", "Content-Type: application/json\r\n", "{}")])
    }

    /// Lets one `Act::Wait` go on.
    pub fn go(&self) {
        *self.shared.go.lock().unwrap() += 1;
        self.shared.gone.notify_all();
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Forgets them.
    pub fn forget(&self) {
        self.shared.seen.lock().unwrap().clear();
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

fn serve(stream: &TcpStream, shared: &Shared, script: &Script) {
    let mut reader = BufReader::new(stream);
    while let Some((head, body)) = request(&mut reader) {
        let n = {
            let mut seen = shared.seen.lock().unwrap();
            seen.push(Seen { head: head.clone(), body });
            seen.len() - 1
        };
        for act in script(n, &head) {
            match act {
                Act::Send(bytes) => {
                    if { stream }.write_all(&bytes).is_err() {
                        return;
                    }
                }
                Act::Wait => {
                    let mut go = shared.go.lock().unwrap();
                    while *go == 0 {
                        go = shared.gone.wait(go).unwrap();
                    }
                    *go -= 1;
                }
                Act::Close => return drop(stream.shutdown(std::net::Shutdown::Both)),
                Act::Reset => {
                    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
                    return;
                }
            }
        }
    }
}

/// A deliberately plain reader of requests: what it cannot read is the relay's fault.
fn request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head).ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(!head.to_ascii_lowercase().contains("transfer-encoding"), "the relay sends lengths");
    let mut body = vec![0; field(&head, "content-length").map_or(0, |n| n.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// The value of a field, by a plain search.
pub fn field(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (n, value) = line.split_once(':')?;
        n.eq_ignore_ascii_case(name).then(|| value.trim().to_string())
    })
}

/// A relay process with its lines on standard error.
pub struct Relay {
    child: Child,
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
    /// Where it listens.
    pub place: Place,
    /// Token, key, socket and log live here.
    pub dir: PathBuf,
}

/// An address of a relay.
#[derive(Clone, Debug)]
pub enum Place {
    /// TCP.
    Tcp(SocketAddr),
    /// Unix.
    Unix(PathBuf),
}

static DIRS: AtomicUsize = AtomicUsize::new(0);

/// A fresh directory below the target's.
pub fn fresh_dir() -> PathBuf {
    let n = DIRS.fetch_add(1, Ordering::SeqCst);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("relay-{}-{n}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

impl Relay {
    /// On a TCP port, in key-safe mode, with these further arguments.
    pub fn start(provider: &Provider, more: &[&str]) -> Relay {
        Relay::listening(provider, false, more)
    }

    /// On a Unix socket or a TCP port.
    pub fn listening(provider: &Provider, unix: bool, more: &[&str]) -> Relay {
        Relay::with_env(provider, unix, more, &[])
    }

    /// With these variables and no others.
    pub fn with_env(provider: &Provider, unix: bool, more: &[&str], env: &[(&str, &str)]) -> Relay {
        let dir = fresh_dir();
        std::fs::write(dir.join("token"), format!("{TOKEN}\n")).unwrap();
        std::fs::write(dir.join("key"), format!("{KEY}\n")).unwrap();
        Relay::in_dir(dir, provider, unix, more, env)
    }

    /// Another one where one was before, on a TCP port.
    pub fn again(dir: PathBuf, provider: &Provider, more: &[&str]) -> Relay {
        Relay::in_dir(dir, provider, false, more, &[])
    }

    /// Kills it; what it leaves stays.
    pub fn killed(mut self) -> PathBuf {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::mem::take(&mut self.dir)
    }

    fn in_dir(dir: PathBuf, provider: &Provider, unix: bool, more: &[&str], env: &[(&str, &str)]) -> Relay {
        let listen = if unix { "unix:relay.sock" } else { "tcp:127.0.0.1:0" };
        let upstream = format!("http://{}", provider.address);
        let mut args = vec!["relay", "--listen", listen, "--token-file", "token", "--key-file", "key"];
        args.extend(["--host", "relay.test"]);
        // What no list stands between is tested in the mode that has none.
        if !more.contains(&"--mode") {
            args.extend(["--mode", "key-safe"]);
        }
        if !more.contains(&"--upstream") {
            args.extend(["--upstream", &upstream]);
        }
        if !more.contains(&"--provider") {
            args.extend(["--provider", "anthropic"]);
        }
        args.extend(more);
        // `SANDUK_BIN`: another build of it.
        let program = std::env::var("SANDUK_BIN").unwrap_or(env!("CARGO_BIN_EXE_sanduk").into());
        let mut child = Command::new(program)
            .args(&args)
            .env_clear()
            .envs(env.iter().copied())
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let (of, errors) = (Arc::clone(&lines), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                of.0.lock().unwrap().push(line);
                of.1.notify_all();
            }
        });
        let mut relay = Relay { child, lines, place: Place::Unix(dir.join("relay.sock")), dir };
        let line = relay.line("serving ");
        if !unix {
            let at = line.split("tcp:").nth(1).unwrap().split(';').next().unwrap();
            relay.place = Place::Tcp(at.parse().unwrap());
        }
        relay
    }

    /// The first line that holds `part`, waited for.
    pub fn line(&self, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut lines = self.lines.0.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().find(|l| l.contains(part)) {
                return line.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line with {part:?} in {lines:?}");
            lines = self.lines.1.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.0.lock().unwrap().clone()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A signal, by number.
    pub fn signal(&self, number: i32) {
        let pid = i32::try_from(self.child.id()).unwrap();
        sanduk::sys::proc::signal(pid, number).unwrap();
    }

    /// Waits for its end; the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < until, "the relay does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A connection to it.
    pub fn connect(&self) -> Box<dyn Stream> {
        match &self.place {
            Place::Tcp(at) => Box::new(TcpStream::connect(at).unwrap()),
            Place::Unix(path) => Box::new(UnixStream::connect(path).unwrap()),
        }
    }

    /// Sends bytes, half-closes, reads to the end. The flag is true where the end was a reset.
    pub fn talk(&self, bytes: &[u8]) -> (Vec<u8>, bool) {
        talk(self.connect(), bytes)
    }

    /// As `talk`, as text.
    pub fn ask(&self, request: &str) -> String {
        String::from_utf8_lossy(&self.talk(request.as_bytes()).0).into_owned()
    }

    /// The records of `--log-dir log`.
    pub fn records(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.dir.join("log/calls.jsonl")).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A client's end, TCP or Unix.
pub trait Stream: Read + Write + Send {
    /// FIN, or its like.
    fn half_close(&self);
    /// A second handle for the writer.
    fn second(&self) -> Box<dyn Stream>;
}

impl Stream for TcpStream {
    fn half_close(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
    fn second(&self) -> Box<dyn Stream> {
        Box::new(self.try_clone().unwrap())
    }
}

impl Stream for UnixStream {
    fn half_close(&self) {
        let _ = self.shutdown(std::net::Shutdown::Write);
    }
    fn second(&self) -> Box<dyn Stream> {
        Box::new(self.try_clone().unwrap())
    }
}

fn talk(mut stream: Box<dyn Stream>, bytes: &[u8]) -> (Vec<u8>, bool) {
    let (mut writer, bytes) = (stream.second(), bytes.to_vec());
    let writing = std::thread::spawn(move || {
        // A relay that has refused may stop reading; what it answered is what counts.
        let _ = writer.write_all(&bytes);
        writer.half_close();
    });
    let mut got = Vec::new();
    let reset = stream.read_to_end(&mut got).is_err();
    writing.join().unwrap();
    (got, reset)
}

/// Reads until `got` holds `part`.
pub fn read_until(stream: &mut dyn Read, got: &mut Vec<u8>, part: &str) {
    let mut piece = [0; 4096];
    while !got.windows(part.len()).any(|w| w == part.as_bytes()) {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "ended before {part:?}: {:?}", String::from_utf8_lossy(got));
        got.extend_from_slice(&piece[..n]);
    }
}

/// A request with the token. An empty body is a GET's.
pub fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: relay.test\r\nx-api-key: {TOKEN}\r\n{fields}\r\n")
}

/// A POST with the token.
pub fn post(path: &str, fields: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: relay.test\r\nx-api-key: {TOKEN}\r\nContent-Type: application/json\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The status of the first answer.
pub fn status(answer: &str) -> &str {
    answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or("-")
}

/// Said on the terminal also where the test passes: the harness takes only what goes through its own macros.
pub fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}");
}
