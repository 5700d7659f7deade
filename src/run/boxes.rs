//! The commands about boxes that are there: `ps`, `stop`, `clean`, `destroy`. What is ours is what this user's state directory knows:
//! a container with our label whose run has no record and no receipt here belongs to somebody else, and is left alone. A box whose
//! run lives is left alone too, and named, unless `--all`. Called by `main`.

use crate::catalog::images;
use crate::engine::docker;
use crate::error::{Error, Exit};
use crate::limits;
use crate::run::daemon::{self, Daemon};
use crate::run::show::Show;
use crate::run::state::{self, Fields, RECORD, State};
use crate::run::sweep;
use crate::sys::env::Env;
use crate::sys::{exec, proc};
use crate::wire::text;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// signal(7).
const SIGTERM: i32 = 15;

/// One box.
#[derive(Default)]
pub struct Boxed {
    /// Its run's record; empty: the run has ended and the box was kept.
    fields: Fields,
    /// The owner of the record lives.
    live: bool,
    /// Its container: id, the daemon's word for its state, the agent's label.
    container: Option<(String, String, String)>,
    /// From the receipt, where there is no record.
    began: Option<u64>,
}

/// What the commands work on.
pub struct Boxes {
    state: State,
    daemon: Option<Daemon>,
    show: Show,
    all: BTreeMap<String, Boxed>,
}

impl Boxes {
    /// Looks at records, and at docker's containers where its command line is on PATH. A listing that fails is an error.
    pub fn find(env: &Env) -> Result<Boxes, Error> {
        let state = state::open(env)?;
        let daemon = match exec::find("docker", &env.path) {
            Some(program) => Some(Daemon::find(&program, &daemon::place(env))?),
            None => None,
        };
        let mut boxes = Boxes { state, daemon, show: Show::new(false, env), all: BTreeMap::new() };
        let list = |e: io::Error| Error::new(Exit::Engine, "list", "boxes", e);
        boxes.records().map_err(list)?;
        boxes.containers().map_err(list)?;
        Ok(boxes)
    }

    fn records(&mut self) -> io::Result<()> {
        for run in self.state.runs.names()? {
            if run.starts_with(state::NEW) {
                continue;
            }
            // One that is removed at this moment is none.
            let Ok(dir) = self.state.runs.below(&run) else { continue };
            let Ok(fields) = state::read(&dir) else { continue };
            let live = matches!(dir.lock(RECORD), Ok(None));
            self.all.insert(run, Boxed { fields, live, ..Boxed::default() });
        }
        Ok(())
    }

    fn containers(&mut self) -> io::Result<()> {
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let format = format!(
            "{{{{.ID}}}}\t{{{{.Label \"{}\"}}}}\t{{{{.State}}}}\t{{{{.Names}}}}\t{{{{.Label \"{}\"}}}}",
            docker::LABEL,
            docker::AGENT_LABEL
        );
        let filter = format!("label={}", docker::LABEL);
        let out = daemon.ask(&["ps", "-a", "--no-trunc", "--filter", &filter, "--format", &format])?;
        for line in out.lines() {
            let parts: Vec<&str> = line.split('\t').collect();
            let [id, run, state, name, agent] = parts.as_slice() else { continue };
            // An image made of a box of ours hands its labels on; the name it cannot.
            let ours = docker::id(id).is_some() && is_run(run) && name.starts_with("sbx-") && self.known(run);
            if ours {
                let began = self.began(run);
                let found = self.all.entry(run.to_string()).or_default();
                found.container = Some((id.to_string(), state.to_string(), agent.to_string()));
                found.began = began;
            }
        }
        Ok(())
    }

    fn known(&self, run: &str) -> bool {
        self.all.contains_key(run) || self.state.receipts.facts(run).is_ok()
    }

    fn began(&self, run: &str) -> Option<u64> {
        let bytes = self.state.receipts.below(run).ok()?.read("receipt.json", limits::RECEIPT_BYTES).ok()?;
        serde_json::from_slice::<serde_json::Value>(&bytes).ok()?.get("began")?.as_u64()
    }

    /// `sanduk ps`, for a person or as JSON.
    pub fn list(&mut self, json: bool) -> String {
        let rows: Vec<serde_json::Value> = self.all.iter().map(|(run, found)| found.row(run)).collect();
        if json {
            return format!("{}\n", serde_json::Value::from(rows));
        }
        if rows.is_empty() {
            self.show.note("no boxes");
        }
        let word = |row: &serde_json::Value, key: &str| match &row[key] {
            serde_json::Value::String(word) => text::escaped(word),
            serde_json::Value::Number(n) => age(n.as_u64().unwrap_or(0)),
            _ => "-".to_string(),
        };
        let mut out = String::new();
        for row in &rows {
            let columns =
                ["run", "agent", "engine", "mode", "age_seconds", "state"].map(|key| word(row, key));
            let [run, agent, engine, mode, age, state] = columns;
            out.push_str(&format!("{run:<32}  {agent:<9} {engine:<7} {mode:<9} {age:<5} {state}\n"));
        }
        out
    }

    /// `sanduk stop`: running containers that no live run owns are stopped and stay. `all`: live runs are ended, as by SIGTERM.
    pub fn stop(&mut self, all: bool) -> Result<Exit, Error> {
        self.live(all)?;
        let mut failed = None;
        for (run, found) in &self.all {
            let (Some(daemon), Some((id, state, _)), false) = (&self.daemon, &found.container, found.live)
            else {
                continue;
            };
            if state != "running" && state != "paused" && state != "restarting" {
                continue;
            }
            match daemon.call(&["stop", "-t", "2", id]) {
                Ok(answer) if answer.ok || docker::no_such(&answer.err) => {
                    self.show.note(&format!("stopped the box of {run}"))
                }
                Ok(answer) => failed = Some(cannot("stop", run, docker::words(&answer.err))),
                Err(e) => failed = Some(cannot("stop", run, e)),
            }
        }
        failed.map_or(Ok(Exit::Ok), Err)
    }

    /// `sanduk clean`: what dead runs left, and kept boxes, are removed.
    pub fn clean(&mut self, all: bool) -> Result<Exit, Error> {
        self.live(all)?;
        sweep::sweep(&self.state, &mut self.show);
        let mut failed = None;
        for (run, found) in &self.all {
            let (Some(daemon), Some((id, ..)), false) = (&self.daemon, &found.container, found.live) else {
                continue;
            };
            match daemon.remove(id) {
                Ok(()) => self.show.note(&format!("removed the box of {run}")),
                Err(e) => failed = Some(cannot("remove", run, e)),
            }
        }
        failed.map_or(Ok(Exit::Ok), Err)
    }

    /// `sanduk destroy`: `clean`, then the agent's image and the network of key-safe boxes. Receipts and logs stay.
    pub fn destroy(&mut self, all: bool, agent: &str) -> Result<Exit, Error> {
        self.clean(all)?;
        let Some(daemon) = &self.daemon else { return Ok(Exit::Ok) };
        let gone = |words: &str| words.contains("No such image") || words.contains("No such network");
        let tag = images::tag(agent);
        let image = daemon.call(&["image", "rm", &tag]).map_err(|e| cannot("remove", &tag, e))?;
        if image.ok {
            self.show.note(&format!("removed the image {tag}"));
        } else if !gone(&image.err) {
            return Err(cannot("remove", &tag, docker::words(&image.err)));
        }
        let network = docker::KEY_SAFE_NETWORK;
        // One that somebody else made stays.
        let made = daemon.look(network).map_err(|e| cannot("look at", network, e))?;
        if made.is_some_and(|m| m.ends_with(" yes")) {
            daemon.ask(&["network", "rm", network]).map_err(|e| cannot("remove", network, e))?;
            self.show.note(&format!("removed the network {network}"));
        }
        Ok(Exit::Ok)
    }

    /// Names the live runs, or ends them: each tears itself down.
    fn live(&mut self, all: bool) -> Result<(), Error> {
        let live: Vec<String> = self.all.iter().filter(|(_, b)| b.live).map(|(run, _)| run.clone()).collect();
        for run in &live {
            if !all {
                self.show.note(&format!("{run} is at work and is left alone; --all ends it"));
                continue;
            }
            let Some(found) = self.all.get_mut(run) else { continue };
            let owner =
                state::alive(&found.fields, "owner").ok().flatten().and_then(|p| i32::try_from(p).ok());
            if let Some(owner) = owner {
                proc::signal(owner, SIGTERM).map_err(|e| cannot("end", run, e))?;
            }
            let until = Instant::now() + limits::TEARDOWN;
            while self.state.runs.facts(run).is_ok() {
                if Instant::now() > until {
                    return Err(cannot("end", run, "it does not end"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            found.live = false;
            self.show.note(&format!("ended {run}"));
        }
        Ok(())
    }
}

impl Boxed {
    fn row(&self, run: &str) -> serde_json::Value {
        let field = |key: &str| self.fields.get(key).cloned();
        let began = field("began").and_then(|b| b.parse().ok()).or(self.began);
        let state = match (self.live, self.fields.is_empty(), &self.container) {
            (true, ..) => "running",
            (false, false, _) => "left by a dead run",
            (false, true, _) => "kept",
        };
        serde_json::json!({
            "run": run,
            "agent": field("agent").or(self.container.as_ref().map(|(_, _, agent)| agent.clone())),
            "engine": field("engine").unwrap_or_else(|| "docker".into()),
            "mode": field("mode"),
            "age_seconds": began.map(|b| proc::now().as_secs().saturating_sub(b)),
            "state": state,
            "container": self.container.as_ref().map(|(id, ..)| id),
        })
    }
}

/// A run's id: 32 hex digits.
fn is_run(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn cannot(doing: &'static str, on: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Exit::Engine, doing, on, why)
}
