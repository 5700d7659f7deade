//! `ps`, `stop`, `clean`, `destroy`, `shell`, `system status`: what they show, and that they touch nothing but what is ours. Parts that
//! need a daemon are left out, with a line, where there is none.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::On::Docker;
use rig::{IMAGE, Ran, Rig, docker, ran, root, script, until};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn ready() -> bool {
    let look = Command::new("docker").args(["image", "inspect", IMAGE]).stdin(Stdio::null()).output();
    let there = look.is_ok_and(|done| done.status.success());
    if !there {
        #[expect(clippy::disallowed_macros, reason = "tests")]
        let () = eprintln!("docker: no daemon, or it has no image {IMAGE}: this test is left out");
    }
    there
}

fn sanduk(state: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
    command.args(args).env_clear().env("HOME", state).env("XDG_STATE_HOME", state).stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    ran(command.output().unwrap())
}

fn listed(state: &Path) -> Vec<Value> {
    serde_json::from_str(&sanduk(state, &["ps", "--json"]).code(0).out).unwrap()
}

fn exists(id: &str) -> bool {
    Command::new("docker").args(["container", "inspect", id]).output().unwrap().status.success()
}

/// What a test made itself, removed by its id.
struct Made(&'static str, String);

impl Drop for Made {
    fn drop(&mut self) {
        let flags: &[&str] = if self.0 == "container" { &["rm", "-f", "-v"] } else { &["rm", "-f"] };
        let _ = Command::new("docker").arg(self.0).args(flags).arg(&self.1).output();
    }
}

/// TRAPS 17: what lives is shown, named and left alone; with `--all` it is ended, and tears itself down.
#[test]
fn trap_17_live_boxes_are_left_alone() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["touch up; sleep 60"], "done"));
    let process = Rig::new(&script(&["touch up; sleep 60"], "done"));
    let first = rig.start(&["x"]);
    let mut command = process.command(&["x"]);
    command.env("XDG_STATE_HOME", &rig.state).stdout(Stdio::piped()).stderr(Stdio::piped());
    let second = command.spawn().unwrap();
    until("both runs", || (rig.work.join("up").exists() && process.work.join("up").exists()).then_some(()));
    let all = listed(&rig.state);
    assert_eq!(all.len(), 2, "{all:?}");
    for row in &all {
        assert_eq!(
            (&row["state"], &row["agent"], &row["mode"]),
            (&"running".into(), &"mini".into(), &"sealed".into())
        );
        assert!(row["age_seconds"].is_u64() && row["run"].as_str().is_some_and(|r| r.len() == 32), "{row}");
    }
    assert!(all.iter().any(|r| r["engine"] == "docker" && r["container"].is_string()));
    assert!(all.iter().any(|r| r["engine"] == "bwrap" && r["container"].is_null()));
    let shown = sanduk(&rig.state, &["ps"]).code(0);
    assert_eq!(shown.out.lines().filter(|l| l.ends_with("running")).count(), 2, "{}", shown.out);

    for verb in ["stop", "clean"] {
        let said = sanduk(&rig.state, &[verb]).code(0);
        assert_eq!(said.err.matches("left alone").count(), 2, "{}", said.err);
    }
    assert_eq!(listed(&rig.state).len(), 2);
    // Another user's state knows nothing of them.
    let other = rig.place.join("other");
    assert!(listed(&other).is_empty());
    sanduk(&other, &["clean", "--all"]).code(0);
    assert_eq!(rig.containers().len(), 1);

    sanduk(&rig.state, &["stop", "--all"]).code(0).says("ended");
    for child in [first, second] {
        ran(child.wait_with_output().unwrap()).code(143);
    }
    assert!(listed(&rig.state).is_empty());
    sanduk(&rig.state, &["ps"]).code(0).says("no boxes");
    rig.assert_clean();
    process.assert_clean();
}

/// BOX B13: a kept box is shown and removed; a stranger's container made of its image, which has our labels, is not.
#[test]
fn box_b13_kept_boxes_and_strangers() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["true"], "done"));
    let log = rig.place.join("logs");
    rig.run(&["x", "--keep", "--log-dir", log.to_str().unwrap()]).code(0);
    let kept = Made("container", rig.containers()[0].clone());
    let image = Made("image", docker(&["commit", &kept.1]).trim().to_string());
    let args = ["create", "--network", "none", "--entrypoint", "/bin/true", &image.1];
    let stranger = Made("container", docker(&args).trim().to_string());
    let all = listed(&rig.state);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((&all[0]["state"], all[0]["container"].as_str()), (&"kept".into(), Some(kept.1.as_str())));
    sanduk(&rig.state, &["stop"]).code(0);
    assert!(exists(&kept.1));
    sanduk(&rig.state, &["clean"]).code(0).says("removed the box");
    assert!(!exists(&kept.1) && exists(&stranger.1));
    assert!(listed(&rig.state).is_empty());
}

/// What is left by a dead run is removed by `clean` too, and stopped by `stop`.
#[test]
fn what_a_dead_run_left() {
    if !ready() {
        return;
    }
    let rig = Rig::on(Docker, &script(&["sleep 60"], "done"));
    let mut run = rig.start(&["x"]);
    let record = rig.record_with("container");
    for what in ["STOP", "KILL"] {
        rig::signal(record["keeper_pid"].parse().unwrap(), what);
        rig::signal(run.id(), what);
    }
    run.wait().unwrap();
    assert_eq!(listed(&rig.state)[0]["state"], "left by a dead run");
    sanduk(&rig.state, &["stop"]).code(0).says("stopped the box");
    assert_eq!(docker(&["inspect", "-f", "{{.State.Running}}", &record["container"]]).trim(), "false");
    sanduk(&rig.state, &["clean"]).code(0).says("removed what the dead run");
    rig.assert_clean();
}

/// `destroy` against a command line that only writes down what it is asked: no image of this machine is at stake.
#[test]
fn destroy_asks_for_the_image_and_our_network() {
    let place = Rig::new(&script(&[], "done"));
    let bin = place.place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let calls = place.place.join("calls");
    let network = |label: &str| {
        let body = format!(
            "#!/bin/sh\nshift 4\necho \"$*\" >> {}\ncase \"$*\" in *'network inspect'*) echo 'bridge false false {label}';; esac\n",
            calls.display()
        );
        std::fs::write(bin.join("docker"), body).unwrap();
        std::fs::set_permissions(bin.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
    };
    let socket = std::os::unix::net::UnixListener::bind(place.place.join("d.sock")).unwrap();
    let destroy = |agent: &[&str]| {
        let _ = std::fs::remove_file(&calls);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.arg("destroy").args(agent).env_clear().env("XDG_STATE_HOME", &place.state);
        command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        command.env("DOCKER_HOST", format!("unix://{}/d.sock", place.place.display()));
        ran(command.output().unwrap()).code(0);
        std::fs::read_to_string(&calls).unwrap()
    };
    network("yes");
    let version = env!("CARGO_PKG_VERSION");
    let asked = destroy(&["--agent", "mini"]);
    let lines: Vec<&str> = asked.lines().collect();
    assert!(lines[0].starts_with("ps -a --no-trunc --filter label=sanduk.run"), "{asked}");
    assert_eq!(lines[1], format!("image rm sanduk-mini:{version}"));
    assert!(lines[2].starts_with("network inspect") && lines[2].ends_with("sanduk-open"), "{asked}");
    assert_eq!(lines[3..], ["network rm sanduk-open"]);
    assert!(destroy(&[]).contains("image rm sanduk-claude:"));
    // A network of that name that is not ours stays.
    network("");
    assert!(!destroy(&[]).contains("network rm"));
    drop(socket);
}

/// CHECKLIST L5: one line, exit 0, whatever is wrong.
#[test]
fn system_status_is_one_line() {
    let place = Rig::new(&script(&[], "done"));
    let status = |path: &str, host: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.args(["system", "status"]).env_clear().env("PATH", path).env("DOCKER_HOST", host);
        let ran = ran(command.output().unwrap()).code(0);
        assert_eq!((ran.out.lines().count(), ran.err.as_str()), (1, ""), "{}", ran.out);
        ran.out
    };
    let bin = place.place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = bin.to_str().unwrap();
    assert!(status(path, "").starts_with("no engine"));
    std::fs::write(bin.join("docker"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(bin.join("docker"), PermissionsExt::from_mode(0o755)).unwrap();
    assert!(status(path, "unix:///nonexistent").contains("does not answer"));
    assert!(status(path, "tcp://far:1").contains("not on this host"));
    sanduk(&place.state, &["system", "start"]).code(2).says("managed outside");
    if ready() {
        let said = sanduk(&place.state, &["system", "status"]).code(0);
        assert!(said.out.starts_with("docker: ready, "), "{}", said.out);
    }
}

/// CHECKLIST K9: a shell in the image, nothing mounted, no network; a terminal is needed.
#[test]
fn a_shell_in_the_image() {
    use sanduk::run::shell::argv;
    let ledger =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/argv.txt")).unwrap();
    let row = format!("EXEC-47 docker | {}", argv("IMAGE").join(" "));
    assert!(ledger.lines().any(|l| l == row), "not in the ledger: {row}");
    if !ready() {
        return;
    }
    let place = Rig::new(&script(&[], "done"));
    sanduk(&place.state, &["shell", "--image", "sanduk-nobody-has:1"]).code(2).says("sanduk build");
    sanduk(&place.state, &["shell", "--image", IMAGE]).code(2).says("no terminal");
    let line = format!("{} shell --image {IMAGE}", env!("CARGO_BIN_EXE_sanduk"));
    let typed = std::fs::File::open({
        let path = place.place.join("typed");
        std::fs::write(&path, "echo in-$((40+2)); ls /work /run/sanduk; exit\n").unwrap();
        path
    });
    let out =
        Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(typed.unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("in-42") && said.contains("No such file"), "{said}");
    let line = line.replace("shell --image", "shell --agent mini --image");
    let typed = std::process::Stdio::piped();
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(typed)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"exit 42\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42), "the shell's code");
    let _ = root();
}
