//! What a run really does, under strace: every program, address and file by role has a row in `audit/strace.txt`, and every row is needed by
//! some run: on bwrap by name and by TLS, on docker with mini and with Claude Code. Skipped, with a line, where strace is missing.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/front.rs"]
mod front;
#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use front::Front;
use rig::{IMAGE, Rig, ran, root, script, skipped};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

fn there(program: &str, args: &[&str]) -> bool {
    let done = Command::new(program).args(args).output().is_ok_and(|o| o.status.success());
    if !done {
        skipped(&format!("{program} {}", args.join(" ")));
    }
    done
}

/// A run of `rig` with some words exchanged and some added, under `audit/strace.sh`.
fn traced(rig: &Rig, sh: &Path, used: &Path, other: &[(&str, &str)], more: &[&str]) -> rig::Ran {
    let run = rig.command(&[&["x"], more].concat());
    let mut command = Command::new("sh");
    command.arg(sh).arg("--used").arg(used).arg(run.get_program());
    for word in run.get_args() {
        let exchanged = other.iter().find(|(from, _)| word == *from);
        command.arg(exchanged.map_or(word, |(_, to)| to.as_ref()));
    }
    command.env_clear().current_dir(&rig.place).stdin(Stdio::null());
    for (name, value) in run.get_envs() {
        command.env(name, value.unwrap());
    }
    ran(command.output().unwrap())
}

/// Every tool of mini's.
fn task() -> String {
    let call = |name: &str, input: Value| json!({"tools": [{"name": name, "input": input}]});
    let replies = [
        call("bash", json!({"command": "cat a > b; ls /usr/bin > c"})),
        call("read", json!({"path": "a"})),
        call("write", json!({"path": "REPORT.md", "content": "done"})),
        json!({"text": "done"}),
    ];
    json!({"order": "turn", "end": "last", "replies": replies}).to_string()
}

/// Two rigs share nothing, so each run has its own; all add to one list of the rows they needed.
#[test]
fn a_run_does_what_is_listed_and_nothing_else() {
    if !there("strace", &["-V"]) {
        return;
    }
    let sh = Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/strace.sh");
    let bwrap = Rig::new(&task());
    bwrap.write("a", "x");
    let used = bwrap.place.join("used");
    let port = bwrap.address.split_once(':').unwrap().1;
    // By name: run looks it up, before there is a relay.
    let plain = format!("http://{}", bwrap.address);
    traced(&bwrap, &sh, &used, &[(&plain, &format!("http://localhost:{port}"))], &[]).code(0);
    bwrap.assert_clean();

    let tls = Rig::new(&task());
    tls.write("a", "x");
    let front = Front::new(&tls);
    let url = format!("https://127.0.0.1:{}", front.port);
    let plain = format!("http://{}", tls.address);
    traced(&tls, &sh, &used, &[(&plain, &url)], &["--ca-file", front.ca.to_str().unwrap()]).code(0);
    assert!(tls.requests() >= 4, "the provider was not reached by TLS");

    let mut whole = root();
    let docker = there("docker", &["image", "inspect", IMAGE]);
    whole &= docker;
    if docker {
        let mini = Rig::with(&task(), &["--runtime", "docker", "--image", IMAGE]);
        mini.write("a", "x");
        traced(&mini, &sh, &used, &[], &[]).code(0);
        let tag = sanduk::catalog::images::tag("claude");
        if there("docker", &["image", "inspect", &tag]) {
            let claude = Rig::with(&script(&[], "done"), &["--runtime", "docker"]);
            traced(&claude, &sh, &used, &[("mini", "claude")], &[]).code(0);
        }
    }
    let needed = std::fs::read_to_string(&used).unwrap();
    let rows =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/strace.txt")).unwrap();
    let rows = rows.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty() && !l.ends_with("maybe"));
    let idle: Vec<&str> = rows.filter(|row| !needed.lines().any(|l| l == *row)).collect();
    // What docker needs is not seen without it, nor by an ordinary user who may not use it.
    assert!(!whole || idle.is_empty(), "rows of audit/strace.txt that no run needed:\n{}", idle.join("\n"));
}

/// The check sees: a row taken away, a door that does not exist, a command that does something else.
#[test]
fn the_check_fails_where_it_should() {
    if !there("strace", &["-V"]) {
        return;
    }
    let rig = Rig::new(&script(&["true"], "done"));
    let copy = rig.place.join("audit");
    std::fs::create_dir(&copy).unwrap();
    let audit = Path::new(env!("CARGO_MANIFEST_DIR")).join("audit");
    for name in ["strace.sh", "effects.txt"] {
        std::fs::copy(audit.join(name), copy.join(name)).unwrap();
    }
    let rows = std::fs::read_to_string(audit.join("strace.txt")).unwrap();
    let used = rig.place.join("used");
    let without = |what: &str| -> String {
        rows.lines().filter(|l| !l.contains(what)).map(|l| format!("{l}\n")).collect()
    };
    let cases = [
        (without("EXEC-40"), "no row for: keeper exec"),
        (without("NET-21"), "no row for: relay-role connect tcp:127.0.0.1:"),
        (without("NET-47"), "no row for: run listen unix:"),
        (without("FILE-47"), "/state/sanduk"),
        (rows.replace("EXEC-60", "EXEC-999"), "EXEC-999 is no door of effects.txt"),
    ];
    for (rows, part) in cases {
        std::fs::write(copy.join("strace.txt"), rows).unwrap();
        let done = traced(&rig, &copy.join("strace.sh"), &used, &[], &[]);
        assert!(done.code != Some(0) && done.err.contains(part), "no {part:?} in {}", done.err);
    }
    // Another program altogether.
    std::fs::write(copy.join("strace.txt"), &rows).unwrap();
    let mut command = Command::new("sh");
    command.arg(copy.join("strace.sh")).args(["/bin/sh", "-c", "cat /etc/shadow > /dev/null; true"]);
    let done = ran(command.output().unwrap());
    assert!(done.code != Some(0) && done.err.contains("no row for: cat read /etc/shadow"), "{}", done.err);
}
