//! Whole runs, mini in a sealed box on bwrap, whose record cannot be written any more while the agent works: the call is refused before
//! a byte of it goes upstream, and the run ends and says why. What the relay by itself does then stands in `tests/relay/{role,unsynced}.rs`;
//! a disk that is full from the beginning in `tests/run.rs`.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::{Rig, family, ran, root, script, skipped, until};
use sanduk::prove::verify;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// So many calls, each with a small tool.
fn calls(n: usize) -> String {
    script(&vec!["true"; n], "done")
}

/// The run's own directory below `dir`.
fn of_the_run(dir: &Path) -> PathBuf {
    let all = rig::list(dir);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// The log without what a full disk has cut off, beside its bodies.
fn whole_lines(kept: &Path) -> PathBuf {
    let log = std::fs::read(kept.join("calls.jsonl")).unwrap();
    let end = log.iter().rposition(|b| *b == b'\n').unwrap() + 1;
    std::fs::write(kept.join("whole"), &log[..end]).unwrap();
    kept.join("whole")
}

/// The disk under the log fills up: a file system of 64 KiB in a mount namespace of the run's own, copied out of it at the end.
#[test]
fn a_disk_that_fills_up_under_a_run() {
    if !root() {
        return skipped("a disk that fills up under a run: only root can mount a small one");
    }
    for (size, more) in [("16k", &[][..]), ("64k", &["--log-bodies"])] {
        let rig = Rig::new(&calls(90));
        std::fs::create_dir(rig.place.join("logs")).unwrap();
        let plain = rig.command(&[&["x", "--log-dir", "logs"], more].concat());
        let scene = "mount -t tmpfs -o size=$0 sanduk-test logs || exit 99; \"$@\"; code=$?; cp -r logs out; exit $code";
        let mut apart = Command::new("unshare");
        apart.args(["--mount", "/bin/sh", "-c", scene, size]).arg(plain.get_program()).args(plain.get_args());
        apart.env_clear().envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let done = ran(apart.current_dir(&rig.place).stdin(Stdio::null()).output().unwrap());
        // With bodies either may be what does not fit.
        let done = done.code(3).says("No space left on device").says("sanduk: the relay ended the run: ");
        let kept = of_the_run(&rig.place.join("out"));
        let found = verify::verify(&whole_lines(&kept), None, Some(&kept.join("bodies"))).unwrap();
        assert!(found.holds && found.calls > 1, "{found:?}");
        // The provider got nothing that is not recorded.
        assert!(rig.bodies().len() as u64 <= found.calls, "{} {found:?}", rig.bodies().len());
        // A receipt that does not fit is said, and is not there; the run's end keeps its own code.
        let there = kept.join("receipt.json").exists();
        let said = (done.err.contains("receipt -> "), done.err.contains("receipt.json: No space left"));
        assert_eq!(said, (there, !there), "{}", done.err);
        rig.assert_clean();
    }
}

/// A sync that fails, as on a broken disk: strace gets hold of the relay while the agent works, and lets its next one return EIO.
#[test]
fn a_sync_that_fails_under_a_run() {
    if !root() || !Path::new("/usr/bin/strace").exists() {
        return skipped("a sync that fails under a run: it takes root and strace");
    }
    for (call, more, why) in [
        ("fdatasync", &[][..], "the record of calls cannot be written"),
        ("fsync", &["--log-bodies"], "a body cannot be kept"),
    ] {
        let rig = Rig::new(&script(&["touch here; until [ -e go ]; do sleep 0.05; done"], "done"));
        let run = rig.start(&[&["x", "--log-dir", "logs"], more].concat());
        until("the box", || rig.work.join("here").exists().then_some(()));
        let is = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("\0relay-role")
        };
        let relay = family(run.id()).into_iter().map(|(pid, _)| pid).find(is).unwrap();
        let mut strace = Command::new("/usr/bin/strace");
        strace.args(["-f", "-o", "/dev/null", "-p", &relay.to_string(), "-e", &format!("trace={call}")]);
        // What is made in its place is a call that the relay's filter lets pass.
        strace.args(["-e", &format!("inject={call}:error=EIO:syscall=gettid")]);
        let mut strace = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(strace.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(" attached") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "strace ended");
        }
        let before = rig.bodies().len();
        rig.write("go", "");
        let done = ran(run.wait_with_output().unwrap());
        let _ = strace.kill();
        let _ = strace.wait();
        done.code(3).says(why).says("os error 5");
        assert_eq!((before, rig.bodies().len()), (1, 1), "a byte went upstream");
        let kept = of_the_run(&rig.place.join("logs"));
        let found =
            verify::verify(&kept.join("calls.jsonl"), Some(&kept.join("receipt.json")), None).unwrap();
        assert!(found.holds, "{found:?}");
        let receipt: serde_json::Value =
            serde_json::from_slice(&std::fs::read(kept.join("receipt.json")).unwrap()).unwrap();
        assert_eq!((&receipt["exit"], &receipt["usage"]["uncounted"]), (&3.into(), &0.into()));
        rig.assert_clean();
    }
}
