//! `kill -9` of each process that has a part in a run on docker, at seeded instants: the box calls nothing more and is removed by the
//! daemon's own account, the next command finds nothing of it, and a run beside it is undisturbed. Promise 5 of the design.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::On::Docker;
use rig::{IMAGE, PATIENCE, Rig, list, processes, ran, script, signal, until};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Instants per process.
const TIMES: u64 = 5;

fn ready() -> bool {
    let look = Command::new("docker").args(["image", "inspect", IMAGE]).stdin(Stdio::null()).output();
    let there = look.is_ok_and(|done| done.status.success());
    if !there {
        #[expect(clippy::disallowed_macros, reason = "tests")]
        let () = eprintln!("docker: no daemon, or it has no image {IMAGE}: this test is left out");
    }
    there
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
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

/// xorshift64: the same instants each time.
fn instants(seed: u64) -> impl Iterator<Item = Duration> {
    let mut x = seed | 1;
    (0..TIMES).map(move |n| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        // The first ones while things start, the last ones in the middle of calls.
        Duration::from_millis(x % (60 + n * 350))
    })
}

fn busy() -> String {
    let commands: Vec<String> = (0..60).map(|n| format!("echo {n} > last; sleep 0.05")).collect();
    script(&commands.iter().map(String::as_str).collect::<Vec<_>>(), "done")
}

#[track_caller]
fn ended(run: &mut Child, what: &str) -> Option<i32> {
    let end = Instant::now() + PATIENCE * 2;
    loop {
        if let Some(status) = run.try_wait().unwrap() {
            return status.code();
        }
        assert!(Instant::now() < end, "{what}: the run hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills `part` at each instant while another run of another state goes on beside.
fn kill_at_instants(part: &str, seed: u64) {
    if !ready() {
        return;
    }
    let beside = Rig::on(Docker, &script(&["sleep 1"; 12], "beside is done"));
    let undisturbed = beside.start(&["x"]);
    for (n, instant) in instants(seed).enumerate() {
        let rig = Rig::on(Docker, &busy());
        let mut run = rig.start(&["x"]);
        // The command line lives for half a second: its instants are counted from its start.
        if part != "cli" {
            std::thread::sleep(instant);
        }
        let found = until("the process to kill", || match victim(&rig, run.id(), part) {
            Some(pid) => Some(Some(pid)),
            None => run.try_wait().unwrap().map(|_| None),
        });
        if part == "cli" {
            std::thread::sleep(Duration::from_millis(u64::try_from(instant.as_millis()).unwrap() % 400));
        }
        let record =
            rig.records().first().map(|r| std::fs::read_to_string(r.join("record")).unwrap_or_default());
        let record = record.unwrap_or_default();
        let channel = record.lines().find_map(|l| l.strip_prefix("channel=")).map(str::to_string);
        let pid = found.unwrap_or_else(|| panic!("{part} {n}: the run ended before"));
        signal(pid, "KILL");
        let code = ended(&mut run, &format!("{part} {n}"));
        match part {
            "run" => assert_eq!(code, None, "it was killed"),
            "agent" => assert_eq!(code, Some(1), "{n}: an agent without a result has failed"),
            // Killed when it had said the id already: the run goes on to its end.
            "cli" => assert!(matches!(code, Some(0 | 4)), "{n}: {code:?}"),
            _ => assert!(matches!(code, Some(4 | 125)), "{part} {n}: {code:?}"),
        }
        until("the end of the box", || rig.containers().is_empty().then_some(()));
        let calls = rig.settled();
        let next = Rig::on(Docker, &script(&[], "next"));
        let mut command = next.command(&["x"]);
        command.env("XDG_STATE_HOME", &rig.state);
        ran(command.output().unwrap()).code(0);
        assert_eq!(rig.requests(), calls, "{part} {n}: a call after the end");
        if let Some(channel) = channel {
            assert!(!Path::new("/tmp").join(&channel).exists(), "{part} {n}: its channel is left");
        }
        rig.assert_clean();
    }
    ran(undisturbed.wait_with_output().unwrap()).code(0);
    beside.assert_clean();
}

/// Keeper and run at once: only the next command can remove the box. Its dead man's switch would end it before.
#[test]
fn kill_run_and_keeper_together() {
    if !ready() {
        return;
    }
    for (n, instant) in instants(99).enumerate() {
        let rig = Rig::on(Docker, &busy());
        let mut run = rig.start(&["x"]);
        std::thread::sleep(instant);
        let keeper = until("the keeper", || victim(&rig, run.id(), "keeper"));
        // Stopped first, so that neither sees the other die.
        for what in ["STOP", "KILL"] {
            signal(keeper, what);
            signal(run.id(), what);
        }
        assert_eq!(ended(&mut run, "run"), None);
        // What the daemon was told before may still come into being: the sweep has to wait for it.
        let next = Rig::on(Docker, &script(&[], "next"));
        let mut command = next.command(&["x"]);
        command.env("XDG_STATE_HOME", &rig.state);
        ran(command.output().unwrap()).code(0);
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
