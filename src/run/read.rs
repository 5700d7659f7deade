//! Reads an agent's output by its rules (`catalog/rules`): total over any bytes, no panic, bounded. Called by `life` with each
//! event. It judges only what the agent says; what the relay counted is not its business.

use crate::catalog::agents::Agent;
use crate::catalog::rules::{self, Ending, ExitCode, Mode, On, Rule};
use crate::limits::{ANSWER_BYTES, READ_ITEMS, READ_LINE_BYTES, TOOL_ARGUMENT_BYTES};
use crate::wire::control::{Line, What};
use serde_json::Value;

/// One thing worth showing while the run goes on. Text is as the agent gave it: escape it before printing.
#[derive(Debug, PartialEq, Eq)]
pub enum Trace {
    /// The agent said something.
    Text(String),
    /// A tool call: its name and a short argument.
    Tool(String, String),
    /// Something went wrong and the agent goes on.
    Warning(String),
}

/// What the agent said about its own end.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// There was a final record. Without one the run has failed, whatever the exit code.
    pub finished: bool,
    /// The final record said it went well.
    pub ok: bool,
    /// The turn could not be started; `error` says why.
    pub unstarted: bool,
    /// It stopped at its own turn limit.
    pub max_turns: bool,
    /// The answer.
    pub text: String,
    /// What went wrong, in the agent's words.
    pub error: String,
    /// Turns or steps it counted.
    pub turns: Option<u64>,
    /// Its session, for a follow-up.
    pub session: Option<String>,
    /// Tokens as the agent counted them (shown only where the relay saw none). Cached input is part of it.
    pub input: Option<u64>,
    /// See `input`.
    pub output: Option<u64>,
    /// Dollars as the agent reckoned them.
    pub cost: Option<f64>,
    /// `input`, `output` or `cost` covers the whole session, earlier turns included.
    pub cumulative: bool,
}

/// A line that came in pieces.
#[derive(Default)]
struct Joined {
    text: String,
    skipping: bool,
}

/// The reader of one turn.
pub struct Reader<'a> {
    rules: &'a [Rule],
    outcome: Outcome,
    stdout: Joined,
    stderr: Joined,
}

impl<'a> Reader<'a> {
    /// A fresh reader.
    pub fn new(agent: &'a Agent) -> Reader<'a> {
        Reader {
            rules: agent.rules(),
            outcome: Outcome::default(),
            stdout: Joined::default(),
            stderr: Joined::default(),
        }
    }

    /// Takes one event.
    pub fn push(&mut self, what: &What) -> Vec<Trace> {
        match what {
            What::Stdout(line) => self.piece(On::Stdout, line),
            What::Stderr(line) => self.piece(On::Stderr, line),
            What::TurnEnd(end) => {
                // A last line without its line end is a line; one that was cut reads as no JSON.
                let mut shown = Vec::new();
                for on in [On::Stdout, On::Stderr] {
                    let held = if on == On::Stdout { &self.stdout } else { &self.stderr };
                    if held.skipping || !held.text.is_empty() {
                        shown.extend(self.joined(on));
                    }
                }
                let code = if end.code == Some(0) { ExitCode::Zero } else { ExitCode::Other };
                for rule in self.rules.iter().filter(|r| r.exit == Some(code)) {
                    shown.extend(act(&mut self.outcome, rule, &Value::Null, &mut true));
                }
                shown
            }
            What::TurnFailed(failed) => {
                self.outcome = Outcome {
                    finished: true,
                    unstarted: true,
                    error: failed.why.clone(),
                    ..Outcome::default()
                };
                Vec::new()
            }
        }
    }

    /// What it amounts to; also when the turn was cut off.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    fn piece(&mut self, on: On, line: &Line) -> Vec<Trace> {
        let held = if on == On::Stdout { &mut self.stdout } else { &mut self.stderr };
        if held.text.len().saturating_add(line.text.len()) > READ_LINE_BYTES {
            *held = Joined { text: String::new(), skipping: true };
        }
        if !held.skipping {
            held.text.push_str(&line.text);
        }
        if line.more { Vec::new() } else { self.joined(on) }
    }

    /// Reads the line held for a stream, if any.
    fn joined(&mut self, on: On) -> Vec<Trace> {
        let held = std::mem::take(if on == On::Stdout { &mut self.stdout } else { &mut self.stderr });
        if held.skipping {
            return vec![Trace::Warning(format!("a line of over {READ_LINE_BYTES} bytes was skipped"))];
        }
        let mut shown = Vec::new();
        let value = object(&held.text);
        for rule in self.rules.iter().filter(|r| r.on == on) {
            match (&rule.starts, &value) {
                (Some(start), _) => {
                    if let Some(rest) = held.text.strip_prefix(start.as_str()) {
                        shown.extend(act(&mut self.outcome, rule, &Value::from(rest), &mut true));
                    }
                }
                (None, Some(value)) => matched(&mut self.outcome, rule, value, &mut shown),
                (None, None) => {}
            }
        }
        shown
    }
}

/// The line as a JSON object, where it is one that is worth its memory.
fn object(line: &str) -> Option<Value> {
    let line = line.trim();
    if !line.starts_with('{') || items(line) > READ_ITEMS {
        return None;
    }
    serde_json::from_str(line).ok()
}

/// Counts what would become a node of the tree: commas and brackets outside strings.
fn items(line: &str) -> usize {
    let (mut count, mut quoted, mut escaped) = (0usize, false, false);
    for byte in line.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'{' | b'[' if !quoted => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

fn equal(value: &Value, wanted: &std::collections::BTreeMap<String, Value>) -> bool {
    wanted.iter().all(|(path, scalar)| rules::at(value, path) == Some(scalar))
}

fn matched(outcome: &mut Outcome, rule: &Rule, line: &Value, shown: &mut Vec<Trace>) {
    if rule.exit.is_some() || !equal(line, &rule.when) {
        return;
    }
    let mut first = true;
    match &rule.each {
        None => shown.extend(act(outcome, rule, line, &mut first)),
        Some(path) => {
            let members = rules::at(line, path).and_then(Value::as_array);
            for member in members.into_iter().flatten().filter(|m| equal(m, &rule.is)) {
                shown.extend(act(outcome, rule, member, &mut first));
            }
        }
    }
}

/// One match. `first`: no answer of this line was kept yet.
fn act(outcome: &mut Outcome, rule: &Rule, value: &Value, first: &mut bool) -> Vec<Trace> {
    let mut shown = Vec::new();
    if let Some(text) = string(value, &rule.text) {
        shown.push(Trace::Text(text));
    }
    // An answer that grows line by line keeps its blank lines.
    let raw = || rule.answer.iter().find_map(|p| rules::at(value, p)?.as_str().map(str::to_string));
    let answer = if rule.append { raw() } else { string(value, &rule.answer) };
    if let Some(text) = answer {
        if std::mem::take(first) && !rule.append {
            outcome.text.clear();
        }
        if !outcome.text.is_empty() {
            outcome.text.push('\n');
        }
        outcome.text.push_str(&text);
        cut(&mut outcome.text, ANSWER_BYTES);
    }
    if let Some(tool) = &rule.tool
        && let Some(name) = string(value, &tool.name)
    {
        shown.push(Trace::Tool(name, short(value, &tool.argument)));
    }
    if let Some(text) = string(value, &rule.warning) {
        shown.push(Trace::Warning(text));
    }
    if let Some(session) = string(value, &rule.session) {
        outcome.session = Some(session);
    }
    count(outcome, rule, value);
    if let Some(ending) = rule.ending {
        outcome.finished = ending != Ending::Running;
        outcome.ok = ending == Ending::Ok;
        outcome.max_turns = ending == Ending::MaxTurns;
        outcome.error = match ending {
            Ending::Ok | Ending::Running => String::new(),
            Ending::Failed | Ending::MaxTurns => string(value, &rule.error).unwrap_or_default(),
        };
        cut(&mut outcome.error, ANSWER_BYTES);
    }
    shown
}

/// Usage, cost and turns.
fn count(outcome: &mut Outcome, rule: &Rule, value: &Value) {
    if let Some(usage) = &rule.usage {
        outcome.input = together(usage.mode, outcome.input, tokens(value, &usage.input));
        outcome.output = together(usage.mode, outcome.output, tokens(value, &usage.output));
        outcome.cumulative |= usage.mode == Mode::Cumulative;
    }
    if let Some(cost) = &rule.cost {
        let dollars = cost.at.iter().find_map(|p| rules::at(value, p)?.as_f64());
        if let Some(dollars) = dollars.filter(|d| d.is_finite() && *d >= 0.0) {
            let before = if cost.mode == Mode::Sum { outcome.cost.unwrap_or(0.0) } else { 0.0 };
            outcome.cost = Some((before + dollars).min(f64::MAX));
        }
        outcome.cumulative |= cost.mode == Mode::Cumulative;
    }
    let counted = rule.turns.iter().find_map(|p| rules::at(value, p)?.as_u64());
    outcome.turns = counted.or(outcome.turns);
    if rule.counts_turn {
        outcome.turns = Some(outcome.turns.unwrap_or(0).saturating_add(1));
    }
}

/// The members that are there, added; none at all is not zero.
fn tokens(value: &Value, paths: &[String]) -> Option<u64> {
    let counters = paths.iter().filter_map(|p| rules::at(value, p)?.as_u64());
    counters.fold(None, |sum: Option<u64>, n| Some(sum.unwrap_or(0).saturating_add(n)))
}

fn together(mode: Mode, before: Option<u64>, now: Option<u64>) -> Option<u64> {
    match (mode, before, now) {
        (Mode::Sum, Some(a), Some(b)) => Some(a.saturating_add(b)),
        (_, before, now) => now.or(before),
    }
}

/// The first path that holds a text worth the name.
fn string(value: &Value, paths: &[String]) -> Option<String> {
    let mut texts = paths.iter().filter_map(|p| rules::at(value, p)?.as_str());
    texts.find(|t| !t.trim().is_empty()).map(str::to_string)
}

/// A tool's argument: a string as it is, anything else as JSON.
fn short(value: &Value, paths: &[String]) -> String {
    let found = paths.iter().filter_map(|p| rules::at(value, p)).find(|v| !v.is_null());
    let mut text = match found {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    cut(&mut text, TOOL_ARGUMENT_BYTES);
    text
}

/// Cuts at a character.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate((0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
    }
}
