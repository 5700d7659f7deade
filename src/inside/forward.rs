//! The forwarder: 127.0.0.1 in the box to `relay.sock`, bytes as they come, both ways; it reads nothing in them. A relay that is
//! being started again is waited for, bounded by the grace. An end that was not clean reaches the agent as a reset, so that a
//! cut answer never looks whole. Started by `routes` with `/start`.

use crate::limits;
use crate::sys::net::{self, Conn};
use crate::sys::serve;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Listens on 127.0.0.1:`port` and carries each connection to `dir/relay.sock`.
pub fn start(port: u16, dir: PathBuf, grace: Duration) -> io::Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    #[expect(clippy::disallowed_methods, reason = "NET-60 the forwarder's port in the box")]
    let listener = net::listen_tcp(address)?;
    let each: Arc<dyn Fn(Conn) + Send + Sync> = Arc::new(move |client| carry(client, &dir, grace));
    let body = Box::new(move || {
        #[expect(clippy::disallowed_methods, reason = "THREAD-62 a thread per forwarded connection")]
        // It ends only when accepting fails for good; the agent then sees refused connections.
        let _ = serve::serve(&listener, limits::CONNECTIONS, each);
    });
    #[expect(clippy::disallowed_methods, reason = "THREAD-63 accepts the agent's connections")]
    serve::spawn("forward", body)?;
    Ok(())
}

/// The two ends; closed when both directions have let go of them.
struct Pair {
    client: Conn,
    relay: Conn,
}

/// How one direction ended.
enum End {
    /// The source ended its side.
    Source,
    /// The source was reset.
    SourceBroken,
    /// The sink takes no more.
    SinkBroken,
}

fn carry(client: Conn, dir: &Path, grace: Duration) {
    let Some(relay) = reach(&client, dir, grace) else {
        client.reset_on_close();
        return;
    };
    let pair = Arc::new(Pair { client, relay });
    // Carries nothing: its sender is dropped when the thread below ends, however it ends.
    let (held, up_ended) = channel::<()>();
    let body = {
        let pair = Arc::clone(&pair);
        Box::new(move || {
            up(&pair);
            drop(held);
        })
    };
    #[expect(clippy::disallowed_methods, reason = "THREAD-64 the way up of a forwarded connection")]
    let started = serve::spawn("up", body);
    match started {
        Ok(_) => down(&pair, &up_ended),
        Err(_) => pair.client.reset_on_close(),
    }
}

/// A connection to the relay. A client that leaves while it waits is dropped: its request must not be paid for later.
fn reach(client: &Conn, dir: &Path, grace: Duration) -> Option<Conn> {
    let since = Instant::now();
    loop {
        #[expect(clippy::disallowed_methods, reason = "NET-61 the relay, from the box")]
        let tried = net::connect_unix(dir, "relay.sock", limits::CONNECT_TIME);
        if let Ok(relay) = tried {
            return Some(relay);
        }
        if client.hung_up() || since.elapsed() >= grace {
            return None;
        }
        std::thread::sleep(limits::RELAY_RETRY);
    }
}

/// Client to relay.
fn up(pair: &Pair) {
    match copy(&pair.client, &pair.relay) {
        // A half-close goes on as one. Failing means that the relay is gone, which the other direction sees.
        End::Source => drop(pair.relay.shutdown_write()),
        End::SourceBroken => hang_up(&pair.relay),
        // The relay may have answered before it read all: what the client still sends is dropped, so that it can read that.
        End::SinkBroken => discard(&pair.client),
    }
}

/// Relay to client; then ends the other direction too.
fn down(pair: &Pair, up_ended: &Receiver<()>) {
    match copy(&pair.relay, &pair.client) {
        End::Source => {
            let _ = pair.client.shutdown_write();
            let _ = up_ended.recv_timeout(limits::FORWARD_LINGER);
        }
        End::SourceBroken => pair.client.reset_on_close(),
        End::SinkBroken => {}
    }
    hang_up(&pair.relay);
    // Only the reading side: a FIN sent by shutting down the writing side would turn the reset into a clean end.
    let _ = pair.client.shutdown_read();
    let _ = up_ended.recv();
}

/// Both directions of a socket, also for the thread that waits in one. What fails here is closed already.
fn hang_up(conn: &Conn) {
    let _ = conn.shutdown_write();
    let _ = conn.shutdown_read();
}

fn copy(from: &Conn, to: &Conn) -> End {
    let mut buf = vec![0; limits::COPY_BYTES];
    loop {
        match from.read(&mut buf, limits::FORWARD_STALL) {
            Ok(0) => return End::Source,
            Ok(n) => {
                if to.write_all(&[buf.get(..n).unwrap_or_default()], limits::FORWARD_STALL).is_err() {
                    return End::SinkBroken;
                }
            }
            Err(e) if e.kind() == ErrorKind::TimedOut => {}
            Err(_) => return End::SourceBroken,
        }
    }
}

fn discard(from: &Conn) {
    let mut buf = vec![0; limits::COPY_BYTES];
    while let Ok(1..) = from.read(&mut buf, limits::FORWARD_STALL) {}
}
