//! The command lines and make targets of the tool that this one replaces, as its manual prints them: each runs as printed, or is refused
//! with the reason written here. Lines that need a provider run up to it where there is no network, and whole with `--upstream` added.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::{Ran, Rig, skipped};
use sanduk::catalog::images;
use sanduk::cli::parse;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A line, its exit code, and what it says on either stream.
type Line = (&'static str, i32, &'static str);

/// Lines that need neither engine nor provider. Codes of 2 are refusals, and the words are the reason.
const HERE: &[Line] = &[
    ("sanduk --help", 0, "run an agent in a disposable box"),
    ("sanduk list agents", 0, "claude    anthropic-messages"),
    ("sanduk list providers", 0, "OPENROUTER_API_KEY"),
    ("sanduk list runtimes", 0, "bwrap"),
    // Agents of a later part, as in the lines of the manual that have them, and one of the caller's own.
    (
        "sanduk run 'Review this.' -w ./repo --mode sealed --agent hax --provider openrouter \
         --model anthropic/claude-sonnet-5",
        2,
        "agent hax: not built yet",
    ),
    (
        "sanduk run 'Summarise a.py.' -w ./work --agent hermes --provider openrouter \
         --model deepseek/deepseek-v4-flash-0731 --mode open --max-turns 6",
        2,
        "agent hermes: not built yet",
    ),
    ("sanduk run t --agent codex --provider openai", 2, "agent codex: not built yet"),
    ("sanduk run t --agent opencode --model m", 2, "agent opencode: not built yet"),
    ("sanduk run t --agent pi --model m", 2, "agent pi: not built yet"),
    ("sanduk run t --agent prime --model m", 2, "agent prime: not built yet"),
    ("sanduk run t --agent mypkg.handlers:MyAgent", 2, "the agents are claude, mini"),
    ("sanduk run t --agent claude --provider openai", 2, "no protocol in common"),
    // Flags of a later part.
    ("sanduk run t --budget 2.50", 2, "provider anthropic reports tokens, not cost"),
    ("sanduk run t --mode open --log-bodies", 2, "--log-bodies with --mode open"),
    ("sanduk run t --oci-runtime runsc", 2, "--oci-runtime: not built yet"),
    ("sanduk run t --oci-runtime io.containerd.kata.v2", 2, "--oci-runtime: not built yet"),
    ("sanduk run t --agent-key-env MY_KEY", 2, "--agent-key-env: not built yet"),
    ("sanduk run t --agent-base-url-env MY_URL", 2, "--agent-base-url-env: not built yet"),
    ("sanduk run t --containerfile ./Containerfile", 2, "--containerfile: not built yet"),
    ("sanduk run t --runtime apple", 2, "--runtime apple: not built yet"),
    // What is refused for good, there and here.
    ("sanduk run t --proxy --mode open", 2, "--proxy is the old spelling of --mode sealed"),
    ("sanduk run t --mount ./repo:/work/lib", 2, "/work"),
    ("sanduk run t --timeout 0", 2, "--timeout 0"),
    ("sanduk run t --timeout 8d", 2, "it is longer than a week"),
    ("sanduk run t --upstream http://192.0.2.1:8080", 2, "--insecure-upstream"),
    ("sanduk run t --upstream http://127.0.0.1:8080/v1", 2, "path"),
    ("sanduk run t --agent mini --model m --allowed-tools Bash", 2, "--allowed-tools"),
    ("sanduk run t --agent mini --model m --permission-mode plan", 2, "--permission-mode"),
    ("sanduk run t --mode open --allow-model m", 2, "--allow-model with --mode open"),
    ("sanduk run t --mode open --max-tokens-cap 9", 2, "--max-tokens-cap with --mode open"),
    ("sanduk build --agent codex", 2, "codex"),
    ("sanduk system start", 2, "docker is managed outside sanduk"),
    ("sanduk system stop", 2, "docker is managed outside sanduk"),
    // Assistants.
    ("sanduk assistant add ~/assistants/triage", 2, "`sanduk assistant`: not built yet"),
    ("sanduk assistant list", 2, "`sanduk assistant`: not built yet"),
    ("sanduk assistant show triage", 2, "`sanduk assistant`: not built yet"),
    ("sanduk assistant enable triage", 2, "`sanduk assistant`: not built yet"),
    ("sanduk assistant disable triage", 2, "`sanduk assistant`: not built yet"),
    ("sanduk tell triage 'look at PR 12'", 2, "`sanduk tell`: not built yet"),
    ("sanduk tick", 2, "`sanduk tick`: not built yet"),
    ("sanduk serve", 2, "`sanduk serve`: not built yet"),
    ("sanduk serve --interval 60", 2, "`sanduk serve`: not built yet"),
    ("sanduk outbox", 2, "`sanduk outbox`: not built yet"),
    ("sanduk outbox --deliver cat", 2, "`sanduk outbox`: not built yet"),
    ("sanduk outbox --pending", 2, "`sanduk outbox`: not built yet"),
    ("sanduk approve 1", 2, "`sanduk approve`: not built yet"),
    ("sanduk reject 1", 2, "`sanduk reject`: not built yet"),
    ("sanduk runs", 2, "`sanduk runs`: not built yet"),
];

/// Lines about the engine; the state directory is a fresh one. `destroy` stands elsewhere: it would take the image of the other tests.
const ENGINE: &[Line] = &[
    ("sanduk system status", 0, "docker: ready"),
    ("sanduk ps", 0, ""),
    ("sanduk stop", 0, ""),
    ("sanduk clean", 0, ""),
    ("sanduk build", 0, "already built"),
    ("sanduk shell", 2, "standard input is no terminal"),
    ("script -qec 'sanduk shell' /dev/null <<'END'\necho IN$((40+2))\nexit\nEND", 0, "IN42"),
    ("make ps -f $MAKEFILE -o build BIN=sanduk", 0, ""),
    ("make stop -f $MAKEFILE -o build BIN=sanduk", 0, ""),
    ("make clean -f $MAKEFILE -o build BIN=sanduk", 0, ""),
    ("make image -f $MAKEFILE -o build BIN=sanduk", 0, "already built"),
    ("make system-status -f $MAKEFILE -o build BIN=sanduk", 0, "docker: ready"),
    ("make shell -f $MAKEFILE -o build BIN=sanduk", 2, "standard input is no terminal"),
    ("make logs -f $MAKEFILE -o build BIN=sanduk", 0, ""),
];

/// Lines that call a provider. Where there is none they stop at the key check, which is before a box.
const TO_A_PROVIDER: &[&str] = &[
    "sanduk run 'Summarise every Python file here.' -w ./work --mode sealed",
    "sanduk run 'Summarise every Python file here.' -w ./work --proxy",
    "sanduk run 'Summarise every Python file here.' -w ./work --mode key-safe",
    "sanduk run t -w ./work --runtime docker --timeout 900 --max-turns 6",
    "make run TASK='Summarise every Python file here.' WORK=./work",
    "make run TASK='Summarise every Python file here.' WORK=./work ARGS='--effort max'",
    "make run-proxy TASK='Summarise every Python file here.' WORK=./work",
];

/// The same with Claude Code and an upstream: what the request has to hold.
const WHOLE: &[(&str, &str)] = &[
    (
        "sanduk run 'Summarise every Python file here.' -w ./work --mode sealed --upstream $URL",
        "every Python file",
    ),
    (
        "make run TASK=\"Summarise every Python file, also Bob's.\" WORK=./work ARGS=\"--effort max --upstream $URL\"",
        "also Bob's.",
    ),
    (
        "sanduk run 'Review this.' -w ./repo --proxy --allowed-tools Read --permission-mode dontAsk --bare \
         --allow-model claude-opus-5 --timeout 15m --upstream $URL",
        "\"model\":\"claude-opus-5\"",
    ),
];

/// With the built-in agent, because it is quick; `$IMAGE` is one that has a shell.
const QUICK: &[(&str, &str)] = &[
    (
        "sanduk run 'Review this.' -w ./repo --mode sealed --provider openai-compat --upstream $URL --model local-model $IMAGE",
        "\"model\":\"local-model\"",
    ),
    (
        "sanduk run t -w ./work --agent mini --model m --max-tokens-cap 77 --upstream $URL $IMAGE",
        "\"max_tokens\":77",
    ),
    (
        "make run-proxy TASK=t WORK=./work ARGS=\"--agent mini --model m --mount ./repo:/repo:ro --upstream $URL $IMAGE\"",
        "\"model\":\"m\"",
    ),
    (
        "sanduk run t -w ./work --mode key-safe --agent mini --model m --log-dir ./sanduk-logs --upstream $URL $IMAGE",
        "\"model\":\"m\"",
    ),
    (
        "sanduk run t -w ./work --provider openrouter --agent mini --model anthropic/claude-sonnet-5 --upstream $URL $IMAGE",
        "\"model\":\"anthropic/claude-sonnet-5\"",
    ),
];

const ANSWER: &str = "All is well.";

/// A rig with `./work`, `./repo`, and a `bin` that has the program under its name.
fn place(engine: &[&str]) -> Rig {
    let script = json!({"end": "last", "replies": [{"text": ANSWER}]}).to_string();
    let rig = Rig::with(&script, engine);
    for name in ["repo", "bin"] {
        std::fs::create_dir(rig.place.join(name)).unwrap();
    }
    rig.give(&rig.place.join("repo"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sanduk"), rig.place.join("bin/sanduk")).unwrap();
    rig
}

fn makefile() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")
}

/// The words before a shell, so that it sees what a test wants it to see.
fn shell(rig: &Rig, before: &[&str], line: &str) -> Command {
    let mut words = before.to_vec();
    words.extend(["/bin/sh", "-c", line]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(&rig.place).stdin(Stdio::null()).env_clear();
    command.env("PATH", format!("{}/bin:/usr/local/bin:/usr/bin:/bin", rig.place.display()));
    command.env("HOME", &rig.place).env("XDG_STATE_HOME", &rig.state).env("MAKEFILE", makefile());
    command.env("URL", format!("http://{}", rig.address)).env("IMAGE", format!("--image {}", rig::IMAGE));
    for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"] {
        command.env(name, rig::KEY);
    }
    command
}

fn sh(rig: &Rig, line: &str) -> Ran {
    rig::ran(shell(rig, &[], line).output().unwrap())
}

/// A make line goes to our Makefile, with the program that is tested instead of a release build.
fn made(line: &str) -> String {
    let more = if line.starts_with("make ") { " -f $MAKEFILE -o build BIN=sanduk" } else { "" };
    format!("{line}{more}")
}

#[track_caller]
fn check(rig: &Rig, (line, code, words): Line) {
    let ran = sh(rig, line);
    let all = format!("{line}\n{}\n{}", ran.out, ran.err);
    assert_eq!(ran.code, Some(code), "{all}");
    assert!(ran.out.contains(words) || ran.err.contains(words), "no {words:?} in: {all}");
    if code == 2 && line.starts_with("sanduk") {
        assert_eq!(ran.err.lines().count(), 1, "{all}");
        assert!(ran.err.starts_with("sanduk: cannot "), "{all}");
    }
}

fn ready() -> bool {
    let there = |image: &str| {
        let look = Command::new("docker").args(["image", "inspect", image]).output();
        look.is_ok_and(|o| o.status.success())
    };
    let all = there(&images::tag("claude")) && there(rig::IMAGE);
    if !all {
        skipped("seed lines on docker: no docker, no image of Claude Code, or no base image");
    }
    all
}

#[test]
fn lines_that_need_no_engine() {
    let rig = place(&[]);
    for line in HERE {
        check(&rig, *line);
    }
    assert!(!rig.state.exists() && rig.requests() == 0, "a refusal makes nothing");
}

#[test]
fn lines_about_the_engine() {
    if !ready() {
        return;
    }
    let rig = place(&["--runtime", "docker"]);
    for line in ENGINE {
        check(&rig, *line);
    }
}

/// Where docker is not on PATH there is no image to lose: nothing is left to do but the records.
#[test]
fn destroy_as_printed() {
    let rig = place(&[]);
    for line in [
        "PATH=$PWD/bin; sanduk destroy",
        "ln -s /usr/bin/uname bin; PATH=$PWD/bin; /usr/bin/make destroy -f $MAKEFILE -o build BIN=sanduk",
    ] {
        check(&rig, (line, 0, ""));
    }
}

/// A network without anybody, in which the providers' names lead to this machine: the key check fails, at once and with its line.
#[test]
fn lines_that_reach_for_a_provider() {
    if !ready() {
        return;
    }
    let rig = place(&["--runtime", "docker"]);
    let hosts = rig.place.join("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost api.anthropic.com api.openai.com openrouter.ai\n").unwrap();
    let hosts = hosts.to_str().unwrap().to_string();
    // Only root's: in a user namespace the system's openssl is nobody's, and is not taken.
    let alone = "bwrap --dev-bind / / --unshare-net --cap-add ALL --ro-bind";
    let alone: Vec<&str> = alone.split(' ').chain([hosts.as_str(), "/etc/hosts", "--"]).collect();
    if !rig::root() || !shell(&rig, &alone, "true").output().is_ok_and(|o| o.status.success()) {
        skipped("seed lines up to the provider: not root, or no bwrap");
        return;
    }
    for line in TO_A_PROVIDER {
        let ran = rig::ran(shell(&rig, &alone, &made(line)).output().unwrap()).code(2);
        let words =
            "cannot use the key with https://api.anthropic.com: it cannot be reached: Connection refused";
        assert!(ran.err.contains(words), "{line}: {}", ran.err);
    }
    let others = [("openai", "https://api.openai.com"), ("openrouter", "https://openrouter.ai")];
    for (provider, place) in others {
        let line = format!("sanduk run t -w ./work --provider {provider} --agent mini --model m $IMAGE");
        let ran = rig::ran(shell(&rig, &alone, &line).output().unwrap()).code(2);
        ran.says(&format!("cannot use the key with {place}: it cannot be reached"));
    }
    rig.assert_clean();
}

#[track_caller]
fn whole(lines: &[(&str, &str)]) {
    for (line, asked) in lines {
        let rig = place(&["--runtime", "docker"]);
        let ran = sh(&rig, &made(line));
        assert_eq!(ran.code, Some(0), "{line}\n{}\n{}", ran.out, ran.err);
        assert!(ran.out.contains(ANSWER), "{line}\n{}\n{}", ran.out, ran.err);
        let bodies = rig.bodies();
        assert!(bodies.iter().any(|b| b.contains(asked)), "{line}: no {asked} in {bodies:?}");
        rig.assert_clean();
    }
}

#[test]
fn lines_with_a_provider() {
    if ready() {
        whole(WHOLE);
        whole(QUICK);
    }
}

/// `--dry-run` makes nothing; `--keep` leaves the box, stopped, and says how to look at it and how to remove it.
#[test]
fn dry_run_and_keep() {
    if !ready() {
        return;
    }
    let rig = place(&["--runtime", "docker"]);
    check(&rig, ("sanduk run t -w ./work --mode sealed --dry-run", 0, "--network none"));
    check(&rig, ("sanduk run t -w ./work --mode open --dry-run", 0, "<provider key>"));
    check(&rig, ("sanduk run t -w ./work --mode key-safe --dry-run", 0, "sanduk-open"));
    assert!(!rig.state.exists() && rig.containers().is_empty() && rig.requests() == 0);
    check(
        &rig,
        ("sanduk run t -w ./work --agent mini --model m --upstream $URL $IMAGE --keep", 0, "the box is kept"),
    );
    assert_eq!(rig.containers().len(), 1);
    check(&rig, ("sanduk ps", 0, ""));
    check(&rig, ("sanduk clean", 0, ""));
    rig.assert_clean();
}

/// Every target that the manual names, with the line it comes down to. What that says is what the program takes.
#[test]
fn make_targets() {
    let rig = place(&[]);
    let task = "TASK='Do it.' WORK=./dir ARGS='--effort max'";
    for (target, last) in [
        ("help", "awk"),
        ("sync", "cargo build --release"),
        ("test", "summary.sh"),
        ("test-container", "summary.sh"),
        ("test-all", "summary.sh"),
        ("test-live", "not built yet"),
        ("qa", "cargo test"),
        ("image", "sanduk build --effort max"),
        ("image-rebuild", "sanduk build --force --effort max"),
        ("run", "sanduk run \"$TASK\" -w ./dir --effort max"),
        ("run-proxy", "sanduk run \"$TASK\" -w ./dir --mode sealed --effort max"),
        ("shell", "sanduk shell --effort max"),
        ("ps", "sanduk ps --effort max"),
        ("logs", "receipts"),
        ("stop", "sanduk stop --effort max"),
        ("clean", "rm -rf build"),
        ("distclean", "rm -rf target build"),
        ("destroy", "sanduk destroy --effort max"),
        ("system-start", "sanduk system start"),
        ("system-stop", "sanduk system stop"),
        ("system-status", "sanduk system status"),
    ] {
        let ran = sh(&rig, &format!("make -n -C $(dirname $MAKEFILE) {target} {task}")).code(0);
        let found = ran.out.lines().rfind(|l| l.contains(last));
        assert!(found.is_some(), "{target}: no {last:?} in {}", ran.out);
        for line in ran.out.lines() {
            let words = line.replace("--effort max", "").replace("\"$TASK\"", "t");
            let Some((_, words)) = words.split_once("/release/sanduk ").filter(|_| !line.contains("ls -l"))
            else {
                continue;
            };
            let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
            assert!(parse::parse(&words).is_ok(), "{target}: {line}");
        }
    }
    let refused = sh(&rig, "make test-live -f $MAKEFILE").code(2);
    assert!(refused.err.contains("not built yet"), "{}", refused.err);
    assert!(sh(&rig, "make nothing-of-the-kind -f $MAKEFILE").code(2).err.contains("No rule"));
}
