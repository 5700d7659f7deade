//! `kill -9` of each process that has a part in a run on docker, at seeded instants: the box calls nothing more and is removed by the
//! daemon's own account, the next command finds nothing of it, and a run beside it is undisturbed. Promise 5 of the design.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/killing.rs"]
mod killing;
#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use killing::{bodies_hold, busy, draws, ended, line, next_works};
use rig::On::{Bwrap, Docker};
use rig::{IMAGE, Rig, list, processes, ran, script, signal, skipped, until};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn ready() -> bool {
    let look = Command::new("docker").args(["image", "inspect", IMAGE]).stdin(Stdio::null()).output();
    let there = look.is_ok_and(|done| done.status.success());
    if !there {
        skipped(&format!("docker_kill: no docker daemon, or it has no image {IMAGE} (make image-base)"));
    }
    there
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Children of `pid` whose command line holds `words`.
fn child(pid: u32, words: &str) -> Option<u32> {
    processes().into_iter().find(|(p, l)| parent(*p) == Some(pid) && l.contains(words)).map(|(p, _)| p)
}

/// PID 1 of the box, as the host sees it.
fn first(rig: &Rig) -> Option<u32> {
    let id = rig.containers().first()?.clone();
    let out = Command::new("docker").args(["inspect", "-f", "{{.State.Pid}}", &id]).output().unwrap().stdout;
    String::from_utf8_lossy(&out).trim().parse().ok().filter(|pid| *pid > 0 && line(*pid).contains("inside"))
}

/// A process of the run by its part in it.
fn victim(rig: &Rig, run: u32, part: &str) -> Option<u32> {
    match part {
        "run" => Some(run),
        "keeper" => child(run, "sanduk keeper"),
        "relay" => child(child(run, "sanduk keeper")?, "relay-role"),
        "cli" => child(child(run, "sanduk keeper")?, " run -d "),
        "inside" => first(rig),
        "agent" => child(first(rig)?, "/sanduk mini"),
        other => panic!("{other}"),
    }
}

/// Kills `part` at each instant while another run of another state goes on beside. Two at a time: most of it is waiting for the daemon.
fn kill_at_instants(part: &str, seed: u64) {
    if !ready() {
        return;
    }
    let beside = Rig::on(Docker, &script(&["sleep 1"; 12], "beside is done"));
    let undisturbed = beside.start(&["x"]);
    let all: Vec<(usize, u64)> = draws(seed).enumerate().collect();
    let (first, second) = all.split_at(all.len() / 2);
    std::thread::scope(|s| {
        for half in [first, second] {
            s.spawn(move || half.iter().for_each(|(n, draw)| kill_at(part, *n, *draw)));
        }
    });
    ran(undisturbed.wait_with_output().unwrap()).code(0);
    beside.assert_clean();
}

/// One kill. Even ones while things start, odd ones in the middle of calls.
fn kill_at(part: &str, n: usize, draw: u64) {
    let at = format!("{part} {n}");
    let rig = Rig::on(Docker, &busy());
    let mut run = rig.start(&["x", "--log-bodies"]);
    // The engine's command line lives for half a second: its instants are counted from its start.
    if part != "cli" {
        if n % 2 == 1 {
            until("a model call", || (!rig.bodies().is_empty()).then_some(()));
        }
        std::thread::sleep(Duration::from_millis(draw % 500));
    }
    let found = until("the process to kill", || match victim(&rig, run.id(), part) {
        Some(pid) => Some(Some(pid)),
        None => run.try_wait().unwrap().map(|_| None),
    });
    if part == "cli" {
        std::thread::sleep(Duration::from_millis(draw % 400));
    }
    let record = rig.records().first().map(|r| std::fs::read_to_string(r.join("record")).unwrap_or_default());
    let channel =
        record.unwrap_or_default().lines().find_map(|l| l.strip_prefix("channel=")).map(str::to_string);
    let pid = found.unwrap_or_else(|| panic!("{at}: the run ended before"));
    signal(pid, "KILL");
    let code = ended(&mut run, &at);
    match part {
        "run" => assert_eq!(code, None, "it was killed"),
        "agent" => assert_eq!(code, Some(1), "{at}: an agent without a result has failed"),
        // Killed when it had said the id already: the run goes on to its end.
        "cli" => assert!(matches!(code, Some(0 | 4)), "{at}: {code:?}"),
        _ => assert!(matches!(code, Some(4 | 125)), "{at}: {code:?}"),
    }
    until("the end of the box", || rig.containers().is_empty().then_some(()));
    let calls = rig.settled();
    // A sweep is the same whatever the engine of the run that begins with it; bwrap's is the shorter.
    next_works(if n == 0 { Docker } else { Bwrap }, &rig);
    assert_eq!(rig.requests(), calls, "{at}: a call after the end");
    if let Some(channel) = channel {
        assert!(!Path::new("/tmp").join(&channel).exists(), "{at}: its channel is left");
    }
    rig.assert_clean();
    bodies_hold(&rig, &at);
}

/// Keeper and run at once: only the next command can remove the box. Its dead man's switch would end it before.
#[test]
fn kill_run_and_keeper_together() {
    if !ready() {
        return;
    }
    for (n, draw) in draws(99).enumerate() {
        let rig = Rig::on(Docker, &busy());
        let mut run = rig.start(&["x"]);
        if n % 2 == 1 {
            until("a model call", || (!rig.bodies().is_empty()).then_some(()));
        }
        std::thread::sleep(Duration::from_millis(draw % 500));
        let keeper = until("the keeper", || victim(&rig, run.id(), "keeper"));
        // Stopped first, so that neither sees the other die.
        for what in ["STOP", "KILL"] {
            signal(keeper, what);
            signal(run.id(), what);
        }
        assert_eq!(ended(&mut run, "run"), None);
        // What the daemon was told before may still come into being: the sweep has to wait for it.
        next_works(Bwrap, &rig);
        rig.assert_clean();
        assert_eq!(list(&rig.state.join("sanduk/runs")).len(), 0, "{n}");
    }
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
fn kill_command_line() {
    kill_at_instants("cli", 44);
}

#[test]
fn kill_inside() {
    kill_at_instants("inside", 55);
}

#[test]
fn kill_agent() {
    kill_at_instants("agent", 66);
}
