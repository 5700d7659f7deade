//! The keeper role: starts relay and box, waits, removes both. The asker's pipe is its life: a line `go` starts the box, `end` or
//! the end of the pipe ends everything. It ignores signals, reads nothing the box says but an engine's last words, and holds no
//! key. One thread: the parent-death signal of its children is bound to it. Started by `life`.

use crate::error::{Error, Exit};
use crate::limits;
use crate::run::order::{Exited, Failed, Gone, Order, Said, Started, line};
use crate::run::{channel, state};
use crate::sys::exec::{self, Child, Ended, Feed};
use crate::sys::file::Dir;
use crate::sys::net::{self, Conn};
use crate::sys::proc;
use std::ffi::OsString;
use std::io::Write;
use std::time::{Duration, Instant};

/// The role: `sanduk keeper`.
pub fn role() -> Result<Exit, Error> {
    let fault = |e: std::io::Error| Error::fault("keep", "a run", e);
    proc::ignore_signals().map_err(fault)?;
    let mut asker = Asker::new().map_err(fault)?;
    let order: Order = asker.order().map_err(fault)?;
    let fds = order.relay.fds;
    let keep = [fds.listener, fds.secrets, fds.log, fds.notes];
    proc::harden(&keep).map_err(fault)?;
    let mut kept = Kept { relay: None, engine: None };
    match start_relay(&order) {
        Ok(relay) => kept.relay = Some(relay),
        Err(e) => {
            say(&Said::Failed(Failed { engine: false, why: format!("the relay could not be started: {e}") }))
        }
    }
    let word = if kept.relay.is_some() { kept.watch(&mut asker, &order) } else { Word::Nothing };
    let left = kept.remove(&order);
    // An asker that lives says `end`, and drops its record itself, after the report and the receipt.
    if matches!(asker.last(word), Word::Hung) && left.is_empty() {
        forget(&order);
    }
    say(&Said::Gone(Gone { left }));
    Ok(Exit::Ok)
}

/// Relay and box, and what they said last.
struct Kept {
    relay: Option<Watched>,
    engine: Option<Watched>,
}

/// A child with the pipes we hold of it.
struct Watched {
    child: Child,
    /// Our end of its standard input: closing it tells the relay to end.
    life: Option<Conn>,
    /// The engine's status lines.
    status: Option<Conn>,
    errors: Option<Conn>,
    /// The last of `errors`.
    words: Vec<u8>,
    /// PID 1 of the box with its start time.
    first: Option<(u32, u64)>,
}

impl Kept {
    /// Waits for the asker, the relay or the box to end; `Nothing` where it was not the asker.
    fn watch(&mut self, asker: &mut Asker, order: &Order) -> Word {
        loop {
            match asker.line(limits::KEEPER_LOOK) {
                Word::Go if self.engine.is_none() => match start_box(order) {
                    Ok(engine) => {
                        say(&Said::BoxStarted(Started { pid: engine.child.id() }));
                        self.engine = Some(engine);
                    }
                    Err(e) => {
                        say(&Said::Failed(Failed {
                            engine: true,
                            why: format!("{}: {e}", order.engine.display()),
                        }));
                    }
                },
                word @ (Word::End | Word::Hung) => return word,
                Word::Go | Word::Nothing => {}
            }
            for (watched, relay) in [(&mut self.relay, true), (&mut self.engine, false)] {
                let Some(watched) = watched else { continue };
                if let Some(exited) = watched.look() {
                    say(&if relay { Said::RelayExited(exited) } else { Said::BoxExited(exited) });
                    return Word::Nothing;
                }
            }
        }
    }

    /// Ends the box first, so that it calls nothing more, then the relay, then removes their channel. Returns why it is still
    /// there, or nothing.
    fn remove(&mut self, order: &Order) -> String {
        if let Some(engine) = &mut self.engine {
            engine.end_box();
        }
        if let Some(mut relay) = self.relay.take() {
            relay.life = None;
            if !matches!(relay.child.wait(limits::RELAY_END), Ok(Some(_))) {
                relay.child.kill();
                let _ = relay.child.wait(limits::RELAY_END);
            }
        }
        match channel::remove(&order.channel.0, order.channel.1) {
            Ok(()) => String::new(),
            Err(e) => format!("{}: {e}", channel::path(&order.channel.0).display()),
        }
    }
}

impl Watched {
    /// Reads what there is to read, without waiting; `Some`: the child has ended.
    fn look(&mut self) -> Option<Exited> {
        let ended = self.child.wait(Duration::ZERO);
        self.read();
        let (how, code) = match ended {
            Ok(None) => return None,
            Ok(Some(Ended::Code(n))) => (format!("code {n}"), Some(n)),
            Ok(Some(Ended::Signal(n))) => (format!("signal {n}"), None),
            Err(e) => (format!("unknown: {e}"), None),
        };
        Some(Exited { how, code, words: String::from_utf8_lossy(&self.words).into_owned() })
    }

    fn read(&mut self) {
        let mut buf = [0u8; 4096];
        while let Some(n) = take(&mut self.errors, &mut buf) {
            self.words.extend_from_slice(&buf[..n]);
            let over = self.words.len().saturating_sub(limits::LAST_WORDS);
            self.words.drain(..over);
        }
        while let Some(n) = take(&mut self.status, &mut buf) {
            if self.first.is_none() {
                self.first = first_pid(&buf[..n]);
                if let Some((pid, _)) = self.first {
                    say(&Said::BoxPid(Started { pid }));
                }
            }
        }
    }

    /// Kills PID 1 of the box and waits for the engine, which ends only when the kernel has ended all of the box: killing the
    /// engine alone would return while processes of the box still die.
    fn end_box(&mut self) {
        self.read();
        if let Some((pid, start)) = self.first
            && matches!(self.child.wait(Duration::ZERO), Ok(None))
        {
            if proc::start_time(pid).ok().flatten() == Some(start)
                && let Ok(pid) = i32::try_from(pid)
            {
                let _ = proc::signal(pid, SIGKILL);
            }
            let _ = self.child.wait(limits::RELAY_END);
        }
        self.child.kill();
        let _ = self.child.wait(limits::RELAY_END);
    }
}

/// signal(7).
const SIGKILL: i32 = 9;

/// Bytes that are there now; the pipe is dropped at its end.
fn take(pipe: &mut Option<Conn>, buf: &mut [u8]) -> Option<usize> {
    let conn = pipe.as_ref().filter(|c| c.readable())?;
    match conn.read(buf, Duration::ZERO) {
        Ok(n) if n > 0 => Some(n),
        _ => {
            *pipe = None;
            None
        }
    }
}

/// `{ "child-pid": 123 … }`, bwrap's first status line.
fn first_pid(bytes: &[u8]) -> Option<(u32, u64)> {
    let line = bytes.split(|b| *b == b'\n').next()?;
    let status: serde_json::Value = serde_json::from_slice(line).ok()?;
    let pid = u32::try_from(status.get("child-pid")?.as_u64()?).ok()?;
    Some((pid, proc::start_time(pid).ok()??))
}

fn start_relay(order: &Order) -> std::io::Result<Watched> {
    let fds = order.relay.fds;
    let mut inherit = Vec::with_capacity(4);
    for number in [fds.listener, fds.secrets, fds.log, fds.notes] {
        inherit.push(net::inherited(number)?);
    }
    let order_line = line(&order.relay)?;
    let what = exec::Order {
        program: exec::own()?,
        args: vec!["relay-role".into()],
        env: Vec::new(),
        stdin: Feed::Pipe,
        stdout: Feed::Null,
        stderr: Feed::Pipe,
        inherit,
        user: None,
        cwd: "/".into(),
        own_group: true,
    };
    #[expect(clippy::disallowed_methods, reason = "EXEC-40 the relay role of this program")]
    let child = exec::start_bound(what)?;
    let mut watched = watch(child);
    if let Some(life) = &watched.life {
        life.write_all(&[&order_line], limits::RELAY_START)?;
    }
    watched.status = None;
    Ok(watched)
}

fn start_box(order: &Order) -> std::io::Result<Watched> {
    let what = exec::Order {
        program: order.engine.clone(),
        args: order.args.iter().map(OsString::from).collect(),
        env: Vec::new(),
        stdin: Feed::Null,
        stdout: Feed::Pipe,
        stderr: Feed::Pipe,
        inherit: Vec::new(),
        user: order.user,
        cwd: "/".into(),
        own_group: true,
    };
    #[expect(clippy::disallowed_methods, reason = "EXEC-41 the engine: bwrap, as the box's user")]
    let child = exec::start_bound(what)?;
    Ok(watch(child))
}

fn watch(mut child: Child) -> Watched {
    let life = child.stdin().map(Conn::new);
    let status = child.stdout().map(Conn::new);
    let errors = child.stderr().map(Conn::new);
    Watched { child, life, status, errors, words: Vec::new(), first: None }
}

/// Our asker died: its record goes too, unless a sweep is at it already.
fn forget(order: &Order) {
    #[expect(
        clippy::disallowed_methods,
        reason = "FILE-49 the directory of records, to drop the dead asker's"
    )]
    let Ok(runs) = Dir::open(&order.runs) else { return };
    let Ok(dir) = runs.below(&order.id) else { return };
    if let Ok(Some(_lock)) = dir.lock(state::RECORD) {
        let _ = runs.remove_tree(&order.id);
    }
}

/// What the asker wants.
enum Word {
    Go,
    End,
    /// The pipe ended: the asker is dead.
    Hung,
    Nothing,
}

/// Standard input, by lines.
struct Asker {
    conn: Conn,
    buf: Vec<u8>,
    ended: bool,
}

impl Asker {
    fn new() -> std::io::Result<Asker> {
        Ok(Asker { conn: Conn::new(net::inherited(0)?), buf: Vec::new(), ended: false })
    }

    fn order(&mut self) -> std::io::Result<Order> {
        let until = Instant::now() + limits::RELAY_START;
        while !self.buf.contains(&b'\n') {
            if self.ended || Instant::now() > until {
                return Err(std::io::Error::other("the order did not come"));
            }
            self.more(limits::RELAY_START);
        }
        let line = self.cut().unwrap_or_default();
        serde_json::from_slice(&line).map_err(std::io::Error::other)
    }

    fn line(&mut self, wait: Duration) -> Word {
        if !self.buf.contains(&b'\n') && !self.ended {
            self.more(wait);
        }
        match self.cut().as_deref() {
            Some(b"go") => Word::Go,
            Some(b"end") => Word::End,
            _ if self.ended => Word::Hung,
            _ => Word::Nothing,
        }
    }

    /// The asker's last word, where `word` was none: told that box or relay has ended, it says `end` if it is alive.
    fn last(&mut self, mut word: Word) -> Word {
        let until = Instant::now() + limits::CONTROL_TIME;
        while !matches!(word, Word::End | Word::Hung) && Instant::now() < until {
            word = self.line(limits::KEEPER_LOOK);
        }
        word
    }

    fn more(&mut self, wait: Duration) {
        let mut piece = [0u8; 16 * 1024];
        match self.conn.read(&mut piece, wait) {
            Ok(0) => self.ended = true,
            Ok(n) => self.buf.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::TimedOut => {}
            Err(_) => self.ended = true,
        }
    }

    fn cut(&mut self) -> Option<Vec<u8>> {
        let end = self.buf.iter().position(|b| *b == b'\n')?;
        let mut line: Vec<u8> = self.buf.drain(..=end).collect();
        line.pop();
        Some(line)
    }
}

/// To the asker, who may be gone.
fn say(said: &Said) {
    if let Ok(line) = line(said) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}
