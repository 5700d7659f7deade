//! A call between its verdict and its outcome: both are recorded and told here, and the caps get back what it did not use. Used by
//! `conn` alone; whatever way a call ends, it ends in `settle`.

use crate::relay::bodies::{self, Kept};
use crate::relay::budget::Hold;
use crate::relay::exchange::Failed;
use crate::relay::note::{Call, Note};
use crate::relay::policy::Judged;
use crate::relay::record::{Counts, Outcome, Verdict};
use crate::relay::refuse::Refusal;
use crate::relay::serving::{Opened, Serving};
use crate::relay::usage::Usage;
use crate::sys::proc;
use crate::wire::http::Request;
use std::io::ErrorKind;
use std::time::Duration;

/// A call that has a verdict and not yet an outcome.
pub struct Open<'a> {
    relay: &'a Serving,
    head: &'a Request<'a>,
    judged: &'a Judged,
    /// In the log; 0: it has no verdict yet.
    pub number: u64,
    begun: Duration,
    hold: Hold,
    /// Why there is no answer.
    why: Option<String>,
    /// Name of the answer's body, where it is kept.
    pub kept: Option<String>,
    /// Its hold is released.
    settled: bool,
}

/// A panic on the way, a fault of ours, must not keep what the call holds of the caps: that would stop the calls behind it for ever. It
/// may have been sent, so it is charged at its most.
impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.settled || self.relay.over() {
            return;
        }
        self.why = Some("a fault of sanduk".into());
        let usage = Usage { owed: self.number > 0 && self.head.method == "POST", ..Usage::default() };
        let charge = self.relay.meter.charge(&self.hold, &usage);
        // Without a verdict there is nothing to settle, and behind its outcome nothing more to record.
        if (self.number == 0 || !self.settle(0, 0, "fault", usage)) && !self.settled {
            self.relay.settled(&self.hold, &charge);
        }
    }
}

impl<'a> Open<'a> {
    /// A call that was admitted with this hold.
    pub fn new(relay: &'a Serving, head: &'a Request<'a>, judged: &'a Judged, hold: Hold) -> Open<'a> {
        Open {
            relay,
            head,
            judged,
            number: 0,
            begun: proc::monotonic(),
            hold,
            why: None,
            kept: None,
            settled: false,
        }
    }

    /// No record, no call: on the disk before the first byte goes upstream.
    pub fn record_verdict(&mut self, length: usize, pieces: &[&[u8]]) -> Result<(), Refusal> {
        let body = bodies::request(self.relay, self.head.method, pieces)?;
        let verdict = Verdict {
            call: 0,
            method: self.head.method.into(),
            path: self.head.path.into(),
            bytes: u64::try_from(length).unwrap_or(u64::MAX),
            model: self.judged.model.clone(),
            streamed: self.judged.streamed,
            clamped: self.judged.clamped.clone(),
            reserved_picodollars: self.relay.recorded(self.hold.money),
            reserved_tokens: self.relay.recorded(self.hold.tokens),
            body: body.as_ref().map(|kept| kept.digest.clone()),
        };
        let opened = Opened { call: self.owed(), begun: self.begun, hold: self.hold };
        self.number = self.relay.open(verdict, opened).map_err(|e| {
            self.relay.unrecorded(&e);
            Refusal::new(503, "the call cannot be recorded, so it is not made")
        })?;
        if let Some(kept) = body {
            self.relay.tell(Note::Body(Kept { call: self.number, ..kept }));
        }
        Ok(())
    }

    /// It has a verdict, and no head could be made for it.
    pub fn unsent(&mut self, status: u16) {
        self.settle(status, 0, "unsent", Usage::default());
    }

    /// The call as it stands while nothing has come back.
    fn owed(&self) -> Call {
        Call {
            method: self.head.method.into(),
            path: self.head.path.into(),
            status: 0,
            millis: 0,
            model: self.judged.model.clone(),
            input: None,
            cache_read: None,
            cache_write: None,
            output: None,
            cost: None,
            guessed: false,
            owed: self.head.method == "POST",
            clamped: self.judged.clamped.clone(),
            tries: 1,
            why: None,
        }
    }

    /// No answer came.
    pub fn failed(&mut self, failed: Failed) -> Refusal {
        let (status, ended, why) = match failed {
            Failed::Unreachable(e) if e.kind() == ErrorKind::TimedOut => {
                (504, "unreachable", format!("the provider cannot be reached: {e}"))
            }
            Failed::Unreachable(e) => (502, "unreachable", format!("the provider cannot be reached: {e}")),
            Failed::Silent => (504, "silent", "the provider sent nothing in time".into()),
            Failed::Broken(why) => (502, "broken", format!("the provider gave no answer: {why}")),
        };
        self.why = Some(why.clone());
        // Something may have been sent and billed, unless no connection came about.
        let usage = Usage { owed: ended != "unreachable" && self.head.method == "POST", ..Usage::default() };
        if self.settle(status, 0, ended, usage) {
            Refusal::upstream(status, why)
        } else {
            Refusal::new(503, "the call cannot be recorded")
        }
    }

    /// What cannot be read here cannot be searched for the key either.
    pub fn unreadable(&mut self) -> Refusal {
        self.settle(502, 0, "unreadable", Usage { owed: self.head.method == "POST", ..Usage::default() });
        Refusal::upstream(502, "the provider answered in a content coding that nobody asked for")
    }

    /// The provider's own words may quote the key; the box gets ours.
    pub fn key_refused(&mut self, status: u16) -> Refusal {
        self.settle(status, 0, "whole", Usage::default());
        let why = "the provider refused this call; its words are kept back because they may quote the key";
        Refusal { recorded: true, ..Refusal::new(status, why) }
    }

    /// The outcome: recorded, then told. False: it could not be recorded.
    pub fn settle(&mut self, status: u16, bytes: u64, ended: &str, usage: Usage) -> bool {
        let charge = self.relay.meter.charge(&self.hold, &usage);
        let millis =
            u64::try_from(proc::monotonic().saturating_sub(self.begun).as_millis()).unwrap_or(u64::MAX);
        let outcome = Outcome {
            call: self.number,
            status,
            ended: ended.into(),
            bytes,
            millis,
            // `Serving::settle` knows better.
            tries: 1,
            charged_picodollars: self.relay.recorded(charge.money),
            charged_tokens: self.relay.recorded(charge.tokens),
            counts: Counts::of(&usage, &self.relay.guard),
            body: self.kept.take(),
        };
        let call = match self.relay.settle(outcome) {
            Ok(Some(call)) => call,
            // The relay's end came first and has recorded it.
            Ok(None) => return false,
            Err(e) => {
                self.relay.unrecorded(&e);
                return false;
            }
        };
        self.relay.tell(Note::Call(Call {
            status,
            millis,
            input: usage.input,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            output: usage.output,
            cost: self.relay.shown(&charge, usage.cost),
            guessed: self.relay.guessed(&charge),
            owed: usage.owed,
            why: self.why.take(),
            ..call
        }));
        self.relay.settled(&self.hold, &charge);
        self.settled = true;
        true
    }
}
