//! One flat error and the table of exit codes. Names no layer above it. `main` prints an error once, as one line.

use std::fmt;

/// How the program ends; the number is a contract (README, "Exit codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Ok,
    /// 1: the run failed.
    Failed,
    /// 2: a wrong command, configuration, key or file, found before a box existed.
    Wrong,
    /// 3: ended or refused by policy at run time.
    Policy,
    /// 4: the engine is missing, does not answer, or could not start the box.
    Engine,
    /// 5: a cap ended the run.
    Cap,
    /// 124: `--timeout` ended the run.
    Timeout,
    /// 125: our own fault.
    Fault,
    /// 128+N: signal N reached us.
    Signal(u8),
    /// N: what the shell of `sanduk shell` ended with.
    Shell(u8),
}

impl Exit {
    /// The number given to the shell.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Wrong => 2,
            Exit::Policy => 3,
            Exit::Engine => 4,
            Exit::Cap => 5,
            Exit::Timeout => 124,
            Exit::Fault => 125,
            Exit::Signal(n) => 128u8.saturating_add(n),
            Exit::Shell(n) => n,
        }
    }
}

/// What was being done, to what, why it failed, what to do about it.
#[derive(Debug)]
pub struct Error {
    exit: Exit,
    doing: &'static str,
    on: String,
    why: String,
    remedy: String,
}

impl Error {
    /// `doing` is a verb phrase that follows "cannot": `Error::new(Exit::Wrong, "open", path, io_error)`.
    pub fn new(exit: Exit, doing: &'static str, on: impl Into<String>, why: impl fmt::Display) -> Error {
        Error { exit, doing, on: on.into(), why: why.to_string(), remedy: String::new() }
    }

    /// A refusal of what the caller asked for (exit 2).
    pub fn wrong(doing: &'static str, on: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::new(Exit::Wrong, doing, on, why)
    }

    /// Our own fault (exit 125).
    pub fn fault(doing: &'static str, on: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::new(Exit::Fault, doing, on, why)
    }

    /// Adds what the reader can do, as a clause: `run sanduk build`.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = remedy.into();
        self
    }

    /// The exit code this error ends the program with.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.doing)?;
        if !self.on.is_empty() {
            write!(f, " {}", self.on)?;
        }
        write!(f, ": {}", self.why)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
