//! What `attest` sees of a box from outside, while it runs: who its processes are, how the relay is confined, and afterwards that
//! nothing is left. Called by `attest`.

use crate::limits;
use crate::run::channel;
use crate::run::daemon::Daemon;
use crate::run::state::{self, Fields, RECEIPTS, RUNS};
use crate::sys::file::{self, Dir};
use crate::wire::probe::{Found, Way};
use std::path::{Path, PathBuf};

/// A process, as `/proc/PID/status` has it.
struct Process {
    pid: u32,
    parent: u32,
    uid: u32,
    text: String,
}

/// The state directory of the runs.
pub struct Watch {
    state: PathBuf,
    /// Uid of the box.
    uid: u32,
    /// We are root: the relay has a uid of its own.
    root: bool,
    /// The run, once its record was seen.
    pub run: Option<String>,
    channel: Option<String>,
    relay: Option<Found>,
    boxed: Option<Found>,
}

impl Watch {
    /// Nothing was seen yet.
    pub fn new(state: PathBuf, uid: u32, root: bool) -> Watch {
        Watch { state, uid, root, run: None, channel: None, relay: None, boxed: None }
    }

    /// Looks once; to be called until the run ends. `owner`: the pid of the run's process.
    pub fn look(&mut self, owner: u32) {
        if self.relay.is_some() && self.boxed.is_some() {
            return;
        }
        let Some(fields) = self.record(owner) else { return };
        let number = |name: &str| fields.get(name).and_then(|v| v.parse::<u32>().ok());
        let all = processes();
        if self.relay.is_none()
            && let Some(keeper) = number("keeper_pid")
        {
            self.relay = relay(&all, keeper, self.uid, self.root);
        }
        if self.boxed.is_none()
            && let Some(first) = number("box_pid").or_else(|| contained(&fields))
        {
            self.boxed = boxed(&all, first, self.uid);
        }
    }

    fn record(&mut self, owner: u32) -> Option<Fields> {
        let runs = dir(&self.state.join(RUNS))?;
        for name in runs.names().ok()? {
            let Some(fields) = runs.below(&name).ok().and_then(|d| state::read(&d).ok()) else { continue };
            if fields.get("owner_pid").and_then(|p| p.parse().ok()) == Some(owner) {
                self.channel = fields.get("channel").cloned();
                self.run = Some(name);
                return Some(fields);
            }
        }
        None
    }

    /// What was seen, and what is left now that the run is over.
    pub fn end(self, all: &mut Vec<Found>) {
        let unseen = |id: &str| Found::new(id, Way::Untested, "its process was not seen while the box ran");
        all.push(self.relay.unwrap_or_else(|| unseen("relay-confined")));
        all.push(self.boxed.unwrap_or_else(|| unseen("box-processes")));
        let (Some(run), Some(channel)) = (&self.run, &self.channel) else {
            return all.push(Found::new("nothing-left", Way::Untested, "the run's record was not seen"));
        };
        let path = channel::path(channel);
        let left: Vec<String> = [self.state.join(RUNS).join(run), path]
            .iter()
            .filter(|p| there(p))
            .map(|p| p.display().to_string())
            .collect();
        all.push(match left.is_empty() {
            true => Found::new("nothing-left", Way::Shut, "record and channel are gone"),
            false => Found::new("nothing-left", Way::Open, left.join(" ")),
        });
    }

    /// The features that the run's receipt names, and the receipt's path.
    pub fn receipt(state: &Path, run: &str) -> (Vec<String>, String) {
        let path = state.join(RECEIPTS).join(run);
        let bytes =
            dir(&path).and_then(|d| d.read("receipt.json", limits::PROBE_FILE).ok()).unwrap_or_default();
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let features = value.get("relay_features").and_then(|f| f.as_array()).cloned().unwrap_or_default();
        let words = features.iter().filter_map(|f| f.as_str().map(str::to_string)).collect();
        (words, path.join("receipt.json").display().to_string())
    }
}

fn dir(path: &Path) -> Option<Dir> {
    #[expect(clippy::disallowed_methods, reason = "FILE-182 attest: records and receipts of its own runs")]
    Dir::open(path).ok()
}

fn there(path: &Path) -> bool {
    #[expect(clippy::disallowed_methods, reason = "FILE-183 attest: whether a record or channel is left")]
    file::facts(path).is_ok()
}

/// Every process, with what can be known of anybody's.
fn processes() -> Vec<Process> {
    #[expect(clippy::disallowed_methods, reason = "FILE-184 attest: the processes of this host")]
    let names = Dir::open(Path::new("/proc")).and_then(|d| d.names()).unwrap_or_default();
    names.iter().filter_map(|n| process(n.parse().ok()?)).collect()
}

fn process(pid: u32) -> Option<Process> {
    #[expect(clippy::disallowed_methods, reason = "FILE-185 attest: the status of a process")]
    let bytes = file::read_named(Path::new(&format!("/proc/{pid}/status")), limits::PROBE_FILE).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let number =
        |name: &str| field(&text, name).split_whitespace().nth(usize::from(name == "Uid"))?.parse().ok();
    Some(Process { pid, parent: number("PPid")?, uid: number("Uid")?, text })
}

/// The word after the program's name on its command line, which anybody may read: our own name may be any.
fn role(pid: u32) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "FILE-193 attest: the role of a process")]
    let bytes = file::read_named(Path::new(&format!("/proc/{pid}/cmdline")), limits::PROBE_FILE).ok()?;
    Some(String::from_utf8_lossy(bytes.split(|b| *b == 0).nth(1)?).into_owned())
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().trim()
}

/// What of a confined process is not as it should be.
fn unconfined(process: &Process) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        if field(&process.text, name) != wanted {
            wrong.push(format!("{name} {}", field(&process.text, name)));
        }
    }
    for set in ["CapPrm", "CapEff", "CapAmb"] {
        if field(&process.text, set).chars().any(|c| c != '0') {
            wrong.push(format!("{set} {}", field(&process.text, set)));
        }
    }
    wrong
}

/// The keeper's child that is no engine: `None` while it still confines itself.
fn relay(all: &[Process], keeper: u32, boxed: u32, root: bool) -> Option<Found> {
    let id = "relay-confined";
    let mine = |p: &&Process| p.parent == keeper && role(p.pid).as_deref() == Some("relay-role");
    let relay = all.iter().find(mine)?;
    let mut wrong = unconfined(relay);
    if root && (relay.uid == 0 || relay.uid == boxed) {
        wrong.push(format!("uid {}", relay.uid));
    }
    match wrong.is_empty() {
        true => Some(Found::new(id, Way::Shut, format!("uid {}, no capability, a filter", relay.uid))),
        // Told as a hole only where it does not change: the next look decides.
        false if field(&relay.text, "Threads") == "1" => None,
        false => Some(Found::new(id, Way::Open, wrong.join(", "))),
    }
}

/// PID 1 of the box and all below it.
fn boxed(all: &[Process], first: u32, uid: u32) -> Option<Found> {
    let id = "box-processes";
    let mut inside: Vec<&Process> = all.iter().filter(|p| p.pid == first).collect();
    let mut at = 0;
    while let Some(pid) = inside.get(at).map(|p| p.pid) {
        inside.extend(all.iter().filter(|p| p.parent == pid));
        at += 1;
    }
    // Until the agent is there, PID 1 may be the engine's own, or still without the filter.
    if inside.len() < 2 {
        return None;
    }
    let mut wrong: Vec<String> = inside.iter().flat_map(|p| unconfined(p)).collect();
    wrong.extend(inside.iter().filter(|p| p.uid != uid).map(|p| format!("uid {}", p.uid)));
    Some(match wrong.is_empty() {
        true => Found::new(id, Way::Shut, format!("{} processes, each of uid {uid}, filtered", inside.len())),
        false => Found::new(id, Way::Open, wrong.join(", ")),
    })
}

/// The first process of a container.
fn contained(fields: &Fields) -> Option<u32> {
    let (daemon, id) = (Daemon::of(fields)?, fields.get("container")?);
    let format =
        "{{.State.Running}} {{.State.Pid}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.State.Error}}";
    let answer = daemon.call(&["inspect", "--type", "container", "--format", format, id]).ok()?;
    answer.out.split_whitespace().nth(1)?.parse().ok().filter(|pid| *pid != 0)
}
