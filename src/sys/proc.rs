//! This process and others: identity, signals, clock, randomness, and what a role gives up at its start.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Random bytes from the kernel.
pub fn random(buf: &mut [u8]) -> io::Result<()> {
    let _ = buf;
    todo!()
}

/// `n` random bytes as lower-case hex.
pub fn random_hex(n: usize) -> io::Result<String> {
    let _ = n;
    todo!()
}

/// Since the epoch.
pub fn now() -> Duration {
    todo!()
}

/// Since some fixed moment; never goes back.
pub fn monotonic() -> Duration {
    todo!()
}

/// Effective uid and gid.
pub fn ids() -> (u32, u32) {
    todo!()
}

/// Clock ticks since boot at which `pid` started (field 22 of `/proc/PID/stat`); `None`: no such process.
pub fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let _ = pid;
    todo!()
}

/// `/proc/sys/kernel/random/boot_id`.
pub fn boot_id() -> io::Result<String> {
    todo!()
}

/// Installs handlers for INT, TERM and HUP (also where they were ignored) and ignores PIPE; each signal that comes writes its
/// number, one byte, to the returned pipe end.
pub fn catch_signals() -> io::Result<OwnedFd> {
    todo!()
}

/// Ignores INT, TERM, HUP and PIPE: the keeper ends only with its asker.
pub fn ignore_signals() -> io::Result<()> {
    todo!()
}

/// First acts of a role: closes every descriptor from 3 on that is not in `keep`, sets no-new-privileges, not dumpable, no core
/// dump. With `keep` they stay close-on-exec.
pub fn harden(keep: &[i32]) -> io::Result<()> {
    let _ = keep;
    todo!()
}

/// SIGKILL for us when the thread that started us ends; returns false where the parent is gone already. Set after `become_user`.
pub fn die_with_parent(parent: u32) -> io::Result<bool> {
    let _ = parent;
    todo!()
}

/// Drops supplementary groups, becomes gid and uid for good, empties all capability sets. Only before the first thread.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let _ = (uid, gid);
    todo!()
}

/// Threads of this process now (`/proc/self/status`).
pub fn threads() -> io::Result<usize> {
    todo!()
}

/// The next dead child, any of them, for PID 1: (pid, code or signal). Waits for at most `wait`.
pub fn reap(wait: Duration) -> io::Result<Option<(u32, crate::sys::exec::Ended)>> {
    let _ = wait;
    todo!()
}

/// Sends a signal to a process, or to a group where `pid` is negative.
pub fn signal(pid: i32, number: i32) -> io::Result<()> {
    let _ = (pid, number);
    todo!()
}

/// Lower this process's limits; `None` leaves one alone.
pub fn limit(processes: Option<u64>, files: Option<u64>, file_bytes: Option<u64>) -> io::Result<()> {
    let _ = (processes, files, file_bytes);
    todo!()
}

/// True for a terminal.
pub fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    let _ = fd;
    todo!()
}

/// Columns of the terminal on `fd`; `None` where it is none.
pub fn columns(fd: BorrowedFd<'_>) -> Option<u16> {
    let _ = fd;
    todo!()
}
