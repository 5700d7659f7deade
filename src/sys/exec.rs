//! The one door to other programs. The environment is built up from nothing; a child is killed and waited for when dropped.
//! Every caller opens `start` by name (`EXEC-nn`), so `audit/effects.txt` lists who starts what.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a standard stream of a child leads.
pub enum Feed {
    /// `/dev/null`.
    Null,
    /// A pipe whose other end is in `Child`.
    Pipe,
    /// Ours.
    Inherit,
    /// This descriptor.
    Fd(OwnedFd),
}

/// What to start and with what.
pub struct Order {
    /// Absolute path.
    pub program: PathBuf,
    /// Arguments after the program's name.
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(String, OsString)>,
    /// Standard input.
    pub stdin: Feed,
    /// Standard output.
    pub stdout: Feed,
    /// Standard error.
    pub stderr: Feed,
    /// Descriptors the child gets under the numbers they have here; closed on our side once it is started.
    pub inherit: Vec<OwnedFd>,
    /// Uid and gid to become, supplementary groups dropped; only root can.
    pub user: Option<(u32, u32)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// A process group of its own, so that all of it can be killed.
    pub own_group: bool,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Exit code.
    Code(i32),
    /// Signal number.
    Signal(i32),
}

/// A running child. Dropped: killed (its group too, where it has one) and waited for.
pub struct Child {
    inner: std::process::Child,
    own_group: bool,
}

/// Starts a program. A closed method: each caller opens it by name.
pub fn start(order: Order) -> io::Result<Child> {
    let _ = order;
    todo!()
}

impl Child {
    /// Its pid.
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Our end of its standard input, once.
    pub fn stdin(&mut self) -> Option<OwnedFd> {
        todo!()
    }

    /// Our end of its standard output, once.
    pub fn stdout(&mut self) -> Option<OwnedFd> {
        todo!()
    }

    /// Our end of its standard error, once.
    pub fn stderr(&mut self) -> Option<OwnedFd> {
        todo!()
    }

    /// Waits at most `time`; `None`: still running.
    pub fn wait(&mut self, time: Duration) -> io::Result<Option<Ended>> {
        let _ = time;
        todo!()
    }

    /// Gives the process up: no longer killed nor waited for by us. For PID 1, whose `proc::reap` collects every child. Its
    /// standard streams that were not taken are closed. Returns the pid.
    pub fn release(self) -> u32 {
        todo!()
    }

    /// SIGKILL to it, or to its group.
    pub fn kill(&mut self) {
        let _ = self.own_group;
        todo!()
    }
}

/// The absolute path of `name` on `path` (the value of PATH): a regular file we may execute. Relative entries are skipped.
pub fn find(name: &str, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let _ = (name, path);
    todo!()
}

/// Our own executable, as a path that can be executed again.
pub fn own() -> io::Result<PathBuf> {
    todo!()
}

/// Replaces nothing, starts nothing: the fixed directories a program is looked for in where PATH must not decide (openssl).
pub fn find_fixed(name: &str) -> Option<PathBuf> {
    let _ = name;
    let _: Option<&Path> = None;
    todo!()
}
