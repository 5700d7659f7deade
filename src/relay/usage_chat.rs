//! Usage of Chat Completions answers: running totals, one usage chunk at the end, or one JSON value. The last usable object
//! counts, whole. Called by `relay/usage.rs`.

use crate::relay::usage::Usage;
use crate::relay::usage_count::{Counts, money, openai};
use crate::relay::usage_scan::{Facts, Value};

/// What a Chat answer has told so far.
#[derive(Default)]
pub struct Chat {
    counts: Counts,
    told: bool,
    finished: bool,
    done: bool,
    failed: bool,
    events: u64,
    refused: bool,
    model: Option<String>,
}

impl Chat {
    /// `[DONE]`.
    pub fn done(&mut self) {
        self.done = true;
    }

    /// One whole event.
    pub fn event(&mut self, name: &str, facts: &Facts) {
        if name == "error"
            || facts.set("error")
            || facts.set("error_type")
            || facts.text("object") == Some("error")
        {
            self.failed = true;
            self.refused |= self.events == 0;
        }
        self.events = self.events.saturating_add(1);
        self.read(facts);
    }

    /// The members of an event or of the whole JSON answer.
    fn read(&mut self, facts: &Facts) {
        if let Some(model) =
            facts.text("model").filter(|m| !m.is_empty() && self.model.as_deref() != Some(*m))
        {
            self.model = Some(model.to_string());
        }
        for (path, value) in facts.all() {
            let reason = path.starts_with("choices/") && path.ends_with("/finish_reason");
            self.finished |= reason && matches!(value, Value::Text(t) if !t.is_empty());
        }
        let mut places = vec!["usage", "x_groq/usage"];
        places.extend(
            facts.all().rev().map(|(p, _)| p).filter(|p| p.starts_with("choices/") && p.ends_with("/usage")),
        );
        let usable = |base: &&str| openai(facts, base, true).filter(|c| !c.silent() || c.cost.is_some());
        if let Some(counts) = places.iter().find_map(usable) {
            self.told |= !counts.silent();
            self.counts.replace(counts);
        }
        if let Some(cost) = money(facts.find("cost")) {
            self.counts.cost = Some(cost);
        }
    }

    /// The result of a stream.
    pub fn stream_over(self) -> Usage {
        let complete = !self.failed && (self.done || (self.finished && self.told));
        Usage { complete, owed: !self.refused, model: self.model, ..self.counts.into_usage() }
    }

    /// The result of a JSON answer.
    pub fn json_over(mut self, facts: &Facts, closed: bool) -> Usage {
        self.read(facts);
        Usage { complete: closed, owed: true, model: self.model, ..self.counts.into_usage() }
    }
}
