//! `store/open`: what is committed stays and what is not leaves no trace, also after `kill -9`; files are ours alone.
#![expect(clippy::disallowed_methods, reason = "tests")]

use rusqlite::Connection;
use sanduk::store::open::{migrate, open, transaction};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const STEPS: [&str; 2] = [
    "CREATE TABLE a (n INTEGER PRIMARY KEY)",
    "CREATE TABLE b (n INTEGER PRIMARY KEY REFERENCES a (n)); INSERT INTO a VALUES (0); INSERT INTO b VALUES (0)",
];
const INNER: &str = "SANDUK_TEST_DB";

/// A directory of one test, gone afterwards.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Place {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn db(&self) -> PathBuf {
        self.0.join("state/x.db")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn count(conn: &Connection, table: &str) -> i64 {
    conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0)).unwrap()
}

fn add_pair(conn: &mut Connection, n: i64) -> rusqlite::Result<()> {
    transaction(conn, |tx| {
        tx.execute("INSERT INTO a VALUES (?1)", [n])?;
        tx.execute("INSERT INTO b VALUES (?1)", [n])?;
        Ok(())
    })
}

/// Runs a test of this file again, in a process that can be killed.
fn again(test: &str, db: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INNER, db)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn say(line: &str) {
    std::io::stdout().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

#[test]
fn settings_and_modes() {
    let place = Place::new("modes");
    let mut conn = open(&place.db()).unwrap();
    migrate(&mut conn, &STEPS).unwrap();
    let ask = |name: &str| {
        conn.query_row(&format!("PRAGMA {name}"), [], |r| r.get::<_, rusqlite::types::Value>(0)).unwrap()
    };
    assert_eq!(ask("journal_mode"), "wal".to_string().into());
    for (name, value) in
        [("synchronous", 2), ("foreign_keys", 1), ("trusted_schema", 0), ("busy_timeout", 10_000)]
    {
        assert_eq!(ask(name), value.into(), "{name}");
    }
    assert_eq!(mode(&place.0.join("state")), 0o700);
    for name in ["x.db", "x.db-wal", "x.db-shm"] {
        assert_eq!(mode(&place.0.join("state").join(name)), 0o600, "{name}");
    }
    assert!(conn.execute("INSERT INTO b VALUES (99)", []).is_err(), "foreign keys hold");
}

#[test]
fn links_and_open_places_are_refused() {
    let place = Place::new("links");
    for odd in ["x.db", "file:/tmp/x.db?mode=memory", "", "/"] {
        assert!(open(Path::new(odd)).is_err(), "{odd:?}");
    }
    let state = place.0.join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o750)).unwrap();
    let why = open(&place.db()).unwrap_err().to_string();
    assert!(why.contains("open to other users; run chmod 700 "), "{why}");
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
    let elsewhere = place.0.join("elsewhere");
    std::fs::write(&elsewhere, b"").unwrap();
    std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink(&elsewhere, place.db()).unwrap();
    assert!(open(&place.db()).is_err());
    std::fs::remove_file(place.db()).unwrap();
    std::fs::hard_link(&elsewhere, place.db()).unwrap();
    assert!(open(&place.db()).is_err());
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"", "untouched");
    std::fs::remove_file(place.db()).unwrap();
    std::fs::write(place.db(), b"").unwrap();
    std::fs::set_permissions(place.db(), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(open(&place.db()).is_err());
    std::fs::set_permissions(place.db(), std::fs::Permissions::from_mode(0o600)).unwrap();
    open(&place.db()).unwrap();
}

#[test]
fn migrations_run_once_each_and_in_order() {
    let place = Place::new("steps");
    let version = |c: &Connection| c.query_row("PRAGMA user_version", [], |r| r.get::<_, i64>(0)).unwrap();
    let mut conn = open(&place.db()).unwrap();
    migrate(&mut conn, &STEPS[..1]).unwrap();
    assert_eq!(version(&conn), 1);
    migrate(&mut conn, &STEPS).unwrap();
    migrate(&mut conn, &STEPS).unwrap();
    assert_eq!((version(&conn), count(&conn, "b")), (2, 1));
    // A step that fails half-way leaves nothing of itself.
    let broken = [STEPS[0], STEPS[1], "CREATE TABLE c (n); INSERT INTO nowhere VALUES (1)"];
    assert!(migrate(&mut conn, &broken).is_err());
    assert_eq!(version(&conn), 2);
    assert!(conn.query_row("SELECT 1 FROM c", [], |_| Ok(())).is_err());
}

#[test]
fn a_newer_database_is_refused() {
    let place = Place::new("newer");
    let mut conn = open(&place.db()).unwrap();
    migrate(&mut conn, &STEPS).unwrap();
    let why = migrate(&mut conn, &STEPS[..1]).unwrap_err().to_string();
    assert!(why.contains("version 2, this program knows up to 1; use the newer sanduk"), "{why}");
    conn.pragma_update(None, "user_version", -1).unwrap();
    assert!(migrate(&mut conn, &STEPS).is_err());
}

#[test]
fn an_error_or_a_panic_rolls_back() {
    let place = Place::new("rollback");
    let mut conn = open(&place.db()).unwrap();
    migrate(&mut conn, &STEPS).unwrap();
    add_pair(&mut conn, 1).unwrap();
    assert!(add_pair(&mut conn, 1).is_err());
    let failed: rusqlite::Result<()> = transaction(&mut conn, |tx| {
        tx.execute("INSERT INTO a VALUES (2)", [])?;
        Err(rusqlite::Error::QueryReturnedNoRows)
    });
    assert!(failed.is_err());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        transaction(&mut conn, |tx| -> rusqlite::Result<()> {
            tx.execute("INSERT INTO a VALUES (3)", [])?;
            panic!("on purpose")
        })
    }));
    assert!(caught.is_err());
    assert_eq!((count(&conn, "a"), count(&conn, "b")), (2, 2));
}

/// Two writers take turns instead of failing.
#[test]
fn a_second_writer_waits() {
    let place = Place::new("turns");
    let db = place.db();
    migrate(&mut open(&db).unwrap(), &STEPS).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let db = db.clone();
            std::thread::spawn(move || {
                let mut conn = open(&db).unwrap();
                (0..25).for_each(|i| add_pair(&mut conn, 1 + t * 25 + i).unwrap());
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(count(&open(&db).unwrap(), "b"), 101);
}

/// kill -9 between the two halves of a transaction.
#[test]
fn killed_inside_a_transaction() {
    if let Some(db) = std::env::var_os(INNER) {
        let mut conn = open(Path::new(&db)).unwrap();
        migrate(&mut conn, &STEPS).unwrap();
        add_pair(&mut conn, 1).unwrap();
        let _ = transaction(&mut conn, |tx| {
            // More than SQLite's page cache holds, so that half of it is in the WAL file already.
            tx.execute("WITH RECURSIVE c(n) AS (SELECT 2 UNION ALL SELECT n+1 FROM c LIMIT 400000) INSERT INTO a SELECT n FROM c", [])?;
            say("half");
            let _ = std::io::stdin().read(&mut [0]);
            Ok(())
        });
        return;
    }
    let place = Place::new("half");
    let mut child = again("killed_inside_a_transaction", &place.db());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap() == "half"));
    assert!(
        std::fs::metadata(place.0.join("state/x.db-wal")).unwrap().len() > 1_000_000,
        "half of it was written"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let mut conn = open(&place.db()).unwrap();
    migrate(&mut conn, &STEPS).unwrap();
    assert_eq!((count(&conn, "a"), count(&conn, "b")), (2, 2));
    add_pair(&mut conn, 2).unwrap();
}

/// kill -9 at ten instants of a writer that says each commit: what was said is there, nothing is half there.
#[test]
fn killed_at_any_instant() {
    if let Some(db) = std::env::var_os(INNER) {
        let mut conn = open(Path::new(&db)).unwrap();
        migrate(&mut conn, &STEPS).unwrap();
        let first = count(&conn, "a");
        for n in first.. {
            add_pair(&mut conn, n).unwrap();
            say(&format!("did {n}"));
        }
    }
    let place = Place::new("instant");
    let mut said = 0;
    for kill_after in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
        let mut child = again("killed_at_any_instant", &place.db());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut did = lines.filter_map(|l| l.strip_prefix("did ").and_then(|n| n.parse::<i64>().ok()));
        said = did.nth(kill_after - 1).unwrap().max(said);
        child.kill().unwrap();
        said = did.last().unwrap_or(said);
        child.wait().unwrap();
        let conn = open(&place.db()).unwrap();
        let (a, b) = (count(&conn, "a"), count(&conn, "b"));
        assert!(a == b && a > said, "a {a}, b {b}, said {said}");
        let sound: String = conn.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }
}
