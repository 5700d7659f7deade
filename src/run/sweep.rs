//! Removes what dead runs left. A record whose lock is held belongs to a live owner and is left alone; for the others the box and
//! the keeper are ended (only if pid, start time and boot are those of the record), then the channel goes, then the record. What
//! cannot be removed keeps its record and is told; it never holds up anything else. Called by `life` first thing.

use crate::engine::plan;
use crate::run::daemon::Daemon;
use crate::run::state::{self, Fields, RECORD, State};
use crate::run::{channel, show::Show};
use crate::sys::file::Dir;
use crate::sys::proc;
use std::io;
use std::time::{Duration, Instant};

/// A killed process is gone in milliseconds; a longer wait means that it is not ours to kill.
const DEATH: Duration = Duration::from_secs(5);
/// signal(7).
const SIGKILL: i32 = 9;

/// Looks at every record.
pub fn sweep(state: &State, show: &mut Show) {
    let names = match state.runs.names() {
        Ok(names) => names,
        // A listing that fails is not an empty one.
        Err(e) => return show.note(&format!("cannot look for dead runs in {}: {e}", state.path.display())),
    };
    for name in names {
        match one(&state.runs, &name) {
            Ok(false) => {}
            Ok(true) => show.note(&format!("removed what the dead run {name} had left")),
            Err(e) => {
                show.note(&format!("cannot remove what the dead run {name} left: {e}; its record is kept"))
            }
        }
    }
}

/// True where something was removed.
fn one(runs: &Dir, name: &str) -> io::Result<bool> {
    if let Some(rest) = name.strip_prefix(state::NEW) {
        return unfinished(runs, name, rest);
    }
    let dir = match runs.below(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let _lock = match dir.lock(RECORD) {
        // Live, or another command sweeps it.
        Ok(None) => return Ok(false),
        Ok(Some(lock)) => lock,
        // Its owner was killed between removing the record and its directory, or is at it right now.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return runs.remove_tree(name).map(|()| false),
        Err(e) => return Err(e),
    };
    let fields = match state::read(&dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    end(&fields)?;
    container(&fields, name)?;
    if let Some(name) = fields.get("channel") {
        if !fields.contains_key("docker") {
            engines(name)?;
        }
        let owner = fields.get("uid").and_then(|u| u.parse().ok()).unwrap_or(proc::ids().0);
        channel::remove(name, owner)?;
    }
    runs.remove_tree(name)?;
    Ok(true)
}

/// Ends keeper, engine and the box's first process, and waits until they are gone: only then may their directory go.
pub fn end(fields: &Fields) -> io::Result<()> {
    // The keeper first: it would otherwise still start or remove something. Its death is the box's and the relay's.
    for who in ["keeper", "engine", "box"] {
        let until = Instant::now() + DEATH;
        while let Some(pid) = state::alive(fields, who)? {
            if Instant::now() > until {
                return Err(io::Error::other(format!("{who} {pid} does not end")));
            }
            let pid = i32::try_from(pid).map_err(io::Error::other)?;
            proc::signal(pid, SIGKILL)?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Removes the container of a dead run: what carries its id as label, whatever the record says of it. A daemon that does not
/// answer is an error, and the record stays.
fn container(fields: &Fields, run: &str) -> io::Result<()> {
    match Daemon::of(fields) {
        Some(daemon) if fields.contains_key("asked") => daemon.purge(run, unsure(fields)),
        _ => Ok(()),
    }
}

/// The box was asked for and its id is not known: it may still come.
pub fn unsure(fields: &Fields) -> bool {
    fields.contains_key("asked") && !fields.contains_key("container")
}

/// Ends engines of this channel that no record knows: killed early in its start, bubblewrap leaves a child that waits for it for
/// ever. Its argv names the channel, whose name nobody else has.
pub fn engines(channel: &str) -> io::Result<()> {
    let host = channel::path(channel).join("host").display().to_string();
    let until = Instant::now() + DEATH;
    loop {
        let found = proc::with_arguments(&["--ro-bind", &host, plan::HOST_END])?;
        let Some(first) = found.first() else { return Ok(()) };
        if Instant::now() > until {
            return Err(io::Error::other(format!("engine {first} does not end")));
        }
        for pid in found {
            // Gone already, or not ours to signal: the next look tells.
            let _ = i32::try_from(pid).map(|pid| proc::signal(pid, SIGKILL));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A record whose maker (its pid starts `rest`) was killed before it was complete: nothing had been started.
fn unfinished(runs: &Dir, name: &str, rest: &str) -> io::Result<bool> {
    let pid = rest.split('-').next().and_then(|p| p.parse::<u32>().ok());
    match pid.map(proc::start_time).transpose()?.flatten() {
        Some(_) => Ok(false),
        None => runs.remove_tree(name).map(|()| false),
    }
}
