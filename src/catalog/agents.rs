//! Agents as data: `resources/agents/NAME.json`. How a turn is rendered (here) and how the output is read (`rules`, which
//! `run/read` interprets). Never reads a file itself: it is given bytes. A broken file is refused when it is loaded, whole.
//!
//! Templates are plain substitution in argv, environment, files and standard input: `{task} {model} {max_turns} {base_url} {token}
//! {home} {protocol} {turn}`, and each as `{name:json}`, a JSON string with its quotes. No logic. Braces around anything but such a
//! word are literal. The argv element `{flags}` stands for the arguments of the profile and of each flag that was given.

use crate::catalog::providers::Protocol;
use crate::catalog::rules::{self, Rule};
use crate::limits::{AGENT_NAME, ARG_BYTES};
use crate::wire::control::Turn;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Every shipped agent: name, file.
const SHIPPED: [(&str, &[u8]); 1] = [("mini", include_bytes!("../../resources/agents/mini.json"))];

/// The template words.
const WORDS: [&str; 8] = ["task", "model", "max_turns", "base_url", "token", "home", "protocol", "turn"];

/// The file's shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    /// Of `resources/images`; empty: it needs none, it runs on the box's own system.
    image: String,
    protocols: Vec<Speaks>,
    turn: Template,
    profiles: BTreeMap<Profile, Part>,
    flags: BTreeMap<Flag, Takes>,
    read: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Speaks {
    protocol: Protocol,
    /// The agent's own word for it: `{protocol}`.
    word: String,
    /// Added to the provider's base URL in `{base_url}`.
    #[serde(default)]
    suffix: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    argv: Vec<String>,
    /// The whole environment: nothing is inherited.
    env: Vec<(String, String)>,
    /// Below the home directory: relative path, content.
    #[serde(default)]
    files: Vec<(String, String)>,
    #[serde(default)]
    stdin: String,
}

/// What a profile or a flag adds to a turn.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<(String, String)>,
}

/// What the agent does with a flag of `run`. One that the file does not name is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
enum Takes {
    /// Taken where given.
    #[serde(rename = "taken")]
    Taken(Part),
    /// There is no turn without it; the templates of the turn may use it too.
    #[serde(rename = "required")]
    Required(Part),
    /// Refused; why, as a clause.
    #[serde(rename = "refused")]
    Refused(String),
}

/// Flags that are the agent's to honour.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
enum Flag {
    Model,
    MaxTurns,
}

/// Tool set of a run.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Reads, writes, runs commands.
    Coding,
    /// A task that is no software: another system prompt, the same tools.
    General,
}

/// One agent.
pub struct Agent {
    /// As given to `--agent`.
    pub name: String,
    /// Protocols it can speak, best first.
    pub protocols: Vec<Protocol>,
    /// It reads the task on standard input, so a task has no size limit.
    pub task_on_stdin: bool,
    file: File,
}

/// What a turn is rendered from.
pub struct TurnInput<'a> {
    /// The turn's id.
    pub id: &'a str,
    /// The task, with the report instruction where wanted.
    pub task: &'a str,
    /// What the provider speaks, chosen from `Agent::protocols`.
    pub protocol: Protocol,
    /// `http://127.0.0.1:PORT` with the provider's prefix.
    pub base_url: &'a str,
    /// The run token.
    pub token: &'a str,
    /// `--model`.
    pub model: Option<&'a str>,
    /// `--max-turns`.
    pub max_turns: Option<u32>,
    /// The agent's home directory in the box.
    pub home: &'a str,
}

/// Names of the shipped agents, sorted.
pub fn names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// A shipped agent by name. A broken resource is no agent; a test loads each of them.
pub fn shipped(name: &str) -> Option<Agent> {
    let (_, bytes) = SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
    Agent::parse(bytes).ok()
}

impl Agent {
    /// Reads an agent file. `Err`: what is wrong with it, as a clause.
    pub fn parse(bytes: &[u8]) -> Result<Agent, String> {
        let file: File = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        check(&file)?;
        Ok(Agent {
            name: file.name.clone(),
            protocols: file.protocols.iter().map(|s| s.protocol).collect(),
            task_on_stdin: file.turn.stdin.contains("{task}"),
            file,
        })
    }

    /// Name of its image; `None`: it runs on the box's own system.
    pub fn image(&self) -> Option<&str> {
        Some(self.file.image.as_str()).filter(|image| !image.is_empty())
    }

    /// How its output is read.
    pub fn rules(&self) -> &[Rule] {
        &self.file.read
    }

    /// The process of one turn in the `coding` profile. `Err`: why this agent cannot take it, as a clause.
    pub fn render(&self, input: &TurnInput<'_>) -> Result<Turn, String> {
        self.render_as(Profile::Coding, input)
    }

    /// The process of one turn. `Err`: why this agent cannot take it, as a clause.
    pub fn render_as(&self, profile: Profile, input: &TurnInput<'_>) -> Result<Turn, String> {
        let speaks = self.file.protocols.iter().find(|s| s.protocol == input.protocol);
        let speaks = speaks.ok_or_else(|| format!("{} does not speak this protocol", self.name))?;
        let base_url = format!("{}{}", input.base_url, speaks.suffix);
        let max_turns = input.max_turns.map(|n| n.to_string());
        let values = Values {
            task: input.task,
            model: input.model.unwrap_or_default(),
            max_turns: max_turns.as_deref().unwrap_or_default(),
            base_url: &base_url,
            token: input.token,
            home: input.home,
            protocol: &speaks.word,
            turn: input.id,
        };
        let mut parts = vec![self.file.profiles.get(&profile).ok_or("it has no such profile")?];
        parts.extend(self.flag(Flag::Model, "--model", input.model.is_some())?);
        parts.extend(self.flag(Flag::MaxTurns, "--max-turns", input.max_turns.is_some())?);
        let template = &self.file.turn;
        let mut turn = Turn {
            id: input.id.to_string(),
            argv: Vec::new(),
            env: pairs(&template.env, &values),
            files: pairs(&template.files, &values),
            stdin: fill(&template.stdin, &values),
        };
        for element in &template.argv {
            if element == "{flags}" {
                turn.argv.extend(parts.iter().flat_map(|p| &p.args).map(|a| fill(a, &values)));
            } else {
                turn.argv.push(fill(element, &values));
            }
        }
        turn.env.extend(parts.iter().flat_map(|p| pairs(&p.env, &values)));
        fits(&turn)?;
        Ok(turn)
    }

    /// What a flag adds, or why it cannot be (or must be) given.
    fn flag(&self, flag: Flag, option: &str, given: bool) -> Result<Option<&Part>, String> {
        match (self.file.flags.get(&flag), given) {
            (Some(Takes::Taken(part) | Takes::Required(part)), true) => Ok(Some(part)),
            (Some(Takes::Required(_)), false) => Err(format!("{} needs {option}", self.name)),
            (Some(Takes::Refused(why)), true) => Err(format!("{} does not take {option}: {why}", self.name)),
            (None, true) => Err(format!("{} has nothing like {option}", self.name)),
            (_, false) => Ok(None),
        }
    }
}

/// The kernel takes no longer string and no NUL (`execve(2)`, MAX_ARG_STRLEN).
fn fits(turn: &Turn) -> Result<(), String> {
    let env = turn
        .env
        .iter()
        .map(|(name, value)| (name.len().saturating_add(value.len()).saturating_add(2), value));
    for (bytes, text) in turn.argv.iter().map(|a| (a.len().saturating_add(1), a)).chain(env) {
        if bytes > ARG_BYTES {
            return Err(format!("a task of this agent is an argument, and those end at {ARG_BYTES} bytes"));
        }
        if text.contains('\0') {
            return Err("a NUL byte cannot stand in an argument or in the environment".into());
        }
    }
    Ok(())
}

struct Values<'a> {
    task: &'a str,
    model: &'a str,
    max_turns: &'a str,
    base_url: &'a str,
    token: &'a str,
    home: &'a str,
    protocol: &'a str,
    turn: &'a str,
}

impl Values<'_> {
    fn of(&self, word: &str) -> &str {
        match word {
            "task" => self.task,
            "model" => self.model,
            "max_turns" => self.max_turns,
            "base_url" => self.base_url,
            "token" => self.token,
            "home" => self.home,
            "protocol" => self.protocol,
            "turn" => self.turn,
            _ => "",
        }
    }
}

fn pairs(templates: &[(String, String)], values: &Values<'_>) -> Vec<(String, String)> {
    templates.iter().map(|(name, value)| (name.clone(), fill(value, values))).collect()
}

/// One pass: a value is never searched for templates itself.
fn fill(template: &str, values: &Values<'_>) -> String {
    let mut out = String::new();
    for piece in pieces(template) {
        match piece {
            Piece::Literal(text) => out.push_str(text),
            Piece::Word(word, false) => out.push_str(values.of(word)),
            Piece::Word(word, true) => out.push_str(&serde_json::Value::from(values.of(word)).to_string()),
        }
    }
    out
}

enum Piece<'a> {
    Literal(&'a str),
    /// The word, and whether as JSON.
    Word(&'a str, bool),
}

fn pieces(template: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        out.push(Piece::Literal(before));
        let inner = after.split_once('}').map(|(inner, left)| (inner.strip_suffix(":json"), inner, left));
        match inner {
            Some((json, inner, left)) if is_word(json.unwrap_or(inner)) => {
                out.push(Piece::Word(json.unwrap_or(inner), json.is_some()));
                rest = left;
            }
            _ => {
                out.push(Piece::Literal("{"));
                rest = after;
            }
        }
    }
    out.push(Piece::Literal(rest));
    out
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// Everything the types do not say.
fn check(file: &File) -> Result<(), String> {
    let name = file.name.as_str();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || name.len() > AGENT_NAME || name.starts_with('-') || !name.bytes().all(plain) {
        return Err(format!("the name {name:?} is not lower-case letters, digits and dashes"));
    }
    if file.protocols.is_empty() || !file.profiles.contains_key(&Profile::Coding) {
        return Err("an agent has at least one protocol and the profile `coding`".into());
    }
    if !file.turn.argv.first().is_some_and(|program| program.starts_with('/')) {
        return Err("the program is not an absolute path".into());
    }
    let up = |path: &str| path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if let Some((path, _)) = file.turn.files.iter().find(|(path, _)| up(path)) {
        return Err(format!("the file {path:?} is not a plain path below the home directory"));
    }
    let mut everywhere = Vec::new();
    for (flag, takes) in &file.flags {
        let word = if *flag == Flag::Model { "model" } else { "max_turns" };
        match takes {
            Takes::Refused(_) => {}
            Takes::Taken(part) => words(part.args.iter().chain(part.env.iter().map(|(_, v)| v)), &[word])?,
            Takes::Required(part) => {
                everywhere.push(word);
                words(part.args.iter().chain(part.env.iter().map(|(_, v)| v)), &[word])?;
            }
        }
    }
    let parts = file.profiles.values();
    words(parts.flat_map(|p| p.args.iter().chain(p.env.iter().map(|(_, v)| v))), &everywhere)?;
    let turn = &file.turn;
    let values = turn.env.iter().chain(&turn.files).map(|(_, value)| value);
    let argv = turn.argv.iter().filter(|element| *element != "{flags}");
    words(argv.chain(values).chain([&turn.stdin]), &everywhere)?;
    let task = turn.argv.iter().chain([&turn.stdin]).any(|text| text.contains("{task}"));
    if !task {
        return Err("the task is neither an argument nor on standard input".into());
    }
    rules::check(&file.read)
}

/// Refuses a template word that is unknown, or whose flag may not have been given.
fn words<'a>(templates: impl Iterator<Item = &'a String>, given: &[&str]) -> Result<(), String> {
    for template in templates {
        for piece in pieces(template) {
            let Piece::Word(word, _) = piece else { continue };
            if !WORDS.contains(&word) {
                return Err(format!("the template {{{word}}} is unknown"));
            }
            if matches!(word, "model" | "max_turns") && !given.contains(&word) {
                return Err(format!("{{{word}}} stands where its flag may be missing"));
            }
        }
    }
    Ok(())
}
