//! The docker daemon itself told to end, killed and hung in the middle of a sealed run: never this machine's, but one of the test's
//! own, in namespaces of its own for mounts, network and processes, so that nothing of it can outlive or reach beyond the test. Root only.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::{Ran, Rig, docker, list, processes, ran, root, script, signal, skipped, until};
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set in the process that is in the namespaces.
const INSIDE: &str = "SANDUK_TEST_OWN_DAEMON";
/// unshare(1): namespaces for mounts, network and processes, which end with it.
const APART: [&str; 6] = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// An image of one empty directory: what a box of mini needs is mounted into it.
const IMAGE: &str = "nothing:1";

/// Runs this very test again where a daemon of its own can live, and there `body`.
fn apart(name: &str, body: impl FnOnce(&mut Daemon)) {
    if std::env::var_os(INSIDE).is_some() {
        own_places();
        must("ip", &["link", "set", "lo", "up"]);
        let mut daemon = Daemon { process: None };
        daemon.start();
        daemon.image();
        return body(&mut daemon);
    }
    let there = |program: &str| {
        ["/usr/bin", "/usr/sbin", "/sbin"].iter().any(|d| Path::new(d).join(program).exists())
    };
    if let Some(missing) = ["dockerd", "docker", "unshare", "ip"].into_iter().find(|p| !there(p)) {
        return skipped(&format!("{name}: there is no {missing}"));
    }
    if !root() {
        return skipped(&format!("{name}: only root can have a daemon of its own"));
    }
    let works = |program: &str, args: &[&str]| {
        Command::new(program).args(args).stdin(Stdio::null()).output().is_ok_and(|done| done.status.success())
    };
    // Where this machine's own does not run, another would not either.
    if !works("docker", &["version"]) {
        return skipped(&format!("{name}: no docker daemon runs here"));
    }
    if !works("unshare", &[&APART[..], &["mount", "-t", "tmpfs", "tmpfs", "/run"]].concat()) {
        return skipped(&format!("{name}: no namespaces can be made here"));
    }
    // The shell is the namespace's first process, and collects what dies in it.
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(APART).args(["sh", "-c", "\"$@\"; exit $?", "sh"]).arg(own);
    command.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").stdin(Stdio::null());
    let done = ran(command.output().unwrap());
    assert_eq!(done.code, Some(0), "{}\n{}", done.out, done.err);
    assert!(done.out.contains("1 passed"), "{name} is no test: {}", done.out);
}

/// Covers what a daemon or a run would share with others; gone with the namespace. The program stays where it is, in /tmp too.
fn own_places() {
    let program = Path::new(env!("CARGO_BIN_EXE_sanduk")).parent().unwrap().to_str().unwrap();
    must("mount", &["-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/run"]);
    must("mkdir", &["/run/program"]);
    must("mount", &["--bind", program, "/run/program"]);
    must("mount", &["-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp"]);
    must("mkdir", &["-p", program]);
    must("mount", &["--bind", "/run/program", program]);
}

fn must(program: &str, args: &[&str]) {
    let done = ran(Command::new(program).args(args).stdin(Stdio::null()).output().unwrap());
    assert_eq!(done.code, Some(0), "{program} {args:?}: {}", done.err);
}

/// Where docker's command line looks for it, too: `/run` is the test's own.
const SOCKET: &str = "/run/docker.sock";

struct Daemon {
    process: Option<Child>,
}

impl Daemon {
    /// Starts it and waits until it answers.
    fn start(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open("/run/dockerd.log").unwrap();
        let mut command = Command::new("dockerd");
        command.args([
            "--data-root",
            "/run/docker-data",
            "--exec-root",
            "/run/docker",
            "-H",
            &format!("unix://{SOCKET}"),
        ]);
        command.args([
            "--pidfile",
            "/run/docker.pid",
            "--bridge",
            "none",
            "--iptables=false",
            "--ip6tables=false",
        ]);
        let command = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        until("the daemon", || {
            let exited = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(exited.is_none(), "{exited:?}: {}", std::fs::read_to_string("/run/dockerd.log").unwrap());
            ran(Command::new("docker").arg("version").output().unwrap()).code.filter(|c| *c == 0)
        });
    }

    fn image(&self) {
        must("mkdir", &["/tmp/nothing"]);
        must("tar", &["-C", "/tmp", "-cf", "/tmp/nothing.tar", "nothing"]);
        docker(&["import", "/tmp/nothing.tar", IMAGE]);
    }

    fn signal(&self, name: &str) {
        signal(self.process.as_ref().unwrap().id(), name);
    }

    /// It and its containerd, at once.
    fn kill(&mut self) {
        let containerd = std::fs::read_to_string("/run/docker/containerd/containerd.pid").unwrap();
        self.signal("KILL");
        signal(containerd.trim().parse().unwrap(), "KILL");
        self.ended();
    }

    fn ended(&mut self) {
        let mut process = self.process.take().unwrap();
        until("the daemon's end", || process.try_wait().unwrap());
    }
}

/// A run whose first model call takes `time`, at the moment when the provider has got it.
fn in_mid_call(time: Duration) -> (Rig, Child) {
    let reply = json!({"first_ms": u64::try_from(time.as_millis()).unwrap(), "text": "all done"});
    let script = json!({"order": "turn", "end": "last", "replies": [reply]}).to_string();
    let rig = Rig::with(&script, &["--runtime", "docker", "--image", IMAGE]);
    let run = rig.start(&["x"]);
    until("a model call", || (!rig.bodies().is_empty()).then_some(()));
    (rig, run)
}

#[track_caller]
fn end(run: Child) -> Ran {
    ran(run.wait_with_output().unwrap())
}

/// The next command of the same state works, and after it nothing of any run is left, here or with the daemon.
#[track_caller]
fn next_leaves_nothing(rig: &Rig) -> Ran {
    let next = Rig::with(&script(&[], "next"), &["--runtime", "docker", "--image", IMAGE]);
    let mut command = next.command(&["x"]);
    command.env("XDG_STATE_HOME", &rig.state);
    let done = ran(command.output().unwrap()).code(0);
    nothing_left(rig);
    done
}

#[track_caller]
fn nothing_left(rig: &Rig) {
    rig.assert_clean();
    assert_eq!(docker(&["ps", "-aq"]), "", "containers");
    let channels =
        list(Path::new("/tmp")).into_iter().filter(|p| p.display().to_string().starts_with("/tmp/sbx-"));
    assert_eq!(channels.count(), 0, "channels");
    let ours: Vec<_> = processes()
        .into_iter()
        .filter(|(_, l)| l.contains("sanduk keeper") || l.contains("relay-role"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

/// Told to end, a daemon stops its containers: the run is over at once, says that it cannot know, and leaves the rest to the next.
#[test]
fn daemon_told_to_end_in_mid_call() {
    apart("daemon_told_to_end_in_mid_call", |daemon| {
        let (rig, run) = in_mid_call(Duration::from_secs(60));
        daemon.signal("TERM");
        let done = end(run).code(125).says("the engine does not answer (Cannot connect to the Docker daemon");
        assert!(!done.err.contains("ended by itself"), "nobody knows: {}", done.err);
        let receipt = rig.receipt();
        assert_eq!((&receipt["exit"], &receipt["ending"]), (&json!(125), &json!("lost")), "{receipt}");
        done.says("the next command tries again");
        assert_eq!(rig.records().len(), 1, "the record of what could not be removed");
        daemon.ended();
        // Without a daemon the next command can neither work nor sweep, and drops nothing.
        let next = rig.run(&["x"]).code(4).says("the daemon does not answer");
        assert!(next.err.contains("cannot remove what the dead run"), "{}", next.err);
        assert_eq!(rig.records().len(), 1);
        daemon.start();
        assert_eq!(docker(&["ps", "-q"]), "", "the box runs without its run");
        next_leaves_nothing(&rig).says("removed what the dead run");
    });
}

/// Killed, a daemon leaves the box running, and a run needs it only for the removal: it goes on to its end.
#[test]
fn daemon_killed_in_mid_call_and_gone_at_the_end() {
    apart("daemon_killed_in_mid_call_and_gone_at_the_end", |daemon| {
        let (rig, run) = in_mid_call(Duration::from_secs(2));
        daemon.kill();
        let done = end(run).code(0).says("cannot remove all of the run").says("the next command tries again");
        assert_eq!(done.out, "all done\n");
        assert_eq!(rig.receipt()["ending"], "finished");
        assert_eq!(rig.records().len(), 1, "the record of what could not be removed");
        let boxes: Vec<_> = processes().into_iter().filter(|(_, l)| l.starts_with("/sanduk ")).collect();
        assert!(boxes.is_empty(), "the box lives on: {boxes:?}");
        daemon.start();
        next_leaves_nothing(&rig).says("removed what the dead run");
    });
}

/// Started again, a daemon that was killed ends the containers it finds: the run says so and is removed by its own teardown.
#[test]
fn daemon_killed_and_started_in_mid_call() {
    apart("daemon_killed_and_started_in_mid_call", |daemon| {
        let (rig, run) = in_mid_call(Duration::from_secs(60));
        daemon.kill();
        daemon.start();
        let done = end(run).code(125);
        assert!(!done.err.contains("cannot remove"), "{}", done.err);
        assert_eq!(rig.receipt()["ending"], "lost");
        nothing_left(&rig);
        next_leaves_nothing(&rig);
    });
}

/// Hung for a while: the run waits for it at its end, and nothing is lost.
#[test]
fn daemon_hangs_for_ten_seconds_in_mid_call() {
    apart("daemon_hangs_for_ten_seconds_in_mid_call", |daemon| {
        let (rig, run) = in_mid_call(Duration::from_secs(2));
        daemon.signal("STOP");
        std::thread::sleep(Duration::from_secs(10));
        daemon.signal("CONT");
        let done = end(run).code(0);
        assert_eq!(done.out, "all done\n");
        assert!(!done.err.contains("cannot remove"), "{}", done.err);
        nothing_left(&rig);
        next_leaves_nothing(&rig);
    });
}

/// A daemon that goes while it starts the box: the engine's words and exit 4, or nothing noticed where it was a moment later.
#[test]
fn daemon_killed_while_it_starts_the_box() {
    apart("daemon_killed_while_it_starts_the_box", |daemon| {
        let reply =
            json!({"order": "turn", "end": "last", "replies": [{"first_ms": 1000, "text": "all done"}]});
        for pause in [0, 40, 80, 120, 160, 240] {
            let rig = Rig::with(&reply.to_string(), &["--runtime", "docker", "--image", IMAGE]);
            let run = rig.start(&["x"]);
            rig.record_with("asked");
            std::thread::sleep(Duration::from_millis(pause));
            daemon.kill();
            let done = end(run);
            match done.code {
                Some(0) => assert_eq!(done.out, "all done\n"),
                Some(4) => assert!(rig.bodies().is_empty(), "{pause}: a call of a box that never was"),
                Some(125) => {
                    assert!(done.err.contains("the engine does not answer"), "{pause}: {}", done.err)
                }
                other => panic!("{pause}: {other:?}: {}", done.err),
            }
            daemon.start();
            next_leaves_nothing(&rig);
        }
    });
}
