//! `sanduk attest`: boots a throw-away sealed box as `run` does, with a made-up key and a scripted provider, tries every way out from
//! inside, and names each that is open. A second box beside it is one of the things that must not be reached. Called by `main`.

use crate::catalog::{agents, images};
use crate::engine::plan::{Engine, Mode};
use crate::error::{Error, Exit};
use crate::limits;
use crate::prove::boxes::{Boxed, Order};
use crate::prove::outside::Outside;
use crate::prove::provider::{Provider, Seen};
use crate::prove::verdict::{self, Answer, Controls, SCHEMA};
use crate::prove::watch::Watch;
use crate::run::asked::Asked;
use crate::run::daemon::Daemon;
use crate::run::{channel, modes, needs};
use crate::sys::env::Env;
use crate::sys::exec::Ended;
use crate::sys::file::{self, Dir};
use crate::sys::net::{self, Listener};
use crate::sys::proc;
use crate::wire::probe::{FOUND, Found, Report, STOP, Task, Way, invert};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The command line.
#[derive(Default)]
pub struct Wanted {
    /// `--runtime`.
    pub runtime: Option<String>,
    /// `--image`.
    pub image: Option<String>,
    /// `--hole`.
    pub hole: Option<String>,
}

/// The holes that can be made on purpose.
pub const HOLES: [&str; 4] = ["bridge", "socket", "key", "port"];
/// Where the throw-away work directories are.
const PREFIX: &str = "sanduk-attest-";

/// The command: what was found, and whether anything is open.
pub fn attest(wanted: &Wanted, env: &Env) -> Result<Answer, Error> {
    let fault = |e: io::Error| Error::fault("attest", "a sealed box", e);
    let chosen = engine(wanted, env)?;
    let hole = hole(wanted, chosen.engine)?;
    let key = format!("sk-ant-attest-{}", proc::random_hex(24).map_err(fault)?);
    let provider = Provider::start(&key).map_err(fault)?;
    let outside = Outside::open().map_err(fault)?;
    let place = Place::make().map_err(|e| Error::wrong("make", format!("/tmp/{PREFIX}*"), e))?;
    let order = |name: &str, task: Task| Order {
        runtime: chosen.engine.name().into(),
        image: chosen.image.clone(),
        work: place.path.join(name).display().to_string(),
        upstream: format!("http://{}", provider.at),
        key_fd: 0,
        mounts: if hole == Some("socket") { vec![place.engine_mount()] } else { Vec::new() },
        env: if hole == Some("key") { vec![format!("ATTEST_LEAK={key}")] } else { Vec::new() },
        bridge: hole == Some("bridge"),
        // Not both: their forwarders would want the same port.
        host: hole == Some("port") && name == "probed",
        task,
    };
    if hole == Some("key") {
        place.leak(&key).map_err(fault)?;
    }
    let nothing = Task {
        hold: true,
        inverted: String::new(),
        targets: Vec::new(),
        abstracts: Vec::new(),
        namespaces: Vec::new(),
    };
    let mut other = Boxed::start(order("other", nothing), &key, env).map_err(fault)?;
    let held = wait_for_other(&mut other)?;
    let task = Task {
        hold: false,
        inverted: invert(key.as_bytes()),
        targets: outside.targets.iter().chain(&held.targets).cloned().collect(),
        abstracts: outside.abstracts.iter().chain(&held.abstracts).cloned().collect(),
        namespaces: outside.namespaces.clone(),
    };
    let state = env.state_home.as_ref().map(|h| h.join("sanduk")).unwrap_or_default();
    let mut watch = Watch::new(state.clone(), place.user.0, proc::ids().0 == 0);
    let mut boxed = Boxed::start(order("probed", task.clone()), &key, env).map_err(fault)?;
    let until = Instant::now() + limits::PROBE_HOLD;
    while !boxed.wait(Duration::from_millis(50)) {
        watch.look(boxed.pid());
        if Instant::now() > until {
            return Err(Error::fault("attest", "a sealed box", "its run does not end"));
        }
    }
    let report = read(&boxed.work).ok_or_else(|| {
        boxed.failure().unwrap_or_else(|| Error::fault("attest", "a box", "it reported nothing"))
    })?;
    let run = watch.run.clone().unwrap_or_default();
    let mut found = report.found;
    if !report.complete {
        found.push(Found::new("relay-key-reflected", Way::Silent, "before an answer came"));
    }
    arrived(&provider.seen(), boxed.ended, &mut found);
    found.extend(outside.missing.iter().map(|(id, why)| Found::new(id, Way::Untested, why)));
    watch.end(&mut found);
    place.stop(&other.work);
    if !other.wait(limits::TEARDOWN) {
        found.push(Found::new("nothing-left", Way::Open, "the other box does not end"));
    }
    let own_network = found.iter().any(|f| f.id == "namespace net" && f.way == Way::Shut);
    let controls =
        Controls { targets: &task.targets, abstracts: &task.abstracts, held: &held.targets, own_network };
    let probes = verdict::judge(&found, &controls);
    let (features, receipt) = Watch::receipt(&state, &run);
    let answer = Answer {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        verdict: "",
        engine: chosen.words,
        image: chosen.image,
        made_hole: hole.map(str::to_string),
        kernel: kernel(),
        features,
        receipt,
        untested: 0,
        unproven: Vec::new(),
        probes: Vec::new(),
    };
    Ok(answer.of(probes))
}

/// The provider's side: only allowed calls came, with the key; the answer that held the key ended the run or was cut.
fn arrived(seen: &Seen, ended: Option<Ended>, found: &mut Vec<Found>) {
    let id = "relay-provider";
    found.push(match (seen.passed.as_slice(), seen.with_key) {
        ([], 0) => Found::new(id, Way::Untested, "no call arrived with the key"),
        ([], n) => Found::new(
            id,
            Way::Shut,
            format!("{} requests, {n} with the key: {}", seen.requests.len(), seen.requests.join(", ")),
        ),
        (words, _) => {
            Found::new(id, Way::Open, format!("what the relay refuses arrived: {}", words.join(", ")))
        }
    });
    for probe in found.iter_mut().filter(|f| f.id == "relay-key-reflected" && f.way == Way::Silent) {
        (probe.way, probe.got) = match (seen.reflected, ended) {
            (false, _) => (Way::Untested, "the provider was not asked for it".into()),
            (true, Some(Ended::Code(3))) => (Way::Shut, format!("the relay ended the run ({})", probe.got)),
            (true, _) => (Way::Shut, probe.got.clone()),
        };
    }
}

/// The engine of the boxes.
struct Chosen {
    engine: Engine,
    image: Option<String>,
    words: String,
}

fn engine(wanted: &Wanted, env: &Env) -> Result<Chosen, Error> {
    let asked = Asked { runtime: wanted.runtime.clone(), image: wanted.image.clone(), ..Asked::default() };
    let mini =
        agents::shipped("mini").ok_or_else(|| Error::fault("find", "agent mini", "it is not shipped"))?;
    let chosen = modes::engine(&asked, Mode::Sealed, &mini, env, &mut Vec::new())?;
    let Some(docker) = chosen.docker else {
        let words = format!("bwrap {}", needs::bwrap_version(&chosen.program)?);
        return Ok(Chosen { engine: chosen.engine, image: None, words });
    };
    let daemon = Daemon::find(&chosen.program, &docker.place)?;
    let version = daemon.ask(&["version", "--format", "{{.Server.Version}}"]);
    let version = version.map_err(|e| Error::new(Exit::Engine, "ask", daemon.endpoint.clone(), e))?;
    let words = format!("docker {} at {}", version.trim(), daemon.endpoint);
    // Any image will do, since the probe is this program: the ones that runs use come first.
    let tags = match &wanted.image {
        Some(tag) => vec![tag.clone()],
        None => vec![images::tag("claude"), images::tag("mini")],
    };
    let mut missing = None;
    for tag in tags {
        match daemon.image(&tag, "run `sanduk build --agent mini`, or name one with --image") {
            Ok(image) => return Ok(Chosen { engine: chosen.engine, image: Some(image.tag), words }),
            Err(e) => missing = Some(Error::new(Exit::Engine, "find", format!("the image {tag}"), e)),
        }
    }
    Err(missing.unwrap_or_else(|| Error::fault("find", "an image", "none is known")))
}

fn hole(wanted: &Wanted, engine: Engine) -> Result<Option<&'static str>, Error> {
    let Some(text) = wanted.hole.as_deref() else { return Ok(None) };
    let refused = |why: &str| Error::wrong("take", format!("--hole {text}"), why);
    let hole = HOLES.into_iter().find(|h| *h == text);
    match (hole, engine) {
        (None, _) => Err(refused("it may be bridge, socket, key or port")),
        (Some("bridge"), Engine::Bwrap) => {
            Err(refused("bwrap has no network of its own to join")
                .remedy("give --hole port: the host's network"))
        }
        (hole, _) => Ok(hole),
    }
}

/// The box that is only to be reached; its report is there once it listens.
fn wait_for_other(other: &mut Boxed) -> Result<Report, Error> {
    let until = Instant::now() + limits::BOX_START;
    loop {
        let ended = other.wait(Duration::from_millis(50));
        if let Some(report) = read(&other.work).filter(|r| r.complete) {
            return Ok(report);
        }
        if ended || Instant::now() > until {
            return Err(other
                .failure()
                .unwrap_or_else(|| Error::fault("boot", "a box", "it does not come up")));
        }
    }
}

fn read(work: &Path) -> Option<Report> {
    let most = u64::try_from(limits::PROBE_BYTES).unwrap_or(u64::MAX);
    #[expect(clippy::disallowed_methods, reason = "FILE-186 attest: what its probe wrote down")]
    let bytes = Dir::open(work).and_then(|d| d.read(FOUND, most)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The kernel's release.
pub fn kernel() -> String {
    #[expect(clippy::disallowed_methods, reason = "FILE-187 the kernel's release")]
    let bytes = file::read_named(Path::new("/proc/sys/kernel/osrelease"), 4096).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_string()
}

/// `/tmp/sanduk-attest-PID-START`: the work directories, and a socket as an engine would have it. Removed with it.
struct Place {
    path: PathBuf,
    name: String,
    dir: Dir,
    user: (u32, u32),
    _engine: Listener,
}

impl Place {
    fn make() -> io::Result<Place> {
        let base = tmp()?;
        channel::drop_dead(&base, PREFIX);
        let (me, (uid, gid)) = (std::process::id(), proc::ids());
        let name = format!("{PREFIX}{me}-{}", proc::start_time(me)?.unwrap_or(0));
        let user = if uid == 0 { (limits::BOX_UID, limits::BOX_UID) } else { (uid, gid) };
        // Root's boxes belong to an ordinary uid, which has to get there.
        let dir = base.make(&name, if uid == 0 { 0o711 } else { 0o700 })?;
        let path = channel::path(&name);
        for work in ["other", "probed", "engine"] {
            dir.make(work, 0o700)?;
            if uid == 0 {
                dir.give(work, user.0, user.1)?;
            }
        }
        #[expect(clippy::disallowed_methods, reason = "NET-188 attest: what an engine's socket would be")]
        let engine = net::listen_unix(&path.join("engine"), "docker.sock", 0o666)?;
        Ok(Place { path, name, dir, user, _engine: engine })
    }

    /// `--mount` of the stand-in for an engine's socket.
    fn engine_mount(&self) -> String {
        format!("{}:/mnt/engine", self.path.join("engine").display())
    }

    /// A file with the key in the work directory.
    fn leak(&self, key: &str) -> io::Result<()> {
        let work = self.dir.below("probed")?;
        work.write_new("leak.env", format!("KEY={key}\n").as_bytes(), 0o644)
    }

    /// Tells the box that only holds to end.
    fn stop(&self, work: &Path) {
        #[expect(clippy::disallowed_methods, reason = "FILE-188 attest: the other box's work directory")]
        let _ = Dir::open(work).and_then(|d| d.write_new(STOP, b"", 0o644));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = tmp().and_then(|base| base.remove_tree(&self.name));
    }
}

fn tmp() -> io::Result<Dir> {
    #[expect(clippy::disallowed_methods, reason = "FILE-189 attest: /tmp, for its throw-away directories")]
    Dir::open(Path::new(channel::BASE))
}
