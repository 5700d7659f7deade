//! The three pipes of a child that is talked to while it runs, watched together by one `poll`: a child that fills its standard error
//! or answers before it has read everything can then block nobody. Never waits without a bound. Called by `relay/tls`.

use crate::sys::exec::Child;
use crate::sys::net;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Our ends, non-blocking. A pipe that has ended or was closed by us is `None` and watched no more.
pub struct Pipes {
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
    /// The last read of output filled its buffer, so that more is probably there.
    more: bool,
}

/// Which pipes to watch, and which of them are ready. As an answer all false means: the time was up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// The child's standard input takes bytes, or the child has closed it.
    pub input: bool,
    /// Its standard output has bytes, or has ended.
    pub output: bool,
    /// Its standard error has bytes, or has ended.
    pub errors: bool,
}

impl Pipes {
    /// Takes the pipes of a child started with three `Feed::Pipe`. `size` is asked of the kernel for input and output; it may
    /// refuse (`pipe(7)`, pipe-user-pages-soft), then the default of 64 KiB stays.
    pub fn of(child: &mut Child, size: usize) -> io::Result<Pipes> {
        let pipes =
            Pipes { input: child.stdin(), output: child.stdout(), errors: child.stderr(), more: false };
        for fd in [&pipes.input, &pipes.output, &pipes.errors] {
            let fd = fd.as_ref().ok_or_else(|| io::Error::other("the child has no pipe"))?;
            // The flag belongs to our end only: the child's end of a pipe is another open file. Not by fcntl(F_SETFL): the relay's
            // filter refuses that (`confine`).
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        for fd in [&pipes.input, &pipes.output].into_iter().flatten() {
            let _ = rustix::pipe::fcntl_setpipe_size(fd, size);
        }
        Ok(pipes)
    }

    /// Waits until one of `watch` is ready, at most `time`.
    pub fn wait(&self, watch: Which, time: Duration) -> io::Result<Which> {
        let input = self.input.as_ref().filter(|_| watch.input);
        let output = self.output.as_ref().filter(|_| watch.output);
        let errors = self.errors.as_ref().filter(|_| watch.errors);
        let end = Instant::now().checked_add(time);
        loop {
            let mut set = Vec::with_capacity(3);
            for (fd, flags) in [(input, PollFlags::OUT), (output, PollFlags::IN), (errors, PollFlags::IN)] {
                set.extend(fd.map(|fd| PollFd::new(fd, flags)));
            }
            let left = end.map_or(time, |e| e.saturating_duration_since(Instant::now()));
            match rustix::event::poll(&mut set, Some(&span(left))) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
                Ok(_) => {}
            }
            // Error and hang-up count as ready: the read or write that follows says which it was.
            let mut seen = set.iter().map(|p| !p.revents().is_empty());
            let mut of = |watched: bool| watched && seen.next().unwrap_or(false);
            return Ok(Which {
                input: of(input.is_some()),
                output: of(output.is_some()),
                errors: of(errors.is_some()),
            });
        }
    }

    /// Reads what standard output holds now: 0 at its end, `WouldBlock` where nothing is there.
    pub fn read_output(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = read(&mut self.output, buf);
        self.more = got.as_ref().is_ok_and(|n| *n == buf.len());
        got
    }

    /// The last read of standard output filled its buffer: the next is worth a try without a wait.
    pub fn more_output(&self) -> bool {
        self.more
    }

    /// The same for standard error.
    pub fn read_errors(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        read(&mut self.errors, buf)
    }

    /// Writes what fits now; `WouldBlock` where nothing does, `BrokenPipe` where the child reads no more (SIGPIPE is ignored, as
    /// Rust's runtime sets it).
    pub fn write_input(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let fd = self.input.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        loop {
            match rustix::io::writev(fd, parts) {
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    /// Standard output has not been read to its end.
    pub fn output_open(&self) -> bool {
        self.output.is_some()
    }

    /// Closes all three; a child that still writes gets EPIPE.
    pub fn close(&mut self) {
        *self = Pipes { input: None, output: None, errors: None, more: false };
    }
}

fn read(from: &mut Option<OwnedFd>, buf: &mut [u8]) -> io::Result<usize> {
    let Some(fd) = from.as_ref() else { return Ok(0) };
    loop {
        match rustix::io::read(fd, &mut *buf) {
            Err(rustix::io::Errno::INTR) => {}
            // An ended pipe stays "ready" for ever: no longer watched, or a wait would spin.
            Ok(0) if !buf.is_empty() => {
                *from = None;
                return Ok(0);
            }
            done => return Ok(done?),
        }
    }
}

/// Waits at most `wait` until `fd` takes bytes. A pipe or a terminal that does takes a page without blocking. For descriptors that
/// are shared with others, whose mode `Conn` would change.
pub fn takes_bytes(fd: BorrowedFd<'_>, wait: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    net::poll_until(&mut fds, Instant::now().checked_add(wait)).unwrap_or(true)
}

fn span(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
