//! What the tests that kill parts of a run have in common: when, whom, and what has to be true afterwards.

use crate::rig::{On, PATIENCE, Rig, list, ran, script};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Instants per process.
pub const TIMES: u64 = 10;

/// xorshift64: the same numbers each time, `TIMES` of them.
pub fn draws(seed: u64) -> impl Iterator<Item = u64> {
    let mut x = seed | 1;
    (0..TIMES).map(move |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    })
}

/// A script that calls for some seconds, each call with a tool that writes to the work directory.
pub fn busy() -> String {
    let commands: Vec<String> = (0..60).map(|n| format!("echo {n} > last; sleep 0.05")).collect();
    script(&commands.iter().map(String::as_str).collect::<Vec<_>>(), "done")
}

/// The command line of a process, its arguments with a blank after each.
pub fn line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Waits for the end of a run: its exit code, none where a signal ended it.
#[track_caller]
pub fn ended(run: &mut Child, what: &str) -> Option<i32> {
    let end = Instant::now() + PATIENCE * 2;
    loop {
        if let Some(status) = run.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < end, "{what}: the run hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The next command on the state of `rig`: it removes what is left there, and works.
#[track_caller]
pub fn next_works(on: On, rig: &Rig) {
    let next = Rig::on(on, &script(&[], "next"));
    let mut command = next.command(&["x"]);
    command.env("XDG_STATE_HOME", &rig.state);
    ran(command.output().unwrap()).code(0);
}

/// What a run with `--log-bodies` left: the log holds, with every body that it names; a file with a name is what its name says.
#[track_caller]
pub fn bodies_hold(rig: &Rig, what: &str) {
    // The next command has a directory of its own in the same state.
    for kept in list(&rig.state.join("sanduk/receipts")) {
        let log = kept.join("calls.jsonl");
        // Killed before the relay's first line: there is nothing that could hold.
        if std::fs::metadata(&log).map_or(0, |log| log.len()) == 0 {
            continue;
        }
        let found = sanduk::prove::verify::verify(&log, None, None).unwrap();
        assert!(found.holds, "{what}: {found:?}");
        for path in list(&kept.join("bodies")) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let Some(digest) = name.strip_suffix(".gz") else {
                assert!(name.starts_with(".new-"), "{what}: {name}");
                continue;
            };
            let out = Command::new("gzip").args(["-dc"]).arg(&path).output().unwrap();
            assert!(out.status.success(), "{what}: {name} is cut");
            assert_eq!(sanduk::wire::digest::sha256_hex(&out.stdout), digest, "{what}");
        }
    }
}
