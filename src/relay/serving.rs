//! What all connections of one relay share: the policy, the secrets, the pool, the log, the bounds over all of them, and
//! the one way to end the run. Made by `start` and `foreground`.

use crate::catalog::providers::Provider;
use crate::error::Exit;
use crate::limits;
use crate::relay::bodies::Bodies;
use crate::relay::budget::{Charge, Hold, Meter};
use crate::relay::leak::Guard;
use crate::relay::log::Log;
use crate::relay::note::{Call, Denied, Note, Stop, Warning};
use crate::relay::policy::Rules;
use crate::relay::pool::Pool;
use crate::relay::record::{Counts, Outcome, Record, Retry, Verdict};
use crate::relay::search::Named;
use crate::relay::start::Grants;
use crate::relay::usage::Usage;
use crate::secret::Secret;
use crate::sys::proc;
use crate::wire::money::Money;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Takes notes for the asker or the person. Must not block for long: it is called by connections.
pub type Tell = Box<dyn Fn(Note) + Send + Sync>;

/// Called once, with the reason, when policy ends the run.
pub type AtEnd = Box<dyn FnMut(&Stop) + Send>;

/// A call between its verdict and its outcome.
pub struct Opened {
    /// What is told and recorded of it where the relay ends first.
    pub call: Call,
    /// When it began, by `proc::monotonic`.
    pub begun: Duration,
    /// What it holds of the caps.
    pub hold: Hold,
}

/// A call that ended with the relay.
type Left = (Call, Hold, Charge);

/// One relay.
pub struct Serving {
    /// Routes, headers, credential.
    pub provider: Provider,
    /// What its file says about bodies.
    pub rules: Rules,
    /// `Host` values that are ours, lower case.
    pub hosts: Vec<String>,
    /// Only this uid may connect over a Unix socket.
    pub peer_uid: Option<u32>,
    /// The model policy.
    pub grants: Grants,
    /// The caps, and what is used of them.
    pub meter: Meter,
    /// What the box presents as its key.
    pub token: Secret,
    /// What the provider gets instead, what else may not leave, and the search for both.
    pub guard: Guard,
    /// `Host` towards the provider.
    pub upstream_host: String,
    /// Connections to it.
    pub pool: Pool,
    /// The record.
    pub log: Log,
    /// `--log-bodies`.
    pub bodies: Option<Bodies>,
    /// Body bytes held by all connections.
    pub body_bytes: AtomicUsize,
    /// By number. Who takes a call out settles it: its own connection, or the end of the relay.
    open: Mutex<BTreeMap<u64, Opened>>,
    over: AtomicBool,
    refusals: AtomicU64,
    tell: Tell,
    ended: Mutex<AtEnd>,
}

/// The parts `Serving::new` is made of.
pub struct Parts {
    /// See `Serving`; so for all.
    pub provider: Provider,
    /// See `Serving`.
    pub rules: Rules,
    /// See `Serving`.
    pub hosts: Vec<String>,
    /// See `Serving`.
    pub peer_uid: Option<u32>,
    /// See `Serving`.
    pub grants: Grants,
    /// See `Serving`.
    pub meter: Meter,
    /// See `Serving`.
    pub token: Secret,
    /// What the provider gets instead.
    pub key: Secret,
    /// What else may not leave in a request.
    pub named: Vec<Named>,
    /// See `Serving`.
    pub pool: Pool,
    /// See `Serving`.
    pub log: Log,
    /// See `Serving`.
    pub bodies: Option<Bodies>,
    /// Gets every note.
    pub tell: Tell,
    /// See `AtEnd`.
    pub ended: AtEnd,
}

impl Serving {
    /// Puts the parts together.
    pub fn new(p: Parts) -> Serving {
        Serving {
            meter: p.meter,
            upstream_host: crate::relay::upstream::host_value(p.pool.upstream()),
            provider: p.provider,
            rules: p.rules,
            hosts: p.hosts,
            peer_uid: p.peer_uid,
            grants: p.grants,
            token: p.token,
            guard: Guard::new(p.key, p.named),
            pool: p.pool,
            log: p.log,
            bodies: p.bodies,
            body_bytes: AtomicUsize::new(0),
            open: Mutex::new(BTreeMap::new()),
            over: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            tell: p.tell,
            ended: Mutex::new(p.ended),
        }
    }

    /// Passes a note on.
    pub fn tell(&self, note: Note) {
        (self.tell)(note);
    }

    /// The run has been ended by policy: nothing is served any more.
    pub fn over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Records a verdict and syncs it; the number of its call, which is in flight from here on. Between verdict and sync, and between
    /// outcome and removal, the end of the relay waits: it must find each call either in flight or settled.
    pub fn open(&self, verdict: Verdict, opened: Opened) -> std::io::Result<u64> {
        let (call, line) = {
            let mut open = self.in_flight();
            let (call, line) = self.log.verdict(verdict)?;
            open.insert(call, opened);
            (call, line)
        };
        let synced = self.log.sync(line);
        if synced.is_err()
            && let Some(opened) = self.in_flight().get_mut(&call)
        {
            // It will not be sent, so nobody bills it.
            opened.call.owed = false;
        }
        synced.map(|()| call)
    }

    /// Records an outcome, with the tries there were. `None`: the relay's end came first and has recorded one.
    pub fn settle(&self, mut outcome: Outcome) -> std::io::Result<Option<Call>> {
        let mut open = self.in_flight();
        let Some(opened) = open.remove(&outcome.call) else { return Ok(None) };
        outcome.tries = opened.call.tries;
        self.log.write(&Record::Outcome(outcome))?;
        Ok(Some(opened.call))
    }

    /// Records that a call is about to be sent once more, and syncs it; where that cannot be, the run ends. As with `open`, the relay's
    /// end comes before the record or finds its try counted.
    pub fn again(&self, retry: Retry) -> std::io::Result<()> {
        let (call, tries) = (retry.call, retry.r#try);
        let written = {
            let mut open = self.in_flight();
            let Some(opened) = open.get_mut(&call) else {
                return Err(std::io::Error::other("the relay has ended"));
            };
            let written = self.log.write(&Record::Retry(retry));
            if written.is_ok() {
                opened.call.tries = tries;
            }
            written
        };
        written.and_then(|line| self.log.sync(line)).inspect_err(|e| self.unrecorded(e))
    }

    /// The last records: calls in flight may be billed, so they are owed, and then the end. Nothing is served after.
    pub fn close(&self, why: &str) -> std::io::Result<()> {
        self.over.store(true, Ordering::Release);
        let mut left = Vec::new();
        let mut open = self.in_flight();
        let closed = self.stopped(&mut open, &mut left).and_then(|()| self.log.close(why));
        drop(open);
        for (call, hold, charge) in left {
            self.tell(Note::Call(call));
            self.settled(&hold, &charge);
        }
        closed
    }

    /// Records that the calls in flight ended with the relay.
    fn stopped(&self, open: &mut BTreeMap<u64, Opened>, left: &mut Vec<Left>) -> std::io::Result<()> {
        for (number, Opened { mut call, begun, hold }) in std::mem::take(open) {
            let charge = self.meter.charge(&hold, &Usage { owed: call.owed, ..Usage::default() });
            (call.cost, call.guessed) = (self.shown(&charge, None), self.guessed(&charge));
            call.millis =
                u64::try_from(proc::monotonic().saturating_sub(begun).as_millis()).unwrap_or(u64::MAX);
            self.log.write(&Record::Outcome(Outcome {
                call: number,
                status: call.status,
                ended: "stopped".into(),
                bytes: 0,
                millis: call.millis,
                tries: call.tries,
                charged_picodollars: self.recorded(charge.money),
                charged_tokens: self.recorded(charge.tokens),
                counts: Counts { owed: call.owed, ..Counts::default() },
                body: None,
            }))?;
            left.push((call, hold, charge));
        }
        Ok(())
    }

    fn in_flight(&self) -> MutexGuard<'_, BTreeMap<u64, Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books what a call used, tells what that means for the caps, and only then lets the next call go: it may be the one that ends us.
    pub fn settled(&self, hold: &Hold, charge: &Charge) {
        for line in self.meter.settle(hold, charge) {
            self.tell(Note::Warning(Warning { line }));
        }
        if !self.meter.caps().none() {
            self.tell(Note::Spent(self.meter.spent()));
        }
        self.meter.release(hold);
    }

    /// A charge for the record: nothing is said where nothing is capped or priced.
    pub fn recorded<T>(&self, charge: Option<T>) -> Option<T> {
        charge.filter(|_| !self.meter.caps().none() || self.meter.caps().prices.is_some())
    }

    /// The charge is the most that the call can have used.
    pub fn guessed(&self, charge: &Charge) -> bool {
        self.recorded(Some(charge.guessed)) == Some(true)
    }

    /// A charge for a person; where there is neither cap nor price, what the server reported.
    pub fn shown(&self, charge: &Charge, reported: Option<Money>) -> Option<Money> {
        self.recorded(charge.money).or(reported)
    }

    /// A cap was reached: told at once, before the agent hears of it, so that its giving up is not taken for the reason.
    pub fn reached(&self) {
        if self.meter.newly_reached().is_some() {
            self.tell(Note::Spent(self.meter.spent()));
        }
    }

    /// Ends the run where a cap was reached and no call is in flight any more.
    pub fn capped(&self) {
        if let Some(why) = self.meter.over() {
            self.end(&why, Exit::Cap);
        }
    }

    /// Ends the run: a record could not be written.
    pub fn unrecorded(&self, e: &std::io::Error) {
        self.end(&format!("the record of calls cannot be written: {e}"), Exit::Policy);
    }

    /// Ends the run. Only the first reason counts.
    pub fn end(&self, why: &str, exit: Exit) {
        if let Some(stop) = self.stop(why, exit) {
            self.ended(&stop);
        }
    }

    /// The same as far as record and asker go; `ended` has to follow. `None`: it was over.
    pub fn stop(&self, why: &str, exit: Exit) -> Option<Stop> {
        if self.over.swap(true, Ordering::AcqRel) {
            return None;
        }
        // The record of the end is a courtesy where the log itself is what failed.
        let _ = self.close(why);
        self.tell(Note::End(Stop { why: why.into(), exit: exit.code() }));
        Some(Stop { why: why.into(), exit: exit.code() })
    }

    /// The process may end with this.
    pub fn ended(&self, stop: &Stop) {
        if let Ok(mut ended) = self.ended.lock() {
            ended(stop);
        }
    }

    /// A body cannot be kept: as where the log cannot be written.
    pub fn unkept(&self, e: &std::io::Error) {
        self.end(&format!("a body cannot be kept: {e}"), Exit::Policy);
    }

    /// Records and tells a refusal; too many end the run.
    pub fn denied(&self, denied: Denied) {
        if self.over() {
            return;
        }
        let told = Denied {
            method: denied.method.clone(),
            path: denied.path.clone(),
            why: denied.why.clone(),
            remedy: denied.remedy.clone(),
            status: denied.status,
        };
        if let Err(e) = self.log.denied(denied) {
            self.unrecorded(&e);
            return;
        }
        self.tell(Note::Denied(told));
        if self.refusals.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= limits::REFUSALS {
            self.end(&format!("{} requests were refused", limits::REFUSALS), Exit::Policy);
        }
    }
}
