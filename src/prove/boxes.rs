//! The throw-away boxes of `attest`: each is a whole run, made by the code of `run` in a process of its own (`sanduk attest-box`), of
//! which only the agent is another one (`resources/probe.json`). Called by `attest`; the role by `main`.

use crate::catalog::agents::Agent;
use crate::engine::plan::Hole;
use crate::error::{Error, Exit};
use crate::limits;
use crate::run::asked::Asked;
use crate::run::spec::Spec;
use crate::run::{key, life};
use crate::sys::env::{self, Env};
use crate::sys::exec::{self, Child, Ended, Feed};
use crate::sys::net::{self, Conn};
use crate::wire::probe::Task;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The agent of these boxes.
const AGENT: &[u8] = include_bytes!("../../resources/probe.json");

/// What one box is.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// `docker` or `bwrap`.
    pub runtime: String,
    /// On docker.
    pub image: Option<String>,
    /// Its work directory.
    pub work: String,
    /// The scripted provider, as a URL.
    pub upstream: String,
    /// The descriptor with the made-up key.
    pub key_fd: u64,
    /// `--mount`: a hole.
    pub mounts: Vec<String>,
    /// `--env`: a hole.
    pub env: Vec<String>,
    /// The box has the engine's network: a hole.
    pub bridge: bool,
    /// The box has the host's network: a hole.
    pub host: bool,
    /// What the probe is to do.
    pub task: Task,
}

/// The role: the order on standard input, then a run like any other.
pub fn role() -> Result<Exit, Error> {
    let fault = |e: &dyn std::fmt::Display| Error::fault("read", "the order of a box", e);
    let most = u64::try_from(limits::PROBE_BYTES).unwrap_or(u64::MAX);
    let mut text = String::new();
    io::stdin().lock().take(most).read_to_string(&mut text).map_err(|e| fault(&e))?;
    let order: Order = serde_json::from_str(&text).map_err(|e| fault(&e))?;
    let env = env::read();
    let (mut spec, from) = Spec::from(asked(&order)?, &env)?;
    spec.agent = Agent::parse(AGENT).map_err(|e| fault(&e))?;
    spec.hole = match (order.bridge, order.host) {
        (true, _) => Some(Hole::Bridge),
        (_, true) => Some(Hole::Host),
        _ => None,
    };
    let key = key::find(&from, key::take_from_environment(), true)?;
    life::run(spec, key, &env)
}

fn asked(order: &Order) -> Result<Asked, Error> {
    let task =
        serde_json::to_string(&order.task).map_err(|e| Error::fault("write", "the task of the probe", e))?;
    Ok(Asked {
        task: Some(task),
        workdir: Some(order.work.clone()),
        mounts: order.mounts.clone(),
        env: order.env.clone(),
        timeout: Some("10m".into()),
        // Exchanged for the probe; mini, because it needs no program of the image.
        agent: Some("mini".into()),
        model: Some("attest".into()),
        runtime: Some(order.runtime.clone()),
        image: order.image.clone(),
        upstream: Some(order.upstream.clone()),
        key_fd: Some(order.key_fd),
        no_report_instruction: true,
        quiet: true,
        ..Asked::default()
    })
}

/// A box that runs.
pub struct Boxed {
    child: Child,
    errors: Option<Conn>,
    words: Vec<u8>,
    /// Its work directory.
    pub work: PathBuf,
    /// How it ended.
    pub ended: Option<Ended>,
}

impl Boxed {
    /// Starts a run of its own. The key goes by a pipe, as any.
    pub fn start(mut order: Order, key: &str, env: &Env) -> io::Result<Boxed> {
        let (read, write) = net::pipe()?;
        Conn::new(write).write_all(&[key.as_bytes()], limits::CONTROL_TIME)?;
        order.key_fd = u64::try_from(read.as_raw_fd()).map_err(io::Error::other)?;
        let work = PathBuf::from(&order.work);
        let what = exec::Order {
            program: exec::own()?,
            args: vec!["attest-box".into()],
            env: environment(env),
            stdin: Feed::Pipe,
            stdout: Feed::Null,
            stderr: Feed::Pipe,
            inherit: vec![read],
            user: None,
            cwd: "/".into(),
            own_group: true,
        };
        #[expect(clippy::disallowed_methods, reason = "EXEC-180 attest: a whole run of this program")]
        let mut child = exec::start_bound(what)?;
        let text = serde_json::to_vec(&order).map_err(io::Error::other)?;
        let stdin = child.stdin().map(Conn::new).ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        stdin.write_all(&[&text], limits::CONTROL_TIME)?;
        drop(stdin);
        let errors = child.stderr().map(Conn::new);
        Ok(Boxed { child, errors, words: Vec::new(), work, ended: None })
    }

    /// Its pid: the owner of its record.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits a moment; true once it has ended.
    pub fn wait(&mut self, time: Duration) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.wait(time).ok().flatten();
        }
        let mut buf = [0u8; 4096];
        while let Some(n) =
            self.errors.as_ref().filter(|e| e.readable()).and_then(|e| e.read(&mut buf, time).ok())
            && n > 0
            && self.words.len() < limits::PROBE_BYTES
        {
            self.words.extend_from_slice(&buf[..n]);
        }
        self.ended.is_some()
    }

    /// The run's exit code and its error line, where it did not end as it should.
    pub fn failure(&self) -> Option<Error> {
        let (exit, code) = match self.ended {
            Some(Ended::Code(0)) => return None,
            Some(Ended::Code(code @ 1..=5)) => {
                let all = [Exit::Failed, Exit::Wrong, Exit::Policy, Exit::Engine, Exit::Cap];
                (all.into_iter().find(|e| i32::from(e.code()) == code).unwrap_or(Exit::Fault), code)
            }
            Some(Ended::Code(code)) => (Exit::Fault, code),
            Some(Ended::Signal(number)) => (Exit::Fault, 128i32.saturating_add(number)),
            None => (Exit::Fault, -1),
        };
        let said = String::from_utf8_lossy(&self.words);
        let telling = |l: &&str| ["cannot ", "could not", "no longer", "ended"].iter().any(|w| l.contains(w));
        let why = said.lines().map(|l| l.trim_start_matches("sanduk: ")).find(telling);
        let why = why.or(said.lines().next()).unwrap_or("it said nothing").to_string();
        Some(Error::new(exit, "boot", "a box to look out of", format!("its run ended with {code}: {why}")))
    }
}

/// What a run needs of ours: where state and engine are. No key.
fn environment(env: &Env) -> Vec<(String, OsString)> {
    let path = |p: &Option<PathBuf>| p.as_deref().map(Path::as_os_str).map(OsString::from);
    let text = |t: &Option<String>| t.as_ref().map(OsString::from);
    let all = [
        ("PATH", Some(env.path.clone())),
        ("HOME", path(&env.home)),
        ("XDG_STATE_HOME", path(&env.state_home)),
        ("DOCKER_HOST", text(&env.docker_host)),
        ("DOCKER_CONTEXT", text(&env.docker_context)),
        ("DOCKER_CONFIG", path(&env.docker_config)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_an_agent() {
        let agent = Agent::parse(AGENT).unwrap();
        assert_eq!((agent.name.as_str(), agent.program()), ("probe", "/sanduk"));
    }
}
