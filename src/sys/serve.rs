//! Threads: the only place that starts any. A thread per connection, reused while warm, capped; a panic ends its connection
//! and is counted, never the process.

use crate::limits::{ACCEPT_PAUSE, STACK_BYTES, WORKER_IDLE};
use crate::sys::net::{Conn, Listener};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

static PANICS: AtomicU64 = AtomicU64::new(0);

type Each = Arc<dyn Fn(Conn) + Send + Sync>;

/// What the accept loop and the workers share.
struct Crew {
    state: Mutex<State>,
    work: Condvar,
    each: Each,
}

#[derive(Default)]
struct State {
    /// Accepted, given to an idle worker that has not woken yet.
    given: VecDeque<Conn>,
    /// Workers that wait and have nothing given to them.
    idle: usize,
    /// Connections being served or given.
    busy: usize,
}

impl Crew {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock, so poison says nothing.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Serves until accepting fails for good. `most`: connections at a time; one more is closed at once. `each` runs on a thread
/// with a stack of `STACK_BYTES`. A closed function (`THREAD-nn`).
pub fn serve(listener: &Listener, most: usize, each: Arc<dyn Fn(Conn) + Send + Sync>) -> io::Result<()> {
    let crew = Arc::new(Crew { state: Mutex::default(), work: Condvar::new(), each });
    loop {
        match listener.accept() {
            Ok(conn) => hand_out(&crew, most, conn),
            Err(e) => match e.raw_os_error().map(Errno::from_raw_os_error) {
                // The one connection is lost, the listener is not (accept(2): network errors of the new socket come here).
                Some(
                    Errno::CONNABORTED
                    | Errno::AGAIN
                    | Errno::PROTO
                    | Errno::TIMEDOUT
                    | Errno::CONNRESET
                    | Errno::NETDOWN
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH,
                ) => {}
                // These may last until a connection ends; without the pause this loop would spin.
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::PERM) => {
                    std::thread::sleep(ACCEPT_PAUSE);
                }
                _ => return Err(e),
            },
        }
    }
}

/// Gives the connection to an idle worker, or starts one. Dropping it closes it.
fn hand_out(crew: &Arc<Crew>, most: usize, conn: Conn) {
    let mut state = crew.state();
    if state.busy >= most {
        return;
    }
    state.busy += 1;
    if state.idle > 0 {
        state.idle -= 1;
        state.given.push_back(conn);
        crew.work.notify_one();
        return;
    }
    drop(state);
    let of = Arc::clone(crew);
    if thread("worker", Box::new(move || work(&of, conn))).is_err() {
        // No thread to be had (a limit): this connection is closed, later ones may fare better.
        crew.state().busy -= 1;
    }
}

/// A worker's life: the connection it was started for, then what it is given, until idle for `WORKER_IDLE`.
fn work(crew: &Crew, first: Conn) {
    let mut next = Some(first);
    while let Some(conn) = next.take() {
        guarded(|| (crew.each)(conn));
        let mut state = crew.state();
        state.busy -= 1;
        state.idle += 1;
        let (mut state, _) = crew
            .work
            .wait_timeout_while(state, WORKER_IDLE, |s| s.given.is_empty())
            .unwrap_or_else(|e| e.into_inner());
        next = state.given.pop_front();
        if next.is_none() {
            // Whoever gives a connection has taken one off `idle` for it; nothing was given, so this one is still counted.
            state.idle -= 1;
        }
    }
}

/// Runs `body`; a panic ends here and is counted.
fn guarded(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        PANICS.fetch_add(1, Ordering::Relaxed);
    }
}

/// One long-lived thread. A closed function (`THREAD-nn`).
pub fn spawn(name: &'static str, body: Box<dyn FnOnce() + Send>) -> io::Result<std::thread::JoinHandle<()>> {
    thread(name, body)
}

fn thread(name: &'static str, body: Box<dyn FnOnce() + Send>) -> io::Result<std::thread::JoinHandle<()>> {
    let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    #[expect(clippy::disallowed_methods, reason = "THREAD-01 every thread of the program")]
    builder.spawn(move || guarded(body))
}

/// Panics caught at a thread's edge since the start.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}
