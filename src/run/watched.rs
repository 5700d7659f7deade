//! A child with the pipes we hold of it: what it says is kept, bounded, without ever waiting for it. Used by `keeper` for the relay
//! and for bwrap, by `container` for docker's command line.

use crate::limits;
use crate::run::order::Exited;
use crate::sys::exec::{Child, Ended};
use crate::sys::net::Conn;
use crate::sys::proc;
use std::time::Duration;

/// See the file's head.
pub struct Watched {
    /// The process.
    pub child: Child,
    /// Our end of its standard input: closing it tells the relay to end.
    pub life: Option<Conn>,
    /// The start of its standard output.
    pub said: Vec<u8>,
    /// The last of its standard error.
    pub words: Vec<u8>,
    status: Option<Conn>,
    errors: Option<Conn>,
    /// PID 1 of a bwrap box with its start time.
    first: Option<(u32, u64)>,
}

/// signal(7).
const SIGKILL: i32 = 9;

impl Watched {
    /// Takes the child's pipes.
    pub fn new(mut child: Child) -> Watched {
        let life = child.stdin().map(Conn::new);
        let status = child.stdout().map(Conn::new);
        let errors = child.stderr().map(Conn::new);
        Watched { child, life, said: Vec::new(), words: Vec::new(), status, errors, first: None }
    }

    /// Reads what there is to read, without waiting; `Some`: the child has ended.
    pub fn look(&mut self) -> Option<Exited> {
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
            let room = limits::LAST_WORDS.saturating_sub(self.said.len());
            self.said.extend_from_slice(&buf[..n.min(room)]);
        }
    }

    /// The first process of a bwrap box, as the host sees it; `Some` once, when it becomes known.
    pub fn box_pid(&mut self) -> Option<u32> {
        if self.first.is_some() {
            return None;
        }
        self.first = first_pid(&self.said);
        self.first.map(|(pid, _)| pid)
    }

    /// Kills PID 1 of a bwrap box and waits for the engine, which ends only when the kernel has ended all of the box: killing the
    /// engine alone would return while processes of the box still die.
    pub fn end_box(&mut self) {
        self.read();
        self.box_pid();
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

    /// Ends a relay: asked first, by the end of its pipe.
    pub fn end_relay(mut self) {
        self.life = None;
        if !matches!(self.child.wait(limits::RELAY_END), Ok(Some(_))) {
            self.child.kill();
            let _ = self.child.wait(limits::RELAY_END);
        }
    }
}

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
    let end = bytes.iter().position(|b| *b == b'\n')?;
    let status: serde_json::Value = serde_json::from_slice(&bytes[..end]).ok()?;
    let pid = u32::try_from(status.get("child-pid")?.as_u64()?).ok()?;
    Some((pid, proc::start_time(pid).ok()??))
}
