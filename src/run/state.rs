//! What is written down about runs: `$XDG_STATE_HOME/sanduk`, mode 0700. `runs/<id>/record` stands for a run that may still have
//! something to remove; the lock on it is the truth about its owner. `receipts/<id>/` stays until the operator deletes it.
//! Called by `life`, `keeper` and `sweep`.

use crate::error::{Error, Exit};
use crate::limits;
use crate::sys::env::Env;
use crate::sys::file::{Dir, Lock};
use crate::sys::proc;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// The directory of records.
pub const RUNS: &str = "runs";
/// The directory of receipts and call logs.
pub const RECEIPTS: &str = "receipts";
/// Name of the file with a run's particulars.
pub const RECORD: &str = "record";
/// First part of the name a record's directory has until it is complete; the pid of its maker follows.
pub const NEW: &str = ".new-";

/// The state directory.
pub struct State {
    /// Where it is.
    pub path: PathBuf,
    /// `runs/`.
    pub runs: Dir,
    /// `receipts/`.
    pub receipts: Dir,
}

/// The locked record of a run that is ours. Dropped: the lock ends, and with `forget` not called the sweep finds it.
pub struct Record {
    id: String,
    file: File,
    _lock: Lock,
}

/// A record's lines; the last line of a key counts, a line that was cut short does not.
pub type Fields = BTreeMap<String, String>;

/// Opens the state directory, making it where missing. One that cannot be written stops the command before anything is started.
pub fn open(env: &Env) -> Result<State, Error> {
    let home = env.state_home.as_ref().ok_or_else(|| {
        Error::wrong("find", "the state directory", "neither XDG_STATE_HOME nor HOME is set")
            .remedy("set HOME")
    })?;
    let path = home.join("sanduk");
    let cannot = |e: io::Error| {
        Error::wrong("write to", path.display().to_string(), e)
            .remedy("make it a writable directory, no link, or set XDG_STATE_HOME to another")
    };
    #[expect(clippy::disallowed_methods, reason = "FILE-47 the state directory")]
    let dir = Dir::make_all(&path, 0o700).map_err(cannot)?;
    let sub = |name: &str| match dir.make(name, 0o700) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => dir.below(name),
        other => other,
    };
    let runs = sub(RUNS).map_err(cannot)?;
    let receipts = sub(RECEIPTS).map_err(cannot)?;
    Ok(State { path, runs, receipts })
}

impl State {
    /// Makes a record: under another name, locked, written, synced, then renamed into place, so that nobody sees it unlocked.
    pub fn create(&self, id: &str, fields: &[(&str, String)]) -> Result<Record, Error> {
        let new = format!("{NEW}{}-{id}", std::process::id());
        self.create_as(&new, id, fields).map_err(|e| {
            let _ = self.runs.remove_tree(&new);
            Error::new(Exit::Wrong, "write", self.path.join("runs").join(id).display().to_string(), e)
                .remedy("make room there, or set XDG_STATE_HOME to another directory")
        })
    }

    fn create_as(&self, new: &str, id: &str, fields: &[(&str, String)]) -> io::Result<Record> {
        let dir = self.runs.make(new, 0o700)?;
        dir.write_new(RECORD, b"", 0o600)?;
        let lock = dir.lock(RECORD)?.ok_or_else(|| io::Error::other("somebody else holds the new record"))?;
        let file = File::from(dir.append(RECORD)?);
        let mut record = Record { id: id.to_string(), file, _lock: lock };
        record.add(fields)?;
        self.runs.rename_new(new, id)?;
        Ok(record)
    }
}

impl Record {
    /// The run's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Adds lines and syncs them.
    pub fn add(&mut self, fields: &[(&str, String)]) -> io::Result<()> {
        self.file.write_all(lines(fields).as_bytes())?;
        self.file.sync_data()
    }

    /// Removes the record: nothing of the run is left.
    pub fn forget(self, runs: &Dir) -> io::Result<()> {
        runs.remove_tree(&self.id)
    }
}

/// The lines that name a process so that it cannot be taken for another: `<who>_pid`, `<who>_start`.
pub fn process(who: &str, pid: u32) -> io::Result<[(String, String); 2]> {
    let start = proc::start_time(pid)?.unwrap_or(0);
    Ok([(format!("{who}_pid"), pid.to_string()), (format!("{who}_start"), start.to_string())])
}

/// The pid written as `<who>` where that very process still lives, on this boot.
pub fn alive(fields: &Fields, who: &str) -> io::Result<Option<u32>> {
    let number = |key: String| fields.get(&key).and_then(|v| v.parse::<u64>().ok());
    let (Some(pid), Some(start)) = (number(format!("{who}_pid")), number(format!("{who}_start"))) else {
        return Ok(None);
    };
    if fields.get("boot").is_none_or(|b| proc::boot_id().map_or(true, |now| *b != now)) {
        return Ok(None);
    }
    let Ok(pid) = u32::try_from(pid) else { return Ok(None) };
    Ok(proc::start_time(pid)?.filter(|s| *s == start).map(|_| pid))
}

/// Reads a record. Total: a line without `=` or without its line end is left out.
pub fn read(dir: &Dir) -> io::Result<Fields> {
    let bytes = dir.read(RECORD, limits::RECORD_BYTES)?;
    Ok(fields(&String::from_utf8_lossy(&bytes)))
}

/// Fields as they stand in a record. A line break in a value would make a second field, so it becomes a space.
pub fn lines(fields: &[(&str, String)]) -> String {
    fields.iter().map(|(key, value)| format!("{key}={}\n", value.replace('\n', " "))).collect()
}

/// The fields of a record's text.
pub fn fields(text: &str) -> Fields {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.split('\n').filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_does_not_count_and_the_last_of_a_key_does() {
        let read = fields("kind=run\nbox_pid=1\nbox_pid=22\nbox_start=33");
        assert_eq!(read.get("box_pid").map(String::as_str), Some("22"));
        assert_eq!(read.get("box_start"), None);
        assert!(fields("").is_empty() && fields("=").is_empty() && fields("x\ny").is_empty());
    }

    /// TRAPS 11: a pid that now belongs to somebody else is not the process of the record.
    #[test]
    fn trap_11_a_reused_pid_is_nobody() {
        let me = std::process::id();
        let mut record: Fields = process("box", me).unwrap().into_iter().collect();
        record.insert("boot".into(), proc::boot_id().unwrap());
        assert_eq!(alive(&record, "box").unwrap(), Some(me));
        for (key, other) in [("box_start", "1"), ("boot", "another"), ("box_pid", "-1"), ("box_pid", "x")] {
            let mut changed = record.clone();
            changed.insert(key.into(), other.into());
            assert_eq!(alive(&changed, "box").unwrap(), None, "{key}={other}");
        }
    }
}
