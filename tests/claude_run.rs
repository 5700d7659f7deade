//! Whole runs of the real Claude Code, sealed on docker, as a user types them: `sanduk run` with the image that `sanduk build` makes.
//! Skipped, with a line, where it is not there.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::{Ran, Rig, script};
use sanduk::catalog::images;
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// The image, or a line that says why there is no test.
fn ready() -> bool {
    let tag = images::tag("claude");
    let there =
        Command::new("docker").args(["image", "inspect", &tag]).output().is_ok_and(|o| o.status.success());
    if !there {
        println!("skipped: no docker, or no image {tag} (sanduk build)");
    }
    there
}

/// `sanduk run` with Claude Code; keys of three providers are exported.
fn run(rig: &Rig, more: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
    command
        .args(["run", "Do it, and say what you did.", "--runtime", "docker", "--agent", "claude", "-w"])
        .arg(&rig.work);
    command.args(["--upstream", &format!("http://{}", rig.address)]).args(more).stdin(Stdio::null());
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", &rig.place)
        .env("XDG_STATE_HOME", &rig.state);
    command
        .env("ANTHROPIC_API_KEY", rig::KEY)
        .env("OPENAI_API_KEY", OTHER_KEYS[0])
        .env("OPENROUTER_API_KEY", OTHER_KEYS[1]);
    rig::ran(command.output().unwrap())
}

fn rig(script: &str) -> Rig {
    Rig::with(script, &["--runtime", "docker"])
}

const OTHER_KEYS: [&str; 2] = ["sk-OPENAIKEY-0123456789abcdef", "sk-or-ROUTERKEY-0123456789abcdef"];

/// Promises 1 and 8 with the real agent: it writes, runs, reports; no key is in the box; the provider saw two addresses and its own
/// key; a workspace that wants to steer is told nothing.
#[test]
fn a_whole_run() {
    if !ready() {
        return;
    }
    // The words are put together in the box, so that the command is no hit itself.
    let look = "k1=RIG; k2=OPENAI; k3=ROUTER; for k in $k1 $k2 $k3; do \
        echo \"$k: $(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -ac ${k}[K]EY-0) \
        $(grep -rlsa ${k}[K]EY-0 /work /tmp /home /run /etc 2>/dev/null | wc -l)\"; done > found.txt; \
        cat /proc/[0-9]*/environ 2>/dev/null | grep -ac ANTHROPIC_API_[K]EY > control.txt; \
        sed 1q /proc/1/cmdline | tr '\\0' ' ' > first.txt; echo It is done. > REPORT.md; id -u";
    // The key is asked for: another one would get no answer.
    let mut replies: serde_json::Value = serde_json::from_str(&claude_script(&[look], "it is done")).unwrap();
    replies["key"] = json!(rig::KEY);
    let rig = rig(&replies.to_string());
    let hostile = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/hostile.sh");
    assert!(Command::new("sh").arg(hostile).current_dir(&rig.work).status().unwrap().success());
    if rig::root() {
        let owner = std::fs::metadata(&rig.work).unwrap();
        let owner = format!("{}:{}", owner.uid(), owner.gid());
        assert!(Command::new("chown").args(["-R", &owner]).arg(&rig.work).status().unwrap().success());
    }
    let ran = run(&rig, &["-q"]).code(0);
    assert_eq!(
        std::fs::read_to_string(rig.work.join("found.txt")).unwrap(),
        "RIG: 0 0\nOPENAI: 0 0\nROUTER: 0 0\n"
    );
    assert_ne!(
        std::fs::read_to_string(rig.work.join("control.txt")).unwrap().trim(),
        "0",
        "the look sees the token"
    );
    assert_eq!(
        std::fs::read_to_string(rig.work.join("first.txt")).unwrap().trim(),
        "/sanduk inside /run/sanduk/box"
    );
    assert_eq!(std::fs::read_to_string(rig.work.join("REPORT.md")).unwrap(), "It is done.\n");
    let owner = |name: &str| std::fs::metadata(rig.work.join(name)).unwrap().uid();
    assert_eq!((owner("REPORT.md"), owner("found.txt")), (owner("."), owner(".")));
    assert!(ran.err.contains("report -> "), "{}", ran.err);
    for name in rig::list(&rig.work) {
        assert!(!name.to_string_lossy().contains("STEERED"), "{name:?}");
    }
    let bodies = rig.bodies().concat();
    assert!(bodies.contains("Do it, and say what you did."));
    for word in ["EVIL-WORDS", "EVIL_ENV", "evil-model"] {
        assert!(!bodies.contains(word), "{word}");
    }
    // The preflight and two calls, with the real key.
    assert_eq!(rig.requests(), 3);
    let receipt = rig.receipt();
    assert_eq!((&receipt["usage"]["calls"], &receipt["agent"]["name"]), (&json!(2), &json!("claude")));
    assert!(!receipt.to_string().contains("KEY-0"));
    rig.assert_clean();
}

/// Exit codes of whole runs, each within seconds, and an image that lacks the agent.
#[test]
fn whole_runs_that_end_badly() {
    if !ready() {
        return;
    }
    let refused = |status: u16| {
        json!({"end": "last", "replies": [{"status": status, "message": "so it is"}]}).to_string()
    };
    let cut = json!({"end": "last", "replies": [{"text": "half of it", "cut": 60, "times": 99}]}).to_string();
    for (script, more, code, words) in [
        (claude_script(&["true", "true"], "x"), &["--max-turns", "1"][..], 5, "turn limit"),
        (refused(402), &[], 1, "402"),
        (refused(403), &["--skip-key-check"], 1, "403"),
        (refused(529), &["--skip-key-check"], 1, "529"),
        (cut, &[], 1, "reported an error"),
        (json!({"replies": [{"hang": true}]}).to_string(), &["--timeout", "4"], 124, "--timeout"),
        (claude_script(&[], "x"), &["--image", rig::IMAGE], 4, "/usr/local/bin/claude"),
    ] {
        let rig = rig(&script);
        let ran = run(&rig, more).code(code).says(words);
        if code == 4 {
            ran.says(rig::IMAGE).says("agent claude");
        }
        rig.assert_clean();
    }
}

/// The rig's script, with the name that Claude Code has for its shell.
fn claude_script(commands: &[&str], last: &str) -> String {
    script(commands, last).replace("\"name\":\"bash\"", "\"name\":\"Bash\"")
}

/// A work directory of root's, with the flag that says so: the program refuses its permission mode to uid 0 unless it is told that it
/// is in a box.
#[test]
fn as_root() {
    if !ready() || !rig::root() {
        return;
    }
    let rig = rig(&claude_script(&["id -u > who.txt"], "it is done"));
    std::os::unix::fs::chown(&rig.work, Some(0), Some(0)).unwrap();
    run(&rig, &["--as-root"]).code(0).says("root");
    assert_eq!(std::fs::read_to_string(rig.work.join("who.txt")).unwrap(), "0\n");
    rig.assert_clean();
}
