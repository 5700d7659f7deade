//! `sanduk build`: an agent's image from its Containerfile, in a context of two files that we wrote. Nothing of the caller's directory,
//! environment or engine configuration goes in. The one command that lets an engine fetch anything: a run never builds or pulls.

use crate::catalog::images;
use crate::engine::docker;
use crate::error::{Error, Exit};
use crate::limits;
use crate::run::channel;
use crate::run::daemon::{self, Daemon};
use crate::run::show::Show;
use crate::sys::env::Env;
use crate::sys::exec::{self, Ended, Feed};
use crate::sys::file::{self, Dir};
use crate::sys::net::{self, Conn};
use crate::sys::proc;
use crate::wire::text;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The command line of `sanduk build`, as typed.
#[derive(Default)]
pub struct Asked {
    /// `--agent`.
    pub agent: Option<String>,
    /// `--base`.
    pub base: Option<String>,
    /// `--image`.
    pub image: Option<String>,
    /// `--containerfile`.
    pub containerfile: Option<String>,
    /// `--force`.
    pub force: bool,
}

/// What is to be built.
struct Wanted {
    tag: String,
    text: String,
    /// As given; none: to be chosen. Ignored where the Containerfile has no `ARG BASE`.
    base: Option<String>,
    takes_base: bool,
}

/// Whose image is built where none is named.
const AGENT: &str = "claude";
/// Where contexts are made: on every Linux, writable by everybody, sticky.
const TMP: &str = "/tmp";
/// Beginning of a context's name; then the pid and start time of the process that made it.
const PREFIX: &str = "sanduk-build-";
/// The certificates a host trusts, as one file: Debian, Fedora, openSUSE and Alpine, in this order.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Between two looks for a signal.
const SLICE: Duration = Duration::from_millis(200);

/// The command.
pub fn build(asked: &Asked, env: &Env) -> Result<Exit, Error> {
    let wanted = wanted(asked)?;
    let mut show = Show::new(false, env);
    let engine = Engine::find(env)?;
    let before = engine.image(&wanted.tag)?;
    if before.is_some() && !asked.force {
        show.note(&format!("{}: already built; --force builds it again", wanted.tag));
        return Ok(Exit::Ok);
    }
    let base = match (&wanted.base, wanted.takes_base) {
        (_, false) => None,
        (Some(base), true) => Some(base.clone()),
        (None, true) => Some(engine.base(&mut show)?),
    };
    engine.context.write("Containerfile", wanted.text.as_bytes())?;
    engine.context.write(images::HOST_CA, &bundle())?;
    let stage = proc::random_hex(8).map_err(|e| Error::fault("draw", "a random name", e))?;
    show.note(&match &base {
        Some(base) => format!("building {} from {base}", wanted.tag),
        None => format!("building {}", wanted.tag),
    });
    let args = argv(&wanted.tag, base.as_deref(), &stage, &engine.context.path, asked.force);
    let (ended, words) = engine.speak(args, true)?;
    // What only fetched goes, whatever came of the build.
    let _ = engine.speak(prune(&stage), false);
    if ended != Ended::Code(0) {
        return Err(failed(&wanted.tag, &words));
    }
    let Some(after) = engine.image(&wanted.tag)? else {
        return Err(Error::new(Exit::Engine, "find", wanted.tag, "the engine built it and has it not"));
    };
    engine.drop_nameless(before.filter(|id| *id != after));
    show.note(&format!("built {} {after}", wanted.tag));
    Ok(Exit::Ok)
}

/// Checks what was typed; starts nothing.
fn wanted(asked: &Asked) -> Result<Wanted, Error> {
    let agent = asked.agent.as_deref().unwrap_or(AGENT);
    let shipped = images::shipped(agent).ok_or_else(|| {
        let known = images::names().join(", ");
        Error::wrong("find", format!("an image for agent {agent}"), format!("there is one for {known}"))
    })?;
    let tag = match (&asked.image, &asked.containerfile) {
        (Some(tag), _) => tag.clone(),
        (None, None) => images::tag(agent),
        (None, Some(_)) => {
            let why = "an image of your own needs a name of its own";
            return Err(Error::wrong("take", "--containerfile", why).remedy("give --image TAG with it"));
        }
    };
    images::may_tag(agent, &tag).map_err(|why| Error::wrong("take", format!("--image {tag}"), why))?;
    let text = match &asked.containerfile {
        None => shipped.to_string(),
        Some(path) => {
            let on = || format!("the Containerfile {path}");
            #[expect(clippy::disallowed_methods, reason = "FILE-57 --containerfile")]
            let bytes = file::read_named(Path::new(path), limits::CONTAINERFILE_BYTES)
                .map_err(|e| Error::wrong("read", on(), e))?;
            String::from_utf8(bytes).map_err(|_| Error::wrong("read", on(), "it is not UTF-8"))?
        }
    };
    let takes_base = text.lines().any(|l| l.trim_start().starts_with("ARG BASE"));
    if let Some(base) = &asked.base {
        let wrong = |why: String| Error::wrong("take", format!("--base {base}"), why);
        images::reference(base).map_err(wrong)?;
        if !takes_base {
            return Err(wrong("this Containerfile has no ARG BASE: the flag has no effect".into()));
        }
    }
    Ok(Wanted { tag, text, base: asked.base.clone(), takes_base })
}

/// The engine's arguments for a build; `dir` holds the context. `force`: nothing of an earlier build is used again.
pub fn argv(tag: &str, base: Option<&str>, stage: &str, dir: &Path, force: bool) -> Vec<String> {
    let context = dir.join("context").display().to_string();
    let mut args = words(&["build", "--force-rm", "--tag", tag, "--file"]);
    args.push(format!("{context}/Containerfile"));
    args.extend(force.then(|| "--no-cache".to_string()));
    if let Some(base) = base {
        args.extend(words(&[
            "--build-arg",
            &format!("BASE={base}"),
            "--build-arg",
            &format!("BUILD={stage}"),
        ]));
    }
    args.push(context);
    args
}

/// The engine's arguments to drop the images of a build's fetching stage, which have no name.
pub fn prune(stage: &str) -> Vec<String> {
    words(&["image", "prune", "--force", "--filter", &format!("label={}={stage}", images::STAGE_LABEL)])
}

/// The engine's arguments to look an image up.
pub fn inspect(image: &str) -> Vec<String> {
    words(&["image", "inspect", "--format", "{{.Id}} {{len .RepoTags}}", image])
}

/// The engine's arguments to drop an image by its id.
pub fn remove(id: &str) -> Vec<String> {
    words(&["image", "rm", id])
}

/// What stands before a long command: a configuration directory of ours, empty (a builder keeps notes there), and the endpoint, so
/// that neither the caller's proxies, credential programs nor context have a say.
pub fn global(dir: &Path, endpoint: &str) -> Vec<String> {
    words(&["--config", &dir.join("config").display().to_string(), "-H", endpoint])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_string()).collect()
}

/// The certificates of this host; empty where it has none.
fn bundle() -> Vec<u8> {
    let read = |path: &&str| {
        #[expect(clippy::disallowed_methods, reason = "FILE-58 the host's certificates, for a build")]
        let bytes = file::read_named(Path::new(path), limits::CA_BYTES);
        bytes.ok()
    };
    BUNDLES.iter().find_map(read).unwrap_or_default()
}

/// The engine and the directory it is given.
struct Engine {
    daemon: Daemon,
    context: Context,
    signals: Conn,
}

impl Engine {
    fn find(env: &Env) -> Result<Engine, Error> {
        let program = exec::find("docker", &env.path).ok_or_else(|| {
            Error::new(Exit::Engine, "find", "docker", "it is not on PATH")
                .remedy("install docker.io; mini runs on bwrap without an image")
        })?;
        let daemon = Daemon::find(&program, &daemon::place(env))?;
        let fault = |e: io::Error| Error::fault("wait for", "signals", e);
        let signals = Conn::new(proc::catch_signals().map_err(fault)?);
        let context = Context::make()
            .map_err(|e| Error::wrong("make", "a directory in /tmp", e).remedy("make room in /tmp"))?;
        Ok(Engine { daemon, context, signals })
    }

    /// The id of an image, and whether it has a name; `None`: there is none.
    fn look(&self, name: &str) -> Result<Option<(String, bool)>, Error> {
        let args = inspect(name);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answer = self.daemon.call(&args).map_err(|e| failed(name, &e.to_string()))?;
        match (answer.ok, answer.out.trim().split_once(' ')) {
            (true, Some((id, names))) => Ok(Some((id.to_string(), names != "0"))),
            _ if answer.err.to_ascii_lowercase().contains("no such image") => Ok(None),
            _ => Err(failed(name, &answer.err)),
        }
    }

    fn image(&self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.look(name)?.map(|(id, _)| id))
    }

    /// The base where none was given: what `make image-base` made, where somebody did.
    fn base(&self, show: &mut Show) -> Result<String, Error> {
        match self.image(images::LOCAL_BASE)? {
            None => Ok(images::BASE.to_string()),
            Some(_) => {
                show.note(&format!(
                    "{} is here: it is the base; --base IMAGE takes another",
                    images::LOCAL_BASE
                ));
                Ok(images::LOCAL_BASE.to_string())
            }
        }
    }

    /// Drops the image that had our tag before, unless it has another name or is in use.
    fn drop_nameless(&self, before: Option<String>) {
        let Some(id) = before else { return };
        if let Ok(Some((_, false))) = self.look(&id) {
            let _ = self.speak(remove(&id), false);
        }
    }

    /// One long command of the engine's: how it ended and its last words, shown as they come where `show`.
    fn speak(&self, args: Vec<String>, show: bool) -> Result<(Ended, String), Error> {
        let program = &self.daemon.program;
        let fault = |e: io::Error| Error::new(Exit::Engine, "start", program.display().to_string(), e);
        let (read, write) = net::pipe().map_err(fault)?;
        let second = write.try_clone().map_err(fault)?;
        let before = global(&self.context.path, &self.daemon.endpoint);
        let order = exec::Order {
            program: program.clone(),
            args: before.into_iter().chain(args).map(Into::into).collect(),
            env: Vec::new(),
            stdin: Feed::Null,
            stdout: Feed::Fd(write),
            stderr: Feed::Fd(second),
            inherit: Vec::new(),
            user: None,
            cwd: "/".into(),
            own_group: true,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "EXEC-44 docker: build an image, drop what a build leaves"
        )]
        let mut child = exec::start_bound(order).map_err(fault)?;
        let words = self.listen(&Conn::new(read), show)?;
        match child.wait(limits::CONTROL_TIME).map_err(fault)? {
            Some(ended) => Ok((ended, words)),
            None => Err(Error::new(Exit::Engine, "use", "docker", "it closed its output and did not end")),
        }
    }

    /// Reads to the end of the output, or until a signal comes. Bytes of a build are what a package or a server says: escaped.
    fn listen(&self, output: &Conn, show: bool) -> Result<String, Error> {
        let until = Instant::now() + limits::BUILD_TIME;
        let (mut held, mut piece) = (Vec::new(), [0u8; 8192]);
        let mut last = Vec::new();
        loop {
            let mut number = [0u8; 1];
            if let Ok(1) = self.signals.read(&mut number, Duration::ZERO) {
                return Err(Error::new(Exit::Signal(number[0]), "go on", "", "a signal came"));
            }
            if Instant::now() > until {
                return Err(Error::new(Exit::Engine, "wait for", "docker", "it took too long"));
            }
            match output.read(&mut piece, SLICE) {
                Ok(0) => break,
                Ok(n) => held.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == io::ErrorKind::TimedOut => continue,
                Err(_) => break,
            }
            while let Some(end) = held.iter().position(|b| matches!(b, b'\n' | b'\r')) {
                let line: Vec<u8> = held.drain(..=end).collect();
                keep(&line, show, &mut last);
            }
            if held.len() > limits::BUILD_LINE_BYTES {
                keep(&std::mem::take(&mut held), show, &mut last);
            }
        }
        keep(&held, show, &mut last);
        Ok(last.join("\n"))
    }
}

/// Keeps a line among the last ones, shows it where wanted.
fn keep(line: &[u8], show: bool, last: &mut Vec<String>) {
    // The engine paints what a step says on standard error.
    let line = String::from_utf8_lossy(line).replace("\u{1b}[91m", "").replace("\u{1b}[0m", "");
    let line = text::escaped(line.trim_end());
    if line.is_empty() {
        return;
    }
    if show {
        let mut err = io::stderr().lock();
        let _ = err.write_all(format!("{line}\n").as_bytes()).and_then(|()| err.flush());
    }
    last.push(line);
    while last.len() > 1 && last.iter().map(String::len).sum::<usize>() > limits::LAST_WORDS {
        last.remove(0);
    }
}

/// What a failed command of the engine's means for the one who typed ours.
fn failed(on: &str, words: &str) -> Error {
    let said = words.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
    Error::new(Exit::Engine, "build", on, text::short(said.trim(), 500)).remedy(remedy(words))
}

/// What to do about the last words of a failed build; empty: they say it themselves.
pub fn remedy(words: &str) -> &'static str {
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    let unreached = ["dial tcp", "lookup", "i/o timeout", "x509", "proxyconnect", "EOF"];
    if says(&["pull access denied", "manifest unknown", "failed to resolve source metadata", "no basic auth"])
        || (says(&["Get \"https://", "registry"]) && says(&unreached))
    {
        "where no registry can be reached, `make image-base` makes a base of Debian's packages, which is then found by itself; \
         or give --base an image that is here"
    } else if says(&["no space left on device"]) {
        "make room where the engine keeps its images"
    } else {
        docker::remedy(words)
    }
}

/// A directory in /tmp: `context/` for the engine's builder, `config/` for its client. Removed when dropped.
struct Context {
    path: PathBuf,
    name: String,
    dir: Dir,
}

impl Context {
    fn make() -> io::Result<Context> {
        let base = tmp()?;
        channel::drop_dead(&base, PREFIX);
        let me = std::process::id();
        let start = proc::start_time(me)?.unwrap_or(0);
        let name = format!("{PREFIX}{me}-{start}");
        let dir = base.make(&name, 0o700)?;
        dir.make("context", 0o700)?;
        dir.make("config", 0o700)?;
        Ok(Context { path: Path::new(TMP).join(&name), name, dir })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let write = || self.dir.below("context")?.write_new(name, bytes, 0o644);
        write()
            .map_err(|e| Error::wrong("write", self.path.join("context").join(name).display().to_string(), e))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let _ = tmp().and_then(|base| base.remove_tree(&self.name));
    }
}

fn tmp() -> io::Result<Dir> {
    #[expect(
        clippy::disallowed_methods,
        reason = "FILE-59 /tmp, where the context of a build is made and removed"
    )]
    Dir::open(Path::new(TMP))
}
