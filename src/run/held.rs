//! What a run holds outside this process: its record, its channel, its keeper, and through the keeper relay and box. Dropped, all of
//! it ends and is removed, whatever happened before; what could not be removed keeps its record for the sweep. Called by `life`.

use crate::engine::plan::Mode;
use crate::error::Error;
use crate::limits;
use crate::relay::bodies::DIRECTORY;
use crate::relay::start::Fds;
use crate::run::daemon::Daemon;
use crate::run::key::Key;
use crate::run::spec::Spec;
use crate::run::state::{self, Fields, Record, State};
use crate::run::{channel, hand, order, sweep};
use crate::sys::exec::{self, Child, Ended, Feed};
use crate::sys::file::Dir;
use crate::sys::net::{self, Conn};
use crate::sys::proc;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Names and secrets of one run.
pub struct Names {
    /// The run.
    pub id: String,
    /// Its channel directory.
    pub channel: String,
    /// What the agent says to the relay.
    pub token: String,
    /// What we say to the box.
    pub control_secret: String,
}

/// Where a run's log and receipt are kept.
pub struct Kept {
    /// `receipts/<id>`, or `<log-dir>/<id>`.
    pub path: PathBuf,
    /// The same, open.
    pub dir: Dir,
}

/// The name of the call log in `Kept`.
pub const LOG: &str = "calls.jsonl";

/// See the file's head.
pub struct Held<'a> {
    state: &'a State,
    record: Option<Record>,
    fields: Fields,
    id: String,
    channel: String,
    owner: u32,
    docker: Option<Daemon>,
    keep: bool,
    /// The box was kept.
    stands: bool,
    keeper: Option<Child>,
    life: Option<Conn>,
    pipes: Option<Pipes>,
    /// All was tried; what is left is the sweep's.
    left: bool,
}

/// The pipes on which a started keeper and its relay speak.
pub struct Pipes {
    /// `order::Said`, a line each.
    pub keeper: Conn,
    /// `relay::note::Note`, a line each; none in open mode.
    pub notes: Option<Conn>,
}

impl Names {
    /// Fresh ones.
    pub fn new() -> Result<Names, Error> {
        let fault = |e: io::Error| Error::fault("draw", "random names", e);
        Ok(Names {
            // 128 bits: as a label's value it makes a container ours.
            id: proc::random_hex(16).map_err(fault)?,
            channel: channel::name().map_err(fault)?,
            token: proc::random_hex(24).map_err(fault)?,
            control_secret: proc::random_hex(32).map_err(fault)?,
        })
    }
}

impl Kept {
    /// Makes the directory for log and receipt.
    pub fn make(spec: &Spec, state: &State, id: &str) -> Result<Kept, Error> {
        let (path, made) = match &spec.log_dir {
            None => (state.path.join("receipts").join(id), state.receipts.make(id, 0o700)),
            Some(dir) => {
                #[expect(clippy::disallowed_methods, reason = "FILE-50 --log-dir")]
                let made = Dir::make_all(dir, 0o700).and_then(|d| d.make(id, 0o700));
                (dir.join(id), made)
            }
        };
        let dir = made.map_err(|e| {
            Error::wrong("write to", path.display().to_string(), e)
                .remedy("nothing is forwarded without a record")
        })?;
        Ok(Kept { path, dir })
    }

    /// Makes the directory of bodies, for the relay's own uid where it has one.
    fn bodies(&self, id: &str) -> Result<OwnedFd, Error> {
        let made = self.dir.make(DIRECTORY, 0o700).and_then(|dir| {
            if proc::ids().0 == 0 {
                let (uid, gid) = relay_uid(id);
                self.dir.give(DIRECTORY, uid, gid)?;
            }
            Ok(dir.into())
        });
        made.map_err(|e| Error::wrong("make", self.path.join(DIRECTORY).display().to_string(), e))
    }

    /// The run never started: nothing is worth keeping, unless a call was made.
    pub fn discard(&self) {
        let Some(parent) = self.path.parent() else { return };
        let Some(name) = self.path.file_name().and_then(|n| n.to_str()) else { return };
        if self.dir.facts(LOG).is_ok_and(|f| f.size > 0) {
            return;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "FILE-56 the directory of receipts, to drop an empty one"
        )]
        if let Ok(parent) = Dir::open(parent) {
            let _ = parent.remove_tree(name);
        }
    }
}

impl<'a> Held<'a> {
    /// Writes the record, makes the channel, starts the keeper, which starts the relay. Whatever fails, nothing of it stays.
    pub fn start(
        spec: &Spec,
        docker: Option<Daemon>,
        state: &'a State,
        names: &Names,
        kept: &Kept,
        key: Key,
    ) -> Result<Held<'a>, Error> {
        // What cannot be said to the engine is refused before anything exists; the image's id is not known yet.
        hand::engine(spec, names, "")?;
        let record = state.create(&names.id, &first_lines(spec, docker.as_ref(), names)?)?;
        let mut held = Held {
            state,
            record: Some(record),
            fields: Fields::new(),
            id: names.id.clone(),
            channel: names.channel.clone(),
            owner: spec.user.0,
            docker,
            keep: spec.docker.as_ref().is_some_and(|d| d.keep),
            stands: false,
            keeper: None,
            life: None,
            pipes: None,
            left: false,
        };
        let at = channel::path(&names.channel);
        let cannot = |e: io::Error| {
            Error::wrong("make", at.display().to_string(), e)
                .remedy("make room in /tmp for a copy of this program")
        };
        channel::create(&names.channel, spec.user).map_err(cannot)?;
        held.pipes = Some(held.start_keeper(spec, names, kept, key)?);
        Ok(held)
    }

    fn start_keeper(&mut self, spec: &Spec, names: &Names, kept: &Kept, key: Key) -> Result<Pipes, Error> {
        let fault = |e: io::Error| Error::fault("start", "the keeper of the run", e);
        let (ends, notes) = match spec.mode {
            Mode::Open => (None, None),
            Mode::Sealed | Mode::KeySafe => {
                let (ends, notes) = Ends::open(names, kept, key, spec.log_bodies)?;
                (Some(ends), Some(notes))
            }
        };
        let root = proc::ids().0 == 0;
        let order = order::Order {
            id: names.id.clone(),
            engine: spec.program.clone(),
            user: root.then_some(spec.user),
            container: self.docker.clone().map(|daemon| order::Container { daemon, keep: self.keep }),
            channel: (names.channel.clone(), self.owner),
            runs: self.state.path.join("runs"),
            relay: ends.as_ref().map(|e| hand::relay(spec, e.fds(), root.then(|| relay_uid(&names.id)))),
        };
        let what = exec::Order {
            program: exec::own().map_err(fault)?,
            args: vec!["keeper".into()],
            env: Vec::new(),
            stdin: Feed::Pipe,
            stdout: Feed::Pipe,
            // A panic's words; the keeper says nothing else there.
            stderr: Feed::Inherit,
            inherit: ends.map_or_else(Vec::new, Ends::all),
            user: None,
            cwd: "/".into(),
            own_group: true,
        };
        #[expect(clippy::disallowed_methods, reason = "EXEC-43 the keeper role of this program")]
        let mut child = exec::start(what).map_err(fault)?;
        let pid = child.id();
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let said = child.stdout().map(Conn::new).ok_or_else(broken).map_err(fault)?;
        self.life = child.stdin().map(Conn::new);
        self.keeper = Some(child);
        // Told first: it starts the relay while its pid is written and synced. Without `go` it starts no box, and ends with us.
        self.say(&order::line(&order).map_err(fault)?).map_err(fault)?;
        self.note_process("keeper", pid);
        Ok(Pipes { keeper: said, notes: notes.map(Conn::new) })
    }

    /// What keeper and relay say; once.
    pub fn pipes(&mut self) -> Result<Pipes, Error> {
        self.pipes.take().ok_or_else(|| Error::fault("follow", "the keeper", "its pipes are taken"))
    }

    /// Lets the keeper start the box, with these arguments for its engine.
    pub fn go(&mut self, args: Vec<String>) -> Result<(), Error> {
        let fault = |e: io::Error| Error::fault("start", "the box", e);
        let line = order::line(&order::Go { args }).map_err(fault)?;
        // From here on a container may come into being whose id nobody has written down yet.
        self.note("asked", "yes");
        self.say(&[b"go ", &*line].concat()).map_err(fault)
    }

    /// Asks the keeper how the box is; false where that engine's keeper tells without being asked.
    pub fn look(&self) -> bool {
        self.docker.is_some() && self.say(b"look\n").is_ok()
    }

    fn say(&self, line: &[u8]) -> io::Result<()> {
        let life = self.life.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        life.write_all(&[line], limits::CONTROL_TIME)
    }

    /// Adds a line to the record.
    pub fn note(&mut self, key: &str, value: &str) {
        self.fields.insert(key.into(), value.into());
        if let Some(record) = &mut self.record {
            // A full disk must not end a run that is under way.
            let _ = record.add(&[(key, value.to_string())]);
        }
    }

    /// Adds a process to the record, so that a sweep after our death can tell it from another with its pid.
    pub fn note_process(&mut self, who: &str, pid: u32) {
        let Ok(lines) = state::process(who, pid) else { return };
        let lines = lines.map(|(k, v)| {
            self.fields.insert(k.clone(), v.clone());
            (k, v)
        });
        if let Some(record) = &mut self.record {
            // A full disk must not end a run that is under way: the parent-death signal still covers the process.
            let _ = record.add(&[(&lines[0].0, lines[0].1.clone()), (&lines[1].0, lines[1].1.clone())]);
        }
    }

    /// Ends box and relay and waits until they and the channel are gone. `Err`: what is left; the record then stays.
    pub fn end(&mut self) -> io::Result<()> {
        if let Some(mut keeper) = self.keeper.take() {
            let _ = self.say(b"end\n");
            self.life = None;
            let ended = keeper.wait(limits::TEARDOWN);
            drop(keeper);
            if let Ok(boot) = proc::boot_id() {
                self.fields.insert("boot".into(), boot);
            }
            sweep::end(&self.fields)?;
            let clean = matches!(ended, Ok(Some(Ended::Code(0))));
            self.stands = clean && self.keep;
            // Not in time, or killed: what it would have done is done here.
            match &self.docker {
                _ if clean => {}
                None => sweep::engines(&self.channel)?,
                Some(daemon) => daemon.purge(&self.id, sweep::unsure(&self.fields))?,
            }
        }
        channel::remove(&self.channel, self.owner)
    }

    /// The name of the container that `--keep` left.
    pub fn stands(&self) -> Option<&str> {
        self.stands.then_some(&self.channel)
    }

    /// Gives up on what could not be removed: the record stays.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// Drops the record: all is removed, report and receipt are written.
    pub fn forget(&mut self) -> io::Result<()> {
        match self.record.take() {
            Some(record) => record.forget(&self.state.runs),
            None => Ok(()),
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.left && self.record.is_some() && self.end().is_ok() {
            let _ = self.forget();
        }
    }
}

/// The relay's ends of everything it has: it opens nothing itself.
struct Ends {
    listener: OwnedFd,
    secrets: OwnedFd,
    log: OwnedFd,
    notes: OwnedFd,
    bodies: Option<OwnedFd>,
}

impl Ends {
    /// Opens them; the second value is our end of the notes.
    fn open(names: &Names, kept: &Kept, key: Key, bodies: bool) -> Result<(Ends, OwnedFd), Error> {
        let fault = |e: io::Error| Error::fault("start", "the relay of the run", e);
        let host = channel::path(&names.channel).join("host");
        #[expect(
            clippy::disallowed_methods,
            reason = "NET-47 relay.sock in the channel, handed to the relay"
        )]
        let listener: OwnedFd = net::listen_unix(&host, "relay.sock", 0o666).map_err(fault)?.into();
        let secrets = key.into_pipe(&names.token).map_err(fault)?;
        let log = kept
            .dir
            .append(LOG)
            .map_err(|e| Error::wrong("write", kept.path.join(LOG).display().to_string(), e))?;
        let (ours, notes) = net::pipe().map_err(fault)?;
        let bodies = bodies.then(|| kept.bodies(&names.id)).transpose()?;
        Ok((Ends { listener, secrets, log, notes, bodies }, ours))
    }

    /// Their numbers, which keeper and relay inherit.
    fn fds(&self) -> Fds {
        Fds {
            listener: self.listener.as_raw_fd(),
            secrets: self.secrets.as_raw_fd(),
            log: self.log.as_raw_fd(),
            notes: self.notes.as_raw_fd(),
            bodies: self.bodies.as_ref().map(AsRawFd::as_raw_fd),
        }
    }

    fn all(self) -> Vec<OwnedFd> {
        [self.listener, self.secrets, self.log, self.notes].into_iter().chain(self.bodies).collect()
    }
}

/// The record before anything exists.
fn first_lines<'n>(
    spec: &Spec,
    docker: Option<&Daemon>,
    names: &Names,
) -> Result<Vec<(&'n str, String)>, Error> {
    let fault = |e: io::Error| Error::fault("read", "/proc", e);
    let me = std::process::id();
    let start = proc::start_time(me).map_err(fault)?.unwrap_or(0);
    let mut lines = vec![
        ("kind", "run".into()),
        ("agent", spec.agent.name.clone()),
        ("engine", spec.engine.name().into()),
        ("mode", spec.mode.name().into()),
        ("began", proc::now().as_secs().to_string()),
        ("boot", proc::boot_id().map_err(fault)?),
        ("owner_pid", me.to_string()),
        ("owner_start", start.to_string()),
        ("uid", spec.user.0.to_string()),
        ("grace", limits::GRACE.as_secs().to_string()),
        ("channel", names.channel.clone()),
        ("control_secret", names.control_secret.clone()),
        ("token", names.token.clone()),
    ];
    if let Some(daemon) = docker {
        lines.push(("docker", daemon.program.display().to_string()));
        lines.push(("endpoint", daemon.endpoint.clone()));
    }
    Ok(lines)
}

/// An uid of its own for the relay, so that no other process, nor another run's relay, may look into it.
fn relay_uid(id: &str) -> (u32, u32) {
    let part = id.get(..6).and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0);
    let uid = limits::RELAY_UIDS.saturating_add(part);
    (uid, uid)
}

/// How long a last look at the pipes of a keeper that has ended may take.
pub const LAST_LOOK: Duration = Duration::from_secs(1);
