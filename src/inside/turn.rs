//! One agent process: its files below `$HOME`, its start, its three streams. Output becomes numbered lines in the event store; a
//! full store stops the reading, and so the agent. Called by `supervise`, which alone waits for the process.

use crate::inside::events::Store;
use crate::inside::lines::Lines;
use crate::limits;
use crate::sys::exec::{self, Feed, Order};
use crate::sys::file::Dir;
use crate::sys::net::Conn;
use crate::sys::proc;
use crate::sys::serve;
use crate::wire::control::{Line, Turn, What};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Where the workspace is mounted.
const WORK: &str = "/work";
/// Between two looks of a reader at `no_writer`.
const SLICE: Duration = Duration::from_millis(250);

/// A started agent.
pub struct Agent {
    /// Its pid, and that of its process group.
    pub pid: u32,
    /// Disconnected once both output streams were read to their end.
    pub output: Receiver<()>,
    /// Nobody is left who could write: a stream that is silent now has ended, even where a copy of it is in flight in some
    /// socket and so keeps it open.
    pub no_writer: Arc<AtomicBool>,
}

/// Writes the files, starts the agent and the threads of its streams; the task is taken out of `turn`, which may be large. An
/// error is one clause for a person.
pub fn begin(turn: &mut Turn, store: &Arc<Store>) -> Result<Agent, String> {
    write_files(turn)?;
    let Some((program, args)) = turn.argv.split_first() else {
        return Err("argv is empty".to_owned());
    };
    if !program.starts_with('/') {
        return Err(format!("the program {program} is not an absolute path"));
    }
    let order = Order {
        program: PathBuf::from(program),
        args: args.iter().map(OsString::from).collect(),
        env: turn.env.iter().map(|(name, value)| (name.clone(), OsString::from(value))).collect(),
        stdin: if turn.stdin.is_empty() { Feed::Null } else { Feed::Pipe },
        stdout: Feed::Pipe,
        stderr: Feed::Pipe,
        inherit: Vec::new(),
        user: None,
        cwd: PathBuf::from(WORK),
        own_group: true,
    };
    #[expect(clippy::disallowed_methods, reason = "EXEC-60 the agent, in the box")]
    let started = exec::start(order);
    let mut child = started.map_err(|e| format!("cannot start {program}: {e}"))?;
    let streams = (child.stdin(), child.stdout(), child.stderr());
    let pid = child.release();
    attend(pid, streams, std::mem::take(&mut turn.stdin), store).map_err(|e| {
        // The group may be gone already; the supervisor reaps it.
        let _ = proc::signal(group(pid), 9);
        format!("cannot start the threads for {program}: {e}")
    })
}

/// The argument of kill(2) for the group led by `pid`. A pid always fits; 0 would be our own group, so it is never used.
pub fn group(pid: u32) -> i32 {
    i32::try_from(pid).map_or(i32::MIN + 1, |pid| -pid)
}

type Streams = (Option<OwnedFd>, Option<OwnedFd>, Option<OwnedFd>);

/// The threads of the three streams.
fn attend(pid: u32, streams: Streams, task: String, store: &Arc<Store>) -> io::Result<Agent> {
    let (stdin, stdout, stderr) = streams;
    let (held, output) = channel();
    let no_writer = Arc::new(AtomicBool::new(false));
    let reader = |fd: OwnedFd, kind: fn(Line) -> What, held: Sender<()>| Reader {
        conn: Conn::new(fd),
        kind,
        store: Arc::clone(store),
        no_writer: Arc::clone(&no_writer),
        _held: held,
    };
    let readers = [
        stdout.map(|fd| reader(fd, What::Stdout, held.clone())),
        stderr.map(|fd| reader(fd, What::Stderr, held.clone())),
    ];
    drop(held);
    for reader in readers.into_iter().flatten() {
        #[expect(clippy::disallowed_methods, reason = "THREAD-65 reads the agent's output")]
        serve::spawn("output", Box::new(move || reader.run()))?;
    }
    if let Some(fd) = stdin {
        let conn = Conn::new(fd);
        // An agent that reads no task breaks the pipe when it ends, which ends the thread; closing is the end of the task.
        let body = Box::new(move || drop(conn.write_all(&[task.as_bytes()], limits::TASK_TIME)));
        #[expect(clippy::disallowed_methods, reason = "THREAD-66 writes the task to the agent")]
        serve::spawn("task", body)?;
    }
    Ok(Agent { pid, output, no_writer })
}

/// Reads one output stream of the agent.
struct Reader {
    conn: Conn,
    kind: fn(Line) -> What,
    store: Arc<Store>,
    no_writer: Arc<AtomicBool>,
    /// Dropped with the thread: the supervisor learns of the end, also after a panic.
    _held: Sender<()>,
}

impl Reader {
    fn run(self) {
        let mut lines = Lines::new();
        let mut buf = vec![0; limits::COPY_BYTES];
        let mut keep = |line| self.store.output((self.kind)(line));
        loop {
            // Asked before the read: what was written before the kill is still in the pipe.
            let nobody = self.no_writer.load(Ordering::Acquire);
            match self.conn.read(&mut buf, SLICE) {
                Ok(n @ 1..) => {
                    if !lines.feed(buf.get(..n).unwrap_or_default(), &mut keep) {
                        return;
                    }
                }
                Err(e) if e.kind() == ErrorKind::TimedOut && !nobody => {}
                Ok(_) | Err(_) => break,
            }
        }
        lines.end(&mut keep);
    }
}

/// `Turn::files` below the `HOME` of the turn's environment.
fn write_files(turn: &Turn) -> Result<(), String> {
    if turn.files.is_empty() {
        return Ok(());
    }
    let Some((_, home)) = turn.env.iter().find(|(name, _)| name == "HOME") else {
        return Err("files were given, but no HOME to write them to".to_owned());
    };
    #[expect(clippy::disallowed_methods, reason = "FILE-60 the agent's home, for the files of a turn")]
    let root = Dir::open(Path::new(home)).map_err(|e| format!("cannot open HOME {home}: {e}"))?;
    for (name, content) in &turn.files {
        write_below(&root, name, content.as_bytes()).map_err(|e| format!("cannot write ~/{name}: {e}"))?;
    }
    Ok(())
}

/// No component is followed through a link or leads upwards; missing directories are made 0700.
fn write_below(root: &Dir, name: &str, content: &[u8]) -> io::Result<()> {
    let mut parts: Vec<&str> = name.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..") || part.contains('\0')) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a plain relative path"));
    }
    let last = parts.pop().unwrap_or_default();
    let mut dir: Option<Dir> = None;
    for part in parts {
        let at = dir.as_ref().unwrap_or(root);
        let next = match at.below(part) {
            Err(e) if e.kind() == ErrorKind::NotFound => at.make(part, 0o700),
            found => found,
        };
        dir = Some(next?);
    }
    dir.as_ref().unwrap_or(root).replace(last, content, 0o600)
}
