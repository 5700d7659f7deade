//! Threads: the only place that starts any. A thread per connection, reused while warm, capped; a panic ends its connection
//! and is counted, never the process.

use crate::sys::net::{Conn, Listener};
use std::io;
use std::sync::Arc;

/// Serves until accepting fails for good. `most`: connections at a time; one more is closed at once. `each` runs on a thread
/// with a 128 KiB stack. A closed function (`THREAD-nn`).
pub fn serve(listener: &Listener, most: usize, each: Arc<dyn Fn(Conn) + Send + Sync>) -> io::Result<()> {
    let _ = (listener, most, each);
    todo!()
}

/// One long-lived thread. A closed function (`THREAD-nn`).
pub fn spawn(name: &'static str, body: Box<dyn FnOnce() + Send>) -> io::Result<std::thread::JoinHandle<()>> {
    let _ = (name, body);
    todo!()
}

/// Panics caught at a thread's edge since the start.
pub fn panics() -> u64 {
    todo!()
}
