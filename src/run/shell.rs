//! `sanduk shell`: a shell in an agent's image, to look at what is in it. No mount, no network, no key; gone when it ends. And
//! `sanduk system status`: one line about the engine. Called by `main`.

use crate::catalog::images;
use crate::engine::docker;
use crate::error::{Error, Exit};
use crate::limits;
use crate::run::daemon::{self, Daemon};
use crate::sys::env::Env;
use crate::sys::exec::{self, Ended, Feed};
use crate::sys::proc;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The arguments after those of `engine::docker::call`.
pub fn argv(image: &str) -> Vec<String> {
    let processes = limits::BOX_PROCESSES.to_string();
    let words = [
        "run",
        "--rm",
        "-it",
        "--network",
        "none",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--pids-limit",
        &processes,
        "--pull",
        "never",
        "--no-healthcheck",
        "--log-driver",
        "none",
        "--hostname",
        "box",
        "--entrypoint",
        "/bin/sh",
        image,
    ];
    words.map(str::to_string).to_vec()
}

/// The shell; its exit code is ours.
pub fn shell(agent: &str, image: Option<&str>, env: &Env) -> Result<Exit, Error> {
    let daemon = find(env)?;
    let tag = image.map_or_else(|| images::tag(agent), str::to_string);
    if tag.is_empty() || tag.starts_with('-') {
        return Err(Error::wrong("take", format!("--image {tag}"), "it is no name of an image"));
    }
    let image = daemon.image(&tag, &format!("run `sanduk build --agent {agent}`"))?;
    if !proc::is_terminal(io::stdin().as_fd()) {
        return Err(Error::wrong("open", "a shell", "standard input is no terminal"));
    }
    let fault = |e: io::Error| Error::new(Exit::Engine, "start", "a shell", e);
    let order = exec::Order {
        program: daemon.program.clone(),
        args: docker::call(&daemon.endpoint).into_iter().chain(argv(&image.id)).map(Into::into).collect(),
        // How to paint; nothing else of ours.
        env: env.terminal.then(|| ("TERM".to_string(), "xterm".into())).into_iter().collect(),
        stdin: Feed::Inherit,
        stdout: Feed::Inherit,
        stderr: Feed::Inherit,
        inherit: Vec::new(),
        user: None,
        cwd: "/".into(),
        // In our group: the terminal is the shell's.
        own_group: false,
    };
    #[expect(clippy::disallowed_methods, reason = "EXEC-47 docker run -it, for sanduk shell")]
    let mut child = exec::start(order).map_err(fault)?;
    match child.wait(Duration::MAX).map_err(fault)? {
        Some(Ended::Code(0)) => Ok(Exit::Ok),
        Some(Ended::Code(125..=127)) => {
            Err(Error::new(Exit::Engine, "start", "a shell", format!("docker could not run {tag}")))
        }
        Some(Ended::Code(n)) => Ok(u8::try_from(n).map_or(Exit::Failed, Exit::Shell)),
        Some(Ended::Signal(n)) => Ok(Exit::Signal(u8::try_from(n).unwrap_or(0))),
        None => Ok(Exit::Failed),
    }
}

fn find(env: &Env) -> Result<Daemon, Error> {
    let program = exec::find("docker", &env.path).ok_or_else(|| {
        Error::new(Exit::Engine, "find", "docker", "it is not on PATH")
            .remedy("install docker (the package docker.io)")
    })?;
    Daemon::find(&program, &daemon::place(env))
}

/// One line, whatever is wrong with the engine: the default one, and whether it answers.
pub fn status(env: &Env) -> String {
    if exec::find("docker", &env.path).is_none() {
        return match exec::find("bwrap", &env.path) {
            Some(path) => format!("bwrap: ready, {}\n", path.display()),
            None => "no engine: neither docker nor bwrap is on PATH\n".to_string(),
        };
    }
    let version = find(env).and_then(|daemon| {
        let asked = daemon.ask(&["version", "--format", "{{.Server.Version}}"]);
        let version = asked.map_err(|e| Error::new(Exit::Engine, "ask", daemon.endpoint.clone(), e))?;
        Ok(format!("docker: ready, {} at {}\n", version.trim(), daemon.endpoint))
    });
    version.unwrap_or_else(|e| format!("docker: {e}\n"))
}
