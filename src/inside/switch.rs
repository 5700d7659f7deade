//! The dead man's switch: a box whose host has not called for the grace ends itself. Before `/start` its own, absolute limit
//! holds. Fed by `routes` with every call that carried the control secret; watched by `start`.

use crate::limits;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When the host was last heard.
pub struct Switch(Mutex<Inner>);

struct Inner {
    last: Instant,
    grace: Duration,
}

impl Switch {
    /// Runs from now with the limit for a box that was never started.
    pub fn new() -> Switch {
        Switch(Mutex::new(Inner { last: Instant::now(), grace: limits::START_TIME }))
    }

    /// `/start` came: from now on this grace holds.
    pub fn arm(&self, grace: Duration) {
        *self.lock() = Inner { last: Instant::now(), grace };
    }

    /// The host called.
    pub fn feed(&self) {
        self.lock().last = Instant::now();
    }

    /// The grace in force.
    pub fn grace(&self) -> Duration {
        self.lock().grace
    }

    /// Time left; zero: the box must end.
    pub fn left(&self) -> Duration {
        let inner = self.lock();
        inner.grace.saturating_sub(inner.last.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Switch {
    fn default() -> Switch {
        Switch::new()
    }
}
