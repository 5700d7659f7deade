//! What a `Spec` becomes for each of the three who work on it: the box (`Plan`), `inside` (`Start`) and the relay (`Order`). Makes and
//! starts nothing. Called by `life`, and by `dry`, which only prints it.

use crate::catalog::agents::TurnInput;
use crate::engine::docker::Container;
use crate::engine::plan::{self, Mode, Mount, Plan};
use crate::engine::{bwrap, docker};
use crate::error::Error;
use crate::limits;
use crate::relay::start::{Fds, Order};
use crate::run::channel;
use crate::run::held::Names;
use crate::run::spec::Spec;
use crate::wire::control::{Start, VERSION};
use std::ffi::OsString;

/// Added to the task unless `--no-report-instruction`.
const REPORT_INSTRUCTION: &str = "\n\nBefore you finish, write what you did and what you found to REPORT.md in the work directory. \
     That file is what the person who asked will read; the rest of this session is not kept.";

/// The box of a run whose channel has this name.
pub fn plan(spec: &Spec, channel: &str) -> Result<Plan, Error> {
    let mut masks = Vec::with_capacity(spec.masks.len());
    for path in &spec.masks {
        masks.push(plan::mask(&spec.workdir, path).map_err(|e| Error::wrong("mask", path.clone(), e))?);
    }
    let mounts = spec.mounts.iter().map(|m| Mount {
        host: m.host.clone(),
        dest: m.dest.clone(),
        readonly: m.readonly,
    });
    Ok(Plan {
        user: spec.user,
        channel: channel::path(channel),
        workdir: spec.workdir.clone(),
        mounts: mounts.collect(),
        masks,
        hole: spec.hole,
    })
}

/// What only a container has; `None` on bwrap. `image`: what the tag meant when it was asked for.
pub fn container(spec: &Spec, run: &str, channel: &str, image: &str) -> Option<Container> {
    let docker = spec.docker.as_ref()?;
    Some(Container {
        run: run.into(),
        name: channel.into(),
        agent: spec.agent.name.clone(),
        image: image.into(),
        mode: spec.mode,
        network: docker.network.clone(),
        cpus: docker.cpus,
        memory: docker.memory,
    })
}

/// The engine's arguments for a run of these names. `image`: what the tag meant when docker was asked.
pub fn engine(spec: &Spec, names: &Names, image: &str) -> Result<Vec<String>, Error> {
    let plan = plan(spec, &names.channel)?;
    args(&plan, container(spec, &names.id, &names.channel, image).as_ref())
}

/// The engine's arguments.
pub fn args(plan: &Plan, container: Option<&Container>) -> Result<Vec<String>, Error> {
    let args = match container {
        None => bwrap::argv(plan),
        Some(container) => docker::argv(plan, container)
            .map_err(|why| Error::wrong("make", "the box", why).remedy("rename it"))?,
    };
    args.into_iter().map(text).collect()
}

/// An argument as the keeper's order holds it.
fn text(arg: OsString) -> Result<String, Error> {
    arg.into_string().map_err(|arg| {
        Error::wrong("use", arg.to_string_lossy().into_owned(), "the path is not UTF-8").remedy("rename it")
    })
}

/// The first words to `inside`: the agent's one turn, and the run's secrets for the box.
pub fn start(spec: &Spec, turn: &str, token: &str, control_secret: &str) -> Result<Start, Error> {
    let task = match spec.report_instruction {
        true => format!("{}{REPORT_INSTRUCTION}", spec.task),
        false => spec.task.clone(),
    };
    let relayed = format!("http://127.0.0.1:{}{}", limits::FORWARD_PORT, spec.provider.prefix);
    let base_url = spec.base_url.clone().unwrap_or(relayed);
    let input = TurnInput {
        id: turn,
        task: &task,
        protocol: spec.protocol,
        base_url: &base_url,
        token,
        model: spec.model.as_deref(),
        max_turns: spec.max_turns,
        effort: spec.effort.as_deref(),
        permission_mode: spec.permission_mode.as_deref(),
        allowed_tools: spec.allowed_tools.as_deref(),
        bare: spec.bare,
        home: plan::HOME,
        root: spec.user.0 == 0,
    };
    let mut turn = spec
        .agent
        .render(&input)
        .map_err(|why| Error::wrong("start", format!("agent {}", spec.agent.name), why))?;
    for (name, value) in &spec.env {
        if turn.env.iter().any(|(own, _)| own == name) {
            return Err(Error::wrong("take", format!("--env {name}"), "the run sets that variable itself"));
        }
        turn.env.push((name.clone(), value.clone()));
    }
    Ok(Start {
        version: VERSION,
        control_secret: control_secret.to_string(),
        turn,
        forward_port: if spec.mode == Mode::Open { 0 } else { limits::FORWARD_PORT },
        grace_seconds: limits::GRACE.as_secs(),
        event_bytes: limits::EVENT_BYTES,
    })
}

/// The relay's order; in open mode there is no relay. `become_uid`: an own uid where we are root.
pub fn relay(spec: &Spec, fds: Fds, become_uid: Option<(u32, u32)>) -> Order {
    let hosts = ["127.0.0.1", "localhost"].map(|h| format!("{h}:{}", limits::FORWARD_PORT));
    Order {
        provider: spec.provider.name.clone(),
        upstream: spec.upstream.clone(),
        hosts: hosts.to_vec(),
        peer_uid: Some(spec.user.0),
        grants: spec.grants.clone(),
        caps: spec.caps.clone(),
        become_uid,
        fds,
        preflight: spec.preflight,
    }
}
