//! Writes `calls.jsonl` (`record` says what a line holds): one line after the other, each chained to the one before, verdicts synced
//! before their call is made. Goes on with the log of an earlier relay, after a crash too. Shared by the connections of a relay.

use crate::error::Error;
use crate::limits;
use crate::relay::log_read::{self, Reader, What};
use crate::relay::note::Denied;
use crate::relay::record::{Again, End, Line, NO_PREV, Record, Resumed, Verdict};
use crate::sys::{file, proc};
use crate::wire::{digest, text};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The open log of one relay.
pub struct Log {
    /// None: a relay in the foreground without `--log-dir`; every act below is then without effect and succeeds.
    file: Option<File>,
    found: Option<Resumed>,
    /// Its greatest length: what opens a call, tries one again or refuses one is not written beyond.
    most: u64,
    state: Mutex<State>,
    /// Lines written so far, so that one sync can cover several waiting calls.
    written: AtomicU64,
    /// Held during the sync: who waits here is mostly served by the sync of another.
    synced: Mutex<Synced>,
}

struct State {
    n: u64,
    /// Of whole lines.
    bytes: u64,
    prev: String,
    calls: u64,
    /// The last refusal written, and how often it has come again since.
    denied: Option<(Denied, u64)>,
    /// Why nothing may follow: the last line was written, or one could not be written whole.
    over: Option<&'static str>,
}

impl Default for State {
    fn default() -> State {
        State { n: 0, bytes: 0, prev: NO_PREV.into(), calls: 0, denied: None, over: None }
    }
}

#[derive(Default)]
struct Synced {
    /// Lines known to be on the disk.
    lines: u64,
    /// A sync failed. The kernel tells that once and takes the pages for clean: a later sync would succeed and mean nothing.
    failed: bool,
}

impl Log {
    /// No record is kept.
    pub fn none() -> Log {
        Log::at(None, None, State::default())
    }

    /// Goes on with what is in the file, opened to read and append: each of its lines is given to `seen`. A line torn by a crash is
    /// cut off, since it was never synced and so no call was made for it; one that lacks only its line end gets it.
    pub fn open(mut file: File, seen: &mut dyn FnMut(&log_read::Line)) -> Result<Log, Error> {
        let failed = |e: io::Error| Error::wrong("open", "the record of calls", e);
        if !file::hold(&file).map_err(failed)? {
            return Err(Error::wrong("open", "the record of calls", "another relay is writing it"));
        }
        // A new file, or one that is no file: there is nothing to read.
        if file.metadata().map_err(failed)?.len() == 0 {
            return Ok(Log::at(Some(file), None, State::default()));
        }
        file.rewind().map_err(failed)?;
        let mut reader = Reader::new(&file, limits::LOG_BYTES);
        let torn = read(&mut reader, seen)?;
        let (lines, calls, open) = (reader.lines(), reader.calls(), reader.open());
        let (prev, whole) = (reader.head().to_string(), reader.bytes());
        let at = State { n: lines, bytes: whole, prev, calls, ..State::default() };
        match torn {
            Torn::No => {}
            Torn::End => (&file).write_all(b"\n").map_err(failed)?,
            Torn::Cut(_) => file.set_len(whole).map_err(failed)?,
        }
        let torn = if let Torn::Cut(bytes) = torn { bytes } else { 0 };
        Ok(Log::at(Some(file), Some(Resumed { lines, calls, open, torn }), at))
    }

    fn at(file: Option<File>, found: Option<Resumed>, state: State) -> Log {
        Log {
            file,
            found,
            most: limits::LOG_BYTES,
            state: Mutex::new(state),
            written: AtomicU64::new(0),
            synced: Mutex::new(Synced::default()),
        }
    }

    /// What an earlier relay left; for the `start` record.
    pub fn found(&self) -> Option<Resumed> {
        self.found.clone()
    }

    /// Writes a verdict and gives its call a number: the call's, and the line's for `sync`, which must come before the call.
    pub fn verdict(&self, mut verdict: Verdict) -> io::Result<(u64, u64)> {
        let mut state = self.state();
        self.flush_denied(&mut state)?;
        let call = state.calls.saturating_add(1);
        verdict.call = call;
        let line = self.line(&mut state, &Record::Verdict(verdict))?;
        state.calls = call;
        Ok((call, line))
    }

    /// Writes one line. It is in the kernel's hands afterwards and survives our death, though not yet the machine's.
    pub fn write(&self, record: &Record) -> io::Result<u64> {
        let mut state = self.state();
        self.flush_denied(&mut state)?;
        self.line(&mut state, record)
    }

    /// Writes one line and returns when it is on the disk. One sync serves all who wait.
    pub fn write_synced(&self, record: &Record) -> io::Result<()> {
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
        let record = Record::Denied(denied);
        self.line(&mut state, &record)?;
        if let Record::Denied(denied) = record {
            state.denied = Some((denied, 0));
        }
        Ok(())
    }

    /// Last line and last sync; whatever else wants to be written is refused from here on.
    pub fn close(&self, why: &str) -> io::Result<()> {
        let line = {
            let mut state = self.state();
            self.flush_denied(&mut state)?;
            let line = self.line(&mut state, &Record::End(End { why: why.into() }))?;
            state.over = Some("the relay has ended");
            line
        };
        self.sync(line)
    }

    fn flush_denied(&self, state: &mut State) -> io::Result<()> {
        match state.denied.take() {
            Some((_, again)) if again > 0 => {
                self.line(state, &Record::DeniedAgain(Again { times: again })).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn line(&self, state: &mut State, record: &Record) -> io::Result<u64> {
        if let Some(why) = state.over {
            return Err(io::Error::other(why));
        }
        let Some(mut file) = self.file.as_ref() else {
            return Ok(0);
        };
        let n = state.n.saturating_add(1);
        let at_ms = u64::try_from(proc::now().as_millis()).unwrap_or(u64::MAX);
        let mut text =
            serde_json::to_vec(&Line { n, prev: &state.prev, at_ms, record }).map_err(io::Error::other)?;
        let digest = digest::sha256_hex(&text);
        text.push(b'\n');
        let bytes = state.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        // What is owed to a call or a refusal that has its line already, and the end, always follow.
        let owed = matches!(record, Record::Outcome(_) | Record::DeniedAgain(_) | Record::End(_));
        if bytes > self.most && !owed {
            let why = format!("it would be longer than {} bytes", self.most);
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        if let Err(e) = file.write_all(&text) {
            state.over = Some("an earlier record could not be written");
            return Err(e);
        }
        (state.n, state.prev, state.bytes) = (n, digest, bytes);
        Ok(self.written.fetch_add(1, Ordering::AcqRel).saturating_add(1))
    }

    /// Returns when this line is on the disk. One sync serves all who wait.
    pub fn sync(&self, line: u64) -> io::Result<()> {
        let Some(file) = self.file.as_ref() else {
            return Ok(());
        };
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if synced.failed {
            return Err(io::Error::other("an earlier record could not be synced"));
        }
        if synced.lines >= line {
            return Ok(());
        }
        let covers = self.written.load(Ordering::Acquire);
        synced.failed = true;
        file.sync_data()?;
        *synced = Synced { lines: covers, failed: false };
        Ok(())
    }

    /// A panic of another thread between two steps leaves at worst a number that was not used.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a log of an earlier relay ends.
enum Torn {
    No,
    /// With a record that lacks its line end.
    End,
    /// With so many bytes of no whole record.
    Cut(u64),
}

fn read(reader: &mut Reader<&File>, seen: &mut dyn FnMut(&log_read::Line)) -> Result<Torn, Error> {
    loop {
        match reader.advance() {
            Ok(Some(line)) => seen(&line),
            Ok(None) => return Ok(Torn::No),
            Err(bad) if bad.what == What::Torn => match reader.tail() {
                Some(tail) if !tail.whole => return Ok(Torn::Cut(tail.bytes)),
                _ => {
                    seen(&reader.take_tail().map_err(refused)?);
                    return Ok(Torn::End);
                }
            },
            Err(bad) => return Err(refused(bad)),
        }
    }
}

fn refused(bad: log_read::Bad) -> Error {
    let why = text::short(&bad.why, limits::SHOWN_CHARS);
    Error::wrong("go on with", "the record of calls", format!("line {}: {why}", bad.line))
        .remedy("look at it with sanduk audit verify, then move it away")
}

#[cfg(test)]
mod tests {
    use super::Log;
    use crate::relay::log_read::Reader;
    use crate::relay::note::Denied;
    use crate::relay::record::{Counts, Outcome, Record, Retry, Verdict};
    use std::io::{ErrorKind, Seek};

    #[test]
    fn without_a_file_nothing_fails() {
        let log = Log::none();
        assert!(log.close("x").is_ok());
        assert!(log.close("x").is_err(), "nothing follows the end");
    }

    fn verdict() -> Verdict {
        Verdict {
            call: 0,
            method: "GET".into(),
            path: "/v1/models".into(),
            bytes: 0,
            model: None,
            streamed: false,
            clamped: Vec::new(),
            reserved_picodollars: None,
            reserved_tokens: None,
            body: None,
        }
    }

    fn outcome(call: u64) -> Record {
        Record::Outcome(Outcome {
            call,
            status: 200,
            ended: "whole".into(),
            bytes: 0,
            millis: 0,
            charged_picodollars: None,
            charged_tokens: None,
            tries: 1,
            counts: Counts::default(),
            body: None,
        })
    }

    /// A log at its greatest length takes no call, no try and no refusal any more; the calls that it has get their ends, and so does it.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make their own files and threads")]
    fn a_log_that_is_full_is_ended_and_whole() {
        let path = std::env::temp_dir().join(format!("sanduk-full-log-{}", std::process::id()));
        let file = std::fs::OpenOptions::new().read(true).append(true).create(true).open(&path);
        let Ok(file) = file else { panic!("no file") };
        let _ = std::fs::remove_file(&path);
        let Ok(mut copy) = file.try_clone() else { panic!("no copy") };
        let start = r#"{"n":1,"prev":"0000000000000000000000000000000000000000000000000000000000000000","at_ms":0,"kind":"start","v":1,"version":"0","provider":"p","upstream":"u","sealed":true,"allow_models":[],"max_tokens_cap":null,"allow_server_tools":false,"allow_fields":[]}"#;
        assert!(std::io::Write::write_all(&mut copy, format!("{start}\n").as_bytes()).is_ok());
        let Ok(mut log) = Log::open(file, &mut |_| {}) else { panic!("no log") };
        log.most = 4096;
        let mut calls = 0;
        let full = loop {
            match log.verdict(verdict()) {
                Ok((call, _)) => calls = call,
                Err(e) => break e,
            }
            assert!(calls < 100, "it grows without end");
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert!(calls > 5 && copy.metadata().is_ok_and(|m| m.len() <= 4096), "{calls}");
        assert!(
            log.write_synced(&Record::Retry(Retry { call: 1, r#try: 2, status: 529, wait_ms: 0 })).is_err()
        );
        let denied = |path: &str| Denied {
            method: "GET".into(),
            path: path.into(),
            status: 404,
            why: "x".repeat(300),
            remedy: String::new(),
        };
        assert!(log.denied(denied("/")).is_err());
        for call in 1..=calls {
            assert!(log.write(&outcome(call)).is_ok(), "{call}");
        }
        assert!(log.close("it is full").is_ok());
        assert!(copy.rewind().is_ok());
        let mut reader = Reader::new(&copy, 1 << 20);
        while let Ok(Some(_)) = reader.advance() {}
        assert_eq!((reader.calls(), reader.open(), reader.ended()), (calls, 0, true));
    }
}
