//! Everything that happens during a run arrives here, on one queue: threads wait for signals, the keeper, the relay's notes and the
//! box's events, and `Watch` turns what they tell into how the run ends. It only ever waits with a bound, and the queue is bounded:
//! what is not taken from it stays in the box. Called by `life`.

use crate::error::Error;
use crate::limits;
use crate::relay::budget::Spent;
use crate::relay::note::{Note, Ready, Stop};
use crate::run::control::{self, Client};
use crate::run::held::{Held, Pipes};
use crate::run::order::{Exited, Said};
use crate::run::read::Reader;
use crate::run::receipt::Tally;
use crate::run::show::Show;
use crate::sys::net::Conn;
use crate::sys::{proc, serve};
use crate::wire::control::{Event, TurnEnd, What};
use serde::de::DeserializeOwned;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// One thing that happened.
pub enum News {
    /// This signal reached us.
    Signal(u8),
    /// A line of the keeper.
    Keeper(Said),
    /// The keeper's pipe ended.
    KeeperEnd,
    /// A line of the relay.
    Note(Note),
    /// The relay's pipe ended: it is dead.
    NotesEnd,
    /// From the box.
    Box(control::News),
}

/// How a run ends.
#[derive(Debug)]
pub enum Ending {
    /// The agent's turn ended; how well, says its reader.
    Turn,
    /// The relay cannot or must not go on.
    Relay(Stop),
    /// `--timeout`.
    Timeout,
    /// A signal reached us.
    Signal(u8),
    /// The engine could not start the box: its last words.
    Engine(String),
    /// The box does not behave: why.
    Box(String),
    /// A process of ours is gone: which.
    Lost(String),
}

/// What a run's threads have told so far.
pub struct Watch<'a> {
    /// The queue.
    pub news: Receiver<News>,
    /// Where to show things.
    pub show: &'a mut Show,
    /// Calls and refusals.
    pub tally: Tally,
    /// What confines the relay.
    pub features: Vec<String>,
    /// What is used of the caps.
    pub spent: Spent,
    /// How the agent's process ended.
    pub agent: Option<TurnEnd>,
    /// How the relay ended, once the keeper has said it.
    relay: Option<Exited>,
    started: bool,
}

/// Longest line of keeper or relay; they are ours, and theirs are short.
const LINE: usize = 1024 * 1024;
/// How often the status line moves.
const TICK: Duration = Duration::from_millis(250);

/// Signals that reach us from here on, for the whole run.
pub fn signals(tell: &SyncSender<News>) -> Result<(), Error> {
    let fault = |e: io::Error| Error::fault("catch", "signals", e);
    let conn = Conn::new(proc::catch_signals().map_err(fault)?);
    let tell = tell.clone();
    let body = Box::new(move || {
        let mut byte = [0u8; 1];
        loop {
            match conn.read(&mut byte, Duration::from_secs(3600)) {
                Ok(1) if tell.send(News::Signal(byte[0])).is_ok() => {}
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {}
                _ => return,
            }
        }
    });
    #[expect(clippy::disallowed_methods, reason = "THREAD-40 signals that reach a run")]
    serve::spawn("signals", body).map(drop).map_err(fault)
}

/// What keeper and relay say.
pub fn pipes(pipes: Pipes, tell: &SyncSender<News>) -> Result<(), Error> {
    let fault = |e: io::Error| Error::fault("follow", "keeper and relay", e);
    let to = tell.clone();
    let body = Box::new(move || {
        lines(&pipes.keeper, |said| to.send(News::Keeper(said)).is_ok());
        let _ = to.send(News::KeeperEnd);
    });
    #[expect(clippy::disallowed_methods, reason = "THREAD-41 what the keeper says")]
    serve::spawn("keeper", body).map_err(fault)?;
    let Some(notes) = pipes.notes else { return Ok(()) };
    let to = tell.clone();
    let body = Box::new(move || {
        lines(&notes, |note| to.send(News::Note(note)).is_ok());
        let _ = to.send(News::NotesEnd);
    });
    #[expect(clippy::disallowed_methods, reason = "THREAD-42 the relay's notes")]
    serve::spawn("notes", body).map(drop).map_err(fault)
}

/// Hands the box its turn and follows its events. `start`: a `wire::control::Start` as JSON.
pub fn events(client: Client, start: Vec<u8>, tell: &SyncSender<News>) -> Result<(), Error> {
    let tell = tell.clone();
    let body = Box::new(move || client.follow(&start, &|news| tell.send(News::Box(news)).is_ok()));
    #[expect(clippy::disallowed_methods, reason = "THREAD-43 the control client")]
    let spawned = serve::spawn("control", body);
    spawned.map(drop).map_err(|e| Error::fault("follow", "the box", e))
}

/// Reads JSON lines until the pipe ends, a line is none of ours, or `each` returns false.
fn lines<T: DeserializeOwned>(conn: &Conn, each: impl Fn(T) -> bool) {
    let mut buf = Vec::new();
    let mut piece = [0u8; 16 * 1024];
    loop {
        while let Some(end) = buf.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = buf.drain(..=end).collect();
            if !serde_json::from_slice(&line).is_ok_and(&each) {
                return;
            }
        }
        match conn.read(&mut piece, Duration::from_secs(3600)) {
            Ok(n @ 1..) if buf.len() <= LINE => buf.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {}
            _ => return,
        }
    }
}

impl<'a> Watch<'a> {
    /// Nothing has happened yet.
    pub fn new(news: Receiver<News>, show: &'a mut Show) -> Watch<'a> {
        Watch {
            news,
            show,
            tally: Tally::default(),
            features: Vec::new(),
            spent: Spent::default(),
            agent: None,
            relay: None,
            started: false,
        }
    }

    /// Waits until the relay serves: the key is good, the provider is reachable.
    pub fn until_ready(&mut self, held: &mut Held<'_>) -> Result<(), Ending> {
        let until = Instant::now() + limits::RELAY_START;
        loop {
            match self.next(until) {
                None => return Err(Ending::Lost("the relay did not become ready in time".into())),
                Some(News::Note(Note::Ready(Ready { features }))) => {
                    self.features = features;
                    return Ok(());
                }
                Some(other) => self.take(other, held)?,
            }
        }
    }

    /// Follows the box until the run ends, one way or another.
    pub fn until_end(&mut self, reader: &mut Reader<'_>, held: &mut Held<'_>, time: Duration) -> Ending {
        let until = Instant::now() + time;
        loop {
            let news = match self.next(until) {
                None => return Ending::Timeout,
                Some(news) => news,
            };
            let ended = match news {
                News::Box(control::News::Events(events)) => self.events(events, reader),
                other => self.take(other, held).err(),
            };
            if let Some(ending) = ended {
                return ending;
            }
        }
    }

    /// After the end: calls that were still under way, until the relay's pipe has ended. Gives the relay's reason to end the run where it
    /// had one: it stood in its pipe before the agent got the answer that it ended by.
    pub fn rest(&mut self, time: Duration) -> Option<Ending> {
        let until = Instant::now() + time;
        let mut stopped = None;
        while let Some(news) = self.next(until) {
            match news {
                News::Note(note) => stopped = stopped.or(self.note(note).err()),
                News::NotesEnd => break,
                _ => {}
            }
        }
        stopped
    }

    /// The next thing, moving the status line meanwhile; `None`: the time is up.
    fn next(&mut self, until: Instant) -> Option<News> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left.min(TICK)) {
                Ok(news) => return Some(news),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return None,
                Err(RecvTimeoutError::Timeout) => self.show.status(&self.tally),
            }
        }
    }

    fn take(&mut self, news: News, held: &mut Held<'_>) -> Result<(), Ending> {
        match news {
            News::Signal(number) => Err(Ending::Signal(number)),
            News::Note(note) => self.note(note),
            News::Keeper(said) => self.keeper(said, held),
            News::KeeperEnd => Err(Ending::Lost("the keeper ended".into())),
            News::NotesEnd => Err(self.relay_died()),
            News::Box(control::News::Started) => {
                self.started = true;
                Ok(())
            }
            News::Box(control::News::Lost(why)) => Err(self.box_lost(why, held)),
            // Nobody asks for events yet.
            News::Box(control::News::Events(_)) => Ok(()),
        }
    }

    fn note(&mut self, note: Note) -> Result<(), Ending> {
        match note {
            Note::Ready(Ready { features }) => self.features = features,
            Note::Again(again) => self.show.again(&again),
            Note::Call(call) => {
                self.tally.call(&call);
                self.show.call(&call, &self.tally);
            }
            Note::Body(kept) => self.show.kept(&kept),
            Note::Denied(denied) => {
                self.tally.denied += 1;
                self.show.denied(&denied);
            }
            Note::Spent(spent) => self.spent = spent,
            Note::Warning(warning) => self.show.note(&warning.line),
            Note::Refused(stop) | Note::End(stop) => return Err(Ending::Relay(stop)),
        }
        Ok(())
    }

    fn keeper(&mut self, said: Said, held: &mut Held<'_>) -> Result<(), Ending> {
        match said {
            Said::BoxStarted(engine) => held.note_process("engine", engine.pid),
            Said::BoxPid(first) => held.note_process("box", first.pid),
            Said::Container(container) => held.note("container", &container.id),
            // Nobody asked, or too late.
            Said::BoxRuns | Said::BoxUnknown(_) => {}
            Said::BoxExited(exited) => {
                let words = crate::wire::text::short(exited.words.trim(), 500);
                let words = if words.is_empty() { exited.how } else { words };
                return Err(match self.started {
                    false => Ending::Engine(words),
                    true => Ending::Lost(format!("the box ended by itself ({words})")),
                });
            }
            // The notes before its death come first: they may say why.
            Said::RelayExited(exited) => self.relay = Some(exited),
            Said::Failed(failed) if failed.engine => return Err(Ending::Engine(failed.why)),
            Said::Failed(failed) => return Err(Ending::Lost(failed.why)),
            Said::Gone(_) => return Err(Ending::Lost("the keeper gave up".into())),
        }
        Ok(())
    }

    /// The relay's pipe ended without a reason given: its last words come from the keeper, a moment later.
    fn relay_died(&mut self) -> Ending {
        let until = Instant::now() + Duration::from_secs(1);
        while self.relay.is_none() {
            match self.next(until) {
                Some(News::Keeper(Said::RelayExited(exited))) => self.relay = Some(exited),
                Some(_) => {}
                None => break,
            }
        }
        let Some(exited) = self.relay.take() else { return Ending::Lost("the relay ended".into()) };
        let words = exited.words.trim();
        match (exited.code, words.strip_prefix("sanduk: ")) {
            // It could say why, as any of our commands does.
            (Some(code @ 1..=5), Some(why)) => {
                Ending::Relay(Stop { why: why.into(), exit: u8::try_from(code).unwrap_or(1) })
            }
            _ => Ending::Lost(format!(
                "the relay ended ({} {})",
                exited.how,
                crate::wire::text::short(words, 500)
            )),
        }
    }

    /// The control client gave up: the keeper says whether the box is dead, and why. A bwrap box's death it tells by itself.
    fn box_lost(&mut self, why: String, held: &Held<'_>) -> Ending {
        let time = if held.look() { limits::ENGINE_CALL } else { Duration::from_millis(500) };
        let until = Instant::now() + time;
        let mut words = None;
        while let Some(news) = self.next(until) {
            match news {
                News::Keeper(Said::BoxExited(exited)) => {
                    words = Some(crate::wire::text::short(exited.words.trim(), 500));
                    break;
                }
                News::Keeper(Said::BoxRuns) => break,
                News::Keeper(Said::BoxUnknown(failed)) => return self.engine_lost(&failed.why, &why),
                // It never came into being.
                News::Keeper(Said::Failed(failed)) if failed.engine => return Ending::Engine(failed.why),
                News::Signal(number) => return Ending::Signal(number),
                News::Note(note) => {
                    if let Err(ending) = self.note(note) {
                        return ending;
                    }
                }
                News::NotesEnd => return self.relay_died(),
                News::KeeperEnd => return Ending::Lost("the keeper ended".into()),
                _ => {}
            }
        }
        match (words, self.started) {
            (Some(words), false) => Ending::Engine(words),
            (Some(words), true) => Ending::Lost(format!("the box ended by itself ({words})")),
            (None, _) => Ending::Box(why),
        }
    }

    /// Neither box nor engine answers: what became of the box nobody can say.
    fn engine_lost(&self, engine: &str, why: &str) -> Ending {
        let engine = crate::wire::text::short(engine.trim(), 500);
        match self.started {
            false => Ending::Engine(engine),
            true => Ending::Lost(format!("the engine does not answer ({engine}), nor does the box: {why}")),
        }
    }

    fn events(&mut self, events: Vec<Event>, reader: &mut Reader<'_>) -> Option<Ending> {
        for event in events {
            for trace in reader.push(&event.what) {
                self.show.trace(&trace);
            }
            match event.what {
                What::TurnEnd(end) => {
                    self.agent = Some(end);
                    return Some(Ending::Turn);
                }
                What::TurnFailed(_) => return Some(Ending::Turn),
                What::Stdout(_) | What::Stderr(_) => {}
            }
        }
        None
    }
}
