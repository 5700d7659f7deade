//! Mode and engine of a run, and the flags that mean nothing there: those are refused by name, before anything is looked at. Makes
//! no call: whether the engine answers is found out by `needs`. Called by `spec`.

use crate::catalog::agents::Agent;
use crate::catalog::images;
use crate::engine::docker;
use crate::engine::plan::{Engine, Mode};
use crate::error::{Error, Exit};
use crate::limits;
use crate::run::asked::Asked;
use crate::run::daemon::{self, Place};
use crate::sys::env::Env;
use crate::sys::{exec, proc};
use std::path::PathBuf;

/// The engine of a run.
pub struct Chosen {
    /// Which.
    pub engine: Engine,
    /// Absolute path of its program.
    pub program: PathBuf,
    /// What docker needs besides.
    pub docker: Option<Docker>,
}

/// A run on docker.
pub struct Docker {
    /// Where the daemon is looked for.
    pub place: Place,
    /// `--image`, or the agent's own.
    pub image: String,
    /// `--network` (open mode).
    pub network: Option<String>,
    /// Processors in thousandths, never more than the host's.
    pub cpus: u64,
    /// Bytes.
    pub memory: u64,
    /// `--keep`.
    pub keep: bool,
}

/// `--mode`, or the old `--proxy`.
pub fn mode(asked: &Asked) -> Result<Mode, Error> {
    let text = asked.mode.as_deref().unwrap_or("sealed");
    let refused = |on: String, why: &str| Error::wrong("take", on, why);
    let mode = match text {
        "sealed" => Mode::Sealed,
        "key-safe" => Mode::KeySafe,
        "open" => Mode::Open,
        _ => return Err(refused(format!("--mode {text}"), "the modes are sealed, key-safe and open")),
    };
    without_effect(asked, mode)?;
    if asked.proxy && mode != Mode::Sealed {
        return Err(refused(
            format!("--proxy with --mode {text}"),
            "--proxy is the old spelling of --mode sealed",
        ));
    }
    Ok(mode)
}

/// Flags of one mode, given in another.
fn without_effect(asked: &Asked, mode: Mode) -> Result<(), Error> {
    let (open, name) = (mode == Mode::Open, mode.name());
    let lifts = "it lifts what only sealed mode refuses";
    let relayed = "nothing stands between agent and provider there that could hold it";
    let flags = [
        (!open, "--network", asked.network.is_some(), "the mode decides the network; only open takes it"),
        (!open, "--base-url", asked.base_url.is_some(), "the agent is pointed at the relay; see --upstream"),
        (mode != Mode::Sealed, "--allow-server-tools", asked.allow_server_tools, lifts),
        (mode != Mode::Sealed, "--allow-field", !asked.allow_fields.is_empty(), lifts),
        (open, "--allow-model", !asked.allow_models.is_empty(), relayed),
        (open, "--max-tokens-cap", asked.max_tokens_cap.is_some(), relayed),
        (open, "--secret-env", !asked.secret_env.is_empty(), relayed),
        (open, "--canary", asked.canary, relayed),
        (open, "--log-dir", asked.log_dir.is_some(), "no call is seen that could be recorded"),
        (open, "--log-bodies", asked.log_bodies, "no call is seen that could be recorded"),
        (
            open,
            "--ca-file",
            asked.ca_file.is_some(),
            "the agent speaks TLS itself, by the certificates of its image",
        ),
        (open, "--tls", asked.tls.is_some(), "the agent speaks TLS itself"),
        (
            open,
            "--upstream-proxy",
            asked.upstream_proxy.is_some(),
            "the agent connects itself; give it --env",
        ),
        (open, "--retry-for", asked.retry_for.is_some(), "the agent asks the provider itself"),
        (open, "--skip-key-check", asked.skip_key_check, "the key is not checked beforehand in that mode"),
    ];
    if let (true, Some(flag)) = (open, asked.caps.given()) {
        let why = "no call is seen there, so none could be counted or held back";
        return Err(Error::wrong("take", format!("{flag} with --mode open"), why)
            .remedy("use --mode sealed or key-safe"));
    }
    for (unwanted, flag, given, why) in flags {
        if unwanted && given {
            return Err(
                Error::wrong("take", format!("{flag} with --mode {name}"), why).remedy("leave it out")
            );
        }
    }
    if asked.base_url.is_some() && asked.upstream.is_some() {
        return Err(Error::wrong(
            "take",
            "--base-url and --upstream",
            "both say where the agent calls; give one",
        ));
    }
    Ok(())
}

/// What a weaker mode than sealed gives away: a line that has to be said.
fn weaker(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Sealed => None,
        Mode::KeySafe => Some(
            "key-safe: the key stays outside, but the box reaches the internet, services of this host and metadata addresses \
             (169.254.169.254); only calls through the relay are checked and recorded",
        ),
        Mode::Open => Some(
            "open: the provider key is in the box, where the agent and whatever it reads can take it; no call is checked, capped, \
             counted or recorded",
        ),
    }
}

/// `--runtime`, else docker where its command line is on PATH, else bwrap. Never a step down: an engine that was decided for and
/// does not answer is an error.
pub fn engine(
    asked: &Asked,
    mode: Mode,
    agent: &Agent,
    env: &Env,
    notes: &mut Vec<String>,
) -> Result<Chosen, Error> {
    notes.extend(weaker(mode).map(str::to_string));
    let find = |name: &str| exec::find(name, &env.path);
    let engine = match asked.runtime.as_deref() {
        Some("bwrap") => Engine::Bwrap,
        Some("docker") => Engine::Docker,
        Some(later @ ("podman" | "apple")) => {
            return Err(Error::wrong("use", format!("--runtime {later}"), "not built yet")
                .remedy("use docker or bwrap"));
        }
        Some(other) => {
            return Err(Error::wrong(
                "use",
                format!("--runtime {other}"),
                "the engines are docker and bwrap",
            ));
        }
        None if find("docker").is_some() => Engine::Docker,
        None => Engine::Bwrap,
    };
    let missing =
        |remedy: &str| Error::new(Exit::Engine, "find", engine.name(), "it is not on PATH").remedy(remedy);
    match engine {
        Engine::Bwrap => {
            refused_on_bwrap(asked, mode)?;
            let remedy = "install the package bubblewrap (0.8 or newer)";
            let program = find("bwrap").ok_or_else(|| missing(remedy))?;
            Ok(Chosen { engine, program, docker: None })
        }
        Engine::Docker => {
            let remedy = "install docker (the package docker.io), or use --runtime bwrap";
            let program = find("docker").ok_or_else(|| missing(remedy))?;
            Ok(Chosen { engine, program, docker: Some(docker(asked, agent, env, notes)?) })
        }
    }
}

/// What only an engine with images and control groups can do.
fn refused_on_bwrap(asked: &Asked, mode: Mode) -> Result<(), Error> {
    let refused = |flag: &str, why: &str, remedy: &str| {
        Err(Error::wrong("take", format!("{flag} on bwrap"), why).remedy(remedy))
    };
    let image = "a bwrap box has the host's own programs and no image";
    let group = "it makes no control group, so nothing would hold the box to it";
    match () {
        () if mode != Mode::Sealed => refused(
            &format!("--mode {}", mode.name()),
            "a box with a network would have this host's own",
            "use --runtime docker, or leave the flag out for sealed",
        ),
        () if asked.keep => refused(
            "--keep",
            "such a box is its process and ends with it: there is nothing to keep",
            "leave it out; what the agent wrote is in the work directory",
        ),
        () if asked.image.is_some() => refused("--image", image, "use --runtime docker"),
        () if asked.cpus.is_some() => refused("--cpus", group, "use --runtime docker"),
        () if asked.memory.is_some() => refused("--memory", group, "use --runtime docker"),
        () if asked.as_root => refused(
            "--as-root",
            "a box of root's would be uid 0 of the host",
            "give the work directory to an ordinary user, or use --runtime docker",
        ),
        () => Ok(()),
    }
}

fn docker(asked: &Asked, agent: &Agent, env: &Env, notes: &mut Vec<String>) -> Result<Docker, Error> {
    let refused = |flag: &str, text: &str, why: &str| Error::wrong("take", format!("{flag} {text}"), why);
    let host = proc::processors().saturating_mul(1000);
    let cpus = match &asked.cpus {
        None => limits::BOX_CPUS.min(host),
        Some(text) => {
            let given = docker::cpus(text)
                .ok_or_else(|| refused("--cpus", text, "it is no number of processors, such as 2 or 0.5"))?;
            if given > host {
                notes.push(format!("--cpus {text}: this host has {}, and the box gets those", host / 1000));
            }
            given.min(host)
        }
    };
    let memory = match &asked.memory {
        None => limits::BOX_MEMORY,
        Some(text) => docker::size(text)
            .ok_or_else(|| refused("--memory", text, "it is no size, such as 4g or 512m (at least 6m)"))?,
    };
    let image = match asked.image.as_deref() {
        Some(tag) if tag.is_empty() || tag.starts_with('-') || tag.contains(char::is_whitespace) => {
            return Err(refused("--image", tag, "it is no name of an image"));
        }
        Some(tag) => tag.to_string(),
        None => images::tag(&agent.name),
    };
    let network = match asked.network.as_deref() {
        // `container:ID` would share another's network, `host` this host's with its loopback.
        Some(name) if name.is_empty() || name == "host" || name.contains(|c: char| !plain(c)) => {
            return Err(refused("--network", name, "it is no name of a network that a box may have"));
        }
        given => given.map(str::to_string),
    };
    Ok(Docker { place: daemon::place(env), image, network, cpus, memory, keep: asked.keep })
}

/// A character of a network's name.
fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}
