//! Connected byte streams and listeners: TCP, Unix sockets, pipes. Every wait has a bound.
//! SIGPIPE is ignored by Rust's runtime before `main`, so a write to a closed pipe is an error here and never a signal; sockets
//! are written with MSG_NOSIGNAL besides.

use crate::limits::BACKLOG;
use crate::sys::raw;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A connected stream socket, or one end of a pipe.
pub struct Conn {
    fd: OwnedFd,
    kind: Kind,
    /// Sockets: the receive timeout that is set now, in milliseconds (`SO_RCVTIMEO`).
    timer: AtomicU64,
    /// Pipes: the last read filled its buffer, so the next one is tried before it is waited for.
    more: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Blocking; each call says by its flags whether it waits.
    Socket,
    /// Our end is set non-blocking; the other end is not touched by that.
    Pipe,
    /// A terminal or a file: waited for, then read or written blocking.
    Other,
}

/// Who is at the other end of a Unix socket (`SO_PEERCRED`). `pid` 0: outside our pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// 0 where the peer is not in our pid namespace.
    pub pid: i32,
    /// Uid as this namespace sees it.
    pub uid: u32,
}

impl Conn {
    /// Takes a descriptor over. The end of a pipe is set non-blocking, so it must be ours alone.
    pub fn new(fd: OwnedFd) -> Conn {
        let kind = match rustix::fs::fstat(&fd).map(|s| FileType::from_raw_mode(s.st_mode)) {
            Ok(FileType::Socket) => Kind::Socket,
            Ok(FileType::Fifo) if rustix::io::ioctl_fionbio(&fd, true).is_ok() => Kind::Pipe,
            _ => Kind::Other,
        };
        Conn { fd, kind, timer: AtomicU64::new(u64::MAX), more: AtomicBool::new(false) }
    }

    /// Waits at most `wait` for bytes; 0 at the end of the stream; `ErrorKind::TimedOut` where none came. A socket costs one
    /// system call whether bytes are there or not.
    pub fn read(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        let deadline = Instant::now().checked_add(wait);
        let mut flags = RecvFlags::empty();
        match self.kind {
            Kind::Socket if wait.is_zero() => flags = RecvFlags::DONTWAIT,
            Kind::Socket => self.lower_timer(wait)?,
            Kind::Pipe if self.more.load(Ordering::Relaxed) => {}
            Kind::Pipe | Kind::Other => self.wait_until(PollFlags::IN, deadline)?,
        }
        loop {
            let got = match self.kind {
                Kind::Socket => rustix::net::recv(&self.fd, &mut *buf, flags).map(|(n, _)| n),
                Kind::Pipe | Kind::Other => rustix::io::read(&self.fd, &mut *buf),
            };
            match got {
                Ok(n) => {
                    self.more.store(n == buf.len(), Ordering::Relaxed);
                    return Ok(n);
                }
                // A signal came, or the timer ran out, or the descriptor came to us non-blocking: the clock decides.
                Err(Errno::INTR | Errno::AGAIN) => self.wait_until(PollFlags::IN, deadline)?,
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Writes all parts, one `writev` where it fits; `wait` bounds each stall, not the whole. Never raises SIGPIPE.
    pub fn write_all(&self, parts: &[&[u8]], wait: Duration) -> io::Result<()> {
        self.write_parts(parts, None, wait).map(drop)
    }

    /// Like `write_all`, but returns `Ok(false)` at once when there is something to read (or the peer closed) before all is
    /// written: a server may answer before it has read the whole request.
    pub fn send(&self, parts: &[&[u8]], wait: Duration) -> io::Result<bool> {
        self.write_parts(parts, Some(self.fd.as_fd()), wait)
    }

    fn write_parts(
        &self,
        parts: &[&[u8]],
        answer: Option<BorrowedFd<'_>>,
        wait: Duration,
    ) -> io::Result<bool> {
        // A head and a body with an edit or two need no memory of the allocator's.
        let mut few = [IoSlice::new(&[]); 8];
        let mut many = vec![IoSlice::new(&[]); if parts.len() > few.len() { parts.len() } else { 0 }];
        let mut left = few.get_mut(..parts.len()).unwrap_or(&mut many);
        for (slice, part) in left.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        // Drops empty parts in front: a writev of nothing would look like a closed peer.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match self.write_some(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => IoSlice::advance_slices(&mut left, n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !self.wait_writable(answer, wait)? => return Ok(false),
                Err(Errno::AGAIN) => {}
                // The peer closed, but an answer may lie in the buffer: reading tells.
                Err(Errno::PIPE | Errno::CONNRESET) if answer.is_some() => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    fn write_some(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        // IOV_MAX; more parts go with the next call.
        let parts = &parts[..parts.len().min(1024)];
        match self.kind {
            Kind::Socket => {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                rustix::net::sendmsg(&self.fd, parts, &mut Default::default(), flags)
            }
            Kind::Pipe | Kind::Other => rustix::io::writev(&self.fd, parts),
        }
    }

    /// False: `answer` has something to read.
    fn wait_writable(&self, answer: Option<BorrowedFd<'_>>, wait: Duration) -> io::Result<bool> {
        let Some(answer) = answer else {
            self.wait_until(PollFlags::OUT, Instant::now().checked_add(wait))?;
            return Ok(true);
        };
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::OUT),
            PollFd::from_borrowed_fd(answer, PollFlags::IN | PollFlags::RDHUP),
        ];
        if !poll_until(&mut fds, Instant::now().checked_add(wait))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(fds[1].revents().is_empty())
    }

    /// There are bytes to read, or the peer closed. Does not wait.
    pub fn readable(&self) -> bool {
        if self.kind != Kind::Socket {
            // A poll that fails says so on the next read.
            return self.wait_readable(Duration::ZERO).unwrap_or(true);
        }
        // Looks at one byte and leaves it: for a socket cheaper than a poll.
        let got = rustix::net::recv(&self.fd, &mut [0u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(got, Err(Errno::AGAIN))
    }

    /// Waits for bytes or close for at most `wait`.
    pub fn wait_readable(&self, wait: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)];
        poll_until(&mut fds, Instant::now().checked_add(wait))
    }

    /// The other end of a Unix socket.
    pub fn peer(&self) -> io::Result<Peer> {
        raw::peer_credentials(&self.fd).map(|(pid, uid)| Peer { pid, uid })
    }

    /// Sends FIN; reading goes on.
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Write)?)
    }

    /// Nothing more is read: wakes a thread that waits in `read` (it gets 0).
    pub fn shutdown_read(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Read)?)
    }

    /// The peer closed its writing side or is gone, even where bytes of it are still unread: poll with no wait.
    pub fn hung_up(&self) -> bool {
        self.hangs_up(Duration::ZERO)
    }

    /// Waits for that for at most `wait`.
    pub fn hangs_up(&self, wait: Duration) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        // A poll that fails is no sign of life either.
        poll_until(&mut fds, Instant::now().checked_add(wait)).unwrap_or(true)
    }

    /// Makes close() send RST (SO_LINGER 0), so that a cut answer cannot look ended. Unix sockets and pipes know no RST: there
    /// the reader sees the end of the stream, and only its own framing tells a cut.
    pub fn reset_on_close(&self) {
        // Best effort: where it fails the stream ends without its final chunk, which is a cut all the same.
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Makes a receive return within `wait`: where that is sooner than need be, `read` waits on by poll. So the timer is only ever
    /// lowered, and by half at least: a few calls in a connection's life, however its waits differ.
    fn lower_timer(&self, wait: Duration) -> io::Result<()> {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).clamp(1, FOREVER_MILLIS);
        if self.timer.load(Ordering::Relaxed) > millis {
            let millis = 1 << millis.ilog2();
            let timer = Some(Duration::from_millis(millis));
            sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, timer)?;
            self.timer.store(millis, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for `what`, an error of kind `TimedOut` where it does not come.
    fn wait_until(&self, what: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
        let ready = poll_until(&mut [PollFd::new(&self.fd, what)], deadline)?;
        if ready { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }
}

/// A year: longer waits are cut to it, far inside what the kernel's clock types hold.
const FOREVER_MILLIS: u64 = 365 * 24 * 3600 * 1000;

/// Waits until one of `fds` is ready; false where `deadline` passed first (`None`: so far away that no clock holds it).
pub(super) fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = match deadline {
            Some(at) => at.saturating_duration_since(Instant::now()),
            None => Duration::from_millis(FOREVER_MILLIS),
        };
        let time = Timespec::try_from(left.min(Duration::from_millis(FOREVER_MILLIS)))
            .map_err(|_| io::Error::from(Errno::INVAL))?;
        match poll(fds, Some(&time)) {
            Ok(n) => return Ok(n > 0),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Conn> for OwnedFd {
    fn from(c: Conn) -> OwnedFd {
        c.fd
    }
}

/// A listening socket, TCP or Unix.
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Takes a listening descriptor over.
    pub fn new(fd: OwnedFd) -> Listener {
        // Accepted sockets inherit it, which saves a call on each; a Unix socket refuses it, harmlessly.
        let _ = sockopt::set_tcp_nodelay(&fd, true);
        Listener { fd }
    }

    /// The next connection, with TCP_NODELAY where it is TCP, close-on-exec.
    pub fn accept(&self) -> io::Result<Conn> {
        loop {
            match rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    return Ok(Conn {
                        fd,
                        kind: Kind::Socket,
                        timer: AtomicU64::new(u64::MAX),
                        more: AtomicBool::new(false),
                    });
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The bound address of a TCP listener.
    pub fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.fd).ok().and_then(|a| SocketAddr::try_from(a).ok())
    }
}

impl From<Listener> for OwnedFd {
    fn from(l: Listener) -> OwnedFd {
        l.fd
    }
}

/// Binds and listens, backlog 1024. A closed function (`NET-nn`).
pub fn listen_tcp(address: SocketAddr) -> io::Result<Listener> {
    let fd = stream(family(address))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    rustix::net::bind(&fd, &address)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(Listener::new(fd))
}

/// Binds `dir/name` (whatever the length of `dir`'s path), after removing an old socket of that name; `mode` is set on it.
/// A closed function (`NET-nn`).
pub fn listen_unix(dir: &Path, name: &str, mode: u32) -> io::Result<Listener> {
    let dir = open_dir(dir)?;
    let name = component(name)?;
    if let Ok(old) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
        && FileType::from_raw_mode(old.st_mode) == FileType::Socket
    {
        rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
    }
    let fd = stream(AddressFamily::UNIX)?;
    // The mode of the socket's own inode is what bind() gives the new name, less the umask: never wider than asked, at no instant.
    rustix::fs::fchmod(&fd, Mode::from_bits_truncate(mode))?;
    let path = format!("/proc/self/fd/{}/{name}", dir.as_raw_fd());
    rustix::net::bind(&fd, &rustix::net::SocketAddrUnix::new(path)?)?;
    rustix::fs::chmodat(&dir, name, Mode::from_bits_truncate(mode), AtFlags::empty())?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(Listener::new(fd))
}

/// Connects, TCP_NODELAY. A closed function (`NET-nn`).
pub fn connect_tcp(address: SocketAddr, wait: Duration) -> io::Result<Conn> {
    let fd = stream(family(address))?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    connect(&fd, &address, wait)?;
    Ok(Conn::new(fd))
}

/// Connects to the socket `dir/name` where `dir` may belong to an enemy: no link is followed, the type is checked, a full
/// backlog is waited for at most `wait`. A closed function (`NET-nn`).
pub fn connect_unix(dir: &Path, name: &str, wait: Duration) -> io::Result<Conn> {
    let dir = open_dir(dir)?;
    // O_PATH pins the very inode whose type is checked: a name that is exchanged meanwhile leads nowhere else.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = rustix::fs::openat(&dir, component(name)?, flags, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&at)?.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a socket"));
    }
    let fd = stream(AddressFamily::UNIX)?;
    let path = format!("/proc/self/fd/{}", at.as_raw_fd());
    connect(&fd, &rustix::net::SocketAddrUnix::new(path)?, wait)?;
    Ok(Conn::new(fd))
}

/// connect(2) within `wait`. SO_SNDTIMEO bounds it: TCP gives EINPROGRESS where the time is up, a Unix socket with a full backlog
/// EAGAIN. Our writes do not wait in the kernel (MSG_DONTWAIT), so the timer may stay.
fn connect(fd: &OwnedFd, to: &impl rustix::net::addr::SocketAddrArg, wait: Duration) -> io::Result<()> {
    let deadline = Instant::now().checked_add(wait);
    let wait = wait.clamp(Duration::from_millis(1), Duration::from_millis(FOREVER_MILLIS));
    sockopt::set_socket_timeout(fd, sockopt::Timeout::Send, Some(wait))?;
    match rustix::net::connect(fd, to) {
        Ok(()) => Ok(()),
        Err(Errno::INPROGRESS | Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        // A signal does not undo a TCP connect that has begun: wait for its outcome.
        Err(Errno::INTR) => {
            if !poll_until(&mut [PollFd::new(fd, PollFlags::OUT)], deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(fd)??;
            // A Unix socket is either connected by now or was not queued at all.
            Ok(rustix::net::getpeername(fd).map(drop)?)
        }
        Err(e) => Err(e.into()),
    }
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn stream(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

fn open_dir(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn component(name: &str) -> io::Result<&str> {
    crate::sys::file::component(name)
}

/// Addresses of a name, in the resolver's order. A closed function (`NET-nn`).
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    use std::net::ToSocketAddrs;
    #[expect(clippy::disallowed_methods, reason = "NET-01 the C library's resolver; callers are listed")]
    let found = (host, port).to_socket_addrs()?;
    Ok(found.collect())
}

/// A pipe: (read end, write end), both close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// The inherited descriptor with this number; it must be open and not have been taken before.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<Vec<i32>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
    if taken.contains(&number) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "descriptor taken twice"));
    }
    let fd = raw::adopt(number)?;
    taken.push(number);
    Ok(fd)
}
