//! The meter of a run: admits calls, books what they used, keeps every cap. A call is counted from its admission (`admit`) to its
//! settlement (`settle`, `release`); in between it holds the most it can use, where that is known. Calls that generate nothing (look-ups,
//! token counting) are neither counted nor held up. Called by `conn` and `serving`; all effects are its lock and its clock.
//!
//! `after`: one call at a time, so the ceiling is crossed once, by the call that crosses it. `strict`: spent + held + the most of the
//! new call is never over the ceiling.

use crate::catalog::prices::Model;
use crate::catalog::providers::{Protocol, Provider};
use crate::limits::{TURN_LOOK, TURN_WAIT};
use crate::relay::budget_cost::{cost, most, most_input, output_that_fits, tokens, whole};
use crate::relay::caps::Caps;
use crate::relay::policy_price::Terms;
use crate::relay::refuse::Refusal;
use crate::relay::usage::Usage;
use crate::sys::proc;
use crate::wire::money::Money;
use crate::wire::text;
use serde::{Deserialize, Serialize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A call that asks to be let pass.
pub struct Asking<'a> {
    /// What its path speaks.
    pub protocol: Protocol,
    /// The model asked for.
    pub model: Option<&'a str>,
    /// Of its body, as sent upstream.
    pub bytes: u64,
    /// What its body says about its price.
    pub terms: &'a Terms,
}

/// A call that was let pass and is not settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// It generates, so it is counted.
    pub counted: bool,
    /// The most it can cost; none: not known.
    pub money: Option<Money>,
    /// The most tokens it can use; none: not known.
    pub tokens: Option<u64>,
    /// Its prices.
    pub model: Option<Model>,
}

/// What a call is charged with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// None: it cannot be told.
    pub money: Option<Money>,
    /// None: it cannot be told.
    pub tokens: Option<u64>,
    /// Its usage was owed and not found: what stands here is the most it can be.
    pub guessed: bool,
}

/// What was used so far, for receipt and statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Money.
    pub money: Money,
    /// Calls that were let pass.
    pub calls: u64,
    /// Tokens.
    pub tokens: u64,
    /// Why no further call passes; none: the caps still have room.
    pub reached: Option<String>,
}

#[derive(Default)]
struct State {
    spent: Spent,
    /// Of the calls in flight.
    held: Money,
    held_tokens: u64,
    flying: u64,
    /// Calls whose client has not got all of its answer yet.
    busy: u64,
    /// Something was used and nobody can say how much.
    lost: Option<&'static str>,
    /// The highest warning given, per cent: money, calls, tokens.
    warned: [u64; 3],
    told: bool,
}

/// See the file's head.
pub struct Meter {
    caps: Caps,
    reports_cost: bool,
    inside: bool,
    state: Mutex<State>,
    settled: Condvar,
}

/// While it lives, the client of a call waits for the last of its answer.
pub struct Busy<'a>(&'a Meter);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy = state.busy.saturating_sub(1);
    }
}

/// Whether a call may pass now.
enum Turn {
    Now,
    /// When another call is settled.
    Later,
    /// Not any more: why, and the flag.
    Never(String, &'static str),
}

/// Per cent of a cap at which the operator is warned.
const WARNINGS: [u64; 3] = [50, 80, 95];
/// What is said where `usage=?` has no bound.
const LOST: &str = "what an earlier call used is not known (usage=?), so nothing more can be let pass";
/// What is said where a price file was wrong.
const OVER: &str = "a call used more than the most that was reserved for it, so nothing more can be let pass";

impl Meter {
    /// For one run. What earlier relays of it spent is added by `budget_read`.
    pub fn new(caps: Caps, provider: &Provider) -> Meter {
        Meter {
            reports_cost: provider.reports_cost,
            inside: provider.cached_inside,
            caps,
            state: Mutex::default(),
            settled: Condvar::new(),
        }
    }

    /// The caps.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// What was used so far.
    pub fn spent(&self) -> Spent {
        self.state().spent.clone()
    }

    /// Lets a call pass, waits for its turn (bounded), or refuses it. `left`: its client is gone.
    pub fn admit(&self, asking: &Asking<'_>, left: &dyn Fn() -> bool) -> Result<Hold, Refusal> {
        let generates = matches!(asking.protocol, Protocol::Messages | Protocol::Chat | Protocol::Responses);
        if !generates {
            return Ok(Hold::default());
        }
        let hold = self.hold(asking)?;
        let until = proc::monotonic().saturating_add(TURN_WAIT);
        let mut state = self.state();
        loop {
            match self.turn(&state, &hold, asking) {
                Turn::Now => {
                    state.spent.calls = state.spent.calls.saturating_add(1);
                    state.flying = state.flying.saturating_add(1);
                    state.held = state.held.plus(hold.money.unwrap_or_default());
                    state.held_tokens = state.held_tokens.saturating_add(hold.tokens.unwrap_or(0));
                    return Ok(hold);
                }
                Turn::Never(why, flag) => {
                    state.spent.reached.get_or_insert_with(|| why.clone());
                    // Who waits will not get a turn either.
                    self.settled.notify_all();
                    return Err(Refusal { kind: KIND, remedy: flag.into(), ..Refusal::new(402, why) });
                }
                Turn::Later => {}
            }
            (state, _) = self.settled.wait_timeout(state, TURN_LOOK).unwrap_or_else(PoisonError::into_inner);
            if left() {
                return Err(Refusal::new(408, "the client left before its call had its turn"));
            }
            if proc::monotonic() >= until {
                let why = "another call of this run has not ended, and one passes at a time";
                return Err(Refusal { last: false, ..Refusal::new(503, why) });
            }
        }
    }

    /// The end of the run waits for the last of the call's answer, which comes behind its settlement.
    pub fn busy(&self, hold: &Hold) -> Option<Busy<'_>> {
        hold.counted.then(|| {
            let mut state = self.state();
            state.busy = state.busy.saturating_add(1);
            Busy(self)
        })
    }

    /// What the call can use at most. Refuses what cannot be counted.
    fn hold(&self, asking: &Asking<'_>) -> Result<Hold, Refusal> {
        if asking.terms.later && self.caps.by_use() {
            let why = "a background call is not let pass: what it uses is known only behind its answer";
            return Err(Refusal::new(403, why));
        }
        let model = self.price(asking)?;
        let each = model.and_then(|m| m.media_tokens);
        let input = most_input(asking.bytes, asking.terms, each);
        if self.caps.strict && input.is_none() {
            let why = "an image or document is not let pass: nothing says how many tokens it can count";
            return Err(Refusal {
                remedy: "media_tokens in the price file".into(),
                ..Refusal::new(403, why)
            });
        }
        let both = input.zip(asking.terms.output);
        Ok(Hold {
            counted: true,
            money: both.and_then(|(i, o)| model.map(|m| most(&m, i, o))),
            tokens: both.map(|(i, o)| i.saturating_add(o)),
            model,
        })
    }

    /// The price of the call's model. It must have one where nothing else tells dollars.
    fn price(&self, asking: &Asking<'_>) -> Result<Option<Model>, Refusal> {
        let Some(prices) = &self.caps.prices else { return Ok(None) };
        let found = asking.model.and_then(|name| prices.models.get(name)).copied();
        let needed = self.caps.budget.is_some() && (self.caps.strict || !self.reports_cost);
        if !needed {
            return Ok(found);
        }
        let flag = |why: String| Refusal { remedy: "--prices".into(), ..Refusal::new(403, why) };
        if let Some(place) = &asking.terms.moved {
            let why = format!("{place} may change what the call costs, and that is in no table here");
            return Err(flag(why));
        }
        match found {
            Some(model) => Ok(Some(model)),
            None => {
                let name = text::short(asking.model.unwrap_or("(none)"), crate::limits::SHOWN_CHARS);
                Err(flag(format!("the model {} has no price here", text::escaped(&name))))
            }
        }
    }

    fn turn(&self, state: &State, hold: &Hold, asking: &Asking<'_>) -> Turn {
        let (caps, spent) = (&self.caps, &state.spent);
        if let Some(why) = &spent.reached {
            return Turn::Never(why.clone(), "");
        }
        if let (Some(why), true) = (state.lost, caps.by_use()) {
            return Turn::Never(why.into(), "--prices with --max-tokens-cap");
        }
        if let Some(most) = caps.max_calls.filter(|most| spent.calls >= *most) {
            return Turn::Never(format!("{} of {most} calls were made", spent.calls), "--max-calls");
        }
        if let Some(most) = caps.max_tokens_total.filter(|most| spent.tokens >= *most) {
            return Turn::Never(format!("{} of {most} tokens were used", spent.tokens), "--max-tokens-total");
        }
        if let Some(ceiling) = caps.budget.filter(|ceiling| spent.money >= *ceiling) {
            return Turn::Never(format!("{} spent against a {ceiling} ceiling", spent.money), "--budget");
        }
        match caps.strict {
            true => self.reserved(state, hold, asking),
            false if caps.by_use() && state.flying > 0 => Turn::Later,
            false => Turn::Now,
        }
    }

    /// The rule of `strict`.
    fn reserved(&self, state: &State, hold: &Hold, asking: &Asking<'_>) -> Turn {
        let (spent, flying) = (&state.spent, state.flying > 0);
        let tokens = hold.tokens.unwrap_or(u64::MAX);
        if let Some(most) = self.caps.max_tokens_total {
            let left = most.saturating_sub(spent.tokens);
            if tokens > left.saturating_sub(state.held_tokens) {
                let input = tokens.saturating_sub(asking.terms.output.unwrap_or(0));
                let fits = fitting(left.saturating_sub(input));
                let why =
                    format!("this call could use {tokens} tokens and {left} of {most} are left; {fits}");
                return if flying && tokens <= left {
                    Turn::Later
                } else {
                    Turn::Never(why, "--max-tokens-total")
                };
            }
        }
        let Some(ceiling) = self.caps.budget else { return Turn::Now };
        let Some((model, money)) = hold.model.zip(hold.money) else {
            return Turn::Never("the most that this call can cost is not known".into(), "--prices");
        };
        let left = ceiling.less(spent.money);
        // Less the held: so much is free now. `plus` saturates, so it cannot wrap into what fits.
        if spent.money.plus(state.held).plus(money) <= ceiling {
            return Turn::Now;
        }
        let input = most_input(asking.bytes, asking.terms, model.media_tokens).unwrap_or(u64::MAX);
        let fits = fitting(output_that_fits(&model, input, left));
        let why = format!("this call could cost {money} and {left} of {ceiling} are left; {fits}");
        if flying && money <= left { Turn::Later } else { Turn::Never(why, "--budget") }
    }

    /// What a call is charged with, by what its answer reported.
    pub fn charge(&self, hold: &Hold, usage: &Usage) -> Charge {
        if !hold.counted || !usage.owed {
            return Charge { money: Some(Money::default()), tokens: Some(0), guessed: false };
        }
        let (told, used) = (whole(usage), tokens(usage, self.inside));
        let priced = hold.model.map(|m| cost(&m, usage, self.inside));
        let worst = hold.money.map(|most| most.max(priced.unwrap_or_default()));
        let reported = usage.cost.filter(|_| self.reports_cost);
        let money = reported.or(if told { priced } else { worst });
        let tokens = if told { Some(used) } else { hold.tokens.map(|most| most.max(used)) };
        Charge {
            money,
            tokens,
            guessed: !told && (reported.is_none() || self.caps.max_tokens_total.is_some()),
        }
    }

    /// Books a charge. Returns warnings for the operator; once they are told, `release` ends the hold.
    pub fn settle(&self, hold: &Hold, charge: &Charge) -> Vec<String> {
        if !hold.counted {
            return Vec::new();
        }
        let mut state = self.state();
        self.book(&mut state, hold, charge);
        self.warnings(&mut state)
    }

    /// The call is no longer in flight, and the next may have its turn.
    pub fn release(&self, hold: &Hold) {
        if !hold.counted {
            return;
        }
        let mut state = self.state();
        state.flying = state.flying.saturating_sub(1);
        state.held = state.held.less(hold.money.unwrap_or_default());
        state.held_tokens = state.held_tokens.saturating_sub(hold.tokens.unwrap_or(0));
        drop(state);
        self.settled.notify_all();
    }

    /// A call of an earlier relay of this run, from its record.
    pub fn recall(&self, hold: &Hold, charge: &Charge) {
        let mut state = self.state();
        state.spent.calls = state.spent.calls.saturating_add(1);
        self.book(&mut state, hold, charge);
        // What was warned of before is not warned of again.
        drop(self.warnings(&mut state));
    }

    fn book(&self, state: &mut State, hold: &Hold, charge: &Charge) {
        let unknown = (self.caps.budget.is_some() && charge.money.is_none())
            || (self.caps.max_tokens_total.is_some() && charge.tokens.is_none());
        let over = self.caps.strict
            && (charge.money.zip(hold.money).is_some_and(|(c, h)| c > h)
                || charge.tokens.zip(hold.tokens).is_some_and(|(c, h)| c > h));
        let why = if over { Some(OVER) } else { unknown.then_some(LOST) };
        state.lost = state.lost.or(why);
        state.spent.money = state.spent.money.plus(charge.money.unwrap_or_default());
        state.spent.tokens = state.spent.tokens.saturating_add(charge.tokens.unwrap_or(0));
    }

    fn warnings(&self, state: &mut State) -> Vec<String> {
        let (caps, spent) = (&self.caps, &state.spent);
        let money = caps.budget.map(|c| (spent.money.picos(), c.picos(), format!("{} of {c}", spent.money)));
        let calls = caps.max_calls.map(|c| (spent.calls, c, format!("{} of {c} calls", spent.calls)));
        let tokens =
            caps.max_tokens_total.map(|c| (spent.tokens, c, format!("{} of {c} tokens", spent.tokens)));
        let mut lines = Vec::new();
        for (used, warned) in [money, calls, tokens].into_iter().zip(&mut state.warned) {
            let Some((used, cap, words)) = used else { continue };
            let passed = |p: &&u64| {
                u128::from(used).saturating_mul(100) >= u128::from(cap).saturating_mul(u128::from(**p))
            };
            if let Some(percent) = WARNINGS.iter().rev().find(passed).filter(|p| **p > *warned) {
                *warned = *percent;
                lines.push(format!("{percent} per cent used: {words}"));
            }
        }
        lines
    }

    /// Why the caps have no room any more, the first time this is asked after it came about.
    pub fn newly_reached(&self) -> Option<String> {
        let mut state = self.state();
        let why = state.spent.reached.clone()?;
        (!std::mem::replace(&mut state.told, true)).then_some(why)
    }

    /// The run is over: a cap was reached, and the clients of the calls before have their answers.
    pub fn over(&self) -> Option<String> {
        let state = self.state();
        state.spent.reached.clone().filter(|_| state.flying == 0 && state.busy == 0)
    }

    /// A panic of another thread between two steps leaves at worst a hold that never ends.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error type of a refusal by a cap.
pub const KIND: &str = "budget_exceeded";

fn fitting(tokens: u64) -> String {
    match tokens {
        0 => "no bound of its output would make it fit".into(),
        n => format!("an output bound of {n} tokens would fit"),
    }
}
