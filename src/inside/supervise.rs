//! PID 1's main loop: takes orders (a turn, the end, a signal), runs turns, reaps every dead child, watches the dead man's
//! switch. One thread does all of it, so nobody else waits for a child. Called by `start`; `turn` has the agent itself.

use crate::error::Exit;
use crate::inside::events::{State, Store};
use crate::inside::switch::Switch;
use crate::inside::turn::{self, Agent, group};
use crate::limits;
use crate::sys::exec::Ended;
use crate::sys::proc;
use crate::wire::control::{Turn, TurnEnd, TurnFailed, What};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What the other threads ask of the main one.
pub enum Order {
    /// Run this turn after those before it.
    Turn(Box<Turn>),
    /// End the box: `/shutdown`.
    End,
    /// A signal came.
    Signal(u8),
}

/// Between two looks at the orders while an agent runs.
const SLICE: Duration = Duration::from_millis(50);
/// Between two looks for dead orphans while none runs.
const IDLE: Duration = Duration::from_secs(1);
/// Signal numbers (signal(7)), the same on every architecture that we build for.
const SIGKILL: i32 = 9;
const SIGTERM: u8 = 15;

/// The main loop's state.
pub struct Supervisor {
    store: Arc<Store>,
    switch: Arc<Switch>,
    orders: Receiver<Order>,
    turns: VecDeque<Turn>,
}

impl Supervisor {
    /// `orders` is fed by the control server and by the signal thread.
    pub fn new(store: Arc<Store>, switch: Arc<Switch>, orders: Receiver<Order>) -> Supervisor {
        Supervisor { store, switch, orders, turns: VecDeque::new() }
    }

    /// Runs until the box must end and says how. As PID 1 its return ends every process of the box.
    pub fn run(mut self) -> Exit {
        loop {
            if let Some(exit) = self.take(IDLE.min(self.switch.left())) {
                self.end(None);
                return exit;
            }
            while let Ok(Some(_)) = proc::reap(Duration::ZERO) {}
            if let Some(turn) = self.turns.pop_front()
                && let Some(exit) = self.turn(turn)
            {
                return exit;
            }
        }
    }

    /// The next order; `Some`: the box must end.
    fn take(&mut self, wait: Duration) -> Option<Exit> {
        match self.orders.recv_timeout(wait) {
            Ok(Order::Turn(turn)) => self.turns.push_back(*turn),
            Ok(Order::End) => return Some(Exit::Ok),
            Ok(Order::Signal(SIGTERM)) => return Some(Exit::Signal(SIGTERM)),
            // INT and HUP are for a terminal, which a box has not.
            Ok(Order::Signal(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Some(Exit::Fault),
        }
        self.switch.left().is_zero().then_some(Exit::Failed)
    }

    /// One turn, from its start to its end event. `Some`: the box must end, and the agent is dead.
    fn turn(&mut self, mut turn: Turn) -> Option<Exit> {
        self.store.enter(State::Running);
        let agent = match turn::begin(&mut turn, &self.store) {
            Ok(agent) => agent,
            Err(why) => {
                self.store.finish(What::TurnFailed(TurnFailed { turn: turn.id, why }));
                return None;
            }
        };
        let ended = match self.watch(&agent) {
            Ok(ended) => ended,
            Err(exit) => {
                self.end(Some(&agent));
                return Some(exit);
            }
        };
        if let Err(exit) = self.drain(&agent) {
            self.end(None);
            kill_rest(agent.pid);
            return Some(exit);
        }
        let (code, signal) = match ended {
            Ended::Code(code) => (Some(code), None),
            Ended::Signal(signal) => (None, Some(signal)),
        };
        self.store.finish(What::TurnEnd(TurnEnd { turn: turn.id, code, signal }));
        None
    }

    /// Waits for the agent's exit, reaping whatever else dies.
    fn watch(&mut self, agent: &Agent) -> Result<Ended, Exit> {
        loop {
            if let Some(exit) = self.take(Duration::ZERO) {
                return Err(exit);
            }
            match proc::reap(SLICE) {
                Ok(Some((pid, ended))) if pid == agent.pid => return Ok(ended),
                Ok(Some(_)) => {}
                // `Err`: no child at all, although the agent was not reaped. It cannot be, and must not become a busy loop.
                Ok(None) => {}
                Err(_) => std::thread::sleep(SLICE),
            }
        }
    }

    /// After the agent's exit: its output is read to the end, however slow the host is. Processes it left may keep that open
    /// for `DRAIN_TIME` (a pipe's last stage that flushes), then all are killed; those that did not keep it open die too.
    fn drain(&mut self, agent: &Agent) -> Result<(), Exit> {
        let until = Instant::now() + limits::DRAIN_TIME;
        let mut killed = false;
        while agent.output.recv_timeout(SLICE) == Err(RecvTimeoutError::Timeout) {
            if let Some(exit) = self.take(Duration::ZERO) {
                return Err(exit);
            }
            if !killed && Instant::now() >= until {
                kill_rest(agent.pid);
                agent.no_writer.store(true, Ordering::Release);
                killed = true;
            }
            while let Ok(Some(_)) = proc::reap(Duration::ZERO) {}
        }
        kill_rest(agent.pid);
        Ok(())
    }

    /// Ends the box: TERM to the agent's group, KILL to everything after `TERM_TIME`.
    fn end(&self, agent: Option<&Agent>) {
        self.store.enter(State::Ending);
        let Some(agent) = agent else { return };
        // The group may be gone already.
        let _ = proc::signal(group(agent.pid), i32::from(SIGTERM));
        let until = Instant::now() + limits::TERM_TIME;
        while Instant::now() < until {
            match proc::reap(SLICE) {
                Ok(Some((pid, _))) if pid == agent.pid => break,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        kill_rest(agent.pid);
    }
}

/// Kills what a turn left, and waits (bounded: a process may hang in the kernel) until it is reaped: as PID 1 every process of the
/// box but us, else the agent's group.
fn kill_rest(agent: u32) {
    if std::process::id() != 1 {
        // An error says that nobody is left.
        let _ = proc::signal(group(agent), SIGKILL);
        return;
    }
    let until = Instant::now() + limits::TERM_TIME;
    // It succeeds as long as there is anybody, be it a zombie.
    while proc::kill_all().is_ok() && Instant::now() < until {
        let _ = proc::reap(SLICE);
    }
}
