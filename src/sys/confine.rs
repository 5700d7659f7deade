//! What a role cannot do from here on: Landlock rules and seccomp filters, built as data, installed through `raw`. Both hold for
//! the calling thread and what it starts, so they come before the first thread.

use std::io;
use std::path::PathBuf;

/// What the relay may still touch.
pub struct Relay {
    /// Files and directories that may be read (directories: everything below).
    pub read: Vec<PathBuf>,
    /// Files that may be executed (and read).
    pub execute: Vec<PathBuf>,
    /// Files that may be read and written (`/dev/null`).
    pub write: Vec<PathBuf>,
    /// TCP ports that may be connected to, where the kernel has that rule.
    pub ports: Vec<u16>,
}

/// Confines the relay: Landlock as far as the kernel has it, then the socket filter (IPv4 and IPv6 streams only; no ptrace, no
/// io_uring). Returns what took effect, in words for the receipt.
pub fn relay(rules: &Relay) -> io::Result<Vec<String>> {
    let _ = rules;
    todo!()
}

/// The box filter, applied by PID 1 before the agent: socket families inet, inet6, unix, netlink; no set-id bits; no io_uring, bpf,
/// perf, keys, userfaultfd, mount, unshare.
pub fn boxed() -> io::Result<()> {
    todo!()
}
