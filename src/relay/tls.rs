//! `openssl s_client` as a TLS transport: one child per upstream connection, called by `relay/upstream` and `relay/preflight`.
//! Writes nothing before the peer is verified, never takes a cut stream for a finished one, leaves no child behind.
//! The requirements below were each measured on OpenSSL 3.0; `tests/tls.rs` has a test of the same number for each.
//
// Who is at the other end
//  1. MUST pass -verify_return_error: without it s_client reports a bad certificate and sends the request all the same.
//  2. MUST pass -verify_hostname with a checked, non-empty name: any certificate of a trusted CA passes otherwise. An empty name
//     switches the check off, and one with a leading dot matches every name below it (X509_check_host(3)): both are refused here.
//  3. MUST, for an address instead of a name, pass -verify_ip and -noservername (RFC 6066 section 3: no literals in SNI).
//  4. MUST name the one source of trust and switch the others off (-no-CAfile, -no-CApath, -no-CAstore).
//  5. MUST refuse TLS 1.1 and older, and offer http/1.1 only.
//  6. MUST write nothing until the lines "CONNECTION ESTABLISHED", "Verification: OK" and (by name) "Verified peername: …" have
//     come whole. It is the second lock: s_client does not read its standard input before that either.
// What is sent and read
//  7. MUST pass -nocommands: a line that starts with Q, R, k, K or B is a command otherwise, and the body is eaten.
//  8. MUST watch both directions while sending: a server may answer, or stop reading, before it has the whole request.
//  9. MUST keep the child's standard input open until the answer is whole: with -brief its end closes the connection.
// 10. MUST read the end of the stream from the exit code: 0 is close_notify, anything else is a cut (RFC 9112 section 9.8).
//     Hence never -ignore_unexpected_eof, which turns a cut into 0.
// 11. MUST treat a connection with anything to read, or closed, as not idle: it would answer the next request with an old byte.
// The child
// 12. MUST bound the handshake: s_client has no timeout of its own, and it tries several addresses in turn (so it gets one).
// 13. MUST drain standard error for the child's whole life: a full pipe stops it.
// 14. MUST wait for every child, killed or not: no zombie, no orphan.
// 15. MUST use -brief, not -quiet or -ign_eof: those leave an orphan with an open, authenticated connection when we are killed.
// 16. MUST give it an empty environment (but for a proxy's password, in one variable of ours) and an absolute path: OPENSSL_CONF and LD_PRELOAD load code, SSL_CERT_FILE widens trust,
//     SSLKEYLOGFILE writes the session's keys. The system's own openssl.cnf, which root owns, stays in force.
// 17. MUST keep the key out of argv: arguments are made from `Upstream` and one address, which hold no secret.
// 18. MUST keep no TLS session (-sess_out, -sess_in): it puts secrets on disk and loses the "Verified peername" line.
// 19. MUST refuse LibreSSL and OpenSSL 1.x: they lack flags that 1, 2, 4, 7 need.
// 20. MUST search its words for whole lines, never compare all of them: versions differ ("Connecting to …" since 3.2).

use crate::limits;
use crate::relay::start::Upstream;
use crate::sys::exec::{self, Child, Ended, Feed, Order};
use crate::sys::pipes::{Pipes, Which};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A verified TLS connection: bytes written are encrypted to the checked peer, bytes read came from it. Dropped: the connection
/// is closed, the child waited for, after `limits::TLS_RETIRE_TIME` by force.
pub struct Session {
    pipes: Pipes,
    child: Child,
}

/// How a session's byte stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The peer said close_notify: a close-delimited body is whole.
    Clean,
    /// Anything else.
    Cut,
}

impl Session {
    /// Starts the child, waits for the handshake and the two verification lines. Writes nothing before. The error text is one
    /// line: `certificate has expired`, `no answer within 10 s`… Its kind is `TimedOut` only for the latter.
    /// `env` is the child's whole environment: empty, or the proxy's password.
    pub fn connect(
        upstream: &Upstream,
        address: SocketAddr,
        env: Vec<(String, OsString)>,
    ) -> io::Result<Session> {
        Session::connect_within(upstream, address, env, limits::CONNECT_TIME)
    }

    /// `connect` with another limit for TCP, proxy and TLS handshake together.
    pub fn connect_within(
        upstream: &Upstream,
        address: SocketAddr,
        env: Vec<(String, OsString)>,
        time: Duration,
    ) -> io::Result<Session> {
        let args = argv(upstream, address)?;
        let order = Order { env, ..order(&upstream.openssl, args, Feed::Pipe)? };
        #[expect(
            clippy::disallowed_methods,
            reason = "EXEC-20 openssl s_client, one per upstream connection"
        )]
        let mut child = exec::start(order)?;
        let pipes = Pipes::of(&mut child, limits::TLS_PIPE_BYTES)?;
        let mut session = Session { pipes, child };
        if let Err(e) = session.handshake(by_name(upstream), time) {
            // It sits in connect(2) or in the handshake, where it does not look at its standard input.
            session.child.kill();
            return Err(e);
        }
        Ok(session)
    }

    fn handshake(&mut self, by_name: bool, time: Duration) -> io::Result<()> {
        let start = Instant::now();
        let mut words = Vec::new();
        let mut buf = [0; 4096];
        loop {
            match self.pipes.read_errors(&mut buf) {
                Ok(0) => return Err(refusal(&words)),
                Ok(n) => {
                    let room = limits::TLS_WORDS.saturating_sub(words.len());
                    words.extend(buf.iter().take(n.min(room)));
                    if verified(&words, by_name) {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let left = time.saturating_sub(start.elapsed());
                    if !self.pipes.wait(Which { errors: true, ..Which::default() }, left)?.errors {
                        let why = format!("no answer within {} s", time.as_secs_f32());
                        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads what there is; 0 at the end of the stream. `TimedOut` after `wait` without a byte.
    pub fn read(&mut self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        let start = Instant::now();
        loop {
            // Where bytes are known to be there they are read at once; else they mostly are not, and a try would be in vain.
            if self.pipes.output_open() && !self.pipes.more_output() {
                let watch = Which { output: true, errors: true, input: false };
                let ready = self.pipes.wait(watch, wait.saturating_sub(start.elapsed()))?;
                self.drain(ready);
                if !ready.output {
                    if start.elapsed() >= wait {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    continue;
                }
            }
            match self.pipes.read_output(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Writes all parts in order; `wait` bounds each stall. Stops early with `Ok(false)` when the peer has begun to answer (an
    /// early 413) or has closed: then `read` says which.
    pub fn send(&mut self, parts: &[&[u8]], wait: Duration) -> io::Result<bool> {
        let mut slices: Vec<IoSlice> =
            parts.iter().filter(|p| !p.is_empty()).map(|p| IoSlice::new(p)).collect();
        let mut left = slices.as_mut_slice();
        let mut since = Instant::now();
        while !left.is_empty() {
            let watch = Which { input: true, output: true, errors: true };
            let ready = self.pipes.wait(watch, wait.saturating_sub(since.elapsed()))?;
            self.drain(ready);
            if ready.output || !self.pipes.output_open() {
                return Ok(false);
            }
            if ready.input {
                let some = left.get(..IOV_MAX).unwrap_or(left);
                match self.pipes.write_input(some) {
                    Ok(n) => IoSlice::advance_slices(&mut left, n),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
                since = Instant::now();
            } else if since.elapsed() >= wait {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(true)
    }

    /// What it says after the handshake matters to nobody: the exit code is the verdict.
    fn drain(&mut self, ready: Which) {
        let mut buf = [0; 4096];
        // One read per wait: a child that never stops talking cannot keep us here.
        if ready.errors {
            let _ = self.pipes.read_errors(&mut buf);
        }
    }

    /// Nothing to read and not closed: may be reused.
    pub fn idle(&self) -> bool {
        let watch = Which { output: true, ..Which::default() };
        self.pipes.output_open() && self.pipes.wait(watch, Duration::ZERO).is_ok_and(|r| !r.output)
    }

    /// After a read of 0: waits for the child (bounded) and says how the stream ended. Before that: `Cut`.
    pub fn end(mut self) -> End {
        if self.pipes.output_open() {
            return End::Cut;
        }
        match self.child.wait(limits::TLS_END_TIME) {
            Ok(Some(Ended::Code(0))) => End::Clean,
            _ => End::Cut,
        }
    }

    /// The child's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // An idle child says close_notify and goes; one that writes gets EPIPE. `Child` kills and waits for what is left.
        self.pipes.close();
        let _ = self.child.wait(limits::TLS_RETIRE_TIME);
    }
}

/// Linux takes at most so many parts in one writev (`limits.h`).
const IOV_MAX: usize = 1024;

fn order(openssl: &str, args: Vec<OsString>, stdin: Feed) -> io::Result<Order> {
    if !openssl.starts_with('/') {
        return Err(invalid(format!("not an absolute path: {openssl:?}")));
    }
    Ok(Order {
        program: PathBuf::from(openssl),
        args,
        env: Vec::new(),
        stdin,
        stdout: Feed::Pipe,
        stderr: Feed::Pipe,
        inherit: Vec::new(),
        user: None,
        cwd: PathBuf::from("/"),
        // A Ctrl-C at the terminal of `sanduk relay` must not reach it before us.
        own_group: true,
    })
}

fn by_name(upstream: &Upstream) -> bool {
    upstream.host.parse::<IpAddr>().is_err()
}

/// The arguments after the program's name. Pure; `audit/argv.txt` shows every form.
pub fn argv(upstream: &Upstream, address: SocketAddr) -> io::Result<Vec<OsString>> {
    let host = upstream.host.as_str();
    let mut args = vec!["s_client", "-brief", "-nocommands", "-verify_quiet", "-verify_return_error"];
    if by_name(upstream) {
        if !plain_name(host) {
            return Err(invalid(format!("not a host name: {host:?}")));
        }
        args.extend(["-verify_hostname", host, "-servername", host]);
    } else {
        args.extend(["-verify_ip", host, "-noservername"]);
    }
    args.extend(["-alpn", "http/1.1", "-min_protocol", "TLSv1.2"]);
    match &upstream.ca_file {
        // The child's directory is "/", so a relative path would name another file.
        Some(file) if !file.starts_with('/') => {
            return Err(invalid(format!("CA file: not an absolute path: {file:?}")));
        }
        Some(file) => args.extend(["-CAfile", file, "-no-CApath", "-no-CAstore"]),
        None => args.extend(["-CApath", "/etc/ssl/certs", "-no-CAfile", "-no-CAstore"]),
    }
    // The proxy looks the name up, so it gets the name.
    let (at, through) = (address.to_string(), format!("{host}:{}", upstream.port));
    match &upstream.proxy {
        None => args.extend(["-connect", &at]),
        // OpenSSL 3.0 sends an IPv6 address without its brackets.
        Some(_) if host.contains(':') => {
            return Err(invalid("an IPv6 address cannot be reached through a proxy".into()));
        }
        Some(proxy) => {
            args.extend(["-connect", &through, "-proxy", &at]);
            if let Some(user) = &proxy.user {
                args.extend(["-proxy_user", user, "-proxy_pass", PASSWORD]);
            }
        }
    }
    Ok(args.into_iter().map(OsString::from).collect())
}

/// Where openssl finds the proxy's password: `relay/proxy` gives it that variable.
const PASSWORD: &str = "env:SANDUK_PROXY_PASSWORD";

/// Letters, digits, hyphens and dots; no empty label (so no leading or trailing dot), no leading hyphen (it would be an option).
fn plain_name(host: &str) -> bool {
    host.len() <= 253
        && !host.starts_with('-')
        && host
            .split('.')
            .all(|label| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
}

/// Only whole lines count: the last one may still be on its way.
fn verified(words: &[u8], by_name: bool) -> bool {
    let mut lines: Vec<&[u8]> = words.split(|&b| b == b'\n').collect();
    lines.pop();
    let said = |line: &[u8]| lines.contains(&line);
    let named =
        lines.iter().any(|l| l.strip_prefix(b"Verified peername: ").is_some_and(|name| !name.is_empty()));
    said(b"CONNECTION ESTABLISHED") && said(b"Verification: OK") && (named || !by_name)
}

/// One clean line from what openssl printed before it gave up.
fn refusal(words: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(words);
    let kind = if text.contains("connect:errno=") {
        io::ErrorKind::ConnectionRefused
    } else {
        io::ErrorKind::InvalidData
    };
    let why = text
        .lines()
        .find_map(|l| l.strip_prefix("verify error:num=")?.split_once(':').map(|(_, why)| why.to_string()))
        .or_else(|| text.lines().find_map(tunnel))
        .or_else(|| text.lines().find_map(queued))
        .or_else(|| text.lines().find(|l| !l.trim().is_empty()).map(str::to_string))
        .unwrap_or_else(|| "openssl ended without a word".to_string());
    let clean: String = why.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(200).collect();
    io::Error::new(kind, clean)
}

/// The reason in a line of OpenSSL's error queue: `THREAD:error:CODE:LIBRARY:FUNCTION:REASON:FILE:LINE:DATA`.
fn queued(line: &str) -> Option<String> {
    let mut parts = line.split(':').skip_while(|p| *p != "error").skip(4);
    let reason = parts.next().filter(|r| !r.is_empty())?;
    let file = line.split_once("calling fopen(").map(|(_, rest)| rest.split(", ").next().unwrap_or(rest));
    Some(match file {
        Some(file) => format!("CA file {file}: {reason}"),
        None => reason.to_string(),
    })
}

/// What a proxy answered instead of opening a tunnel.
fn tunnel(line: &str) -> Option<String> {
    let reason = line.split_once("HTTP CONNECT failed, reason= ")?.1;
    Some(match reason.starts_with("407") {
        true => format!("the proxy wants credentials, or others than these: {reason}"),
        false => format!("the proxy opens no tunnel: {reason}"),
    })
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Runs `openssl version`, once, before confinement. `Ok`: its name and number, `OpenSSL 3.0.19`. `Err`: one line with the reason
/// and what to do.
pub fn check_openssl(path: &str) -> Result<String, String> {
    let remedy = "install OpenSSL 3 (Debian: apt install openssl; macOS: brew install openssl@3)";
    let said = version(path).map_err(|e| format!("cannot run {path} version: {e}; {remedy}"))?;
    let mut words = said.split_ascii_whitespace();
    let (name, number) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let shown: String = said.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(60).collect();
    if name == "OpenSSL" && number.starts_with("3.") {
        return Ok(format!("{name} {number}"));
    }
    Err(format!("{path} is {shown:?}, which cannot check a host name as the relay needs it; {remedy}"))
}

fn version(path: &str) -> io::Result<String> {
    let order = order(path, vec!["version".into()], Feed::Pipe)?;
    #[expect(clippy::disallowed_methods, reason = "EXEC-21 openssl version, once before confinement")]
    let mut child = exec::start(order)?;
    let pipes = Pipes::of(&mut child, limits::TLS_PIPE_BYTES)?;
    let mut session = Session { pipes, child };
    let mut said = Vec::new();
    let mut buf = [0; 4096];
    while said.len() < buf.len() {
        match session.read(&mut buf, limits::CONNECT_TIME)? {
            0 => break,
            n => said.extend(buf.iter().take(n)),
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}
