//! Agents as data: `resources/agents/NAME.json`. How a turn is rendered (here, by `template`) and how the output is read (`rules`,
//! which `run/read` interprets). Never reads a file itself: it is given bytes. A broken file is refused when it is loaded, whole.

use crate::catalog::providers::Protocol;
use crate::catalog::rules::{self, Rule};
use crate::catalog::template::{self, Values};
use crate::limits::{AGENT_NAME, ARG_BYTES};
use crate::wire::control::Turn;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Every shipped agent: name, file.
const SHIPPED: [(&str, &[u8]); 2] = [
    ("claude", include_bytes!("../../resources/agents/claude.json")),
    ("mini", include_bytes!("../../resources/agents/mini.json")),
];

/// The file's shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    /// Of `resources/images`; empty: it needs none, it runs on the box's own system.
    image: String,
    protocols: Vec<Speaks>,
    turn: Template,
    /// Added where the box's uid is 0.
    #[serde(default)]
    as_root: Part,
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
    Taken(Taken),
    /// There is no turn without it; the templates of the turn may use it too.
    #[serde(rename = "required")]
    Required(Part),
    /// Refused; why, as a clause.
    #[serde(rename = "refused")]
    Refused(String),
}

/// What a flag that is taken adds, and when it would have no effect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Taken {
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<(String, String)>,
    /// Arguments where the flag is not given.
    #[serde(default)]
    otherwise: Vec<String>,
    /// What it may be; empty: the agent decides.
    #[serde(default)]
    values: Vec<String>,
    idle: Option<Idle>,
}

/// Another flag that takes the effect from this one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Idle {
    flag: Flag,
    /// Values of the other flag; `""`: it is not given.
    values: Vec<String>,
    /// Why, as a clause.
    why: String,
}

/// Flags that are the agent's to honour.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
enum Flag {
    Model,
    MaxTurns,
    Effort,
    PermissionMode,
    AllowedTools,
    Bare,
}

/// Each flag as a person types it; without the dashes, and with `_`, it is the template word of its value.
const FLAGS: [(Flag, &str); 6] = [
    (Flag::Model, "--model"),
    (Flag::MaxTurns, "--max-turns"),
    (Flag::Effort, "--effort"),
    (Flag::PermissionMode, "--permission-mode"),
    (Flag::AllowedTools, "--allowed-tools"),
    (Flag::Bare, "--bare"),
];

impl Flag {
    fn option(self) -> &'static str {
        FLAGS.iter().find(|(flag, _)| *flag == self).map_or("", |(_, option)| option)
    }
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
    /// `--effort`.
    pub effort: Option<&'a str>,
    /// `--permission-mode`.
    pub permission_mode: Option<&'a str>,
    /// `--allowed-tools`.
    pub allowed_tools: Option<&'a str>,
    /// `--bare`.
    pub bare: bool,
    /// The agent's home directory in the box.
    pub home: &'a str,
    /// The box's uid is 0.
    pub root: bool,
}

impl TurnInput<'_> {
    /// What was given for a flag.
    fn given(&self, flag: Flag) -> Option<String> {
        match flag {
            Flag::Model => self.model.map(str::to_string),
            Flag::MaxTurns => self.max_turns.map(|n| n.to_string()),
            Flag::Effort => self.effort.map(str::to_string),
            Flag::PermissionMode => self.permission_mode.map(str::to_string),
            Flag::AllowedTools => self.allowed_tools.map(str::to_string),
            Flag::Bare => self.bare.then(String::new),
        }
    }
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

    /// The program that a turn starts, absolute in the box.
    pub fn program(&self) -> &str {
        self.file.turn.argv.first().map_or("", String::as_str)
    }

    /// There is no turn without `--model`.
    pub fn needs_model(&self) -> bool {
        matches!(self.file.flags.get(&Flag::Model), Some(Takes::Required(_)))
    }

    /// Its reader rules.
    pub fn rules(&self) -> &[Rule] {
        &self.file.read
    }

    /// The process of one turn in the coding profile. `Err`: why this agent cannot take it, as a clause.
    pub fn render(&self, input: &TurnInput<'_>) -> Result<Turn, String> {
        self.render_as(Profile::Coding, input)
    }

    /// The process of one turn. `Err`: why this agent cannot take it, as a clause.
    pub fn render_as(&self, profile: Profile, input: &TurnInput<'_>) -> Result<Turn, String> {
        let speaks = self.file.protocols.iter().find(|s| s.protocol == input.protocol);
        let speaks = speaks.ok_or_else(|| format!("{} does not speak this protocol", self.name))?;
        let profile = self.file.profiles.get(&profile).ok_or("it has no such profile")?;
        let mut values = Values::new();
        values.set("task", input.task);
        values.set("base_url", &format!("{}{}", input.base_url, speaks.suffix));
        values.set("token", input.token);
        values.set("home", input.home);
        values.set("protocol", &speaks.word);
        values.set("turn", input.id);
        let mut added = vec![(&profile.args, Some(&profile.env))];
        for (flag, option) in FLAGS {
            values.set(&word(option), &input.given(flag).unwrap_or_default());
            added.extend(self.flag(flag, input)?);
        }
        if input.root {
            added.push((&self.file.as_root.args, Some(&self.file.as_root.env)));
        }
        let template = &self.file.turn;
        let mut turn = Turn {
            id: input.id.to_string(),
            argv: Vec::new(),
            env: values.pairs(&template.env),
            files: values.pairs(&template.files),
            stdin: values.fill(&template.stdin),
        };
        for element in &template.argv {
            if element == "{flags}" {
                turn.argv.extend(added.iter().flat_map(|(args, _)| *args).map(|a| values.fill(a)));
            } else {
                turn.argv.push(values.fill(element));
            }
        }
        turn.env.extend(added.iter().filter_map(|(_, env)| *env).flat_map(|env| values.pairs(env)));
        fits(&turn)?;
        Ok(turn)
    }

    /// What a flag adds, or why it cannot be (or must be) given.
    fn flag(&self, flag: Flag, input: &TurnInput<'_>) -> Result<Option<Added<'_>>, String> {
        let (name, option) = (&self.name, flag.option());
        match (self.file.flags.get(&flag), input.given(flag)) {
            (Some(Takes::Taken(taken)), Some(value)) => {
                taken
                    .takes(&value, input)
                    .map_err(|why| format!("{name} cannot take {option} {value}: {why}"))?;
                Ok(Some((&taken.args, Some(&taken.env))))
            }
            (Some(Takes::Taken(taken)), None) => Ok(Some((&taken.otherwise, None))),
            (Some(Takes::Required(part)), Some(_)) => Ok(Some((&part.args, Some(&part.env)))),
            (Some(Takes::Required(_)), None) => Err(format!("{name} needs {option}")),
            (Some(Takes::Refused(why)), Some(_)) => Err(format!("{name} does not take {option}: {why}")),
            (None, Some(_)) => Err(format!("{name} has nothing like {option}")),
            (_, None) => Ok(None),
        }
    }
}

/// Arguments and environment that a profile or a flag adds.
type Added<'a> = (&'a Vec<String>, Option<&'a Vec<(String, String)>>);

impl Taken {
    /// Whether it may be given so, beside the other flags.
    fn takes(&self, value: &str, input: &TurnInput<'_>) -> Result<(), String> {
        if !self.values.is_empty() && !self.values.iter().any(|v| v == value) {
            return Err(format!("it may be {}", self.values.join(", ")));
        }
        match &self.idle {
            Some(idle) if idle.values.contains(&input.given(idle.flag).unwrap_or_default()) => {
                Err(idle.why.clone())
            }
            _ => Ok(()),
        }
    }
}

/// The template word of a flag's value.
fn word(option: &str) -> String {
    option.trim_start_matches('-').replace('-', "_")
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
    check_templates(file)?;
    rules::check(&file.read)
}

/// Every template word is known, and none stands where its flag may be missing.
fn check_templates(file: &File) -> Result<(), String> {
    const ALWAYS: [&str; 6] = ["task", "base_url", "token", "home", "protocol", "turn"];
    let flags: Vec<String> = FLAGS.iter().map(|(_, option)| word(option)).collect();
    let known: Vec<&str> = ALWAYS.into_iter().chain(flags.iter().map(String::as_str)).collect();
    let mut everywhere = ALWAYS.to_vec();
    let here = |args: &[String], env: &[(String, String)], given: &[&str]| {
        let texts = args.iter().chain(env.iter().map(|(_, value)| value)).map(String::as_str);
        template::check(texts, &known, given)
    };
    for ((_, own), (flag, _)) in flags.iter().enumerate().zip(FLAGS) {
        let with: Vec<&str> = ALWAYS.into_iter().chain([own.as_str()]).collect();
        match file.flags.get(&flag) {
            Some(Takes::Taken(taken)) => {
                here(&taken.args, &taken.env, &with)?;
                here(&taken.otherwise, &[], &ALWAYS)?;
            }
            Some(Takes::Required(part)) => {
                everywhere.push(own);
                here(&part.args, &part.env, &with)?;
            }
            Some(Takes::Refused(_)) | None => {}
        }
    }
    for part in file.profiles.values().chain([&file.as_root]) {
        here(&part.args, &part.env, &everywhere)?;
    }
    let turn = &file.turn;
    let argv: Vec<String> = turn.argv.iter().filter(|element| *element != "{flags}").cloned().collect();
    here(&argv, &turn.env, &everywhere)?;
    here(std::slice::from_ref(&turn.stdin), &turn.files, &everywhere)?;
    match turn.argv.iter().chain([&turn.stdin]).any(|text| text.contains("{task}")) {
        true => Ok(()),
        false => Err("the task is neither an argument nor on standard input".into()),
    }
}
