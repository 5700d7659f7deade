//! The relay as a command of its own (`sanduk relay --listen …`): the serving code of the role, confined too, with lines for
//! a person on standard error. Called by `main`.

use crate::catalog::providers::Provider;
use crate::error::{Error, Exit};
use crate::limits;
use crate::relay::bodies::{Bodies, DIRECTORY};
use crate::relay::budget::Meter;
use crate::relay::budget_read::Past;
use crate::relay::caps::Caps;
use crate::relay::confinement;
use crate::relay::log::Log;
use crate::relay::log_read::Line;
use crate::relay::note::Note;
use crate::relay::pool::Pool;
use crate::relay::proxy;
use crate::relay::search::Named;
use crate::relay::serving::{Parts, Serving};
use crate::relay::start::{self, Grants, Upstream};
use crate::relay::upstream;
use crate::secret::Secret;
use crate::sys::file::Dir;
use crate::sys::net::{self, Conn, Listener};
use crate::sys::{file, pipes, proc, serve};
use crate::wire::text;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Where the relay listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `tcp:HOST:PORT`, an address and not a name; port 0: any, printed.
    Tcp(SocketAddr),
    /// `unix:PATH`, absolute or relative to the working directory.
    Unix(PathBuf),
}

/// What `sanduk relay` was told.
pub struct Foreground {
    /// `--listen`.
    pub listen: Listen,
    /// `--provider`.
    pub provider: Provider,
    /// From `upstream::parse_upstream`; `ca_file` set from `--ca-file`; addresses and openssl are filled in here.
    pub upstream: Upstream,
    /// `--token-file`: what a client presents as its key.
    pub token_file: PathBuf,
    /// `--key-file`; none: only where the provider needs no key.
    pub key_file: Option<PathBuf>,
    /// `--upstream-proxy-auth`.
    pub proxy_auth: Option<PathBuf>,
    /// `--secret-env`.
    pub named: Vec<Named>,
    /// `--host`, as typed. The listening address is always admitted.
    pub hosts: Vec<String>,
    /// `--mode`, `--allow-model`, `--max-tokens-cap`.
    pub grants: Grants,
    /// `--budget` and the like.
    pub caps: Caps,
    /// `--log-dir`; none: no record is kept, said at the start.
    pub log_dir: Option<PathBuf>,
    /// `--log-bodies`; needs `log_dir`.
    pub log_bodies: bool,
    /// `-q`: no line per call.
    pub quiet: bool,
}

/// Why the process ends.
enum Reason {
    Signal(u8),
    Policy(u8),
}

/// Serves until a signal (`Exit::Signal`) or until policy ends it.
pub fn foreground(mut f: Foreground) -> Result<Exit, Error> {
    let token = secret("read the token from", &f.token_file, limits::TOKEN_BYTES)?;
    let key = match &f.key_file {
        Some(path) => secret("read the key from", path, limits::KEY_BYTES)?,
        None if f.provider.key_required => {
            return Err(
                Error::wrong("start", "the relay", "this provider needs a key").remedy("give --key-file")
            );
        }
        None => Secret::new(Vec::new()),
    };
    let rules = start::rules_of(&f.provider)?;
    let password = match (&f.proxy_auth, &mut f.upstream.proxy) {
        (Some(file), Some(proxy)) => {
            let (user, password) = proxy::credentials(file)?;
            proxy.user = Some(user);
            Some(password)
        }
        _ => None,
    };
    upstream::prepare(&mut f.upstream)?;
    // From here on no descriptor but the standard three is open that we did not open ourselves.
    proc::harden(&[]).map_err(|e| Error::fault("harden", "the relay", e))?;
    let signals = proc::catch_signals().map_err(|e| Error::fault("catch", "signals", e))?;
    let listener = listen(&f.listen)?;
    let address = listener.address();
    let meter = Meter::new(f.caps, &f.provider);
    let (log, bodies) = recalled(f.log_dir.as_deref(), f.log_bodies, &meter, &f.provider)?;
    let features = confinement::confined(&f.upstream, bodies.as_ref())?;
    let (send, reasons) = mpsc::channel();
    let at_end = send.clone();
    let quiet = f.quiet;
    let (serving_at, place) = (shown(&f.listen, address), upstream::shown(&f.upstream));
    let serving = Arc::new(Serving::new(Parts {
        hosts: hosts(&f.hosts, address),
        provider: f.provider,
        rules,
        peer_uid: None,
        grants: f.grants,
        meter,
        token,
        key,
        named: f.named,
        pool: Pool::new(f.upstream, password),
        log,
        bodies: bodies.map(Bodies::new),
        tell: Box::new(move |note| tell(&note, quiet)),
        ended: Box::new(move |stop| drop(at_end.send(Reason::Policy(stop.exit)))),
    }));
    start::started(&serving)?;
    serving.grants.weaker().iter().for_each(|line| say(line));
    let record = f
        .log_dir
        .map_or_else(|| "no record is kept (--log-dir)".into(), |d| format!("record in {}", d.display()));
    say(&format!(
        "serving {} at {place} on {serving_at}; {}; {record}",
        serving.provider.name,
        features.join(", ")
    ));
    start::in_background(listener, &serving)?;
    watch(signals, send)?;
    let reason = reasons.recv().unwrap_or(Reason::Policy(Exit::Fault.code()));
    match reason {
        Reason::Signal(n) => {
            let closed = serving.close("a signal");
            closed.map_err(|e| Error::fault("write", "the record of calls", e))?;
            Ok(Exit::Signal(n))
        }
        Reason::Policy(code) if code == Exit::Policy.code() => Ok(Exit::Policy),
        Reason::Policy(code) if code == Exit::Cap.code() => Ok(Exit::Cap),
        Reason::Policy(_) => Ok(Exit::Fault),
    }
}

/// A file's content without the white space around it. It is the caller's own file: links and pipes are fine.
fn secret(doing: &'static str, path: &Path, most: usize) -> Result<Secret, Error> {
    #[expect(
        clippy::disallowed_methods,
        reason = "FILE-21 --token-file and --key-file of the relay in the foreground"
    )]
    let read = file::read_named(path, u64::try_from(most).unwrap_or(u64::MAX));
    let mut bytes = read.map_err(|e| Error::wrong(doing, path.display().to_string(), e))?;
    let trimmed = bytes.trim_ascii().to_vec();
    bytes.fill(0);
    // What else a header could not hold, or would hold as two.
    if trimmed.is_empty() || !trimmed.iter().all(u8::is_ascii_graphic) {
        let why = "it must hold one line of visible ASCII, without white space in it";
        return Err(Error::wrong(doing, path.display().to_string(), why));
    }
    Ok(Secret::new(trimmed))
}

fn listen(on: &Listen) -> Result<Listener, Error> {
    let listener = match on {
        #[expect(clippy::disallowed_methods, reason = "NET-22 the relay in the foreground, TCP")]
        Listen::Tcp(address) => net::listen_tcp(*address),
        Listen::Unix(path) => {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
            #[expect(
                clippy::disallowed_methods,
                reason = "NET-23 the relay in the foreground, Unix socket of its user alone"
            )]
            net::listen_unix(dir, name, 0o600)
        }
    };
    listener.map_err(|e| Error::wrong("listen on", shown(on, None), e))
}

fn shown(on: &Listen, address: Option<SocketAddr>) -> String {
    match on {
        Listen::Tcp(asked) => format!("tcp:{}", address.unwrap_or(*asked)),
        Listen::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// What was given, with and without our port, and the listening address itself.
fn hosts(given: &[String], address: Option<SocketAddr>) -> Vec<String> {
    let mut all = Vec::new();
    let named = given.iter().map(|h| h.to_ascii_lowercase());
    let own = ["localhost".to_string()].into_iter().chain(address.map(|a| match a {
        SocketAddr::V4(a) => a.ip().to_string(),
        SocketAddr::V6(a) => format!("[{}]", a.ip()),
    }));
    for host in named.chain(own) {
        if let Some(a) = address {
            all.push(format!("{host}:{}", a.port()));
        }
        all.push(host);
    }
    all
}

/// What earlier relays on the same log spent counts here.
fn recalled(
    dir: Option<&Path>,
    bodies: bool,
    meter: &Meter,
    provider: &Provider,
) -> Result<(Log, Option<Dir>), Error> {
    let mut past = Past::new(meter, provider);
    let opened = open_log(dir, bodies, &mut |line| past.line(line))?;
    past.end();
    let spent = meter.spent();
    if spent.calls > 0 && !meter.caps().none() {
        say(&format!("{} calls, {} and {} tokens were used before", spent.calls, spent.money, spent.tokens));
    }
    Ok(opened)
}

/// The log of an earlier relay in the same place is gone on with.
fn open_log(
    dir: Option<&Path>,
    bodies: bool,
    seen: &mut dyn FnMut(&Line),
) -> Result<(Log, Option<Dir>), Error> {
    let Some(path) = dir else {
        return Ok((Log::none(), None));
    };
    let bad = |e: std::io::Error| Error::wrong("open", format!("{}/calls.jsonl", path.display()), e);
    #[expect(clippy::disallowed_methods, reason = "FILE-22 --log-dir of the relay in the foreground")]
    let dir = Dir::make_all(path, 0o700).map_err(bad)?;
    let log = dir.append("calls.jsonl").map_err(bad)?;
    let log = Log::open(File::from(log), seen)?;
    let bodies = bodies.then(|| dir.make_or_open(DIRECTORY, 0o700)).transpose().map_err(bad)?;
    Ok((log, bodies))
}

/// A thread that waits for signals.
fn watch(signals: OwnedFd, send: mpsc::Sender<Reason>) -> Result<(), Error> {
    let wait = move || {
        let (pipe, mut byte) = (Conn::new(signals), [0u8; 1]);
        loop {
            match pipe.read(&mut byte, limits::KEEPALIVE_TIME) {
                Err(e) if e.kind() == ErrorKind::TimedOut => {}
                Ok(1) => return drop(send.send(Reason::Signal(byte[0]))),
                _ => return,
            }
        }
    };
    #[expect(clippy::disallowed_methods, reason = "THREAD-22 waits for signals")]
    let thread = serve::spawn("signals", Box::new(wait));
    thread.map(|_| ()).map_err(|e| Error::fault("start", "a thread", e))
}

/// A line for a person. Everything that came from outside is escaped here, or was when it was made (`Denied`).
fn tell(note: &Note, quiet: bool) {
    match note {
        Note::Body(kept) if !quiet => say(&kept.line()),
        Note::Call(c) if !quiet => {
            let count = |name: &str, n: Option<u64>| n.map_or_else(String::new, |n| format!(" {name}={n}"));
            let mut usage = count("in", c.input)
                + &count("cache_write", c.cache_write)
                + &count("cache_read", c.cache_read);
            usage += &count("out", c.output);
            if c.owed && (usage.is_empty() || c.guessed) {
                usage.push_str(" usage=?");
            }
            let cost =
                c.cost.map_or_else(String::new, |d| format!(" {}{d}", if c.guessed { "<=" } else { "" }));
            let clamped = if c.clamped.is_empty() {
                String::new()
            } else {
                format!(" clamped={}", text::escaped(&c.clamped.join(",")))
            };
            let tenths = c.millis.saturating_add(50) / 100;
            let time = format!("{}.{}s", tenths / 10, tenths % 10);
            let tries = if c.tries > 1 { format!(" tries={}", c.tries) } else { String::new() };
            let why = c.why.as_ref().map_or_else(String::new, |w| format!(": {}", text::escaped(w)));
            say(&format!(
                "{} {} -> {}{usage}{cost}{clamped}{tries} {time}{why}",
                c.method,
                text::escaped(&c.path),
                c.status
            ));
        }
        Note::Again(again) if !quiet => say(&again.line()),
        Note::Denied(d) if !quiet => {
            let remedy = if d.remedy.is_empty() { String::new() } else { format!(" ({})", d.remedy) };
            say(&format!("REFUSED {} {} -> {}: {}{remedy}", d.method, d.path, d.status, d.why));
        }
        Note::Warning(warning) => say(&text::escaped(&warning.line)),
        Note::End(stop) => say(&format!("ended: {}", text::escaped(&stop.why))),
        _ => {}
    }
}

/// A closed standard error is no reason to stop, nor is one that nobody reads: calls and the end must not wait for it, so its lines are
/// lost until it takes bytes again.
fn say(line: &str) {
    static STALLED: AtomicBool = AtomicBool::new(false);
    let mut err = std::io::stderr().lock();
    // A page at a time: so much never blocks where poll(2) says that there is room.
    for piece in format!("relay: {line}\n").as_bytes().chunks(4096) {
        let wait = if STALLED.load(Ordering::Relaxed) { Duration::ZERO } else { limits::SHOW_STALL };
        let takes = pipes::takes_bytes(err.as_fd(), wait);
        STALLED.store(!takes, Ordering::Relaxed);
        if !takes || err.write_all(piece).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::hosts;

    #[test]
    fn hosts_with_and_without_port() {
        let address = "127.0.0.1:80".parse().ok();
        let got = hosts(&["Relay.Test".into()], address);
        assert_eq!(
            got,
            ["relay.test:80", "relay.test", "localhost:80", "localhost", "127.0.0.1:80", "127.0.0.1"]
        );
        assert_eq!(hosts(&[], None), ["localhost"]);
    }
}
