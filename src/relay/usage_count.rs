//! Numbers out of usage objects: counts, money, and the OpenAI family's usage object with all its dialects. Typed positions only.
//! Called by the readers of the three protocols.

use crate::relay::usage::Usage;
use crate::relay::usage_scan::{Facts, Value};
use crate::wire::money::Money;

/// The largest whole number that every JSON reader agrees on, 2^53-1.
const MOST: u64 = 9_007_199_254_740_991;
/// Decimals of a picodollar in a dollar.
const DOLLAR: usize = 12;
/// The same in xAI's `cost_in_usd_ticks`, of which a dollar has 10^10.
const TICK: usize = 2;

/// A count: a whole number up to 2^53-1, also as `12.0`, `1.2e1` or `"12"`; a fraction is rounded up. Anything else is no report.
pub fn count(value: Option<&Value>) -> Option<u64> {
    let number = number(value?)?.ceil();
    // Both bounds are exact in f64, so the conversion is too.
    if (0.0..=MOST as f64).contains(&number) { Some(number as u64) } else { None }
}

/// Dollars: finite and not negative, as a number or a string of one.
pub fn money(value: Option<&Value>) -> Option<Money> {
    amount(value, DOLLAR)
}

fn amount(value: Option<&Value>, places: usize) -> Option<Money> {
    match value? {
        Value::Text(text) | Value::Word(text) => Money::reported(text.trim(), places),
        Value::Object | Value::Array => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    let text = match value {
        Value::Text(text) | Value::Word(text) => text.trim(),
        Value::Object | Value::Array => return None,
    };
    let plausible = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    text.parse::<f64>().ok().filter(|n| plausible && n.is_finite())
}

/// The first of these members of `base` that is a count.
pub fn first(facts: &Facts, base: &str, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| count(facts.below(base, name)))
}

/// The money of a usage object. Where the caller's own provider key was used, the gateway's cost is its fee only and the provider's is
/// added.
pub fn cost(facts: &Facts, base: &str) -> Option<Money> {
    let told = money(facts.below(base, "cost"))
        .or_else(|| money(facts.below(base, "cost/total_cost")))
        .or_else(|| amount(facts.below(base, "cost_in_usd_ticks"), TICK));
    let own_key = facts.below(base, "is_byok") == Some(&Value::Word("true".to_string()));
    match (told, own_key) {
        // A fee alone is not what the call cost.
        (Some(fee), true) => {
            Some(fee.plus(money(facts.below(base, "cost_details/upstream_inference_cost"))?))
        }
        (told, _) => told,
    }
}

/// Counters of one usage object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// See `Usage`.
    pub input: Option<u64>,
    /// See `Usage`.
    pub cache_write: Option<u64>,
    /// See `Usage`.
    pub cache_write_5m: Option<u64>,
    /// See `Usage`.
    pub cache_read: Option<u64>,
    /// See `Usage`.
    pub output: Option<u64>,
    /// See `Usage`.
    pub reasoning: Option<u64>,
    /// See `Usage`.
    pub doubtful: u64,
    /// See `Usage`.
    pub cost: Option<Money>,
}

impl Counts {
    fn counters(&self) -> [Option<u64>; 5] {
        [self.input, self.cache_write, self.cache_read, self.output, self.reasoning]
    }

    /// Nothing but zeros: a placeholder where something else was told before.
    pub fn zero(&self) -> bool {
        self.counters().into_iter().flatten().all(|n| n == 0)
    }

    /// No counter at all.
    pub fn silent(&self) -> bool {
        self.counters().into_iter().flatten().next().is_none()
    }

    /// A later report takes this one's place, unless it says nothing. Money stays where the later one has none.
    pub fn replace(&mut self, later: Counts) {
        let cost = later.cost.or(self.cost);
        if !later.silent() && (self.zero() || !later.zero()) {
            *self = later;
        }
        self.cost = cost;
    }

    /// Sums, for two answers in one stream.
    pub fn add(&mut self, other: &Counts) {
        self.input = sum(self.input, other.input);
        self.cache_write = sum(self.cache_write, other.cache_write);
        self.cache_write_5m = sum(self.cache_write_5m, other.cache_write_5m);
        self.cache_read = sum(self.cache_read, other.cache_read);
        self.doubtful = self.doubtful.saturating_add(other.doubtful);
        self.output = sum(self.output, other.output);
        self.reasoning = sum(self.reasoning, other.reasoning);
        self.cost = match (self.cost, other.cost) {
            (Some(a), Some(b)) => Some(a.plus(b)),
            (a, b) => a.or(b),
        };
    }

    /// As the public record.
    pub fn into_usage(self) -> Usage {
        Usage {
            input: self.input,
            cache_write: self.cache_write,
            cache_write_5m: self.cache_write_5m,
            cache_read: self.cache_read,
            output: self.output,
            reasoning: self.reasoning,
            doubtful: self.doubtful,
            cost: self.cost,
            ..Usage::default()
        }
    }
}

/// Adds where both are known; an unknown part adds nothing.
pub fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

/// The usage object of the OpenAI family at `base`, under the Chat or the Responses names. `total_decides`: output that only
/// `total_tokens` tells is output (reasoning outside the completion count at xAI and in Gemini's shapes).
pub fn openai(facts: &Facts, base: &str, total_decides: bool) -> Option<Counts> {
    if facts.find(base) != Some(&Value::Object) {
        return None;
    }
    let all_input = first(facts, base, &["prompt_tokens", "input_tokens"]);
    let told_output = first(facts, base, &["completion_tokens", "output_tokens"]);
    let read = first(
        facts,
        base,
        &[
            "prompt_tokens_details/cached_tokens",
            "input_tokens_details/cached_tokens",
            "cached_tokens",
            "prompt_cache_hit_tokens",
            "cache_read_input_tokens",
        ],
    );
    let write = first(
        facts,
        base,
        &[
            "prompt_tokens_details/cache_write_tokens",
            "input_tokens_details/cache_write_tokens",
            "cache_creation_input_tokens",
        ],
    );
    let reasoning = first(
        facts,
        base,
        &[
            "completion_tokens_details/reasoning_tokens",
            "output_tokens_details/reasoning_tokens",
            "reasoning_tokens",
        ],
    );
    let cached = sum(read, write).unwrap_or(0);
    let inside = all_input.filter(|all| cached <= *all).is_some();
    let mut doubtful = if inside { cached } else { 0 };
    let mut input = all_input.map(|all| all.checked_sub(cached).unwrap_or(all));
    let mut output = told_output;
    if let (true, Some(all), Some(told)) = (total_decides, all_input, told_output) {
        let beyond = match count(facts.below(base, "total_tokens")) {
            Some(total) => total.saturating_sub(all.saturating_add(told)),
            // A part cannot be larger than its whole.
            None => reasoning.filter(|r| *r > told).unwrap_or(0),
        };
        if beyond > 0 && beyond == cached && reasoning != Some(beyond) {
            // The total shows that the cached tokens were not in the input count.
            (input, doubtful) = (all_input, 0);
        } else {
            output = Some(told.saturating_add(beyond));
        }
    }
    Some(Counts {
        input,
        cache_write: write,
        cache_write_5m: None,
        cache_read: read,
        output,
        reasoning,
        doubtful,
        cost: cost(facts, base),
    })
}
