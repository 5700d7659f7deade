//! Reader rules: how an agent's output becomes text, tool calls, usage, cost, answer, session and ending. Data only; what a rule
//! means is written here, `run/read` does it. The language is small and total: no rule can fail, loop, or refer to another.
//!
//! A rule looks at one line of `on` (`stdout` unless said). With `when` or `each` the line is a JSON object in which every path of
//! `when` equals the scalar given. With `starts` it is any line that begins with these words; its value is the rest, at the path
//! `""`. With `exit` it is the end of the process: `zero` or `other`. Every rule that matches acts, in order, so a later one
//! has the last word. With `each`, the rule acts once per member of that array for which `is` holds, and its paths start there.
//!
//! A path is member names joined by dots; digits index an array. Where a list of paths is asked, the first that holds something
//! counts, except in `usage`, whose paths are added. What is not there, or of another type, is as if the rule did not ask.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One rule.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which stream.
    #[serde(default)]
    pub on: On,
    /// Members that must be equal, by path.
    #[serde(default)]
    pub when: BTreeMap<String, Value>,
    /// The array whose members are looked at.
    pub each: Option<String>,
    /// Members of such a member that must be equal.
    #[serde(default)]
    pub is: BTreeMap<String, Value>,
    /// A line that starts so, JSON or not.
    pub starts: Option<String>,
    /// The end of the process.
    pub exit: Option<ExitCode>,
    /// Shown as what the agent says.
    #[serde(default)]
    pub text: Vec<String>,
    /// Kept as the answer: those of one line joined by line ends; a later line replaces, unless `append`.
    #[serde(default)]
    pub answer: Vec<String>,
    /// The answer grows line by line.
    #[serde(default)]
    pub append: bool,
    /// Shown as a tool call.
    pub tool: Option<Tool>,
    /// Shown as a warning.
    #[serde(default)]
    pub warning: Vec<String>,
    /// The session's id, for a follow-up.
    #[serde(default)]
    pub session: Vec<String>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// Dollars, as the agent reckons.
    pub cost: Option<Cost>,
    /// The number of turns; the last one counts.
    #[serde(default)]
    pub turns: Vec<String>,
    /// Each match is one turn more.
    #[serde(default)]
    pub counts_turn: bool,
    /// How the turn stands after this line.
    pub ending: Option<Ending>,
    /// What went wrong; kept with an `ending` of `failed` or `max_turns`.
    #[serde(default)]
    pub error: Vec<String>,
}

/// A stream of the agent.
#[derive(Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// How the process ended.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ExitCode {
    /// Exit code 0.
    Zero,
    /// Another code, or a signal.
    Other,
}

/// A tool call.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: Vec<String>,
    /// What it was called with, short: a string as it is, anything else as JSON.
    pub argument: Vec<String>,
}

/// How a figure goes together with earlier ones.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Added up.
    Sum,
    /// The last one counts; it covers this process.
    Last,
    /// The last one counts; it covers the whole session, turns before this process included.
    Cumulative,
}

/// Token counters. Paths of one list are added: a provider that counts cached input outside `input` is told so.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// How they go together.
    pub mode: Mode,
    /// Input, cached included.
    pub input: Vec<String>,
    /// Output, reasoning included.
    pub output: Vec<String>,
}

/// Dollars.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// How they go together.
    pub mode: Mode,
    /// A finite number that is not negative.
    pub at: Vec<String>,
}

/// How a turn stands.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Not ended (again): a new step began.
    Running,
    /// It says it is done.
    Ok,
    /// It says it failed.
    Failed,
    /// It stopped at its turn limit.
    MaxTurns,
}

/// What the types do not say: each rule looks at one kind of thing, does something, and its paths are paths.
pub fn check(rules: &[Rule]) -> Result<(), String> {
    if !rules.iter().any(|r| r.ending == Some(Ending::Ok)) {
        return Err("no rule reads a good ending".into());
    }
    for (n, rule) in rules.iter().enumerate() {
        check_rule(rule).map_err(|why| format!("rule {}: {why}", n.saturating_add(1)))?;
    }
    Ok(())
}

fn check_rule(rule: &Rule) -> Result<(), String> {
    let json = !rule.when.is_empty() || rule.each.is_some();
    if [json, rule.starts.is_some(), rule.exit.is_some()].iter().filter(|x| **x).count() != 1 {
        return Err("exactly one of `when` (or `each`), `starts` and `exit`".into());
    }
    if rule.each.is_none() && !rule.is.is_empty() {
        return Err("`is` needs `each`".into());
    }
    let scalar = |v: &Value| !v.is_array() && !v.is_object();
    if !rule.when.values().chain(rule.is.values()).all(scalar) {
        return Err("`when` and `is` compare with a string, a number, true, false or null".into());
    }
    let lists = [&rule.text, &rule.answer, &rule.warning, &rule.session, &rule.turns, &rule.error];
    let tool = rule.tool.iter().flat_map(|t| t.name.iter().chain(&t.argument));
    let usage = rule.usage.iter().flat_map(|u| u.input.iter().chain(&u.output));
    let cost = rule.cost.iter().flat_map(|c| &c.at);
    let mut paths: Vec<&String> = lists.into_iter().flatten().chain(tool).chain(usage).chain(cost).collect();
    if paths.is_empty() && !rule.counts_turn && rule.ending.is_none() {
        return Err("it does nothing".into());
    }
    if rule.exit.is_some() && !paths.is_empty() {
        return Err("the end of the process has no members to read".into());
    }
    if rule.starts.is_some() {
        return if paths.iter().all(|p| p.is_empty()) {
            Ok(())
        } else {
            Err("a line has only the path \"\"".into())
        };
    }
    paths.extend(rule.when.keys().chain(rule.is.keys()).chain(&rule.each));
    match paths.iter().find(|p| p.split('.').any(str::is_empty)) {
        // An array of strings has members without names.
        Some(p) if !(p.is_empty() && rule.each.is_some()) => Err(format!("{p:?} is not a path")),
        _ => Ok(()),
    }
}

/// The value at a path; `""` is the value itself.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    path.split('.').try_fold(value, |v, name| match v {
        Value::Object(members) => members.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}
