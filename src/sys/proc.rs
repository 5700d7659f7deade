//! This process and others: identity, signals, clock, randomness, and what a role gives up at its start.

use crate::sys::{exec, file, raw};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit, Signal};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Random bytes from the kernel.
pub fn random(buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buf.len() {
        match rustix::rand::getrandom(&mut buf[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// `n` random bytes as lower-case hex.
pub fn random_hex(n: usize) -> io::Result<String> {
    let mut bytes = vec![0u8; n];
    random(&mut bytes)?;
    let digit = |d: u8| char::from_digit(d.into(), 16).unwrap_or('0');
    Ok(bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect())
}

/// Since the epoch.
pub fn now() -> Duration {
    // A clock before 1970 counts as 1970.
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Since some fixed moment; never goes back. The same in every process of the host until it boots again.
pub fn monotonic() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(t).unwrap_or_default()
}

/// Effective uid and gid.
pub fn ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Clock ticks since boot at which `pid` started (field 22 of `/proc/PID/stat`); `None`: no such process, or only its
/// zombie is left.
pub fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let stat = match proc_file(&format!("/proc/{pid}/stat")) {
        Ok(s) => s,
        // ESRCH: it ended between open and read.
        Err(e)
            if e.kind() == io::ErrorKind::NotFound
                || e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    // Field 2 is the program's name in parentheses and may hold anything, parentheses too; field 3 follows the last one.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start()).unwrap_or_default();
    // A zombie has ended; where nobody reaps it, it would otherwise seem to live for ever.
    if rest.starts_with(['Z', 'X']) {
        return Ok(None);
    }
    let field = rest.split_ascii_whitespace().nth(22 - 3);
    let ticks = field.and_then(|f| f.parse().ok());
    ticks
        .map(Some)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected form of /proc/PID/stat"))
}

/// Processes, zombies not counted, whose command line holds `args` side by side: whole arguments, not parts. Our own is left out.
pub fn with_arguments(args: &[&str]) -> io::Result<Vec<u32>> {
    let wanted: Vec<u8> = args.iter().flat_map(|a| [b"\0", a.as_bytes()].concat()).chain([0]).collect();
    let root =
        rustix::fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(&root)? {
        let Some(pid) = entry?.file_name().to_str().ok().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        // It may be gone by now; a zombie has no command line.
        let Ok(line) = proc_file(&format!("/proc/{pid}/cmdline")) else { continue };
        let holds = line.as_bytes().windows(wanted.len()).any(|w| w == wanted);
        if holds && pid != std::process::id() {
            found.push(pid);
        }
    }
    Ok(found)
}

/// `/proc/sys/kernel/random/boot_id`.
pub fn boot_id() -> io::Result<String> {
    proc_file("/proc/sys/kernel/random/boot_id").map(|s| s.trim().to_owned())
}

/// A file of the kernel's, as text.
fn proc_file(path: &str) -> io::Result<String> {
    const MOST: u64 = 64 * 1024;
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(String::from_utf8_lossy(&file::read_all(fd, MOST)?).into_owned())
}

/// Installs handlers for INT, TERM and HUP (also where they were ignored) and ignores PIPE and XFSZ, so that a closed pipe and a
/// file over `ulimit -f` are errors; each signal that comes writes its number, one byte, to the returned pipe end.
pub fn catch_signals() -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    raw::ignore(&[libc::SIGPIPE, libc::SIGXFSZ])?;
    raw::catch(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP], write)?;
    Ok(read)
}

/// Ignores INT, TERM, HUP, PIPE and XFSZ: the keeper ends only with its asker.
pub fn ignore_signals() -> io::Result<()> {
    raw::ignore(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ])
}

/// SEGV and BUS as by default. Rust's runtime catches them to tell a stack overflow, so others can send them, and its handler aborts where one
/// comes while a thread begins. A real fault ends the process all the same.
pub fn default_fault_signals() -> io::Result<()> {
    raw::restore(&[libc::SIGSEGV, libc::SIGBUS])
}

/// XFSZ as by default again: an ignored signal stays ignored across exec, and the agent's programs shall not inherit that.
pub fn default_file_size_signal() -> io::Result<()> {
    raw::restore(&[libc::SIGXFSZ])
}

/// Raises the limit of open files to `wanted`, as far as its hard limit lets; returns what it then is.
pub fn allow_files(wanted: u64) -> io::Result<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(wanted, |m| m.min(wanted));
    match limit.current {
        Some(now) if now < most => {
            let raised = Rlimit { current: Some(most), maximum: limit.maximum };
            rustix::process::setrlimit(Resource::Nofile, raised)?;
            Ok(most)
        }
        now => Ok(now.unwrap_or(u64::MAX)),
    }
}

/// Whatever the caller's umask: the owner may use what is made. One that shuts out its owner would close our own files to us, and
/// the agent's to the agent.
pub fn owners_umask() {
    let others = Mode::RWXG | Mode::RWXO;
    let mask = rustix::process::umask(others);
    rustix::process::umask(mask & others);
}

/// First acts of a role: closes every descriptor from 3 on that is not in `keep`, sets no-new-privileges, not dumpable, no core
/// dump. With `keep` they stay close-on-exec.
pub fn harden(keep: &[i32]) -> io::Result<()> {
    let mut kept: Vec<u32> = keep.iter().filter_map(|n| u32::try_from(*n).ok()).filter(|n| *n >= 3).collect();
    kept.sort_unstable();
    kept.dedup();
    match close_others(&kept) {
        // Before Linux 5.9, or refused by an engine whose own filter does not know the call.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => close_listed(&kept)?,
        other => other?,
    }
    for number in kept {
        // Adopted only to set the flag; released again, for `net::inherited` to take.
        let fd = raw::adopt(number as i32)?;
        let set = rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC);
        let _: i32 = std::os::fd::IntoRawFd::into_raw_fd(fd);
        set?;
    }
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    no_core()
}

/// Closes the ranges between the kept numbers, which are sorted.
fn close_others(kept: &[u32]) -> io::Result<()> {
    let mut first = 3;
    for number in kept {
        if first < *number {
            raw::close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    raw::close_range(first, u32::MAX)
}

/// The same by the kernel's list of what is open.
fn close_listed(kept: &[u32]) -> io::Result<()> {
    let list = rustix::fs::open(
        "/proc/self/fd",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut open = Vec::new();
    for entry in rustix::fs::Dir::read_from(&list)? {
        let number = entry?.file_name().to_str().ok().and_then(|n| n.parse::<u32>().ok());
        open.extend(number.filter(|n| *n >= 3 && !kept.contains(n)));
    }
    drop(list);
    for number in open {
        // Those that the listing itself held are closed already.
        if let Ok(fd) = raw::adopt(number as i32) {
            drop(fd);
        }
    }
    Ok(())
}

/// RLIMIT_CORE 1, not 0: a core handler on a pipe (`core_pattern` with `|`) is called in spite of 0, but not for 1 (core(5)).
fn no_core() -> io::Result<()> {
    let one = Rlimit { current: Some(1), maximum: Some(1) };
    if rustix::process::setrlimit(Resource::Core, one).is_ok() {
        return Ok(());
    }
    // The hard limit is 0 and may not be raised.
    Ok(rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

/// SIGKILL for us when the thread that started us ends; returns false where the parent is gone already. Set after `become_user`,
/// which clears it.
pub fn die_with_parent(parent: u32) -> io::Result<bool> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Asked after the setting, so that no moment is left in which the parent could end unseen.
    let now = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get().unsigned_abs());
    Ok(now == parent)
}

/// Drops supplementary groups, becomes gid and uid for good, empties all capability sets. Only before the first thread.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    // The calls below change one thread; with a second one the process would keep its old self there.
    if threads()? != 1 {
        return Err(io::Error::other("there are threads already"));
    }
    // (uid_t)-1 means "leave as it is" to the kernel.
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::INVAL.into());
    }
    let (new_uid, new_gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    if rustix::process::geteuid().is_root() {
        // Before setresuid: it takes CAP_SETPCAP and CAP_SETGID away. EINVAL: past the last capability of this kernel.
        for number in 0..64 {
            let one = CapabilitySet::from_bits_retain(1 << number);
            match rustix::thread::remove_capability_from_bounding_set(one) {
                Ok(()) => {}
                Err(Errno::INVAL) => break,
                // Root of a container without CAP_SETPCAP: the sets that act are emptied below all the same.
                Err(Errno::PERM) => break,
                Err(e) => return Err(e.into()),
            }
        }
        rustix::thread::set_thread_groups(&[])?;
    }
    rustix::thread::set_thread_res_gid(new_gid, new_gid, new_gid)?;
    rustix::thread::set_thread_res_uid(new_uid, new_uid, new_uid)?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    match rustix::thread::clear_ambient_capability_set() {
        // EINVAL: a kernel without ambient capabilities.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(e) => return Err(e.into()),
    }
    if ids() != (uid, gid) || (uid != 0 && rustix::thread::set_thread_res_uid(ROOT, ROOT, ROOT).is_ok()) {
        return Err(io::Error::other("the change of user did not hold"));
    }
    Ok(())
}

const ROOT: rustix::fs::Uid = rustix::fs::Uid::ROOT;

/// Processors this process may use; 1 where the kernel does not say.
pub fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

/// Whether uids here are those of the host: no user namespace lies between (user_namespaces(7), "the initial user namespace").
pub fn host_uids() -> io::Result<bool> {
    let map = proc_file("/proc/self/uid_map")?;
    Ok(map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// Whether this kernel has descriptors of processes (Linux 5.3).
pub fn has_pidfd() -> bool {
    rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).is_ok()
}

/// Whether this kernel has user namespaces at all.
pub fn has_user_namespaces() -> bool {
    rustix::fs::statat(rustix::fs::CWD, "/proc/self/ns/user", rustix::fs::AtFlags::empty()).is_ok()
}

/// Threads of this process now (`/proc/self/status`).
pub fn threads() -> io::Result<usize> {
    let status = proc_file("/proc/self/status")?;
    let count = status.lines().find_map(|l| l.strip_prefix("Threads:")?.trim().parse().ok());
    count.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no Threads: in /proc/self/status"))
}

/// The next dead child, any of them, for PID 1: (pid, code or signal). Waits for at most `wait`. The end of a child that
/// `exec::start` made is known to its `Child` afterwards too.
pub fn reap(wait: Duration) -> io::Result<Option<(u32, exec::Ended)>> {
    static BELL: Mutex<Option<OwnedFd>> = Mutex::new(None);
    // Held for the whole wait: one thread reaps.
    let mut bell = BELL.lock().unwrap_or_else(|e| e.into_inner());
    if bell.is_none() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        raw::catch(&[libc::SIGCHLD], write)?;
        *bell = Some(read);
    }
    let Some(bell) = bell.as_ref() else { return Ok(None) };
    let deadline = Instant::now().checked_add(wait);
    loop {
        // Emptied before looking: a child that dies after the look rings again.
        while matches!(rustix::io::read(bell, &mut [0u8; 64]), Ok(n) if n > 0) {}
        if let Some(dead) = exec::reap_any()? {
            return Ok(Some(dead));
        }
        let left = deadline.map_or(DAY, |at| at.saturating_duration_since(Instant::now()).min(DAY));
        if left.is_zero() {
            return Ok(None);
        }
        let time = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Longest single wait of `reap`; it then looks again.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// SIGKILL to every process of our pid namespace but us. Only for PID 1: anywhere else it would reach strangers.
pub fn kill_all() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(Errno::PERM.into());
    }
    // "Group 1" is kill(-1): everybody (kill(2)). The kernel lets no fork slip past it.
    Ok(rustix::process::kill_process_group(Pid::INIT, Signal::KILL)?)
}

/// Sends a signal to a process, or to a group where `pid` is negative. Number 0 only asks whether it is there.
pub fn signal(pid: i32, number: i32) -> io::Result<()> {
    // 0 and -1 are not processes but "my group" and "everybody"; 1 is never ours to signal.
    let target = Pid::from_raw(pid.saturating_abs()).filter(|_| pid != -1).ok_or(Errno::INVAL)?;
    let sent = match (number, pid < 0) {
        (0, true) => rustix::process::test_kill_process_group(target),
        (0, false) => rustix::process::test_kill_process(target),
        (_, group) => {
            let signal = Signal::from_named_raw(number).ok_or(Errno::INVAL)?;
            if group {
                rustix::process::kill_process_group(target, signal)
            } else {
                rustix::process::kill_process(target, signal)
            }
        }
    };
    Ok(sent?)
}

/// Lower this process's limits; `None` leaves one alone.
pub fn limit(processes: Option<u64>, files: Option<u64>, file_bytes: Option<u64>) -> io::Result<()> {
    for (resource, value) in
        [(Resource::Nproc, processes), (Resource::Nofile, files), (Resource::Fsize, file_bytes)]
    {
        let Some(value) = value else { continue };
        // Never above what there is: only root could, and nobody asks for it.
        let value = rustix::process::getrlimit(resource).maximum.map_or(value, |m| m.min(value));
        rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

/// True for a terminal.
pub fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    rustix::termios::isatty(fd)
}

/// Columns of the terminal on `fd`; `None` where it is none.
pub fn columns(fd: BorrowedFd<'_>) -> Option<u16> {
    rustix::termios::tcgetwinsize(fd).ok().map(|w| w.ws_col).filter(|c| *c > 0)
}
