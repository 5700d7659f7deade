//! `kill -9` of each of a run's processes at ten seeded instants: the box calls nothing more and is gone within seconds, the next
//! command leaves nothing of it, and a run beside it is undisturbed. Promise 5 of the design.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/killing.rs"]
mod killing;
#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use killing::{bodies_hold, busy, draws, ended, line, next_works};
use rig::On::Bwrap;
use rig::{PATIENCE, Rig, family, list, living, processes, ran, script, signal, until};
use std::path::Path;
use std::time::{Duration, Instant};

/// A process of the run by its part in it.
fn victim(run: u32, part: &str) -> Option<u32> {
    if part == "run" {
        return Some(run);
    }
    let family = family(run);
    let is = |line: String| match part {
        "keeper" => line.contains("sanduk keeper"),
        "relay" => line.contains("sanduk relay-role"),
        "engine" => line.contains("bwrap --unshare-user"),
        "inside" => line.starts_with("/sanduk inside"),
        "agent" => line.starts_with("/sanduk mini"),
        other => panic!("{other}"),
    };
    family.into_iter().map(|(pid, _)| pid).find(|pid| is(line(*pid)))
}

/// Kills `part` at each instant while another run of the same state goes on beside.
fn kill_at_instants(part: &str, seed: u64) {
    let beside = Rig::new(&script(&["sleep 1"; 8], "beside is done"));
    let undisturbed = beside.start(&["x"]);
    for (n, draw) in (0u64..).zip(draws(seed)) {
        let rig = Rig::new(&busy());
        let mut run = rig.start(&["x", "--log-bodies"]);
        // The first ones while things start, the last ones in the middle of calls.
        std::thread::sleep(Duration::from_millis(draw % (40 + n * 60)));
        // A part that is not there yet is killed as soon as it is.
        let Some(pid) = until("the process to kill", || match victim(run.id(), part) {
            Some(pid) => Some(Some(pid)),
            None => run.try_wait().unwrap().map(|_| None),
        }) else {
            panic!("{part} {n}: the run ended before")
        };
        let before = family(run.id());
        signal(pid, "KILL");
        let code = ended(&mut run, &format!("{part} {n}"));
        // Whatever it had started, at the moment of the kill or after, is gone.
        let place = rig.place.display().to_string();
        let left = || -> Vec<String> {
            let living = living();
            let alive = |(pid, start): &&(u32, u64)| living.get(pid).is_some_and(|(_, s)| s == start);
            let known = before.iter().filter(alive).map(|(p, _)| format!("{p} {}", line(*p)));
            let engine = |l: &String| l.contains(&place) && l.contains("--unshare-pid");
            known
                .chain(processes().into_iter().filter(|(_, l)| engine(l)).map(|(p, l)| format!("{p} {l}")))
                .collect()
        };
        let end = Instant::now() + PATIENCE;
        while !left().is_empty() {
            assert!(Instant::now() < end, "{part} {n}: alive after the end: {:#?}", left());
            std::thread::sleep(Duration::from_millis(5));
        }
        let calls = rig.settled();
        match part {
            "run" => assert_eq!(code, None, "it was killed"),
            "agent" => assert_eq!(code, Some(1), "{n}: an agent without a result has failed"),
            _ => assert!(matches!(code, Some(4 | 125)), "{part} {n}: {code:?}"),
        }
        // The next command removes what is left, and works.
        next_works(Bwrap, &rig);
        assert_eq!(rig.requests(), calls, "{part} {n}: a call after the end");
        rig.assert_clean();
        bodies_hold(&rig, &format!("{part} {n}"));
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
