//! What a run is: every flag and file it needs, checked once, valid ever after. `Spec::from` is called by `main` before anything
//! exists; it makes nothing and starts nothing.

use crate::catalog::agents::{self, Agent};
use crate::catalog::providers::{self, Protocol, Provider};
use crate::engine::plan::{Engine, Hole, Mode};
use crate::error::Error;
use crate::limits;
use crate::relay::caps::{self, Caps};
use crate::relay::start::{Grants, Upstream};
use crate::run::asked::Asked;
use crate::run::endpoint;
use crate::run::key;
use crate::run::modes::{self, Docker};
use crate::run::place;
use crate::sys::env::Env;
use crate::sys::file;
use crate::wire::duration;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory of the host in the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Absolute, links resolved, a directory.
    pub host: PathBuf,
    /// Absolute, normalised, not `/`, not at or below `/work`.
    pub dest: String,
    /// `:ro`.
    pub readonly: bool,
}

/// A run.
pub struct Spec {
    /// Not blank; the report instruction is not part of it.
    pub task: String,
    /// Append the instruction to write REPORT.md.
    pub report_instruction: bool,
    /// Absolute, links resolved as far as it exists; made just before the box where missing.
    pub workdir: PathBuf,
    /// It has to be made, and given to `user`.
    pub make_workdir: bool,
    /// `--mount`.
    pub mounts: Vec<Mount>,
    /// `--mask`: paths below the work directory, relative, no `..`, no link on the way; each exists.
    pub masks: Vec<String>,
    /// `-o`, absolute.
    pub report_to: Option<PathBuf>,
    /// `--stats-file`, absolute.
    pub stats_file: Option<PathBuf>,
    /// `--timeout`.
    pub timeout: Duration,
    /// `--model`.
    pub model: Option<String>,
    /// `--max-turns`.
    pub max_turns: Option<u32>,
    /// `--effort`.
    pub effort: Option<String>,
    /// `--permission-mode`.
    pub permission_mode: Option<String>,
    /// `--allowed-tools`.
    pub allowed_tools: Option<String>,
    /// `--bare`.
    pub bare: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `-q`.
    pub quiet: bool,
    /// `--canary`.
    pub canary: bool,
    /// `--skip-key-check` was not given and the provider has a preflight.
    pub preflight: bool,
    /// The agent.
    pub agent: Agent,
    /// The provider.
    pub provider: Provider,
    /// What the two have in common.
    pub protocol: Protocol,
    /// Where calls go; `addresses` and `openssl` are filled in at the start.
    pub upstream: Upstream,
    /// `--upstream-proxy-auth`: read when the run begins.
    pub proxy_auth: Option<PathBuf>,
    /// Model policy.
    pub grants: Grants,
    /// What all calls together may use.
    pub caps: Caps,
    /// `--log-dir`, absolute; none: beside the run's receipt.
    pub log_dir: Option<PathBuf>,
    /// `--log-bodies`.
    pub log_bodies: bool,
    /// Uid and gid of the box; 0 only with `--as-root`.
    pub user: (u32, u32),
    /// How closed the box is.
    pub mode: Mode,
    /// In open mode, what the agent is pointed at.
    pub base_url: Option<String>,
    /// What makes it.
    pub engine: Engine,
    /// Absolute path of the engine's program.
    pub program: PathBuf,
    /// On docker, what it needs besides.
    pub docker: Option<Docker>,
    /// `--env`: added to the agent's environment, overriding nothing of it.
    pub env: Vec<(String, String)>,
    /// Only `attest` sets it, on its throw-away box.
    pub hole: Option<Hole>,
    /// Lines that were decided for the caller and have to be said: a default taken, a weaker choice.
    pub notes: Vec<String>,
}

impl Spec {
    /// Checks everything. The second value says where the key is to be read from.
    pub fn from(asked: Asked, env: &Env) -> Result<(Spec, key::From), Error> {
        let mut notes = Vec::new();
        let mode = modes::mode(&asked)?;
        let provider = provider(asked.provider.as_deref())?;
        let agent = agent(asked.agent.as_deref(), &provider, &mut notes)?;
        let protocol = common(&agent, &provider)?;
        let model = model(&asked, &agent)?;
        let key_from = key_from(&asked, &provider, env)?;
        let upstream = endpoint::upstream(&asked, &provider, mode, &mut notes)?;
        let task = task(&asked, &agent)?;
        let chosen = modes::engine(&asked, mode, &agent, env, &mut notes)?;
        let base_url = endpoint::base_url(&asked, &provider, &agent, &upstream, mode)?;
        let whose = place::Whose { engine: chosen.engine, as_root: asked.as_root };
        let work = place::workdir(asked.workdir.as_deref().unwrap_or("work"), whose, &mut notes)?;
        let mounts = place::mounts(&asked.mounts, work.user, chosen.engine)?;
        let masks = place::masks(&asked.masks, &work)?;
        let report = asked.report.is_some() || !asked.no_report_instruction;
        place::hidden(&masks, &work.path, &mounts, report)?;
        place::apart(&work.path, &mounts, env.state_home.as_deref())?;
        let outside =
            |path: &Option<String>, what| place::outside(path.as_deref(), what, &work.path, &mounts);
        let grants = Grants {
            sealed: mode == Mode::Sealed,
            allow_models: asked.allow_models,
            max_tokens_cap: asked.max_tokens_cap,
            allow_server_tools: asked.allow_server_tools,
            allow_fields: asked.allow_fields,
        };
        notes.extend(grants.weaker());
        let caps = caps::settle(&asked.caps, &provider, &grants, model.as_deref())?;
        outside(&upstream.stunnel.as_ref().map(|s| s.socket.clone()), "--tls stunnel:unix:")?;
        let spec = Spec {
            report_to: outside(&asked.report, "--report")?,
            stats_file: outside(&asked.stats_file, "--stats-file")?,
            log_dir: outside(&asked.log_dir, "--log-dir")?,
            log_bodies: asked.log_bodies,
            timeout: timeout(asked.timeout.as_deref())?,
            proxy_auth: asked.upstream_proxy_auth.map(PathBuf::from),
            max_turns: asked.max_turns.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            effort: asked.effort,
            permission_mode: asked.permission_mode,
            allowed_tools: asked.allowed_tools,
            bare: asked.bare,
            preflight: mode != Mode::Open && !asked.skip_key_check && !provider.preflight.is_empty(),
            grants,
            caps,
            env: variables(&asked.env)?,
            base_url,
            mode,
            engine: chosen.engine,
            program: chosen.program,
            docker: chosen.docker,
            report_instruction: !asked.no_report_instruction,
            workdir: work.path,
            make_workdir: work.make,
            user: work.user,
            dry_run: asked.dry_run,
            quiet: asked.quiet,
            canary: asked.canary,
            task,
            mounts,
            masks,
            model,
            agent,
            provider,
            protocol,
            upstream,
            hole: None,
            notes,
        };
        Ok((spec, key_from))
    }
}

fn provider(name: Option<&str>) -> Result<Provider, Error> {
    let name = name.unwrap_or("anthropic");
    providers::shipped(name).ok_or_else(|| {
        Error::wrong(
            "find",
            format!("provider {name}"),
            format!("the providers are {}", providers::names().join(", ")),
        )
    })
}

/// The agent of a run that names none, where the provider speaks what it speaks; else the built-in one.
const AGENT: &str = "claude";

/// Agents of the first design that are not built yet are refused by name, not taken for unknown.
const LATER: [&str; 6] = ["codex", "hax", "hermes", "opencode", "pi", "prime"];

fn agent(name: Option<&str>, provider: &Provider, notes: &mut Vec<String>) -> Result<Agent, Error> {
    let name = name.unwrap_or_else(|| {
        if agents::shipped(AGENT).is_some_and(|a| common(&a, provider).is_ok()) {
            return AGENT;
        }
        notes.push(format!(
            "agent mini, the built-in one: {} speaks nothing that {AGENT} speaks",
            provider.name
        ));
        "mini"
    });
    if let Some(agent) = agents::shipped(name) {
        return Ok(agent);
    }
    let why = match LATER.contains(&name) {
        true => "not built yet".to_string(),
        false => format!("the agents are {}", agents::names().join(", ")),
    };
    Err(Error::wrong("find", format!("agent {name}"), why).remedy("use --agent mini"))
}

fn common(agent: &Agent, provider: &Provider) -> Result<Protocol, Error> {
    let served = |p: &Protocol| provider.routes.iter().any(|r| r.protocol == *p);
    agent.protocols.iter().copied().find(served).ok_or_else(|| {
        Error::wrong(
            "pair",
            format!("agent {} with provider {}", agent.name, provider.name),
            "they cannot talk: no protocol in common",
        )
    })
}

fn model(asked: &Asked, agent: &Agent) -> Result<Option<String>, Error> {
    let Some(model) = &asked.model else {
        return match asked.allow_models.as_slice() {
            [only] => Ok(Some(only.clone())),
            [] if !agent.needs_model() => Ok(None),
            _ => Err(Error::wrong("start", format!("agent {}", agent.name), "--model is required")
                .remedy("give --model ID")),
        };
    };
    if model.trim().is_empty() {
        return Err(Error::wrong("take", "--model", "it is empty"));
    }
    if !asked.allow_models.is_empty() && !asked.allow_models.contains(model) {
        return Err(Error::wrong(
            "take",
            format!("--model {model}"),
            "it is not among --allow-model: every call would be refused",
        ));
    }
    Ok(Some(model.clone()))
}

fn key_from(asked: &Asked, provider: &Provider, env: &Env) -> Result<key::From, Error> {
    match (&asked.key_file, asked.key_fd) {
        (Some(_), Some(_)) => Err(Error::wrong("take", "--key-file and --key-fd", "give one of the two")),
        (Some(path), None) => Ok(key::From::File(PathBuf::from(path))),
        (None, Some(n)) => i32::try_from(n).ok().filter(|n| *n > 2).map(key::From::Fd).ok_or_else(|| {
            Error::wrong("take", format!("--key-fd {n}"), "descriptors 0 to 2 are the standard streams")
        }),
        (None, None) => Ok(key::From::Variable {
            name: provider.key_variable.clone(),
            credentials: env.credentials.clone(),
        }),
    }
}

fn task(asked: &Asked, agent: &Agent) -> Result<String, Error> {
    let one = "give the task as an argument or by --task-file, exactly one of the two";
    let task = match (asked.task.as_deref().filter(|t| !t.is_empty()), &asked.task_file) {
        (Some(task), None) => task.to_string(),
        (None, Some(path)) => {
            #[expect(clippy::disallowed_methods, reason = "FILE-43 --task-file")]
            let bytes = file::read_named(Path::new(path), limits::TASK_BYTES)
                .map_err(|e| Error::wrong("read", format!("the task from {path}"), e))?;
            String::from_utf8(bytes)
                .map_err(|_| Error::wrong("read", format!("the task from {path}"), "it is not UTF-8"))?
        }
        _ => return Err(Error::wrong("find", "the task", one)),
    };
    match () {
        () if task.trim().is_empty() => return Err(Error::wrong("find", "the task", "it is blank")),
        () if task.contains('\0') => return Err(Error::wrong("take", "the task", "it holds a NUL byte")),
        () => {}
    }
    if !agent.task_on_stdin && task.len() > limits::ARGV_TASK_BYTES {
        let why = format!("it has {} bytes and agent {} takes it as an argument", task.len(), agent.name);
        return Err(
            Error::wrong("hand over", "the task", why).remedy("put it into a file of the work directory")
        );
    }
    Ok(task)
}

fn timeout(text: Option<&str>) -> Result<Duration, Error> {
    let text = text.unwrap_or("15m");
    let refused = |why: &str| Error::wrong("take", format!("--timeout {text}"), why);
    let time = duration::parse(text).map_err(|e| refused(&e.to_string()))?;
    if time > Duration::from_secs(7 * 24 * 3600) {
        return Err(refused("it is longer than a week"));
    }
    Ok(time)
}

/// `--env NAME=VALUE`, each name once. Names that the agent's turn sets itself are refused when it is rendered (`hand`).
fn variables(texts: &[String]) -> Result<Vec<(String, String)>, Error> {
    let mut all: Vec<(String, String)> = Vec::new();
    for text in texts {
        let name = text.split('=').next().unwrap_or_default();
        // The value may be a secret: it is not repeated.
        let refused = |why: &str| Error::wrong("take", format!("--env {name}"), why);
        let Some((_, value)) = text.split_once('=') else { return Err(refused("write it as NAME=VALUE")) };
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.bytes().all(letter) {
            return Err(refused("a name has letters, digits and _, and starts with no digit"));
        }
        if value.contains('\0') {
            return Err(refused("its value holds a NUL byte"));
        }
        if all.iter().any(|(known, _)| known == name) {
            return Err(refused("it is given twice"));
        }
        all.push((name.to_string(), value.to_string()));
    }
    Ok(all)
}
