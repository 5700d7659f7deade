//! Usage of Responses answers: per response id the last usable object counts, whole; several ids in one stream are several
//! answers. Called by `relay/usage.rs`.

use crate::limits::USAGE_ANSWERS;
use crate::relay::usage::Usage;
use crate::relay::usage_count::{Counts, openai};
use crate::relay::usage_scan::Facts;

/// What a Responses answer has told so far.
#[derive(Default)]
pub struct Responses {
    answers: Vec<(String, Counts)>,
    complete: bool,
    /// Something was generated.
    output: bool,
    failed: bool,
    events: u64,
    refused: bool,
    model: Option<String>,
}

impl Responses {
    /// One whole event.
    pub fn event(&mut self, name: &str, facts: &Facts) {
        let kind = facts.text("type").unwrap_or(name);
        match kind {
            "response.created" => self.complete = false,
            "response.queued" | "response.in_progress" => {}
            "response.completed" | "response.incomplete" | "response.cancelled" => self.complete = true,
            "response.failed" => {
                self.complete = true;
                self.failed = true;
            }
            _ if kind == "error" || facts.set("error") => {
                self.complete = false;
                self.refused |= self.events == 0;
            }
            _ => self.output |= kind.starts_with("response."),
        }
        self.events = self.events.saturating_add(1);
        if kind.starts_with("response.") {
            self.read(facts, "response/usage", facts.text("response/id"), facts.text("response/model"));
        }
    }

    /// One event that adds to the output and reports nothing.
    pub fn content(&mut self) {
        self.output = true;
        self.events = self.events.saturating_add(1);
    }

    fn read(&mut self, facts: &Facts, base: &str, id: Option<&str>, model: Option<&str>) {
        if let Some(model) = model.filter(|m| !m.is_empty()) {
            self.model = Some(model.to_string());
        }
        let Some(counts) = openai(facts, base, false) else { return };
        let id = id.unwrap_or_default();
        if let Some((_, earlier)) = self.answers.iter_mut().find(|(own, _)| own == id) {
            earlier.replace(counts);
        } else if self.answers.len() < USAGE_ANSWERS {
            self.answers.push((id.to_string(), counts));
        }
    }

    fn total(&self) -> Counts {
        let mut total = Counts::default();
        for (_, counts) in &self.answers {
            total.add(counts);
        }
        total
    }

    /// The result of a stream.
    pub fn stream_over(self) -> Usage {
        let counts = self.total();
        let nothing = self.failed && !self.output && counts.silent();
        let owed = !(self.refused || nothing);
        Usage { complete: self.complete, owed, model: self.model, ..counts.into_usage() }
    }

    /// The result of a JSON answer. One that is queued or running is billed by the call that brings its end.
    pub fn json_over(mut self, facts: &Facts, closed: bool) -> Usage {
        self.read(facts, "usage", None, facts.text("model"));
        let counts = self.total();
        let owed = match facts.text("status") {
            Some("queued" | "in_progress") => false,
            Some("failed") => !counts.silent(),
            _ => true,
        };
        Usage { complete: closed, owed, model: self.model, ..counts.into_usage() }
    }
}
