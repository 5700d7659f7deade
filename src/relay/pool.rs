//! Connections to the provider, plain or TLS: opened, kept while idle, reused last in, first out; for TLS by openssl one more, verified
//! and never used, is kept ready for a while after a call. Called by `exchange`; `tend` runs on a thread of its own.

use crate::limits;
use crate::relay::proxy;
use crate::relay::start::Upstream;
use crate::relay::stunnel;
use crate::relay::tls::{End, Session};
use crate::secret::Secret;
use crate::sys::net::{self, Conn};
use crate::sys::proc;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One connection to the provider.
pub enum Link {
    /// Loopback, or `--insecure-upstream`.
    Plain(Conn),
    /// Through openssl, verified.
    Tls(Session),
    /// Through stunnel, which verifies and says nothing about it.
    Stunnel(Conn),
}

impl Link {
    /// See `Conn::read`.
    pub fn read(&mut self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        match self {
            Link::Plain(c) | Link::Stunnel(c) => c.read(buf, wait),
            Link::Tls(s) => s.read(buf, wait),
        }
    }

    /// See `Conn::send`: `Ok(false)` where an answer began before all was sent.
    pub fn send(&mut self, parts: &[&[u8]], wait: Duration) -> io::Result<bool> {
        match self {
            Link::Plain(c) | Link::Stunnel(c) => c.send(parts, wait),
            Link::Tls(s) => s.send(parts, wait),
        }
    }

    /// Nothing to read and not closed. Bytes that came unasked would be read as the next call's answer.
    pub fn idle(&self) -> bool {
        match self {
            Link::Plain(c) | Link::Stunnel(c) => !c.readable(),
            Link::Tls(s) => s.idle(),
        }
    }

    /// After the end of the stream: may a close-delimited body count as whole? TLS says so by close_notify. A TCP FIN proves
    /// less, but plain upstreams are on this machine (or the user said `--insecure-upstream`), and many local servers end
    /// their bodies so; a reset was an error before it came to this. stunnel ends its side in the same way whether TLS was ended or cut.
    pub fn ended_cleanly(self) -> bool {
        match self {
            Link::Plain(_) => true,
            Link::Stunnel(_) => false,
            Link::Tls(s) => s.end() == End::Clean,
        }
    }
}

/// The connections of one relay that serve nobody now.
pub struct Pool {
    upstream: Upstream,
    /// Password of `--upstream-proxy`.
    password: Option<Secret>,
    state: Mutex<State>,
    /// Something changed that `tend` has to look at.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// With the time since when, the youngest last.
    idle: Vec<(Link, Duration)>,
    /// Never used.
    spare: Option<(Link, Duration)>,
    /// When the last call was answered.
    called: Option<Duration>,
    /// A spare is wanted, once for each call.
    wanted: bool,
    /// `tend` waits without an end. Otherwise it looks again by itself, early enough, and waking it would cost each call a system call.
    parked: bool,
}

impl Pool {
    /// Empty; nothing is opened before the first call.
    pub fn new(upstream: Upstream, password: Option<Secret>) -> Pool {
        Pool { upstream, password, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The provider's place.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The youngest kept connection that is still good; what is not is closed on the way.
    pub fn take(&self) -> Option<Link> {
        loop {
            let (link, since) = self.state().idle.pop()?;
            if proc::monotonic().saturating_sub(since) < limits::POOL_IDLE && link.idle() {
                return Some(link);
            }
        }
    }

    /// Takes back a connection whose last answer was read to its end.
    pub fn put(&self, link: Link) {
        let mut state = self.state();
        let oldest = if state.idle.len() >= limits::POOL_LINKS { Some(state.idle.remove(0)) } else { None };
        state.idle.push((link, proc::monotonic()));
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        if parked {
            self.changed.notify_one();
        }
        // Closing may wait for a child; not under the lock.
        drop(oldest);
    }

    /// A call was answered, and another may follow: the time to make a spare connection, off everybody's way.
    pub fn called(&self) {
        let mut state = self.state();
        (state.called, state.wanted) = (Some(proc::monotonic()), self.spares() && state.spare.is_none());
        let wanted = state.wanted;
        drop(state);
        if wanted {
            self.changed.notify_one();
        }
    }

    /// A connection that has served nobody: the spare where it is still good, else a new one.
    pub fn dial(&self) -> io::Result<Link> {
        let spare = self.state().spare.take();
        match spare {
            Some((link, since))
                if proc::monotonic().saturating_sub(since) < limits::POOL_IDLE && link.idle() =>
            {
                Ok(link)
            }
            _ => self.open(),
        }
    }

    /// A new one: the addresses in their order, each with its own time.
    fn open(&self) -> io::Result<Link> {
        if let Some(stunnel) = &self.upstream.stunnel {
            return stunnel::connect(stunnel).map(Link::Stunnel);
        }
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the upstream has no address");
        for address in &self.upstream.addresses {
            let link = if self.upstream.tls {
                let env = proxy::environment(self.password.as_ref());
                Session::connect(&self.upstream, *address, env).map(Link::Tls)
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

    /// Only openssl's handshake costs enough (a program's start) to be made beforehand.
    fn spares(&self) -> bool {
        self.upstream.tls && self.upstream.stunnel.is_none()
    }

    /// Closes what was idle too long and keeps the spare, for ever. A thread of its own calls it.
    pub fn tend(&self) {
        let mut state = self.state();
        loop {
            let now = proc::monotonic();
            let (over, next) = state.over(now);
            if !over.is_empty() {
                drop(state);
                // Closing may wait for a child.
                drop(over);
                state = self.state();
            } else if state.wanted && state.spare.is_none() {
                state.wanted = false;
                drop(state);
                // One that cannot be had is no fault: the next call tells why.
                let made = self.open();
                state = self.state();
                state.spare = made.ok().map(|link| (link, proc::monotonic()));
            } else {
                state = match next {
                    Some(at) => {
                        let left = at.saturating_sub(now);
                        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => {
                        state.parked = true;
                        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                    }
                };
            }
        }
    }

    /// A panic of another thread leaves a state that is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes out what has to be closed now, and tells when the next will have to be.
    fn over(&mut self, now: Duration) -> (Vec<Link>, Option<Duration>) {
        let end = |since: &Duration| since.saturating_add(limits::POOL_IDLE);
        let young = self.idle.partition_point(|(_, since)| end(since) <= now);
        let mut over: Vec<Link> = self.idle.drain(..young).map(|(link, _)| link).collect();
        let kept_until = self.called.map_or(now, |called| called.saturating_add(limits::SPARE_TIME));
        if kept_until <= now {
            self.wanted = false;
        }
        let spare_until = self.spare.as_ref().map(|(_, since)| end(since).min(kept_until));
        if spare_until.is_some_and(|at| at <= now) {
            over.extend(self.spare.take().map(|(link, _)| link));
        }
        let first = self.idle.first().map(|(_, since)| end(since));
        (over, first.into_iter().chain(spare_until).min())
    }
}
