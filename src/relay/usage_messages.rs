//! Usage of Anthropic Messages answers: counters are running totals, set field by field; the input count is without both cache
//! counts. Called by `relay/usage.rs`.

use crate::relay::usage::Usage;
use crate::relay::usage_count::{Counts, cost, count, first, sum};
use crate::relay::usage_scan::{Facts, Value};

/// What a Messages answer has told so far.
#[derive(Default)]
pub struct Messages {
    counts: Counts,
    /// Rounds that the top level leaves out.
    compaction: Counts,
    /// See `Usage`.
    elsewhere: u64,
    complete: bool,
    failed: bool,
    events: u64,
    refused: bool,
    model: Option<String>,
}

impl Messages {
    /// One whole event.
    pub fn event(&mut self, name: &str, facts: &Facts) {
        let kind = facts.text("type").unwrap_or(name);
        match kind {
            "message_start" => {
                self.named(facts.text("message/model"));
                self.read(facts, "message/usage");
            }
            "message_delta" => {
                self.complete |= facts.set("delta/stop_reason");
                self.read(facts, "usage");
            }
            "message_stop" => {
                self.complete = true;
                self.metrics(facts);
            }
            "ping" => return,
            _ if kind == "error" || facts.set("error") => {
                self.failed = true;
                self.refused |= self.events == 0;
            }
            _ => {}
        }
        self.events = self.events.saturating_add(1);
    }

    /// One event that reports nothing.
    pub fn content(&mut self) {
        self.events = self.events.saturating_add(1);
    }

    fn named(&mut self, model: Option<&str>) {
        if let Some(model) = model.filter(|m| !m.is_empty()) {
            self.model = Some(model.to_string());
        }
    }

    fn read(&mut self, facts: &Facts, base: &str) {
        if facts.find(base) != Some(&Value::Object) {
            return;
        }
        let told = object(facts, base);
        let side = |c: &Counts| [c.input, c.cache_write, c.cache_read];
        let zero = side(&told).into_iter().flatten().all(|n| n == 0);
        let known = side(&self.counts).into_iter().flatten().any(|n| n > 0);
        if !(zero && known) {
            let own = &mut self.counts;
            own.input = told.input.or(own.input);
            own.cache_write = told.cache_write.or(own.cache_write);
            own.cache_write_5m = told.cache_write_5m.or(own.cache_write_5m);
            own.cache_read = told.cache_read.or(own.cache_read);
        }
        self.counts.output = told.output.or(self.counts.output);
        self.counts.reasoning = told.reasoning.or(self.counts.reasoning);
        self.counts.cost = cost(facts, base).or(self.counts.cost);
        self.rounds(facts, base);
    }

    /// `iterations`: compaction rounds are billed and not in the top level; message rounds are its parts; an advisor's are another
    /// model's, and not in the top level either.
    fn rounds(&mut self, facts: &Facts, base: &str) {
        if facts.below(base, "iterations") != Some(&Value::Array) {
            return;
        }
        let root = format!("{base}/iterations/");
        let (mut rounds, mut advisor) = (Counts::default(), Counts::default());
        for (path, value) in facts.all() {
            let Some(round) = path.strip_suffix("/type").filter(|r| r.starts_with(&root)) else { continue };
            match value {
                Value::Text(kind) if kind == "compaction" => rounds.add(&object(facts, round)),
                Value::Text(kind) if kind == "advisor_message" => advisor.add(&object(facts, round)),
                _ => {}
            }
        }
        let all = [advisor.input, advisor.cache_write, advisor.cache_read, advisor.output];
        self.elsewhere = all.into_iter().flatten().fold(0, u64::saturating_add);
        self.compaction = rounds;
    }

    /// Bedrock's own counts, only where the usage has none.
    fn metrics(&mut self, facts: &Facts) {
        const BASE: &str = "amazon-bedrock-invocationMetrics";
        if facts.find(BASE) != Some(&Value::Object) || !self.counts.zero() {
            return;
        }
        let cost = self.counts.cost;
        self.counts = Counts {
            input: first(facts, BASE, &["inputTokenCount"]),
            output: first(facts, BASE, &["outputTokenCount"]),
            cache_read: first(facts, BASE, &["cacheReadInputTokenCount"]),
            cache_write: first(facts, BASE, &["cacheWriteInputTokenCount"]),
            cost,
            ..Counts::default()
        };
    }

    fn total(&self) -> Counts {
        let mut total = self.counts.clone();
        total.add(&self.compaction);
        total
    }

    /// The result of a stream.
    pub fn stream_over(self) -> Usage {
        let counts = self.total();
        let complete = self.complete && !self.failed;
        let elsewhere = self.elsewhere;
        Usage { complete, owed: !self.refused, model: self.model, elsewhere, ..counts.into_usage() }
    }

    /// The result of a JSON answer.
    pub fn json_over(mut self, facts: &Facts, closed: bool) -> Usage {
        self.named(facts.text("model"));
        self.read(facts, "usage");
        let counts = self.total();
        let elsewhere = self.elsewhere;
        Usage { complete: closed, owed: true, model: self.model, elsewhere, ..counts.into_usage() }
    }
}

/// One usage object, or one round of `iterations`.
fn object(facts: &Facts, base: &str) -> Counts {
    let part = |name: &str| count(facts.below(base, name));
    let short = part("cache_creation/ephemeral_5m_input_tokens");
    let split = sum(short, part("cache_creation/ephemeral_1h_input_tokens"));
    Counts {
        input: part("input_tokens"),
        cache_write: part("cache_creation_input_tokens").or(split),
        cache_write_5m: short,
        cache_read: part("cache_read_input_tokens"),
        output: part("output_tokens"),
        reasoning: part("output_tokens_details/thinking_tokens"),
        doubtful: 0,
        cost: None,
    }
}
