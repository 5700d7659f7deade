//! `calls.jsonl`: what was asked, what was allowed, how it ended. No bodies, no header values but those refused for what they
//! switch on, no secret. One JSON object per line; each holds the SHA-256 of the line before it (without its LF), the first holds
//! 64 zeros. Fields of every line: `n` from 1, `prev`, `at_ms` since the epoch, `kind`. By kind:
//! `start` `version provider upstream sealed allow_models max_tokens_cap allow_server_tools allow_fields` · `verdict` `call method
//! path bytes model streamed clamped` · `outcome` `call status ended bytes millis input cache_read cache_write output reasoning
//! cost owed complete model` (counters that were not reported are absent) · `denied` `method path status why remedy` ·
//! `denied_again` `times` (of the line before of kind `denied`) · `end` `why`. A verdict without an outcome is a call that may
//! have been charged.

use crate::relay::start::{Denied, Grants};
use crate::sys::proc;
use crate::wire::digest;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The record before the first.
pub const NO_PREV: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The open log of one relay; shared by its connections.
pub struct Log {
    /// None: a relay in the foreground without `--log-dir`; every act below is then without effect and succeeds.
    file: Option<File>,
    state: Mutex<State>,
    /// Lines written so far, so that one sync can cover several waiting calls.
    written: AtomicU64,
    /// Lines known to be on the disk. Held during the sync: who waits here is mostly served by the sync of another.
    synced: Mutex<u64>,
    calls: AtomicU64,
}

struct State {
    n: u64,
    prev: String,
    /// The last refusal written, and how often it has come again since.
    denied: Option<(Denied, u64)>,
    /// A line could not be written whole; nothing may follow it.
    broken: bool,
}

/// What a line says.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record<'a> {
    /// The relay serves.
    Start(Start<'a>),
    /// A call may go upstream.
    Verdict(Verdict<'a>),
    /// It ended.
    Outcome(Outcome<'a>),
    /// A request was refused.
    Denied(&'a Denied),
    /// The same refusal came again so many times.
    DeniedAgain(Again),
    /// The relay stops.
    End(End<'a>),
}

/// See `Record::Start`.
#[derive(Serialize)]
pub struct Start<'a> {
    /// Of this program.
    pub version: &'a str,
    /// Its name.
    pub provider: &'a str,
    /// As a person writes it.
    pub upstream: &'a str,
    /// The policy.
    #[serde(flatten)]
    pub grants: &'a Grants,
}

/// See `Record::Verdict`.
#[derive(Serialize)]
pub struct Verdict<'a> {
    /// Number of the call within this relay, from 1.
    pub call: u64,
    /// `GET` or `POST`.
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    /// Body bytes as they go upstream.
    pub bytes: u64,
    /// As in `policy::Judged`.
    pub model: Option<&'a str>,
    /// As in `policy::Judged`.
    pub streamed: bool,
    /// As in `policy::Judged`.
    pub clamped: &'a [String],
}

/// See `Record::Outcome`.
#[derive(Serialize)]
pub struct Outcome<'a> {
    /// As in its verdict.
    pub call: u64,
    /// What the client got; for an answer that was replaced, what the provider said; 0: nothing came before the relay's end.
    pub status: u16,
    /// `whole`, `cut`, `client-left`, `key-reflected`, `unreachable`, `silent`, `broken`, `stopped` (by the relay's end).
    pub ended: &'a str,
    /// Body bytes that came, as sent.
    pub bytes: u64,
    /// From the request's last byte to the answer's last.
    pub millis: u64,
    /// What the answer reported.
    #[serde(flatten)]
    pub counts: Counts<'a>,
}

/// `usage::Usage` in the order of the log.
#[derive(Default, Serialize)]
pub struct Counts<'a> {
    /// See `usage::Usage`; so for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// See above.
    pub owed: bool,
    /// See above.
    pub complete: bool,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<&'a str>,
}

/// See `Record::DeniedAgain`.
#[derive(Serialize)]
pub struct Again {
    /// Without the one that has a line of its own.
    pub times: u64,
}

/// See `Record::End`.
#[derive(Serialize)]
pub struct End<'a> {
    /// One clause.
    pub why: &'a str,
}

#[derive(Serialize)]
struct Line<'a> {
    n: u64,
    prev: &'a str,
    at_ms: u64,
    #[serde(flatten)]
    record: &'a Record<'a>,
}

impl Log {
    /// A descriptor opened append-only, and where its chain stands (`continues`).
    pub fn new(file: Option<OwnedFd>, n: u64, prev: String) -> Log {
        Log {
            file: file.map(File::from),
            state: Mutex::new(State { n, prev, denied: None, broken: false }),
            written: AtomicU64::new(0),
            synced: Mutex::new(0),
            calls: AtomicU64::new(0),
        }
    }

    /// The number of the next call.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Writes one line. It is in the kernel's hands afterwards and survives our death, though not yet the machine's.
    pub fn write(&self, record: &Record<'_>) -> io::Result<u64> {
        let mut state = self.state();
        self.flush_denied(&mut state)?;
        self.line(&mut state, record)
    }

    /// Writes one line and returns when it is on the disk. One sync serves all who wait.
    pub fn write_synced(&self, record: &Record<'_>) -> io::Result<()> {
        let line = self.write(record)?;
        self.sync(line)
    }

    /// Writes a refusal; one that is like the last is only counted, until something else is written.
    pub fn denied(&self, denied: Denied) -> io::Result<()> {
        let mut state = self.state();
        if let Some((last, again)) = &mut state.denied
            && *last == denied
        {
            *again = again.saturating_add(1);
            return Ok(());
        }
        self.flush_denied(&mut state)?;
        self.line(&mut state, &Record::Denied(&denied))?;
        state.denied = Some((denied, 0));
        Ok(())
    }

    /// Last line and last sync.
    pub fn close(&self, why: &str) -> io::Result<()> {
        self.write_synced(&Record::End(End { why }))
    }

    fn flush_denied(&self, state: &mut State) -> io::Result<()> {
        match state.denied.take() {
            Some((_, again)) if again > 0 => {
                self.line(state, &Record::DeniedAgain(Again { times: again })).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn line(&self, state: &mut State, record: &Record<'_>) -> io::Result<u64> {
        let Some(mut file) = self.file.as_ref() else {
            return Ok(0);
        };
        if state.broken {
            return Err(io::Error::other("an earlier record could not be written"));
        }
        let n = state.n.saturating_add(1);
        let at_ms = u64::try_from(proc::now().as_millis()).unwrap_or(u64::MAX);
        let mut text =
            serde_json::to_vec(&Line { n, prev: &state.prev, at_ms, record }).map_err(io::Error::other)?;
        let digest = digest::sha256_hex(&text);
        text.push(b'\n');
        if let Err(e) = file.write_all(&text) {
            state.broken = true;
            return Err(e);
        }
        (state.n, state.prev) = (n, digest);
        Ok(self.written.fetch_add(1, Ordering::AcqRel).saturating_add(1))
    }

    fn sync(&self, line: u64) -> io::Result<()> {
        let Some(file) = self.file.as_ref() else {
            return Ok(());
        };
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= line {
            return Ok(());
        }
        let covers = self.written.load(Ordering::Acquire);
        file.sync_data()?;
        *synced = covers;
        Ok(())
    }

    /// A panic of another thread between two steps leaves at worst a number that was not used.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the chain of an existing log stands: the number of its last line and that line's digest. A last line without LF was
/// torn by a crash; `true` then asks for an LF before the next one.
pub fn continues(text: &[u8]) -> (u64, String, bool) {
    let torn = text.last().is_some_and(|b| *b != b'\n');
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let Some(last) = body.rsplit(|b| *b == b'\n').next().filter(|l| !l.is_empty()) else {
        return (0, NO_PREV.into(), torn);
    };
    let lines = body.iter().filter(|b| **b == b'\n').count().saturating_add(1);
    (u64::try_from(lines).unwrap_or(u64::MAX), digest::sha256_hex(last), torn)
}

#[cfg(test)]
mod tests {
    use super::{Log, NO_PREV, continues};
    use crate::wire::digest::sha256_hex;

    #[test]
    fn a_chain_goes_on_where_it_stood() {
        assert_eq!(continues(b""), (0, NO_PREV.into(), false));
        assert_eq!(continues(b"a\n"), (1, sha256_hex(b"a"), false));
        assert_eq!(continues(b"a\nbc\n"), (2, sha256_hex(b"bc"), false));
        assert_eq!(continues(b"a\nb"), (2, sha256_hex(b"b"), true));
    }

    #[test]
    fn without_a_file_nothing_fails() {
        let log = Log::new(None, 0, NO_PREV.into());
        assert!(log.close("x").is_ok());
        assert_eq!((log.next_call(), log.next_call()), (1, 2));
    }
}
