//! What happened in the box, numbered, kept until the host has acknowledged it, bounded in bytes. A full store makes the
//! writer wait, and with it the agent: nothing is dropped. Also the state that `/health` and `/status` show. Filled by
//! `supervise`, read by `routes`.

use crate::limits;
use crate::wire::control::{Event, What};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where the box stands; the words are part of the control protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No `/start` yet.
    Waiting,
    /// A turn runs.
    Running,
    /// The last turn ended.
    Idle,
    /// The box is about to go.
    Ending,
}

impl State {
    /// The word in `Status::state`.
    pub fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Running => "running",
            State::Idle => "idle",
            State::Ending => "ending",
        }
    }
}

/// A cursor the host cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCursor {
    /// Beyond the last event that was ever handed out.
    Beyond(u64),
    /// Below what was acknowledged, and so is gone.
    Gone(u64),
}

/// The bounded store.
pub struct Store {
    inner: Mutex<Inner>,
    /// An event or a state came.
    news: Condvar,
    /// Events were freed.
    room: Condvar,
}

struct Inner {
    state: State,
    events: VecDeque<Event>,
    /// What `events` costs (`cost`).
    bytes: usize,
    most: usize,
    /// Number of the last event, of the last one handed out, of the last one acknowledged.
    last: u64,
    given: u64,
    acknowledged: u64,
}

impl Store {
    /// An empty store in state `waiting`; `limit` gives it its size.
    pub fn new() -> Store {
        let inner = Inner {
            state: State::Waiting,
            events: VecDeque::new(),
            bytes: 0,
            most: 0,
            last: 0,
            given: 0,
            acknowledged: 0,
        };
        Store { inner: Mutex::new(inner), news: Condvar::new(), room: Condvar::new() }
    }

    /// Bytes of events kept before a writer waits. One event always fits into an empty store, whatever its size.
    pub fn limit(&self, most: usize) {
        self.lock().most = most;
        self.room.notify_all();
    }

    /// Where the box stands.
    pub fn state(&self) -> State {
        self.lock().state
    }

    /// Moves to `state`; `ending` is final, and frees every writer that waits.
    pub fn enter(&self, state: State) {
        let mut inner = self.lock();
        if inner.state != State::Ending {
            inner.state = state;
        }
        self.news.notify_all();
        self.room.notify_all();
    }

    /// Adds output of the agent. Waits for room; `false`: the box is ending, nothing was kept.
    pub fn output(&self, what: What) -> bool {
        let cost = cost(&what);
        let mut inner = self.lock();
        while inner.state != State::Ending && !inner.events.is_empty() && inner.bytes + cost > inner.most {
            inner = self.room.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        if inner.state == State::Ending {
            return false;
        }
        inner.push(what, cost);
        self.news.notify_all();
        true
    }

    /// Adds the end of a turn and becomes idle, in one step: no reader sees `idle` without it. It never waits for room, since
    /// there is one per turn.
    pub fn finish(&self, what: What) {
        let cost = cost(&what);
        let mut inner = self.lock();
        inner.push(what, cost);
        if inner.state != State::Ending {
            inner.state = State::Idle;
        }
        self.news.notify_all();
    }

    /// Acknowledges all up to `since` and returns what follows, at most `STATUS_BYTES` of it. With none yet it waits for an
    /// event, a change of state, or `wait`; between slices of a second it asks `gone` whether anybody still listens.
    pub fn after(
        &self,
        since: u64,
        wait: Duration,
        gone: &dyn Fn() -> bool,
    ) -> Result<(State, Vec<Event>), BadCursor> {
        let mut inner = self.lock();
        inner.acknowledge(since)?;
        self.room.notify_all();
        let state = inner.state;
        let until = Instant::now() + wait.min(limits::STATUS_WAIT);
        while inner.state == state && state != State::Ending && inner.last <= since {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || gone() {
                break;
            }
            let slice = left.min(Duration::from_secs(1));
            (inner, _) = self.news.wait_timeout(inner, slice).unwrap_or_else(PoisonError::into_inner);
        }
        let events = inner.hand_out(since);
        Ok((inner.state, events))
    }

    /// A writer that panicked left whole values behind: each change is one assignment or push.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Store {
    fn default() -> Store {
        Store::new()
    }
}

impl Inner {
    fn push(&mut self, what: What, cost: usize) {
        self.last += 1;
        self.bytes += cost;
        self.events.push_back(Event { n: self.last, what });
    }

    fn acknowledge(&mut self, since: u64) -> Result<(), BadCursor> {
        if since > self.given {
            return Err(BadCursor::Beyond(self.given));
        }
        if since < self.acknowledged {
            return Err(BadCursor::Gone(self.acknowledged));
        }
        self.acknowledged = since;
        while self.events.front().is_some_and(|e| e.n <= since) {
            if let Some(event) = self.events.pop_front() {
                self.bytes -= cost(&event.what);
            }
        }
        Ok(())
    }

    /// Another caller may have acknowledged more meanwhile; this one gets what is still there after its own cursor.
    fn hand_out(&mut self, since: u64) -> Vec<Event> {
        let mut bytes = 0;
        let mut out = Vec::new();
        for event in self.events.iter().filter(|e| e.n > since) {
            bytes += cost(&event.what);
            if bytes > limits::STATUS_BYTES && !out.is_empty() {
                break;
            }
            out.push(event.clone());
        }
        if let Some(event) = out.last() {
            self.given = self.given.max(event.n);
        }
        out
    }
}

/// What one event takes of the store.
fn cost(what: &What) -> usize {
    let text = match what {
        What::Stdout(line) | What::Stderr(line) => line.text.len(),
        What::TurnEnd(end) => end.turn.len(),
        What::TurnFailed(failed) => failed.turn.len() + failed.why.len(),
    };
    text + limits::EVENT_COST
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use super::{BadCursor, State, Store};
    use crate::limits;
    use crate::wire::control::{Line, TurnEnd, What};
    use std::sync::Arc;
    use std::time::Duration;

    fn line(text: &str) -> What {
        What::Stdout(Line { text: text.to_owned(), more: false })
    }

    fn end() -> What {
        What::TurnEnd(TurnEnd { turn: "t".to_owned(), code: Some(0), signal: None })
    }

    fn texts(store: &Store, since: u64) -> Vec<String> {
        let (_, events) = store.after(since, Duration::ZERO, &|| false).unwrap();
        let text = |what| match what {
            What::Stdout(l) | What::Stderr(l) => l.text,
            other => format!("{other:?}"),
        };
        events.into_iter().map(|e| text(e.what)).collect()
    }

    #[test]
    fn only_an_acknowledgement_frees_an_event() {
        let store = Store::new();
        store.limit(1 << 20);
        for text in ["a", "b", "c"] {
            assert!(store.output(line(text)));
        }
        assert_eq!(texts(&store, 0), ["a", "b", "c"]);
        assert_eq!(texts(&store, 0), ["a", "b", "c"], "asking again loses nothing");
        assert_eq!(texts(&store, 2), ["c"]);
        assert_eq!(store.after(1, Duration::ZERO, &|| false).unwrap_err(), BadCursor::Gone(2));
        assert_eq!(store.after(4, Duration::ZERO, &|| false).unwrap_err(), BadCursor::Beyond(3));
        assert!(texts(&store, 3).is_empty());
    }

    #[test]
    fn an_event_that_was_never_handed_out_cannot_be_acknowledged() {
        let store = Store::new();
        store.limit(1 << 20);
        store.output(line("a"));
        assert_eq!(store.after(1, Duration::ZERO, &|| false).unwrap_err(), BadCursor::Beyond(0));
        assert_eq!(texts(&store, 0), ["a"]);
    }

    #[test]
    fn a_full_store_makes_the_writer_wait_and_loses_nothing() {
        let store = Arc::new(Store::new());
        store.limit(4 * (limits::EVENT_COST + 3));
        let writer = {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                for n in 0..1000 {
                    assert!(store.output(line(&format!("{n:03}"))));
                }
                store.finish(end());
            })
        };
        let (mut since, mut seen) = (0, Vec::new());
        loop {
            let (state, events) = store.after(since, Duration::from_secs(20), &|| false).unwrap();
            assert!(events.len() <= 5, "four lines fit, and the end of the turn");
            seen.extend(events.iter().map(|e| e.n));
            since = seen.last().copied().unwrap_or(0);
            if state == State::Idle && since == 1001 {
                break;
            }
        }
        writer.join().unwrap();
        assert!(seen.iter().copied().eq(1..=1001), "no gap, no repeat");
    }

    #[test]
    fn a_line_larger_than_the_whole_store_still_gets_through() {
        let store = Store::new();
        store.limit(1);
        assert!(store.output(line(&"x".repeat(9000))));
        assert_eq!(texts(&store, 0).len(), 1);
    }

    #[test]
    fn an_answer_is_bounded_and_goes_on_where_it_stopped() {
        let store = Store::new();
        store.limit(usize::MAX / 2);
        let half = "x".repeat(limits::STATUS_BYTES / 2);
        for _ in 0..3 {
            store.output(line(&half));
        }
        assert_eq!(texts(&store, 0).len(), 1);
        assert_eq!(texts(&store, 1).len(), 1);
        assert_eq!(store.after(3, Duration::ZERO, &|| false).unwrap_err(), BadCursor::Beyond(2));
    }

    #[test]
    fn ending_frees_the_writer_and_the_reader() {
        let store = Arc::new(Store::new());
        store.limit(1);
        store.output(line("fills it"));
        let writer = {
            let store = Arc::clone(&store);
            std::thread::spawn(move || store.output(line("waits")))
        };
        let reader = {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let mut since = 0;
                loop {
                    let (state, events) = store.after(since, Duration::from_secs(20), &|| false).unwrap();
                    since = events.last().map_or(since, |e| e.n);
                    if state == State::Ending {
                        return since;
                    }
                }
            })
        };
        while store.lock().acknowledged == 0 {
            std::thread::yield_now();
        }
        store.enter(State::Ending);
        store.enter(State::Running);
        assert_eq!(store.state(), State::Ending, "ending is final");
        writer.join().unwrap();
        assert!(reader.join().unwrap() >= 1);
    }
}
