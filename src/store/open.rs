//! The one door to SQLite: opens a database of ours with the settings that make a commit last, brings its schema up to date, runs one
//! transaction. Never follows a link, never opens what others can read. Called by `assist/db` and `orch/db`.

use crate::error::{Error, Exit};
use crate::limits;
use crate::sys::{file, proc};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use std::fmt::Display;
use std::path::Path;

/// Opens `path`, making it (0600) and its directory (0700) where missing. WAL with `synchronous=FULL`: what was committed survives
/// `kill -9` and loss of power (https://www.sqlite.org/pragma.html#pragma_synchronous).
pub fn open(path: &Path) -> Result<Connection, Error> {
    let failed =
        |why: &dyn Display| Error::new(Exit::Failed, "open the database", path.display().to_string(), why);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(failed(&"not a file's path"));
    };
    // The bundled SQLite takes a name that starts with "file:" for a URI with options; an absolute path cannot.
    if !path.is_absolute() {
        return Err(failed(&"not an absolute path"));
    }
    #[expect(clippy::disallowed_methods, reason = "FILE-19 directory of a database, made 0700")]
    let dir = file::Dir::make_all(parent, 0o700).map_err(|e| failed(&e))?;
    let (uid, _) = proc::ids();
    #[expect(clippy::disallowed_methods, reason = "FILE-18 owner and mode of a database's directory")]
    let here = file::facts(parent).map_err(|e| failed(&e))?;
    if here.uid != uid || here.mode & 0o077 != 0 {
        let chmod = format!("run chmod 700 {}", parent.display());
        return Err(failed(&"its directory is open to other users").remedy(chmod));
    }
    // Made by us before SQLite sees it, so that its mode is ours and a link is refused. -wal and -shm take its mode over.
    drop(dir.append(name).map_err(|e| failed(&e))?);
    let found = dir.facts(name).map_err(|e| failed(&e))?;
    if found.uid != uid || found.mode & 0o177_777 != 0o100_600 || found.links != 1 {
        return Err(failed(&"not a file that only we can read"));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    #[expect(clippy::disallowed_methods, reason = "SQL-01 the databases of assistants and tasks")]
    let conn = Connection::open_with_flags(path, flags).map_err(|e| failed(&e))?;
    let mode = settings(&conn).map_err(|e| failed(&e))?;
    if mode != "wal" {
        return Err(failed(&format!("its file system cannot share memory (journal mode {mode})"))
            .remedy("use a local disk"));
    }
    Ok(conn)
}

/// Returns the journal mode that SQLite could get.
fn settings(conn: &Connection) -> rusqlite::Result<String> {
    conn.busy_timeout(limits::DB_BUSY_TIME)?;
    let mode = conn.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    conn.execute_batch("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF")?;
    Ok(mode)
}

/// Applies the steps that this database has not had yet, each in a transaction of its own. `user_version` counts them; one that is
/// higher than `steps` was written by a newer program and is refused.
pub fn migrate(conn: &mut Connection, steps: &[&str]) -> Result<(), Error> {
    let failed = |why: &dyn Display| Error::new(Exit::Failed, "bring the database up to date", "", why);
    loop {
        let done = transaction(conn, |tx| {
            // Read inside the transaction: another process may be at the same step.
            let version: i64 = tx.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            let step = usize::try_from(version).ok().and_then(|v| steps.get(v));
            if let Some(step) = step {
                tx.execute_batch(step)?;
                tx.pragma_update(None, "user_version", version.saturating_add(1))?;
            }
            Ok((version, step.is_none()))
        });
        match done.map_err(|e| failed(&e))? {
            (_, false) => {}
            (version, true) if usize::try_from(version).is_ok_and(|v| v == steps.len()) => return Ok(()),
            (version, true) => {
                let why =
                    format!("its schema is version {version}, this program knows up to {}", steps.len());
                return Err(failed(&why).remedy("use the newer sanduk"));
            }
        }
    }
}

/// Runs `work` in one transaction that takes the write lock at its start (so that it cannot fail half-way for lack of it), and commits.
/// An error or a panic rolls all of it back.
pub fn transaction<T>(
    conn: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let value = work(&tx)?;
    tx.commit()?;
    Ok(value)
}
