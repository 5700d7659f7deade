//! `kill -9` of each of a run's processes at ten seeded instants: the box calls nothing more and is gone within seconds, the next
//! command leaves nothing of it, and a run beside it is undisturbed. Promise 5 of the design.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::{PATIENCE, Rig, list, processes, ran, script, signal, until};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Instants per process.
const TIMES: u64 = 10;

/// Parent and children of every process that is no zombie.
fn parents() -> BTreeMap<u32, u32> {
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut rest = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let alive = !matches!(rest.next()?, "Z" | "X");
        let parent = rest.next()?.parse().ok()?;
        alive.then_some((pid, parent))
    };
    list(Path::new("/proc")).iter().filter_map(|p| parent(p.file_name()?.to_str()?.parse().ok()?)).collect()
}

/// `root` and all below it, top down.
fn family(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut all: Vec<u32> = parents.contains_key(&root).then_some(root).into_iter().collect();
    let mut at = 0;
    while at < all.len() {
        let above = all[at];
        all.extend(parents.iter().filter(|(_, parent)| **parent == above).map(|(pid, _)| *pid));
        at += 1;
    }
    all
}

fn line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// A process of the run by its part in it.
fn victim(run: u32, part: &str) -> Option<u32> {
    if part == "run" {
        return Some(run);
    }
    let family = family(run);
    let has = |pid: &&u32, words: &str| line(**pid).contains(words);
    match part {
        "keeper" => family.iter().find(|p| has(p, "sanduk keeper")),
        "relay" => family.iter().find(|p| has(p, "sanduk relay-role")),
        "engine" => family.iter().find(|p| has(p, "bwrap --unshare-user")),
        "inside" => family.iter().find(|p| line(**p).starts_with("/sanduk inside")),
        "agent" => family.iter().find(|p| line(**p).starts_with("/sanduk mini")),
        other => panic!("{other}"),
    }
    .copied()
}

/// xorshift64: the same instants each time.
fn instants(seed: u64) -> impl Iterator<Item = Duration> {
    let mut x = seed | 1;
    (0..TIMES).map(move |n| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        // The first ones while things start, the last ones in the middle of calls.
        Duration::from_millis(x % (40 + n * 60))
    })
}

fn busy() -> String {
    // Calls for some seconds, each with a tool that writes to the work directory.
    let commands: Vec<String> = (0..60).map(|n| format!("echo {n} > last; sleep 0.05")).collect();
    script(&commands.iter().map(String::as_str).collect::<Vec<_>>(), "done")
}

/// Kills `part` at each instant while another run of the same state goes on beside.
fn kill_at_instants(part: &str, seed: u64) {
    let beside = Rig::new(&script(&["sleep 1"; 8], "beside is done"));
    let undisturbed = beside.start(&["x"]);
    for (n, instant) in instants(seed).enumerate() {
        let rig = Rig::new(&busy());
        let mut run = rig.start(&["x"]);
        std::thread::sleep(instant);
        // A part that is not there yet is killed as soon as it is.
        let Some(pid) = until("the process to kill", || match victim(run.id(), part) {
            Some(pid) => Some(Some(pid)),
            None => run.try_wait().unwrap().map(|_| None),
        }) else {
            panic!("{part} {n}: the run ended before")
        };
        let before = family(run.id());
        signal(pid, "KILL");
        let end = Instant::now() + PATIENCE;
        let code = loop {
            if let Some(status) = run.try_wait().unwrap() {
                break status.code();
            }
            assert!(Instant::now() < end, "{part} {n}: the run hangs");
            std::thread::sleep(Duration::from_millis(10));
        };
        // Whatever it had started, at the moment of the kill or after, is gone.
        until("the end of all its processes", || {
            let alive = parents();
            let place = rig.place.display().to_string();
            let engines = processes().iter().any(|(_, l)| l.contains(&place) && l.contains("--unshare-pid"));
            (!engines && before.iter().all(|p| !alive.contains_key(p))).then_some(())
        });
        let calls = rig.requests();
        match part {
            "run" => assert_eq!(code, None, "it was killed"),
            "agent" => assert_eq!(code, Some(1), "{n}: an agent without a result has failed"),
            _ => assert!(matches!(code, Some(4 | 125)), "{part} {n}: {code:?}"),
        }
        // The next command removes what is left, and works.
        let text = script(&[], "next");
        let next = Rig::new(&text);
        let mut command = next.command(&["x"]);
        command.env("XDG_STATE_HOME", &rig.state);
        ran(command.output().unwrap()).code(0);
        assert_eq!(rig.requests(), calls, "{part} {n}: a call after the end");
        rig.assert_clean();
    }
    ran(undisturbed.wait_with_output().unwrap()).code(0);
    beside.assert_clean();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    for channel in channels_of_nobody() {
        assert!(!sockets.contains(&channel), "a socket is left in {channel}");
    }
}

/// Channel directories whose engine is dead: none of this test's runs, which have all ended.
fn channels_of_nobody() -> Vec<String> {
    let lines: Vec<String> = processes().into_iter().map(|(_, l)| l).collect();
    let all = list(Path::new("/tmp")).into_iter().map(|p| p.display().to_string());
    all.filter(|p| p.starts_with("/tmp/sbx-") && !lines.iter().any(|l| l.contains(p))).collect()
}

#[test]
fn kill_run() {
    kill_at_instants("run", 11);
}

#[test]
fn kill_keeper() {
    kill_at_instants("keeper", 22);
}

#[test]
fn kill_relay() {
    kill_at_instants("relay", 33);
}

#[test]
fn kill_engine() {
    kill_at_instants("engine", 44);
}

#[test]
fn kill_inside() {
    kill_at_instants("inside", 55);
}

#[test]
fn kill_agent() {
    kill_at_instants("agent", 66);
}
