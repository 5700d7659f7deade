//! The one door to other programs. The environment is built up from nothing; a child is killed and waited for when dropped.
//! Every caller opens `start` by name (`EXEC-nn`), so `audit/effects.txt` lists who starts what.

use crate::limits::CHILD_POLL;
use crate::sys::raw;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags, CWD, FileType};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

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
    pid: Pid,
    own_group: bool,
    /// Ready to read once the child has ended; `None` before Linux 5.3.
    pidfd: Option<OwnedFd>,
    /// Filled by `reap_any` where that took the end of this child. From then on the pid may be another process.
    taken: Taken,
    /// Set once `wait` saw the end. The child stays a zombie until the drop, so its pid and group cannot be another's.
    ended: Option<Ended>,
    released: bool,
}

type Taken = Arc<Mutex<Option<Ended>>>;

/// Children that were started and not dropped. Held while one is started: descriptors are inheritable only under this lock, and
/// no other code of the program starts anything, so two threads never hand each other's descriptors on. Held while one is
/// reaped: `reap_any` cannot take a child before it is listed.
static CHILDREN: Mutex<BTreeMap<u32, Taken>> = Mutex::new(BTreeMap::new());

fn children() -> MutexGuard<'static, BTreeMap<u32, Taken>> {
    CHILDREN.lock().unwrap_or_else(|e| e.into_inner())
}

/// Starts a program. A closed method: each caller opens it by name.
pub fn start(order: Order) -> io::Result<Child> {
    launch(order, false)
}

/// Like `start`; the kernel kills the child (SIGKILL) when the thread that called this ends, from before its first instruction:
/// no moment is left in which our death could go unseen. A closed method.
pub fn start_bound(order: Order) -> io::Result<Child> {
    launch(order, true)
}

fn launch(order: Order, bound: bool) -> io::Result<Child> {
    if !order.program.is_absolute() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a program is started by its absolute path"));
    }
    #[expect(clippy::disallowed_methods, reason = "EXEC-01 every program the program starts")]
    let mut command = Command::new(&order.program);
    command.args(&order.args).env_clear().envs(order.env).current_dir(&order.cwd);
    command.stdin(stdio(order.stdin)).stdout(stdio(order.stdout)).stderr(stdio(order.stderr));
    if let Some((uid, gid)) = order.user {
        // std drops the supplementary groups with it: setgroups, setgid, setuid, in this order.
        command.uid(uid).gid(gid);
    }
    if order.own_group {
        command.process_group(0);
    }
    if bound {
        raw::die_with_starter(&mut command);
    }
    let mut children = children();
    let inheritable = order.inherit.iter().try_for_each(|fd| fcntl_setfd(fd, FdFlags::empty()));
    let spawned = inheritable.map_err(io::Error::from).and_then(|()| command.spawn());
    // Closed under the lock, also where nothing was started.
    drop(order.inherit);
    let inner = spawned?;
    let taken = Taken::default();
    children.insert(inner.id(), Arc::clone(&taken));
    let pid = Pid::from_child(&inner);
    // Opened before anything can reap the child, so that it is surely this one.
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
    Ok(Child { inner, pid, own_group: order.own_group, pidfd, taken, ended: None, released: false })
}

fn stdio(feed: Feed) -> Stdio {
    match feed {
        Feed::Null => Stdio::null(),
        Feed::Pipe => Stdio::piped(),
        Feed::Inherit => Stdio::inherit(),
        Feed::Fd(fd) => Stdio::from(fd),
    }
}

impl Child {
    /// Its pid.
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Our end of its standard input, once.
    pub fn stdin(&mut self) -> Option<OwnedFd> {
        self.inner.stdin.take().map(OwnedFd::from)
    }

    /// Our end of its standard output, once.
    pub fn stdout(&mut self) -> Option<OwnedFd> {
        self.inner.stdout.take().map(OwnedFd::from)
    }

    /// Our end of its standard error, once.
    pub fn stderr(&mut self) -> Option<OwnedFd> {
        self.inner.stderr.take().map(OwnedFd::from)
    }

    /// Waits at most `time`; `None`: still running. Where `proc::reap` took the end first, it is told here all the same.
    pub fn wait(&mut self, time: Duration) -> io::Result<Option<Ended>> {
        let deadline = Instant::now().checked_add(time);
        loop {
            if let Some(ended) = self.look()? {
                return Ok(Some(ended));
            }
            let left = match deadline {
                Some(at) => at.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                return Ok(None);
            }
            let Some(pidfd) = &self.pidfd else {
                std::thread::sleep(left.min(CHILD_POLL));
                continue;
            };
            let time = Timespec::try_from(left.min(Duration::from_secs(3600))).map_err(|_| Errno::INVAL)?;
            match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&time)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Whether it has ended; leaves the zombie where it is.
    fn look(&mut self) -> io::Result<Option<Ended>> {
        if self.ended.is_none() {
            let _held = children();
            self.ended = *self.taken.lock().unwrap_or_else(|e| e.into_inner());
            if self.ended.is_none() {
                use rustix::process::{WaitId, WaitIdOptions, waitid};
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                let status = loop {
                    match waitid(WaitId::Pid(self.pid), options) {
                        Err(Errno::INTR) => {}
                        other => break other?,
                    }
                };
                self.ended = status.map(|s| match (s.exit_status(), s.terminating_signal()) {
                    (Some(code), _) => Ended::Code(code),
                    (None, signal) => Ended::Signal(signal.unwrap_or(0)),
                });
            }
        }
        Ok(self.ended)
    }

    /// Gives the process up: no longer killed nor waited for by us. For PID 1, whose `proc::reap` collects every child. Its
    /// standard streams that were not taken are closed. Returns the pid.
    pub fn release(mut self) -> u32 {
        self.released = true;
        self.id()
    }

    /// SIGKILL to it, or to its group. Does nothing where `proc::reap` has taken its end: the number may be another's by now.
    pub fn kill(&mut self) {
        let _held = children();
        if self.taken.lock().unwrap_or_else(|e| e.into_inner()).is_some() {
            return;
        }
        // An error means that nobody is left to be killed.
        let _ = if self.own_group {
            rustix::process::kill_process_group(self.pid, Signal::KILL)
        } else {
            rustix::process::kill_process(self.pid, Signal::KILL)
        };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.released {
            self.kill();
        }
        // After SIGKILL this takes as long as the kernel needs to end it; where the end was taken already there is none to wait for.
        if !self.released && self.taken.lock().unwrap_or_else(|e| e.into_inner()).is_none() {
            let _ = self.inner.wait();
        }
        let mut children = children();
        if children.get(&self.id()).is_some_and(|t| Arc::ptr_eq(t, &self.taken)) {
            children.remove(&self.id());
        }
    }
}

/// Reaps one dead child, whoever's it is, without waiting; the end of one that `start` made is kept for its `Child`.
pub(super) fn reap_any() -> io::Result<Option<(u32, Ended)>> {
    let mut children = children();
    let (pid, status) = match rustix::process::wait(WaitOptions::NOHANG) {
        Ok(Some(found)) => found,
        Ok(None) | Err(Errno::CHILD | Errno::INTR) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let pid = pid.as_raw_nonzero().get().unsigned_abs();
    let ended = ended(status);
    if let Some(taken) = children.remove(&pid) {
        *taken.lock().unwrap_or_else(|e| e.into_inner()) = Some(ended);
    }
    Ok(Some((pid, ended)))
}

fn ended(status: WaitStatus) -> Ended {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// The absolute path of `name` on `path` (the value of PATH): a regular file we may execute. Relative entries are skipped.
pub fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    let name = crate::sys::file::component(name).ok()?;
    std::env::split_paths(path).filter(|d| d.is_absolute()).map(|d| d.join(name)).find(|p| executable(p))
}

/// Where `find_fixed` looks.
const FIXED: [&str; 5] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];

/// A program whose place PATH must not decide (openssl, bwrap): looked for in fixed directories, and skipped where the file does
/// not belong to root or somebody else may write it.
pub fn find_fixed(name: &str) -> Option<PathBuf> {
    let name = crate::sys::file::component(name).ok()?;
    FIXED.iter().map(|d| Path::new(d).join(name)).find(|p| executable(p) && trusted(p))
}

fn executable(path: &Path) -> bool {
    let regular = rustix::fs::statat(CWD, path, AtFlags::empty())
        .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
    regular && rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn trusted(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, AtFlags::empty()).is_ok_and(|s| s.st_uid == 0 && s.st_mode & 0o022 == 0)
}

/// Our own executable, as a path that can be executed again. An error where the file was replaced since we started: a role of
/// another version must not be mixed in.
pub fn own() -> io::Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "ENV-02 the path of our own binary, for roles")]
    let path = std::env::current_exe()?;
    let ours = rustix::fs::statat(CWD, "/proc/self/exe", AtFlags::empty())?;
    match rustix::fs::statat(CWD, &path, AtFlags::empty()) {
        Ok(s) if (s.st_dev, s.st_ino) == (ours.st_dev, ours.st_ino) => Ok(path),
        _ => Err(io::Error::new(io::ErrorKind::NotFound, "our own executable was replaced or removed")),
    }
}
