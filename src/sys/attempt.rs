//! Attempts that are meant to fail: what `sanduk attest` tries from inside a box. Nothing here is used to do work. Every function is
//! closed (`NET-nn`, `FILE-nn`), so its callers stand in `audit/effects.txt`.

use crate::sys::raw;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};
use std::ffi::c_long;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// A system call that must be refused: its name, its number, its arguments. None of them is an address: a kernel that takes the
/// call finds a null pointer or a descriptor that is not open.
pub struct Call(pub &'static str, c_long, [c_long; 5]);

/// PTRACE_SEIZE (ptrace(2)): unlike PTRACE_ATTACH it does not stop what it gets.
const SEIZE: c_long = 0x4206;
/// CLONE_NEWUSER.
const NEW_USER: c_long = 0x1000_0000;

/// In this order: the last ones would change what the others find, were they taken.
pub const CALLS: &[Call] = &[
    Call("mount", libc::SYS_mount, [0; 5]),
    Call("umount", libc::SYS_umount2, [0; 5]),
    Call("fsopen", libc::SYS_fsopen, [0; 5]),
    Call("open_tree", libc::SYS_open_tree, [-1, 0, 0, 0, 0]),
    Call("setns", libc::SYS_setns, [-1, 0, 0, 0, 0]),
    Call("ptrace", libc::SYS_ptrace, [SEIZE, 1, 0, 0, 0]),
    Call("bpf", libc::SYS_bpf, [0; 5]),
    Call("perf_event_open", libc::SYS_perf_event_open, [0, 0, -1, -1, 0]),
    Call("io_uring", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
    Call("userfaultfd", libc::SYS_userfaultfd, [0; 5]),
    Call("keyctl", libc::SYS_keyctl, [0, -3, 0, 0, 0]),
    Call("add_key", libc::SYS_add_key, [0; 5]),
    Call("request_key", libc::SYS_request_key, [0; 5]),
    Call("finit_module", libc::SYS_finit_module, [-1, 0, 0, 0, 0]),
    Call("kexec_load", libc::SYS_kexec_load, [0; 5]),
    Call("open_by_handle_at", libc::SYS_open_by_handle_at, [-1, 0, 0, 0, 0]),
    Call("swapon", libc::SYS_swapon, [0; 5]),
    Call("unshare", libc::SYS_unshare, [NEW_USER, 0, 0, 0, 0]),
];

/// Whether the kernel refused the call itself (EPERM, EACCES, ENOSYS); `Err`: it was taken, and how it ended.
pub fn refused(call: &Call) -> Result<String, String> {
    match raw::bare_call(call.1, call.2) {
        Ok(_) => Err("it was made".into()),
        Err(e) => match e.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Ok(e.to_string()),
            _ => Err(format!("the kernel took it and said: {e}")),
        },
    }
}

/// Whether a socket of this family (socket(2)) and one of the types 1 to 5 can be made.
pub fn family(number: u16) -> bool {
    (1..=5).any(|kind| {
        let family = AddressFamily::from_raw(number);
        rustix::net::socket_with(family, SocketType::from_raw(kind), SocketFlags::CLOEXEC, None).is_ok()
    })
}

/// A raw IPv4 socket, as for any packet of the box's own making; a packet socket; an ICMP one.
pub fn raw_socket() -> io::Result<()> {
    socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).map(drop)
}

/// A packet socket: frames as they are on the wire.
pub fn packet_socket() -> io::Result<()> {
    socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop)
}

fn socket(family: AddressFamily, kind: SocketType, protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?)
}

/// Sends an echo request by an ICMP socket (icmp(7)), which needs no privilege where the group range allows it, and waits.
pub fn ping(to: SocketAddr, wait: Duration) -> io::Result<()> {
    let (family, protocol, kind) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
        SocketAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
    };
    let fd = socket(family, SocketType::DGRAM, Some(protocol))?;
    exchange(&fd, to, &[kind, 0, 0, 0, 0, 1, 0, 1], wait).map(drop)
}

/// Sends a datagram and waits for one back.
pub fn datagram(to: SocketAddr, bytes: &[u8], wait: Duration) -> io::Result<Vec<u8>> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    exchange(&socket(family, SocketType::DGRAM, None)?, to, bytes, wait)
}

fn exchange(fd: &OwnedFd, to: SocketAddr, bytes: &[u8], wait: Duration) -> io::Result<Vec<u8>> {
    // Connected, so that an ICMP error comes back as one of ours.
    rustix::net::connect(fd, &to)?;
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Recv, Some(wait))?;
    rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)?;
    let mut buf = [0u8; 512];
    match rustix::net::recv(fd, &mut buf, RecvFlags::empty()) {
        Ok((n, _)) => Ok(buf[..n.min(buf.len())].to_vec()),
        Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(e) => Err(e.into()),
    }
}

/// A datagram socket bound to this address that `answer` serves.
pub fn datagrams(at: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket(family, SocketType::DGRAM, None)?;
    rustix::net::bind(&fd, &at)?;
    let at = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
    Ok((fd, at))
}

/// Answers each datagram with `bytes`, until the socket fails.
pub fn answer(fd: &OwnedFd, bytes: &[u8]) {
    let mut buf = [0u8; 512];
    while let Ok((_, _, from)) = rustix::net::recvfrom(fd, &mut buf, RecvFlags::empty()) {
        if let Some(from) = from {
            let _ = rustix::net::sendto(fd, bytes, SendFlags::NOSIGNAL, &from);
        }
    }
}

/// A listener with an abstract name; it lasts as long as the value.
pub fn listen_abstract(name: &str) -> io::Result<OwnedFd> {
    let fd = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::net::bind(&fd, &rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&fd, 8)?;
    Ok(fd)
}

/// Connects to an abstract name.
pub fn connect_abstract(name: &str) -> io::Result<()> {
    let fd = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    Ok(rustix::net::connect(&fd, &rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes())?)?)
}

/// A change of a network interface by netlink that changes nothing (rtnetlink(7)): RTM_NEWLINK of interface 1 with no flag to set.
/// The kernel asks for CAP_NET_ADMIN before it looks at what is wanted. `Ok`: it would have done it.
pub fn change_interface() -> io::Result<()> {
    let fd = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(Duration::from_secs(1)))?;
    let mut message = Vec::with_capacity(32);
    message.extend_from_slice(&32u32.to_ne_bytes());
    // RTM_NEWLINK; NLM_F_REQUEST | NLM_F_ACK; sequence and port.
    message.extend_from_slice(&16u16.to_ne_bytes());
    message.extend_from_slice(&5u16.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // struct ifinfomsg: family, type, index 1, flags, change mask.
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&1i32.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    rustix::net::send(&fd, &message, SendFlags::NOSIGNAL)?;
    let mut buf = [0u8; 256];
    let (n, _) = rustix::net::recv(&fd, &mut buf, RecvFlags::empty())?;
    // struct nlmsgerr after the header of 16 bytes: a negative errno, or 0.
    let code = buf.get(16..20).filter(|_| n >= 20).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
        None => Err(Errno::PROTO.into()),
    }
}

/// Opens for writing what exists, writing nothing.
pub fn open_to_write(path: &Path) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty()).map(drop)?)
}

/// Makes a file of this name, with these mode bits asked for, and removes it. `Ok`: the bits it had.
pub fn make_file(path: &Path, mode: u32) -> io::Result<u32> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let fd = rustix::fs::open(path, flags, Mode::from_bits_truncate(0o600))?;
    // The mode of the file that is there counts, not the call's answer.
    let changed = rustix::fs::fchmod(&fd, Mode::from_bits_truncate(mode));
    let had = rustix::fs::fstat(&fd).map(|s| s.st_mode & 0o7777);
    let _ = rustix::fs::unlink(path);
    changed?;
    Ok(had?)
}

/// Makes the device of /dev/null under this name, and removes it.
pub fn make_device(path: &Path) -> io::Result<()> {
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::from_bits_truncate(0o600), null)?;
    let _ = rustix::fs::unlinkat(CWD, path, AtFlags::empty());
    Ok(())
}

/// Where a link leads, as text.
pub fn link(path: &Path) -> io::Result<String> {
    Ok(rustix::fs::readlink(path, Vec::new())?.to_string_lossy().into_owned())
}

/// Reads one byte; `false`: there is none.
pub fn first_byte(path: &Path) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(rustix::io::read(&fd, &mut [0u8; 1])? > 0)
}

/// Reads a file piece by piece, each with the last `overlap` bytes of the one before, from `from` on for at most `most` bytes.
pub fn pieces(
    path: &Path,
    from: u64,
    most: u64,
    overlap: usize,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let mut buf = vec![0u8; overlap + 64 * 1024];
    let (mut kept, mut at) = (0usize, from);
    while at < from.saturating_add(most) {
        let n = rustix::io::pread(&fd, &mut buf[kept..], at)?;
        if n == 0 || each(&buf[..kept + n]) {
            return Ok(());
        }
        at = at.saturating_add(n as u64);
        let end = kept + n;
        let keep = overlap.min(end);
        buf.copy_within(end - keep..end, 0);
        kept = keep;
    }
    Ok(())
}

/// Takes another process's descriptor 0.
pub fn take_descriptor(pid: i32) -> io::Result<()> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(Errno::INVAL)?;
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let flags = rustix::process::PidfdGetfdFlags::empty();
    Ok(rustix::process::pidfd_getfd(&process, 0, flags).map(drop)?)
}
