//! The keeper role: starts relay and box, waits, removes both. The asker's pipe is its life: a line `go …` starts the box, `end` or
//! the end of the pipe ends everything. It ignores signals, reads nothing the box says but an engine's last words, and holds no
//! key. One thread: the parent-death signal of its children is bound to it. Started by `life`.

use crate::error::{Error, Exit};
use crate::limits;
use crate::relay;
use crate::run::container::Container;
use crate::run::order::{Failed, Go, Gone, Order, Said, Started, line};
use crate::run::watched::Watched;
use crate::run::{channel, state};
use crate::sys::exec::{self, Feed};
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
    let keep = order.relay.as_ref().map(|r| r.fds.all());
    proc::harden(&keep.unwrap_or_default()).map_err(fault)?;
    let mut kept = Kept { relay: None, boxed: None };
    let word = match order.relay.as_ref().map(start_relay).transpose() {
        Ok(relay) => {
            kept.relay = relay;
            kept.watch(&mut asker, &order)
        }
        Err(e) => {
            say(&Said::Failed(Failed { engine: false, why: format!("the relay could not be started: {e}") }));
            Word::Nothing
        }
    };
    let left = kept.remove(&order, matches!(word, Word::End));
    let clean = left.is_empty();
    // An asker that lives says `end`, and drops its record itself, after the report and the receipt.
    if matches!(asker.last(word), Word::Hung) && clean {
        forget(&order);
    }
    say(&Said::Gone(Gone { left }));
    Ok(if clean { Exit::Ok } else { Exit::Failed })
}

/// Relay and box.
struct Kept {
    relay: Option<Watched>,
    boxed: Option<Boxed>,
}

enum Boxed {
    /// bwrap.
    Process(Watched),
    /// docker.
    Container(Container),
}

impl Kept {
    /// Waits for the asker, the relay or the box to end; `Nothing` where it was not the asker.
    fn watch(&mut self, asker: &mut Asker, order: &Order) -> Word {
        loop {
            let pause = match &self.boxed {
                Some(Boxed::Container(container)) => container.pause(),
                _ => limits::KEEPER_LOOK,
            };
            match asker.line(pause) {
                Word::Go(go) if self.boxed.is_none() => self.start(order, &go.args),
                Word::Look => {
                    if let Some(Boxed::Container(container)) = &self.boxed {
                        say(&container.ask());
                    }
                }
                word @ (Word::End | Word::Hung) => return word,
                Word::Go(_) | Word::Nothing => {}
            }
            if let Some(exited) = self.relay.as_mut().and_then(Watched::look) {
                say(&Said::RelayExited(exited));
                return Word::Nothing;
            }
            match &mut self.boxed {
                Some(Boxed::Process(engine)) => {
                    let ended = engine.look();
                    if let Some(pid) = engine.box_pid() {
                        say(&Said::BoxPid(Started { pid }));
                    }
                    if let Some(exited) = ended {
                        say(&Said::BoxExited(exited));
                        return Word::Nothing;
                    }
                }
                Some(Boxed::Container(container)) => {
                    if let Some(said) = container.look() {
                        say(&said);
                    }
                }
                None => {}
            }
        }
    }

    fn start(&mut self, order: &Order, args: &[String]) {
        let started = match &order.container {
            Some(container) => Container::start(container, &order.id, args).map(Boxed::Container),
            None => start_box(order, args).map(|child| {
                say(&Said::BoxStarted(Started { pid: child.child.id() }));
                Boxed::Process(child)
            }),
        };
        match started {
            Ok(boxed) => self.boxed = Some(boxed),
            Err(e) => {
                say(&Said::Failed(Failed { engine: true, why: format!("{}: {e}", order.engine.display()) }))
            }
        }
    }

    /// Ends the box first, so that it calls nothing more, then the relay, then removes their channel. Returns what is still
    /// there, and why, or nothing. A box that may still be there keeps its channel.
    fn remove(&mut self, order: &Order, orderly: bool) -> String {
        let boxed = match &mut self.boxed {
            Some(Boxed::Process(engine)) => {
                engine.end_box();
                Ok(())
            }
            Some(Boxed::Container(container)) => container.end(orderly),
            None => Ok(()),
        };
        if let Some(relay) = self.relay.take() {
            relay.end_relay();
        }
        if let Err(e) = boxed {
            return format!("the box: {e}");
        }
        match channel::remove(&order.channel.0, order.channel.1) {
            Ok(()) => String::new(),
            Err(e) => format!("{}: {e}", channel::path(&order.channel.0).display()),
        }
    }
}

fn start_relay(order: &relay::start::Order) -> std::io::Result<Watched> {
    let fds = order.fds;
    let mut inherit = Vec::with_capacity(4);
    for number in fds.all() {
        inherit.push(net::inherited(number)?);
    }
    let order_line = line(order)?;
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
    let watched = Watched::new(child);
    if let Some(life) = &watched.life {
        life.write_all(&[&order_line], limits::RELAY_START)?;
    }
    Ok(watched)
}

fn start_box(order: &Order, args: &[String]) -> std::io::Result<Watched> {
    let what = exec::Order {
        program: order.engine.clone(),
        args: args.iter().map(OsString::from).collect(),
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
    Ok(Watched::new(child))
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
    Go(Go),
    /// The box gives no answer: how is it?
    Look,
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
        let line = self.cut();
        if let Some(go) = line.as_deref().and_then(|l| l.strip_prefix(b"go ")) {
            return serde_json::from_slice(go).map_or(Word::Nothing, Word::Go);
        }
        match line.as_deref() {
            Some(b"look") => Word::Look,
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
