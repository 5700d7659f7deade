//! What earlier relays of a run spent, from the records of its log: a restart of the relay begins no new budget. A verdict without an
//! outcome is a call that may have been charged: it counts with the most it can be. Called by `foreground` before it serves.

use crate::catalog::providers::{Protocol, Provider};
use crate::relay::budget::{Charge, Hold, Meter};
use crate::relay::log_read::Line;
use crate::relay::record::{Outcome, Record, Verdict};
use crate::relay::usage::Usage;
use crate::wire::money::Money;
use std::collections::BTreeMap;

/// Books the calls of a log, record by record.
pub struct Past<'a> {
    meter: &'a Meter,
    provider: &'a Provider,
    open: BTreeMap<u64, Hold>,
}

impl<'a> Past<'a> {
    /// Into this meter.
    pub fn new(meter: &'a Meter, provider: &'a Provider) -> Past<'a> {
        Past { meter, provider, open: BTreeMap::new() }
    }

    /// The next record.
    pub fn line(&mut self, line: &Line) {
        match &line.record {
            // The relay before it died, with these calls in flight.
            Record::Start(_) => self.end(),
            Record::Verdict(verdict) => {
                if let Some(hold) = self.hold(verdict) {
                    self.open.insert(verdict.call, hold);
                }
            }
            Record::Outcome(outcome) => {
                if let Some(hold) = self.open.remove(&outcome.call) {
                    self.meter.recall(&hold, &self.charge(&hold, outcome));
                }
            }
            // A try that was overloaded is not charged; the outcome of the last one is.
            Record::Retry(_) | Record::Denied(_) | Record::DeniedAgain(_) | Record::End(_) => {}
        }
    }

    /// Calls that have no outcome.
    pub fn end(&mut self) {
        for hold in std::mem::take(&mut self.open).into_values() {
            let owed = Usage { owed: true, ..Usage::default() };
            self.meter.recall(&hold, &self.meter.charge(&hold, &owed));
        }
    }

    /// The hold of a call that generates.
    fn hold(&self, verdict: &Verdict) -> Option<Hold> {
        let route = self.provider.route(&verdict.method, &verdict.path)?;
        if !matches!(route.protocol, Protocol::Messages | Protocol::Chat | Protocol::Responses) {
            return None;
        }
        let prices = self.meter.caps().prices.as_ref();
        let model = prices.zip(verdict.model.as_ref()).and_then(|(p, name)| p.models.get(name)).copied();
        let (money, tokens) = (verdict.reserved_picodollars, verdict.reserved_tokens);
        Some(Hold { counted: true, money, tokens, model })
    }

    /// As it was charged, or, where no cap made anybody say so, as it would be now.
    fn charge(&self, hold: &Hold, outcome: &Outcome) -> Charge {
        let counts = &outcome.counts;
        // Whether its cached tokens were in the input count is not in the record; Messages has them apart.
        let apart = self.provider.speaks() == Protocol::Messages;
        let cached = counts.cache_read.unwrap_or(0).saturating_add(counts.cache_write.unwrap_or(0));
        let usage = Usage {
            input: counts.input,
            cache_read: counts.cache_read,
            cache_write: counts.cache_write,
            output: counts.output,
            doubtful: if apart { 0 } else { cached },
            cost: counts.cost.and_then(|c| Money::reported(&c.to_string(), 12)),
            owed: counts.owed,
            complete: counts.complete,
            ..Usage::default()
        };
        let now = self.meter.charge(hold, &usage);
        Charge {
            money: outcome.charged_picodollars.or(now.money),
            tokens: outcome.charged_tokens.or(now.tokens),
            ..now
        }
    }
}
