//! `sanduk inside DIR`: the role that is PID 1 of the box. Gives up what it does not need while it has one thread, binds the
//! control socket, then supervises. The argv is constant: what the run is comes with `POST /start`. Called by `main`.

use crate::error::{Error, Exit};
use crate::inside::control;
use crate::inside::events::Store;
use crate::inside::routes::Routes;
use crate::inside::supervise::{Order, Supervisor};
use crate::inside::switch::Switch;
use crate::limits;
use crate::sys::net::{self, Conn};
use crate::sys::{confine, proc, serve};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The socket's name in the directory the role is given.
const SOCKET: &str = "control.sock";
/// The directory with `relay.sock`, beside the one the role is given.
const RELAY: &str = "host";
/// Everybody: the host may be root, the box's uid, or (rootless engines) the uid that the box's is mapped from. The parent of
/// the directory is 0700 on the host, and in the box there is one uid.
const MODE: u32 = 0o666;

/// Runs the box: `dir` is `box/`, shared with the host. Returns when the box must end; its processes end with PID 1.
///
/// Order: not dumpable first, so that nothing is ever readable; the filter before the first thread, since it holds per thread;
/// the socket before the threads, so that a failure is an error line and exit code.
pub fn role(dir: &Path) -> Result<Exit, Error> {
    let fault = |doing| move |e: io::Error| Error::fault(doing, "", e);
    proc::harden(&[]).map_err(fault("harden the box's first process"))?;
    let threads = proc::threads().map_err(fault("count threads"))?;
    if threads != 1 {
        return Err(Error::fault("confine the box", "", format!("{threads} threads before the filter")));
    }
    confine::boxed().map_err(fault("install the box filter"))?;
    // For all of the box: bwrap has no flag for these. Processes are counted per user namespace: in the host's (docker, which
    // counts them by a control group) those of the same uid out there would count too.
    let processes = match proc::host_uids().map_err(fault("read the map of uids"))? {
        true => None,
        false => Some(limits::BOX_PROCESSES),
    };
    proc::limit(processes, Some(limits::BOX_FILES), Some(limits::BOX_FILE_BYTES))
        .map_err(fault("limit the box"))?;
    let signals = proc::catch_signals().map_err(fault("catch signals"))?;
    proc::default_fault_signals().map_err(fault("reset signals"))?;
    // Inherited as ignored from the host, or by the line above; PID 1 gets an error instead of the signal either way.
    proc::default_file_size_signal().map_err(fault("reset a signal"))?;
    #[expect(clippy::disallowed_methods, reason = "NET-62 the control socket")]
    let listener = net::listen_unix(dir, SOCKET, MODE)
        .map_err(|e| Error::fault("bind the control socket in", dir.display().to_string(), e))?;

    let (orders, take_orders) = channel();
    let store = Arc::new(Store::new());
    let switch = Arc::new(Switch::new());
    let relay = dir.parent().unwrap_or(dir).join(RELAY);
    let routes = Arc::new(Routes::new(Arc::clone(&store), Arc::clone(&switch), orders.clone(), relay));
    control::start(listener, &routes, control::outside).map_err(fault("start the control server"))?;
    let body = Box::new(move || pass_signals(signals, &orders));
    #[expect(clippy::disallowed_methods, reason = "THREAD-67 turns signals into orders")]
    serve::spawn("signals", body).map_err(fault("start the signal thread"))?;
    supervise(Supervisor::new(store, switch, take_orders)).map_err(fault("start the supervisor"))
}

/// Runs it on a thread of its own; the first one only waits, and starts nothing. Whoever starts a thread blocks all signals for that time,
/// and what is blocked in the first thread is not ignored: the kernel then gives a signal that the agent sends to PID 1 to another thread,
/// and the box ends by it (`sig_ignored` and `complete_signal` in Linux's kernel/signal.c).
fn supervise(supervisor: Supervisor) -> io::Result<Exit> {
    let (ended, end) = channel();
    let body = Box::new(move || {
        let _ = ended.send(supervisor.run());
    });
    #[expect(clippy::disallowed_methods, reason = "THREAD-69 runs the turns")]
    serve::spawn("supervisor", body)?;
    // It ends without a word only by a panic.
    Ok(end.recv().unwrap_or(Exit::Fault))
}

/// Each byte of the pipe is the number of a signal that came.
fn pass_signals(signals: OwnedFd, orders: &Sender<Order>) {
    let conn = Conn::new(signals);
    let mut buf = [0; 16];
    loop {
        match conn.read(&mut buf, Duration::from_secs(3600)) {
            Ok(n @ 1..) => {
                for number in buf.iter().take(n) {
                    let _ = orders.send(Order::Signal(*number));
                }
            }
            Err(e) if e.kind() == ErrorKind::TimedOut => {}
            Ok(_) | Err(_) => return,
        }
    }
}
