//! The only `unsafe` of the program: thin wrappers over system calls that rustix does not offer. Each block is one operation with
//! its reason; what the numbers mean is decided in `proc`, `confine`, `net`, `env` and `exec`, the only callers.

use std::ffi::{CStr, c_int, c_long, c_ulong};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Where a caught signal's number goes, one byte each; -1: nowhere. SIGCHLD has a pipe of its own, for `proc::reap`.
static SIGNALS: AtomicI32 = AtomicI32::new(-1);
static CHILDREN: AtomicI32 = AtomicI32::new(-1);

/// The result of a system call that gives -1 and `errno` where it failed.
fn checked(result: c_long) -> io::Result<c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes over a descriptor that this process was started with; an error where the number is not open. The caller sees to it
/// that no number is taken twice.
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_GETFD reads one flag and touches no memory of ours.
    let open = unsafe { libc::fcntl(number, libc::F_GETFD) };
    checked(open.into())?;
    // SAFETY: the number is open, and `net::inherited` gives it to one owner only.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// `SO_PEERCRED`: (pid, uid) of the other end of a Unix socket. Pid 0 is a valid answer here (a peer outside our pid namespace);
/// rustix's type cannot hold it.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<(i32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let to = std::ptr::from_mut(&mut peer).cast();
    // SAFETY: `to` and `length` describe one live `ucred`, all of whose bit patterns are valid.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut length)
    };
    checked(result.into())?;
    if length as usize != size_of::<libc::ucred>() {
        return Err(io::Error::from_raw_os_error(libc::EPROTO));
    }
    Ok((peer.pid, peer.uid))
}

/// Closes the descriptors `first` to `last`, both included. Nothing that this process still uses may be among them: `proc::harden`
/// runs at the start of a role, before any descriptor but the inherited ones exists.
pub fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the call takes numbers only; an owner of a closed number would be the caller's fault, named above.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    checked(result).map(drop)
}

/// Copies the value of an environment variable out and overwrites it with NUL bytes where it stands, so that
/// `/proc/self/environ` shows none of it. Only while the process has one thread: nobody else may read the environment meanwhile.
pub fn take_variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: `name` ends with NUL; the process has one thread, so nobody changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: getenv gives a string that ends with NUL, and it lives as long as the environment.
    let bytes = unsafe { CStr::from_ptr(value) }.to_bytes().to_vec();
    // SAFETY: exactly the bytes before that NUL are overwritten; the memory is the process's own stack area, writable (execve(2)).
    unsafe { std::ptr::write_bytes(value, 0, bytes.len()) };
    Some(bytes)
}

/// Runs in whatever thread the kernel picks, between any two instructions: it may only do what signal-safety(7) allows.
extern "C" fn on_signal(number: c_int) {
    let pipe = if number == libc::SIGCHLD { &CHILDREN } else { &SIGNALS };
    let byte = number as u8;
    let from = std::ptr::from_ref(&byte).cast();
    // SAFETY: the location of this thread's errno is always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; the interrupted code may be about to read it, so it is put back below.
    let before = unsafe { *errno };
    // SAFETY: write is async-signal-safe, `from` is one live byte; the pipe does not block. A full pipe loses nothing that counts.
    unsafe { libc::write(pipe.load(Ordering::Relaxed), from, 1) };
    // SAFETY: as for the read.
    unsafe { *errno = before };
}

/// From now on each of `numbers` writes itself to `to` (non-blocking, kept open for the life of the process).
pub fn catch(numbers: &[c_int], to: OwnedFd) -> io::Result<()> {
    use std::os::fd::IntoRawFd;
    let pipe = to.into_raw_fd();
    for number in numbers {
        let slot = if *number == libc::SIGCHLD { &CHILDREN } else { &SIGNALS };
        slot.store(pipe, Ordering::Relaxed);
        let handler: extern "C" fn(c_int) = on_signal;
        // SA_RESTART: calls that can go on do so; SA_NOCLDSTOP: only ends of children count.
        disposition(
            *number,
            handler as *const () as libc::sighandler_t,
            libc::SA_RESTART | libc::SA_NOCLDSTOP,
        )?;
    }
    Ok(())
}

/// From now on each of `numbers` is ignored.
pub fn ignore(numbers: &[c_int]) -> io::Result<()> {
    for number in numbers {
        disposition(*number, libc::SIG_IGN, 0)?;
    }
    Ok(())
}

/// From now on each of `numbers` does what the kernel does by default.
pub fn restore(numbers: &[c_int]) -> io::Result<()> {
    for number in numbers {
        disposition(*number, libc::SIG_DFL, 0)?;
    }
    Ok(())
}

fn disposition(number: c_int, handler: libc::sighandler_t, flags: c_int) -> io::Result<()> {
    // SAFETY: sigaction is plain data; all zero is an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: `action` is live and complete; the handler is SIG_IGN, SIG_DFL or `on_signal`, which is async-signal-safe.
    let result = unsafe { libc::sigaction(number, &action, std::ptr::null_mut()) };
    checked(result.into()).map(drop)
}

/// The child that `command` starts gets SIGKILL when the starting thread ends (prctl(2), PR_SET_PDEATHSIG): set after its change of
/// user, which would clear it, and before its exec, which keeps it. A child whose parent is gone already does not exec.
pub fn die_with_starter(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let parent = std::process::id();
    let set = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        let now = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get().unsigned_abs());
        if now == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and builds a number; it takes no lock and no memory.
    unsafe { command.pre_exec(set) };
}

/// What a Landlock ruleset governs (landlock(7)); the layout is the kernel's `struct landlock_ruleset_attr`.
#[repr(C)]
pub struct Ruleset {
    /// Rights on files (`LANDLOCK_ACCESS_FS_*`).
    pub files: u64,
    /// Rights on TCP ports (`LANDLOCK_ACCESS_NET_*`).
    pub ports: u64,
    /// What may not leave the domain (`LANDLOCK_SCOPE_*`).
    pub scopes: u64,
}

#[repr(C, packed)]
struct PathRule {
    access: u64,
    parent: i32,
}

#[repr(C)]
struct PortRule {
    access: u64,
    port: u64,
}

/// The kernel's Landlock ABI, 1 or more; an error where there is none.
pub fn landlock_abi() -> io::Result<u32> {
    const VERSION: c_ulong = 1;
    let none = std::ptr::null::<Ruleset>();
    // SAFETY: with this flag the kernel reads no memory and makes nothing.
    let result = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) };
    checked(result).map(|n| n as u32)
}

/// A new ruleset that forbids all it governs. `size`: how much of the struct this kernel knows (8, 16 or 24).
pub fn landlock_ruleset(rules: &Ruleset, size: usize) -> io::Result<OwnedFd> {
    let size = size.min(size_of::<Ruleset>());
    let from = std::ptr::from_ref(rules);
    // SAFETY: `from` is live and `size` does not pass its end.
    let result = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, from, size, 0 as c_ulong) };
    let number = checked(result)? as RawFd;
    // SAFETY: the kernel just made this descriptor (close-on-exec) and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Allows `access` on the file or below the directory that `parent` (O_PATH) is.
pub fn landlock_path(ruleset: &OwnedFd, access: u64, parent: impl AsFd) -> io::Result<()> {
    let rule = PathRule { access, parent: parent.as_fd().as_raw_fd() };
    landlock_add(ruleset, 1, std::ptr::from_ref(&rule).cast())
}

/// Allows `access` on a TCP port.
pub fn landlock_port(ruleset: &OwnedFd, access: u64, port: u16) -> io::Result<()> {
    let rule = PortRule { access, port: port.into() };
    landlock_add(ruleset, 2, std::ptr::from_ref(&rule).cast())
}

fn landlock_add(ruleset: &OwnedFd, kind: c_int, rule: *const libc::c_void) -> io::Result<()> {
    // SAFETY: both callers pass a live rule of the layout that `kind` names.
    let result =
        unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), kind, rule, 0 as c_ulong) };
    checked(result).map(drop)
}

/// Confines the calling thread and all it starts; needs no-new-privileges.
pub fn landlock_restrict(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: numbers only.
    let result =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0 as c_ulong) };
    checked(result).map(drop)
}

/// Installs a seccomp filter on the calling thread and all it starts; needs no-new-privileges. The kernel checks the program.
pub fn seccomp(program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let from = std::ptr::from_ref(&program);
    let mode = libc::SECCOMP_SET_MODE_FILTER as c_ulong;
    // SAFETY: `from` and the instructions it points to are live; the kernel copies them and writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, mode, 0 as c_ulong, from) };
    checked(result).map(drop)
}

/// A system call of which no argument is an address: for `attempt`, whose calls are meant to be refused, and name null pointers and
/// descriptors that are not open.
pub(in crate::sys) fn bare_call(number: c_long, arguments: [c_long; 5]) -> io::Result<c_long> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the one caller's table holds small numbers only, none of which is the address of memory that the kernel could write to.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    checked(result)
}
