//! The built-in agent's tools: bash, read, write, edit. They do what the agent may do anyway, as its own uid in its own box; what
//! they bound is time, memory and what goes back to the model. Called by `agent`.

use crate::inside::mini::reply::Call;
use crate::limits::{
    MINI_BASH_MOST, MINI_BASH_TIME, MINI_FILE_BYTES, MINI_OUTPUT_BYTES, TOOL_ARGUMENT_BYTES,
};
use crate::sys::env;
use crate::sys::exec::{self, Ended, Feed, Order};
use crate::sys::file::{self, Dir};
use crate::sys::net::{self, Conn};
use crate::sys::proc::monotonic;
use crate::wire::text::short;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File type bits of a mode, and those of a regular file (inode(7)).
const TYPE_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// How often a command that closed nothing is looked at.
const GLANCE: Duration = Duration::from_millis(100);

/// A tool with its checked input.
pub enum Tool {
    /// Command line, seconds.
    Bash(String, Duration),
    /// Path, first line from 1, lines.
    Read(String, usize, usize),
    /// Path, content.
    Write(String, String),
    /// Path, old, new.
    Edit(String, String, String),
}

/// Reads a call's input. `Err`: what is wrong with it, for the model.
pub fn read_input(call: &Call) -> Result<Tool, String> {
    let text = call.input.trim();
    let input: Value = serde_json::from_str(if text.is_empty() { "{}" } else { text })
        .map_err(|e| format!("the input of {} is not JSON: {e}", call.name))?;
    let Some(input) = input.as_object() else {
        return Err(format!("the input of {} is not an object", call.name));
    };
    let string = |name: &str| match input.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{name} of {} is not a string", call.name)),
        None => Err(format!("{} needs {name}", call.name)),
    };
    let number = |name: &str, otherwise: u64| match input.get(name) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(value) => value.as_u64().filter(|n| *n > 0).ok_or(format!("{name} is not a positive integer")),
    };
    let count = |name: &str, otherwise: usize| {
        number(name, u64::MAX)
            .map(|n| if n == u64::MAX { otherwise } else { usize::try_from(n).unwrap_or(otherwise) })
    };
    match call.name.as_str() {
        "bash" => {
            let seconds = number("seconds", MINI_BASH_TIME.as_secs())?;
            Ok(Tool::Bash(string("command")?, Duration::from_secs(seconds).min(MINI_BASH_MOST)))
        }
        "read" => Ok(Tool::Read(string("path")?, count("from", 1)?, count("lines", usize::MAX)?)),
        "write" => Ok(Tool::Write(string("path")?, string("content")?)),
        "edit" => Ok(Tool::Edit(string("path")?, string("old")?, string("new")?)),
        other => Err(format!("there is no tool {other:?}; there are bash, read, write and edit")),
    }
}

/// The first line of an error, short.
pub fn first_line(text: &str) -> String {
    short(text.lines().next().unwrap_or(""), TOOL_ARGUMENT_BYTES)
}

impl Tool {
    /// What is shown of it while it runs.
    pub fn short(&self) -> String {
        match self {
            Tool::Bash(text, _) | Tool::Read(text, ..) | Tool::Write(text, _) | Tool::Edit(text, ..) => {
                first_line(text.trim_start())
            }
        }
    }

    /// Does it. `Err` goes to the model as a failed result.
    pub fn run(&self) -> Result<String, String> {
        match self {
            Tool::Bash(command, time) => bash(command, *time).map_err(|e| format!("cannot run it: {e}"))?,
            Tool::Read(path, from, lines) => {
                let text = content(path)?;
                let part: Vec<&str> = text.lines().skip(from.saturating_sub(1)).take(*lines).collect();
                let mut kept = Kept::default();
                kept.push(
                    if *from == 1 && *lines == usize::MAX { text.clone() } else { part.join("\n") }
                        .as_bytes(),
                );
                Ok(kept.text())
            }
            Tool::Write(path, new) => {
                store(path, new)?;
                Ok(format!("wrote {} bytes", new.len()))
            }
            Tool::Edit(path, old, new) => {
                let text = content(path)?;
                if old.is_empty() || old == new {
                    return Err("old is empty, or the same as new".into());
                }
                match text.matches(old.as_str()).count() {
                    0 => Err("old does not stand in the file".into()),
                    1 => store(path, &text.replacen(old.as_str(), new, 1)).map(|()| "done".into()),
                    n => Err(format!("old stands in the file {n} times: give more of what is around it")),
                }
            }
        }
    }
}

/// A regular text file, whole.
fn content(path: &str) -> Result<String, String> {
    let on = |e: io::Error| format!("cannot read {path}: {e}");
    let path_ = Path::new(path);
    #[expect(clippy::disallowed_methods, reason = "FILE-70 mini's tools: what kind of file it is")]
    let facts = file::facts(path_).map_err(on)?;
    if facts.mode & TYPE_BITS != REGULAR {
        return Err(format!("cannot read {path}: it is not a regular file"));
    }
    #[expect(clippy::disallowed_methods, reason = "FILE-71 mini's tools: read and edit")]
    let bytes = file::read_named(path_, MINI_FILE_BYTES).map_err(on)?;
    String::from_utf8(bytes).map_err(|_| format!("cannot read {path}: it is not text; look at it with bash"))
}

/// Replaces a file's content and keeps its permissions; a link is followed, as an editor does.
fn store(path: &str, text: &str) -> Result<(), String> {
    let on = |e: io::Error| format!("cannot write {path}: {e}");
    if text.len() > usize::try_from(MINI_FILE_BYTES).unwrap_or(usize::MAX) {
        return Err(format!("cannot write {path}: it is too large"));
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "FILE-72 mini's tools: permissions of the file that is replaced"
    )]
    let mode = match file::facts(Path::new(path)) {
        Ok(facts) if facts.mode & TYPE_BITS == REGULAR => Some(facts.mode & 0o777),
        Ok(_) => return Err(format!("cannot write {path}: it is not a regular file")),
        Err(_) => None,
    };
    #[expect(clippy::disallowed_methods, reason = "FILE-73 mini's tools: where a link leads")]
    let path_ =
        if mode.is_some() { file::real_path(Path::new(path)).map_err(on)? } else { PathBuf::from(path) };
    let name =
        path_.file_name().and_then(|n| n.to_str()).ok_or(format!("cannot write {path}: no file name"))?;
    let parent = path_.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    #[expect(clippy::disallowed_methods, reason = "FILE-74 mini's tools: write and edit")]
    let dir = Dir::make_all(parent, 0o755).map_err(on)?;
    dir.replace(name, text.as_bytes(), mode.unwrap_or(0o644)).map_err(on)
}

/// Runs a command line; what it left running is killed.
fn bash(command: &str, time: Duration) -> io::Result<Result<String, String>> {
    let (out, input) = net::pipe()?;
    let ours = env::read();
    let home = ours.home.unwrap_or_else(|| PathBuf::from("/tmp"));
    let mut variables = vec![
        ("PATH".into(), ours.path),
        ("HOME".into(), home.into()),
        ("LANG".into(), "C.UTF-8".into()),
        ("TERM".into(), "dumb".into()),
    ];
    variables.extend(env::others());
    #[expect(clippy::disallowed_methods, reason = "EXEC-70 mini's bash tool: /bin/sh -c")]
    let mut child = exec::start(Order {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".into(), command.into()],
        env: variables,
        stdin: Feed::Null,
        stdout: Feed::Fd(input.try_clone()?),
        stderr: Feed::Fd(input),
        inherit: Vec::new(),
        user: None,
        cwd: PathBuf::from("."),
        own_group: true,
    })?;
    let out = Conn::new(out);
    let end = monotonic().saturating_add(time);
    let mut kept = Kept::default();
    let mut buf = [0u8; 16 * 1024];
    let ended = loop {
        let left = end.saturating_sub(monotonic());
        if left.is_zero() {
            break None;
        }
        match out.read(&mut buf, left.min(GLANCE)) {
            Ok(0) => break child.wait(left)?,
            Ok(n) => kept.push(buf.get(..n).unwrap_or_default()),
            // Silent: a process it left behind may hold the pipe for ever.
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                if let Some(ended) = child.wait(Duration::ZERO)? {
                    break Some(ended);
                }
            }
            Err(e) => return Err(e),
        }
    };
    child.kill();
    let text = kept.text();
    let line = |text: &str| if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    Ok(match ended {
        Some(Ended::Code(0)) if text.is_empty() => Ok("(no output)".into()),
        Some(Ended::Code(0)) => Ok(text),
        Some(Ended::Code(code)) => Err(format!("{text}{}(exit code {code})", line(&text))),
        Some(Ended::Signal(n)) => Err(format!("{text}{}(killed by signal {n})", line(&text))),
        None => Err(format!("{text}{}(killed after {} s)", line(&text), time.as_secs())),
    })
}

/// The start and the end of something long.
#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: usize,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let half = MINI_OUTPUT_BYTES / 2;
        let (first, rest) = bytes.split_at(bytes.len().min(half.saturating_sub(self.head.len())));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(half);
        self.tail.drain(..over);
        self.left_out = self.left_out.saturating_add(over);
    }

    fn text(mut self) -> String {
        let tail = self.tail.make_contiguous();
        if self.left_out == 0 {
            self.head.extend_from_slice(tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(tail));
        format!("{head}\n[{} bytes left out here]\n{tail}", self.left_out)
    }
}
