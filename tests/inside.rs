//! The role inside the box: its control server, its supervisor, its forwarder. Most tests run the real binary as PID 1 of a
//! real bubblewrap box, with a hostile agent; those of `server` and `forward` need no box.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "inside/client.rs"]
mod client;
#[path = "inside/forward.rs"]
mod forward;
#[path = "inside/hostile.rs"]
mod hostile;
#[path = "inside/server.rs"]
mod server;
#[path = "inside/small_box.rs"]
mod small_box;
#[path = "inside/turns.rs"]
mod turns;
