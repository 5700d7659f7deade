//! Calls of the docker command line, one short-lived process each, with a bound on time and on what is read of the answer. Nothing
//! here decides what is removed but `purge`, which removes by id what carries the run's own label. Called by `needs`, `container`,
//! `held`, `sweep` and `boxes`.

use crate::engine::docker;
use crate::error::{Error, Exit};
use crate::limits;
use crate::run::state::Fields;
use crate::sys::env::Env;
use crate::sys::exec::{self, Child, Ended, Feed};
use crate::sys::file;
use crate::sys::net::{self, Conn};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Whom to ask, and through which program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// Absolute path of the command line.
    pub program: PathBuf,
    /// `unix://PATH`.
    pub endpoint: String,
}

/// Where the caller's own command line would look for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `DOCKER_HOST`, or the default.
    Endpoint(String),
    /// A context other than `default`, and the configuration directory that has it.
    Context(String, PathBuf),
}

/// How a call ended.
#[derive(Debug)]
pub struct Answer {
    /// Exit code 0.
    pub ok: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// An image as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// As it was asked for.
    pub tag: String,
    /// `sha256:…`: what runs, whatever the tag means by then.
    pub id: String,
}

/// Finds out without a call where the daemon is.
pub fn place(env: &Env) -> Place {
    if let Some(host) = &env.docker_host {
        return Place::Endpoint(host.clone());
    }
    let config = env.docker_config.clone().or_else(|| env.home.as_ref().map(|h| h.join(".docker")));
    let context = env.docker_context.clone().or_else(|| current_context(config.as_deref()?));
    match (context, config) {
        (Some(name), Some(config)) if name != "default" => Place::Context(name, config),
        _ => Place::Endpoint(docker::DEFAULT_ENDPOINT.into()),
    }
}

/// `currentContext` of the caller's `config.json`; nothing else of that file is used.
fn current_context(config: &Path) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "FILE-141 docker's config.json, for the current context")]
    let bytes = file::read_named(&config.join("config.json"), limits::DOCKER_CONFIG_BYTES).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    value.get("currentContext")?.as_str().filter(|c| !c.is_empty()).map(str::to_string)
}

/// The engine's own error (exit 4).
fn broken(endpoint: &str, why: impl std::fmt::Display, remedy: &str) -> Error {
    Error::new(Exit::Engine, "use", format!("docker at {endpoint}"), why).remedy(remedy)
}

impl Daemon {
    /// The daemon of a record.
    pub fn of(fields: &Fields) -> Option<Daemon> {
        let program = fields.get("docker").map(PathBuf::from)?;
        Some(Daemon { program, endpoint: fields.get("endpoint")?.clone() })
    }

    /// Resolves a context, checks that the endpoint is one of this host and that somebody listens there. Each failure is a line
    /// of its own with what to do (exit 4).
    pub fn find(program: &Path, place: &Place) -> Result<Daemon, Error> {
        let endpoint = match place {
            Place::Endpoint(endpoint) => endpoint.clone(),
            Place::Context(name, config) => context(program, name, config)?,
        };
        let path = docker::local(&endpoint).map_err(|(why, remedy)| broken(&endpoint, why, remedy))?;
        snap(program)?;
        connect(Path::new(path)).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                broken(&endpoint, "permission denied on its socket", docker::NO_PERMISSION)
            }
            _ => broken(&endpoint, format!("the daemon does not answer: {e}"), docker::DEAD),
        })?;
        Ok(Daemon { program: program.to_path_buf(), endpoint })
    }

    /// The arguments before a call's own.
    fn args(&self, args: &[&str]) -> Vec<OsString> {
        let own = docker::call(&self.endpoint);
        own.iter().map(String::as_str).chain(args.iter().copied()).map(OsString::from).collect()
    }

    /// Starts `docker run -d …`, whose end is not waited for.
    pub fn start(&self, args: &[String]) -> io::Result<Child> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let order = order(&self.program, self.args(&args));
        #[expect(clippy::disallowed_methods, reason = "EXEC-45 docker run -d")]
        exec::start_bound(order)
    }

    /// Makes one call. An error: it could not be made, or was not answered in time.
    pub fn call(&self, args: &[&str]) -> io::Result<Answer> {
        answer(&self.program, self.args(args))
    }

    /// A call whose failure is an error: with the engine's words.
    pub fn ask(&self, args: &[&str]) -> io::Result<String> {
        let answer = self.call(args)?;
        match answer.ok {
            true => Ok(answer.out),
            false => Err(io::Error::other(docker::words(&answer.err))),
        }
    }

    /// The image of that name.
    pub fn image(&self, tag: &str, build: &str) -> Result<Image, Error> {
        let answer = self
            .call(&["image", "inspect", "--format", "{{.Id}}", tag])
            .map_err(|e| broken(&self.endpoint, e, ""))?;
        let id = answer.out.trim();
        if answer.ok && id.starts_with("sha256:") {
            return Ok(Image { tag: tag.into(), id: id.into() });
        }
        let words = docker::words(&answer.err);
        match docker::remedy(&words) {
            _ if words.to_ascii_lowercase().contains("no such image") => {
                Err(Error::wrong("find", format!("the image {tag}"), "docker does not have it").remedy(build))
            }
            remedy => Err(broken(&self.endpoint, words, remedy)),
        }
    }

    /// Makes the network of key-safe boxes where it is missing, and checks one that is there: boxes on it must not reach each other.
    pub fn network(&self, name: &str) -> Result<(), Error> {
        let on = || format!("the network {name}");
        let cannot = |e: io::Error| Error::new(Exit::Engine, "make", on(), e);
        let mut found = self.look(name).map_err(cannot)?;
        if found.is_none() {
            let isolated = format!("{}=false", docker::BETWEEN);
            let label = format!("{}=yes", docker::NETWORK_LABEL);
            let args =
                ["network", "create", "--driver", "bridge", "--opt", &isolated, "--label", &label, name];
            // Another run may make it at this moment: what counts is what is there then.
            let made = self.ask(&args);
            found = self.look(name).map_err(cannot)?;
            if let (Err(e), None) = (made, &found) {
                return Err(cannot(e));
            }
        }
        match found.as_deref() {
            Some("bridge false false yes") => Ok(()),
            _ => Err(Error::new(
                Exit::Engine,
                "use",
                on(),
                "this program did not make it, or somebody changed it",
            )
            .remedy(format!("`docker network rm {name}`; the next run makes it anew"))),
        }
    }

    /// Driver, whether it is internal, whether its containers reach each other, our label; `None`: there is no such network.
    pub fn look(&self, name: &str) -> io::Result<Option<String>> {
        let format = format!(
            "{{{{.Driver}}}} {{{{.Internal}}}} {{{{index .Options \"{}\"}}}} {{{{index .Labels \"{}\"}}}}",
            docker::BETWEEN,
            docker::NETWORK_LABEL
        );
        let answer = self.call(&["network", "inspect", "--format", &format, name])?;
        match answer.ok {
            true => Ok(Some(answer.out.trim().to_string())),
            false if answer.err.contains("No such network") || answer.err.contains("not found") => Ok(None),
            false => Err(io::Error::other(docker::words(&answer.err))),
        }
    }

    /// Ids of the containers that carry this run's label, running or not.
    pub fn containers(&self, run: &str) -> io::Result<Vec<String>> {
        let filter = format!("label={}={run}", docker::LABEL);
        let out = self.ask(&["ps", "-a", "-q", "--no-trunc", "--filter", &filter])?;
        Ok(out.lines().filter_map(docker::id).collect())
    }

    /// Removes a container that is known to be ours, with its anonymous volumes. One that is gone is fine.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        let answer = self.call(&["rm", "-f", "-v", id])?;
        match answer.ok || docker::no_such(&answer.err) {
            true => Ok(()),
            false => Err(io::Error::other(docker::words(&answer.err))),
        }
    }

    /// Removes whatever carries this run's label, until a listing shows nothing. `unsure`: a container may still be under way
    /// to existence (whoever asked for it was killed), so an empty listing counts only after a while.
    pub fn purge(&self, run: &str, unsure: bool) -> io::Result<()> {
        let settled = Instant::now() + if unsure { limits::ENGINE_SETTLES } else { Duration::ZERO };
        let end = settled + limits::ENGINE_CALL;
        let mut failed = None;
        loop {
            let found = self.containers(run)?;
            if found.is_empty() && Instant::now() >= settled {
                return Ok(());
            }
            for id in &found {
                // "removal is already in progress" is one; the next listing tells.
                failed = self.remove(id).err().or(failed);
            }
            if Instant::now() > end {
                return Err(failed.unwrap_or_else(|| io::Error::other("its container does not go")));
            }
            // Right after a removal the next look comes at once.
            if found.is_empty() || failed.is_some() {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

/// The endpoint of a context, from the caller's own configuration.
fn context(program: &Path, name: &str, config: &Path) -> Result<String, Error> {
    let args = ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}", name];
    let mut all: Vec<OsString> = vec!["--config".into(), config.into()];
    all.extend(args.map(OsString::from));
    let cannot = |why: String| {
        Error::new(Exit::Engine, "use", format!("docker's context {name}"), why)
            .remedy("`docker context ls` lists them; `docker context use default` leaves it")
    };
    let answer = answer(program, all).map_err(|e| cannot(e.to_string()))?;
    match answer.ok && !answer.out.trim().is_empty() {
        true => Ok(answer.out.trim().to_string()),
        false => Err(cannot(docker::words(&answer.err))),
    }
}

/// The snap package is confined to directories that no run uses.
fn snap(program: &Path) -> Result<(), Error> {
    #[expect(clippy::disallowed_methods, reason = "FILE-142 where the docker on PATH leads")]
    let real = file::real_path(program).unwrap_or_else(|_| program.to_path_buf());
    if program.starts_with("/snap") || real.starts_with("/snap") || real.ends_with("bin/snap") {
        let why = "it is the snap package, whose confinement keeps its boxes from what a run mounts";
        return Err(Error::new(Exit::Engine, "use", program.display().to_string(), why)
            .remedy("install docker from your distribution or from docker.com, or use --runtime bwrap"));
    }
    Ok(())
}

/// Whether somebody listens; nothing is said. The socket's directory is the system's, so links on the way are followed.
fn connect(path: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "FILE-143 docker's socket without links")]
    let path = file::real_path(path)?;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    #[expect(clippy::disallowed_methods, reason = "NET-48 docker's socket: does anybody listen")]
    net::connect_unix(dir, name, limits::CONTROL_TIME).map(drop)
}

fn order(program: &Path, args: Vec<OsString>) -> exec::Order {
    exec::Order {
        program: program.to_path_buf(),
        args,
        env: Vec::new(),
        stdin: Feed::Null,
        stdout: Feed::Pipe,
        stderr: Feed::Pipe,
        inherit: Vec::new(),
        user: None,
        cwd: "/".into(),
        own_group: true,
    }
}

fn answer(program: &Path, args: Vec<OsString>) -> io::Result<Answer> {
    let until = Instant::now() + limits::ENGINE_CALL;
    #[expect(clippy::disallowed_methods, reason = "EXEC-46 docker, one short call")]
    let mut child = exec::start_bound(order(program, args))?;
    // Standard error after standard output: it is a few lines, which fit into the pipe.
    let out = read(child.stdout().map(Conn::new), until)?;
    let err = read(child.stderr().map(Conn::new), until)?;
    match child.wait(until.saturating_duration_since(Instant::now()))? {
        Some(ended) => Ok(Answer { ok: ended == Ended::Code(0), out, err }),
        None => Err(late()),
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the daemon took the call and did not answer in time")
}

fn read(pipe: Option<Conn>, until: Instant) -> io::Result<String> {
    let Some(pipe) = pipe else { return Ok(String::new()) };
    let mut all = Vec::new();
    let mut piece = [0u8; 8192];
    while all.len() < limits::ENGINE_ANSWER_BYTES {
        match pipe.read(&mut piece, until.saturating_duration_since(Instant::now())) {
            Ok(0) => break,
            Ok(n) => all.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(late()),
            Err(e) => return Err(e),
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}
