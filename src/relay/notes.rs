//! The pipe on which a relay tells its asker what happens (`note`), one JSON line each. An asker that does not read must hold up no call for
//! long, and must never get half a line with another behind it. Called by `start`.

use crate::limits;
use crate::relay::note::{Note, Warning};
use crate::sys::net::Conn;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `PIPE_BUF`: a pipe takes so much whole or not at all (pipe(7)), so what was written is known to the byte.
const PIECE: usize = 4096;

/// Our end of the pipe.
pub struct Notes {
    pipe: Conn,
    state: Mutex<State>,
    /// The last one is being told, or there is no reader any more.
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    /// What is left of a line that was begun, or not yet: it goes before any other.
    rest: Vec<u8>,
    /// The last note was not taken in time. Nobody waits again before the asker has read.
    stalled: bool,
    /// Notes left out since.
    lost: u64,
}

impl Notes {
    /// Writes to this pipe.
    pub fn new(pipe: Conn) -> Notes {
        Notes { pipe, state: Mutex::default(), over: AtomicBool::new(false) }
    }

    /// Tells it. An asker that does not read is waited for once, for `NOTE_TIME`; until it reads again, further notes are left out and
    /// counted: the record has all of it. The note that ends the run is waited for, since nothing is served behind it.
    pub fn tell(&self, note: &Note) {
        match note {
            Note::End(_) => self.tell_within(note, limits::LAST_NOTE_TIME, true),
            _ => self.tell_within(note, limits::NOTE_TIME, false),
        }
    }

    fn tell_within(&self, note: &Note, wait: Duration, last: bool) {
        let Ok(mut line) = serde_json::to_vec(note) else {
            return;
        };
        line.push(b'\n');
        let over =
            if last { self.over.swap(true, Ordering::AcqRel) } else { self.over.load(Ordering::Acquire) };
        if over {
            return;
        }
        let mut state = self.state();
        let wait = if state.stalled && !last { Duration::ZERO } else { wait };
        if last || self.write(&mut state, wait) {
            if state.lost > 0 {
                let many = std::mem::take(&mut state.lost);
                let line = format!("{many} lines about calls are left out here; the record has them");
                state.rest.extend(serde_json::to_vec(&Note::Warning(Warning { line })).unwrap_or_default());
                state.rest.push(b'\n');
            }
            state.rest.append(&mut line);
            self.write(&mut state, wait);
        } else {
            state.lost = state.lost.saturating_add(1);
        }
    }

    /// Writes what is left; true: all of it.
    fn write(&self, state: &mut State, wait: Duration) -> bool {
        let mut done = 0usize;
        for piece in state.rest.chunks(PIECE) {
            match self.pipe.write_all(&[piece], wait) {
                Ok(()) => done = done.saturating_add(piece.len()),
                Err(e) => {
                    // An asker that is gone is not worth a call: its end reaches us by the life pipe.
                    if e.kind() != ErrorKind::TimedOut {
                        self.over.store(true, Ordering::Release);
                    }
                    break;
                }
            }
        }
        state.rest.drain(..done);
        state.stalled = !state.rest.is_empty();
        !state.stalled
    }

    /// Nothing that can panic runs under this lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Notes;
    use crate::relay::note::{Note, Stop, Warning};
    use crate::sys::net::{self, Conn};
    use std::sync::mpsc;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Lines of three sizes: within what a pipe takes whole, just so, and beyond.
    fn note(n: usize) -> Note {
        let length = [60, 4000, 9000].get(n % 3).copied().unwrap_or(0);
        Note::Warning(Warning { line: format!("{n} {}", "x".repeat(length)) })
    }

    fn pipe() -> Option<(Conn, Notes)> {
        let (ours, theirs) = net::pipe().ok()?;
        Some((Conn::new(ours), Notes::new(Conn::new(theirs))))
    }

    /// All that comes until nothing has come for so long.
    fn read(from: &Conn, wait: Duration) -> Vec<u8> {
        let (mut all, mut buf) = (Vec::new(), [0u8; 4096]);
        while let Ok(n @ 1..) = from.read(&mut buf, wait) {
            all.extend_from_slice(buf.get(..n).unwrap_or_default());
        }
        all
    }

    /// As notes; anything that is none is a fault.
    fn notes_of(all: &[u8]) -> Vec<Note> {
        let lines = all.split_inclusive(|b| *b == b'\n');
        lines.map(|l| serde_json::from_slice(l).unwrap_or_else(|e| panic!("half a note: {e}"))).collect()
    }

    fn warned(notes: &[Note]) -> Vec<&str> {
        let line = |n| match n {
            &Note::Warning(Warning { ref line }) => Some(line.as_str()),
            _ => None,
        };
        notes.iter().filter_map(line).collect()
    }

    /// One waits, the others do not; what was begun is ended before another line, and what is left out is said.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make their own files and threads")]
    fn an_asker_that_does_not_read() {
        let Some((reader, notes)) = pipe() else { panic!("no pipe") };
        for n in 0..40 {
            notes.tell_within(&note(n), Duration::from_millis(1), false);
        }
        // By now nothing fits. Whoever waited here would wait for an hour.
        let (send, done) = mpsc::channel();
        std::thread::spawn(move || {
            for n in 40..1000 {
                notes.tell_within(&note(n), HOUR, false);
            }
            drop(send.send(notes));
        });
        let Ok(notes) = done.recv_timeout(Duration::from_secs(60)) else { panic!("a note waited again") };
        let (send, done) = mpsc::channel();
        std::thread::spawn(move || send.send(read(&reader, Duration::from_secs(60))));
        notes.tell_within(&note(1000), HOUR, true);
        drop(notes);
        let Ok(all) = done.recv_timeout(Duration::from_secs(60)) else { panic!("it does not end") };
        let lines = notes_of(&all);
        let told = warned(&lines);
        let numbers: Vec<usize> = told.iter().filter_map(|l| l.split_once(" x")?.0.parse().ok()).collect();
        assert!(numbers.is_sorted() && numbers.last() == Some(&1000), "{numbers:?}");
        let lost = 1001 - numbers.len();
        assert!(lost > 900, "{lost}");
        assert!(
            told.contains(
                &format!("{lost} lines about calls are left out here; the record has them").as_str()
            )
        );
    }

    /// The asker reads again: notes go on, without the flag.
    #[test]
    fn notes_go_on_when_the_asker_reads_again() {
        let Some((reader, notes)) = pipe() else { panic!("no pipe") };
        for n in 0..100 {
            notes.tell_within(&note(n), Duration::ZERO, false);
        }
        let mut all = read(&reader, Duration::ZERO);
        notes.tell_within(&note(100), Duration::ZERO, false);
        all.extend(read(&reader, Duration::ZERO));
        let lines = notes_of(&all);
        let told = warned(&lines);
        assert!(told.iter().any(|l| l.starts_with("100 x")) && told.iter().any(|l| l.contains("left out")));
        notes.tell_within(&Note::End(Stop { why: "x".into(), exit: 3 }), HOUR, true);
        notes.tell_within(&note(101), HOUR, false);
        assert_eq!(notes_of(&read(&reader, Duration::ZERO)), [Note::End(Stop { why: "x".into(), exit: 3 })]);
    }

    #[test]
    fn an_asker_that_is_gone() {
        let Some((reader, notes)) = pipe() else { panic!("no pipe") };
        drop(reader);
        for n in 0..100 {
            notes.tell_within(&note(n), HOUR, false);
        }
    }
}
