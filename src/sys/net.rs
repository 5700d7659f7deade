//! Connected byte streams and listeners: TCP, Unix sockets, pipes. Every wait has a bound.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// A connected stream socket, or one end of a pipe.
pub struct Conn {
    fd: OwnedFd,
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
    /// Takes a descriptor over.
    pub fn new(fd: OwnedFd) -> Conn {
        Conn { fd }
    }

    /// Waits at most `wait` for bytes; 0 at the end of the stream; `ErrorKind::TimedOut` where none came.
    pub fn read(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        let _ = (buf, wait);
        todo!()
    }

    /// Writes all parts, one `writev` where it fits; `wait` bounds each stall, not the whole. Never raises SIGPIPE.
    pub fn write_all(&self, parts: &[&[u8]], wait: Duration) -> io::Result<()> {
        let _ = (parts, wait);
        todo!()
    }

    /// Like `write_all`, but returns `Ok(false)` at once when there is something to read (or the peer closed) before all is
    /// written: a server may answer before it has read the whole request.
    pub fn send(&self, parts: &[&[u8]], wait: Duration) -> io::Result<bool> {
        let _ = (parts, wait);
        todo!()
    }

    /// There are bytes to read, or the peer closed: poll with no wait.
    pub fn readable(&self) -> bool {
        todo!()
    }

    /// Waits for bytes or close for at most `wait`.
    pub fn wait_readable(&self, wait: Duration) -> io::Result<bool> {
        let _ = wait;
        todo!()
    }

    /// The other end of a Unix socket.
    pub fn peer(&self) -> io::Result<Peer> {
        todo!()
    }

    /// Sends FIN; reading goes on.
    pub fn shutdown_write(&self) -> io::Result<()> {
        todo!()
    }

    /// Nothing more is read: wakes a thread that waits in `read` (it gets 0).
    pub fn shutdown_read(&self) -> io::Result<()> {
        todo!()
    }

    /// The peer closed its writing side or is gone, even where bytes of it are still unread: poll with no wait.
    pub fn hung_up(&self) -> bool {
        todo!()
    }

    /// Makes close() send RST (SO_LINGER 0), so that a cut answer cannot look ended.
    pub fn reset_on_close(&self) {
        todo!()
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
        Listener { fd }
    }

    /// The next connection, with TCP_NODELAY where it is TCP, close-on-exec.
    pub fn accept(&self) -> io::Result<Conn> {
        let _ = &self.fd;
        todo!()
    }

    /// The bound address of a TCP listener.
    pub fn address(&self) -> Option<SocketAddr> {
        todo!()
    }
}

impl From<Listener> for OwnedFd {
    fn from(l: Listener) -> OwnedFd {
        l.fd
    }
}

/// Binds and listens, backlog 1024. A closed function (`NET-nn`).
pub fn listen_tcp(address: SocketAddr) -> io::Result<Listener> {
    let _ = address;
    todo!()
}

/// Binds `dir/name` (whatever the length of `dir`'s path), after removing an old socket of that name; `mode` is set on it.
/// A closed function (`NET-nn`).
pub fn listen_unix(dir: &Path, name: &str, mode: u32) -> io::Result<Listener> {
    let _ = (dir, name, mode);
    todo!()
}

/// Connects, TCP_NODELAY. A closed function (`NET-nn`).
pub fn connect_tcp(address: SocketAddr, wait: Duration) -> io::Result<Conn> {
    let _ = (address, wait);
    todo!()
}

/// Connects to the socket `dir/name` where `dir` may belong to an enemy: no link is followed, the type is checked, a full
/// backlog is waited for at most `wait`. A closed function (`NET-nn`).
pub fn connect_unix(dir: &Path, name: &str, wait: Duration) -> io::Result<Conn> {
    let _ = (dir, name, wait);
    todo!()
}

/// Addresses of a name, in the resolver's order. A closed function (`NET-nn`).
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let _ = (host, port);
    todo!()
}

/// A pipe: (read end, write end), both close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    todo!()
}

/// The inherited descriptor with this number; it must be open and not have been taken before.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    let _ = number;
    todo!()
}
