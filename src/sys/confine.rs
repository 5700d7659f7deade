//! What a role cannot do from here on: Landlock rules and seccomp filters, built as data, installed through `raw`. Both hold for
//! the calling thread and what it starts, so they come before the first thread; both refuse to begin where there is a second one.
//! Landlock governs files and TCP ports and lacks connecting to Unix sockets, UDP, netlink and io_uring: those are the filter's.

use crate::sys::file::Dir;
use crate::sys::filter::{Row, Then, When, program};
use crate::sys::{proc, raw};
use libc::{EACCES, EAFNOSUPPORT, ENOSYS, EPERM};
use rustix::fs::{FileType, Mode, OFlags};
use std::ffi::c_long;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

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
    /// Unix stream sockets may be connected to, and TCP may not. No rule of the kernel says which: file permissions do.
    pub unix: bool,
}

/// Confines the relay: Landlock as far as the kernel has it, then the socket filter (IPv4 and IPv6 streams only, or Unix streams only;
/// no ptrace, no io_uring). In `store` files can be made, written and renamed, not read. Returns what took effect, in words for the
/// receipt. A path that does not exist grants nothing and is no error.
pub fn relay(rules: &Relay, store: Option<&Dir>) -> io::Result<Vec<String>> {
    alone()?;
    let mut effect = landlock(rules, store)?;
    let (sockets, streams) = if rules.unix { (UNIX_ONLY, "Unix") } else { (TCP_ONLY, "IPv4 and IPv6") };
    install(&[sockets, RELAY, KERNEL])?;
    effect.push(format!("seccomp: only {streams} streams"));
    Ok(effect)
}

/// The box filter, applied by PID 1 before the agent: socket families inet, inet6, unix, netlink; no set-id bits; no io_uring, bpf,
/// perf, keys, userfaultfd, mount, unshare.
pub fn boxed() -> io::Result<()> {
    alone()?;
    install(&[BOX, KERNEL])
}

/// One thread, and no way to gain privileges (a filter needs that).
fn alone() -> io::Result<()> {
    if proc::threads()? != 1 {
        return Err(io::Error::other("there are threads already, and they would stay unconfined"));
    }
    Ok(rustix::thread::set_no_new_privs(true)?)
}

fn install(rows: &[&[Row]]) -> io::Result<()> {
    let code = program(rows).ok_or_else(|| io::Error::other("the filter's rows do not fit together"))?;
    raw::seccomp(&code)
}

// Landlock: `linux/landlock.h`. Each ABI added some; a ruleset that names what a kernel does not know is refused by it.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_FILE: u64 = 1 << 8;
const TRUNCATE: u64 = 1 << 14;
const CONNECT_TCP: u64 = 1 << 1;

/// What an ABI can govern: rights on files (refer came with 2, truncate with 3, ioctl on devices with 5), on TCP ports (bind and
/// connect, 4), scopes (abstract Unix sockets and signals, 6), and how much of the struct it knows.
fn governed(abi: u32) -> (raw::Ruleset, usize) {
    let files = match abi {
        1 => 0x1fff,
        2 => 0x3fff,
        3 | 4 => 0x7fff,
        _ => 0xffff,
    };
    let ports = if abi >= 4 { 3 } else { 0 };
    let scopes = if abi >= 6 { 3 } else { 0 };
    let size = match abi {
        1..=3 => 8,
        4 | 5 => 16,
        _ => 24,
    };
    (raw::Ruleset { files, ports, scopes }, size)
}

/// The kernel's Landlock ABI; an error where it has none, or it is switched off.
pub fn landlock_abi() -> io::Result<u32> {
    raw::landlock_abi()
}

fn landlock(rules: &Relay, store: Option<&Dir>) -> io::Result<Vec<String>> {
    let abi = match raw::landlock_abi() {
        Ok(n) => n,
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => {
            return Ok(vec!["landlock: not in this kernel".to_owned()]);
        }
        Err(e) => return Err(e),
    };
    let (governed, size) = governed(abi);
    let ruleset = raw::landlock_ruleset(&governed, size)?;
    for (paths, on_file, on_directory) in [
        (&rules.read, READ_FILE, READ_FILE | READ_DIR),
        (&rules.execute, READ_FILE | EXECUTE, READ_FILE | READ_DIR | EXECUTE),
        (&rules.write, READ_FILE | WRITE_FILE | TRUNCATE, 0),
    ] {
        for path in paths {
            allow(&ruleset, path, on_file & governed.files, on_directory & governed.files)?;
        }
    }
    if let Some(dir) = store {
        raw::landlock_path(&ruleset, WRITE_FILE | MAKE_FILE | REMOVE_FILE, dir)?;
    }
    if governed.ports != 0 {
        for port in &rules.ports {
            raw::landlock_port(&ruleset, CONNECT_TCP, *port)?;
        }
    }
    raw::landlock_restrict(&ruleset)?;
    Ok(words(abi))
}

/// What Landlock holds, and what this kernel's does not, for the receipt.
fn words(abi: u32) -> Vec<String> {
    let (governed, _) = governed(abi);
    let mut effect = vec![format!("landlock {abi}: files")];
    effect.push(match governed.ports {
        0 => "no landlock rule for ports (Linux 6.7 has it): the relay may connect to any".to_owned(),
        _ => format!("landlock {abi}: TCP ports"),
    });
    effect.push(match governed.scopes {
        0 => {
            "no landlock scope (Linux 6.12 has it): the filter alone holds abstract sockets, nothing signals"
                .to_owned()
        }
        _ => format!("landlock {abi}: abstract sockets, signals"),
    });
    effect
}

fn allow(ruleset: &OwnedFd, path: &Path, on_file: u64, on_directory: u64) -> io::Result<()> {
    use rustix::io::Errno;
    let place = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        // Not there, or out of our reach: nothing to grant.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let directory = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) == FileType::Directory;
    match if directory { on_directory } else { on_file } {
        0 => Err(io::Error::new(io::ErrorKind::InvalidInput, "a directory cannot be granted for writing")),
        access => raw::landlock_path(ruleset, access, &place),
    }
}

// Calls that came after 2019 have the same number on every architecture; libc lacks some on aarch64.
const FCHMODAT2: c_long = 452;
const OPEN_TREE_ATTR: c_long = 467;

const fn one_of(argument: u32, values: &'static [u32]) -> When {
    When::OneOf { argument, mask: u32::MAX, values }
}

/// The low bits of socket()'s second argument; the rest are SOCK_CLOEXEC and SOCK_NONBLOCK.
const fn socket_type(values: &'static [u32]) -> When {
    When::OneOf { argument: 1, mask: 0xf, values }
}

const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;
const STREAM: u32 = 1;
/// Protocol 0 (the default of the type) or TCP. MPTCP and SCTP are streams too, but Landlock's port rules do not see them.
const TCP: When = one_of(2, &[0, 6]);

/// Nothing but TCP: closes Unix sockets (docker.sock), UDP (DNS as a way out), netlink, vsock, raw sockets.
const TCP_ONLY: &[Row] = &[
    Row(libc::SYS_socket, &[one_of(0, &[INET, INET6]), socket_type(&[STREAM]), TCP], Then::Allow),
    Row(libc::SYS_socket, &[], Then::Fail(EACCES)),
];

/// Nothing but Unix streams, for a relay whose one way out is one.
const UNIX_ONLY: &[Row] = &[
    Row(libc::SYS_socket, &[one_of(0, &[UNIX]), socket_type(&[STREAM])], Then::Allow),
    Row(libc::SYS_socket, &[], Then::Fail(EACCES)),
];

/// What only the relay loses besides.
const RELAY: &[Row] = &[
    // A datagram pair of Unix sockets can be sent to any path; children are talked to by pipes.
    Row(libc::SYS_socketpair, &[], Then::Fail(EACCES)),
    // The key lies in openssl's memory too.
    Row(libc::SYS_ptrace, &[], Then::Fail(EACCES)),
    Row(libc::SYS_process_vm_readv, &[], Then::Fail(EACCES)),
    Row(libc::SYS_process_vm_writev, &[], Then::Fail(EACCES)),
    Row(libc::SYS_pidfd_getfd, &[], Then::Fail(EACCES)),
    // The log is an append-only descriptor: it is not cut, filled with holes, nor made writable elsewhere (F_SETFL drops O_APPEND,
    // pwritev2 has RWF_NOAPPEND). Descriptors become non-blocking by ioctl(FIONBIO) instead.
    Row(libc::SYS_ftruncate, &[], Then::Fail(EACCES)),
    Row(libc::SYS_fallocate, &[], Then::Fail(EACCES)),
    Row(libc::SYS_pwritev2, &[], Then::Fail(EACCES)),
    Row(libc::SYS_fcntl, &[one_of(1, &[libc::F_SETFL as u32])], Then::Fail(EACCES)),
];

/// S_ISUID and S_ISGID.
const SET_ID: u32 = 0o6000;

const fn set_id(argument: u32) -> When {
    When::AnyOf { argument, mask: SET_ID }
}

/// O_CREAT, or the bit of O_TMPFILE that is not O_DIRECTORY: only then open() reads a mode.
const fn creates(argument: u32) -> When {
    When::AnyOf { argument, mask: (libc::O_CREAT | 0o20_000_000) as u32 }
}

/// What only the box loses.
const BOX: &[Row] = &[
    // A vsock leads to the hypervisor whatever the network namespace is; the other families are attack surface.
    Row(libc::SYS_socket, &[one_of(0, &[UNIX, INET, INET6, NETLINK])], Then::Allow),
    Row(libc::SYS_socket, &[], Then::Fail(EAFNOSUPPORT)),
    Row(libc::SYS_socketpair, &[one_of(0, &[UNIX])], Then::Allow),
    Row(libc::SYS_socketpair, &[], Then::Fail(EAFNOSUPPORT)),
    // A set-id file in the work directory would act on the host, after the run, with its owner's rights.
    #[cfg(target_arch = "x86_64")]
    Row(libc::SYS_chmod, &[set_id(1)], Then::Fail(EPERM)),
    Row(libc::SYS_fchmod, &[set_id(1)], Then::Fail(EPERM)),
    Row(libc::SYS_fchmodat, &[set_id(2)], Then::Fail(EPERM)),
    Row(FCHMODAT2, &[set_id(2)], Then::Fail(EPERM)),
    #[cfg(target_arch = "x86_64")]
    Row(libc::SYS_open, &[creates(1), set_id(2)], Then::Fail(EPERM)),
    Row(libc::SYS_openat, &[creates(2), set_id(3)], Then::Fail(EPERM)),
    #[cfg(target_arch = "x86_64")]
    Row(libc::SYS_creat, &[set_id(1)], Then::Fail(EPERM)),
    #[cfg(target_arch = "x86_64")]
    Row(libc::SYS_mkdir, &[set_id(1)], Then::Fail(EPERM)),
    Row(libc::SYS_mkdirat, &[set_id(2)], Then::Fail(EPERM)),
    #[cfg(target_arch = "x86_64")]
    Row(libc::SYS_mknod, &[set_id(1)], Then::Fail(EPERM)),
    Row(libc::SYS_mknodat, &[set_id(2)], Then::Fail(EPERM)),
    // Its mode stands behind a pointer, which a filter cannot read; callers go back to openat.
    Row(libc::SYS_openat2, &[], Then::Fail(ENOSYS)),
    // Typing into the terminal that the box was started from.
    Row(libc::SYS_ioctl, &[one_of(1, &[libc::TIOCSTI as u32, libc::TIOCLINUX as u32])], Then::Fail(EPERM)),
];

/// CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET.
const NEW_NAMESPACE: u32 = 0x7e02_0000;

/// What both lose: doors into the kernel that neither an agent nor a relay has business with, and through which most ways out of
/// a container went.
const KERNEL: &[Row] = &[
    // Does what other calls do without passing this filter.
    Row(libc::SYS_io_uring_setup, &[], Then::Fail(ENOSYS)),
    Row(libc::SYS_io_uring_enter, &[], Then::Fail(ENOSYS)),
    Row(libc::SYS_io_uring_register, &[], Then::Fail(ENOSYS)),
    // Namespaces: a new user namespace gives all capabilities in it. clone3 hides its flags behind a pointer; ENOSYS makes the C
    // library go back to clone.
    Row(libc::SYS_clone, &[When::AnyOf { argument: 0, mask: NEW_NAMESPACE }], Then::Fail(EPERM)),
    Row(libc::SYS_clone3, &[], Then::Fail(ENOSYS)),
    Row(libc::SYS_unshare, &[], Then::Fail(EPERM)),
    Row(libc::SYS_setns, &[], Then::Fail(EPERM)),
    // Mounts, old and new interface.
    Row(libc::SYS_mount, &[], Then::Fail(EPERM)),
    Row(libc::SYS_umount2, &[], Then::Fail(EPERM)),
    Row(libc::SYS_pivot_root, &[], Then::Fail(EPERM)),
    Row(libc::SYS_move_mount, &[], Then::Fail(EPERM)),
    Row(libc::SYS_fsopen, &[], Then::Fail(EPERM)),
    Row(libc::SYS_fsconfig, &[], Then::Fail(EPERM)),
    Row(libc::SYS_fsmount, &[], Then::Fail(EPERM)),
    Row(libc::SYS_fspick, &[], Then::Fail(EPERM)),
    Row(libc::SYS_open_tree, &[], Then::Fail(EPERM)),
    Row(OPEN_TREE_ATTR, &[], Then::Fail(EPERM)),
    Row(libc::SYS_mount_setattr, &[], Then::Fail(EPERM)),
    // A file by number, past every directory above it: the way out of old containers. The kernel asks for a capability, in newer
    // versions only of the file system's own user namespace.
    Row(libc::SYS_open_by_handle_at, &[], Then::Fail(EPERM)),
    // Programs in the kernel, and its measuring.
    Row(libc::SYS_bpf, &[], Then::Fail(EPERM)),
    Row(libc::SYS_perf_event_open, &[], Then::Fail(EPERM)),
    // Page faults served by the caller: makes races in the kernel winnable.
    Row(libc::SYS_userfaultfd, &[], Then::Fail(EPERM)),
    // Keyrings belong to the user, not to a namespace.
    Row(libc::SYS_add_key, &[], Then::Fail(EPERM)),
    Row(libc::SYS_request_key, &[], Then::Fail(EPERM)),
    Row(libc::SYS_keyctl, &[], Then::Fail(EPERM)),
];

#[cfg(test)]
mod tests {
    use super::words;

    /// Debian 12 has ABI 2, Ubuntu 24.04 ABI 4: what they lack stands in the receipt.
    #[test]
    fn box_b24_what_a_kernel_lacks_is_named() {
        for (abi, ports, scopes) in [(2, false, false), (4, true, false), (6, true, true), (7, true, true)] {
            let said = words(abi).join("; ");
            assert_eq!(
                (said.contains("TCP ports"), said.contains("no landlock rule")),
                (ports, !ports),
                "{said}"
            );
            assert_eq!(
                (
                    said.contains("signals;") || said.ends_with("abstract sockets, signals"),
                    said.contains("no landlock scope")
                ),
                (scopes, !scopes),
                "{said}"
            );
        }
    }
}
