//! Connections to the provider, plain or TLS: opened, kept while idle, reused last in, first out. Called by `exchange`.

use crate::limits;
use crate::relay::start::Upstream;
use crate::relay::tls::{End, Session};
use crate::sys::net::{self, Conn};
use crate::sys::proc;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One connection to the provider.
pub enum Link {
    /// Loopback, or `--insecure-upstream`.
    Plain(Conn),
    /// Through openssl, verified.
    Tls(Session),
}

impl Link {
    /// See `Conn::read`.
    pub fn read(&mut self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        match self {
            Link::Plain(c) => c.read(buf, wait),
            Link::Tls(s) => s.read(buf, wait),
        }
    }

    /// See `Conn::send`: `Ok(false)` where an answer began before all was sent.
    pub fn send(&mut self, parts: &[&[u8]], wait: Duration) -> io::Result<bool> {
        match self {
            Link::Plain(c) => c.send(parts, wait),
            Link::Tls(s) => s.send(parts, wait),
        }
    }

    /// Nothing to read and not closed. Bytes that came unasked would be read as the next call's answer.
    pub fn idle(&self) -> bool {
        match self {
            Link::Plain(c) => !c.readable(),
            Link::Tls(s) => s.idle(),
        }
    }

    /// After the end of the stream: may a close-delimited body count as whole? TLS says so by close_notify. A TCP FIN proves
    /// less, but plain upstreams are on this machine (or the user said `--insecure-upstream`), and many local servers end
    /// their bodies so; a reset was an error before it came to this.
    pub fn ended_cleanly(self) -> bool {
        match self {
            Link::Plain(_) => true,
            Link::Tls(s) => s.end() == End::Clean,
        }
    }
}

/// The idle connections of one relay.
pub struct Pool {
    upstream: Upstream,
    idle: Mutex<Vec<(Link, Duration)>>,
}

impl Pool {
    /// Empty; nothing is opened before the first call.
    pub fn new(upstream: Upstream) -> Pool {
        Pool { upstream, idle: Mutex::new(Vec::new()) }
    }

    /// The provider's place.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The youngest idle connection that is still good; what is not is closed on the way.
    pub fn take(&self) -> Option<Link> {
        loop {
            let (link, since) = self.links().pop()?;
            if proc::monotonic().saturating_sub(since) < limits::POOL_IDLE && link.idle() {
                return Some(link);
            }
        }
    }

    /// Takes back a connection whose last answer was read to its end.
    pub fn put(&self, link: Link) {
        let mut links = self.links();
        let oldest = if links.len() >= limits::POOL_LINKS { Some(links.remove(0)) } else { None };
        links.push((link, proc::monotonic()));
        drop(links);
        // Closing may wait for a child; not under the lock.
        drop(oldest);
    }

    /// A new connection: the addresses in their order, each with its own time.
    pub fn dial(&self) -> io::Result<Link> {
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the upstream has no address");
        for address in &self.upstream.addresses {
            let link = if self.upstream.tls {
                Session::connect(&self.upstream, *address).map(Link::Tls)
            } else {
                #[expect(clippy::disallowed_methods, reason = "NET-21 plain TCP to the upstream")]
                net::connect_tcp(*address, limits::CONNECT_TIME).map(Link::Plain)
            };
            match link {
                Ok(link) => return Ok(link),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// A panic of another thread leaves a list that is whole.
    fn links(&self) -> MutexGuard<'_, Vec<(Link, Duration)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
