//! Whole runs of the real Claude Code, sealed on docker, as a user types them: `sanduk run` with the image that `sanduk build` makes.
//! Skipped, with a line, where it is not there.
#![expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests/run.rs uses the rest")]
mod rig;

use rig::{Ran, Rig, script};
use sanduk::catalog::images;
use serde_json::{Value, json};
use std::ops::RangeInclusive;
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
    rig::ran(command(rig, more).output().unwrap())
}

fn command(rig: &Rig, more: &[&str]) -> Command {
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
    command
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
    let mut replies: Value = serde_json::from_str(&claude_script(&[look], "it is done")).unwrap();
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

/// A run that ends badly after its first call, which wrote the report.
struct Bad {
    /// What the provider answers from the second call on.
    then: Value,
    flags: &'static [&'static str],
    code: u8,
    /// In the receipt.
    ending: &'static str,
    /// In the error line.
    words: &'static str,
    /// Calls that reach the provider: the first, what was tried, and what was tried again.
    calls: RangeInclusive<u64>,
}

const fn bad(then: Value, code: u8, ending: &'static str, words: &'static str, calls: u64) -> Bad {
    Bad { then, flags: &[], code, ending, words, calls: calls..=calls }
}

/// An error of the provider, on every call.
fn refused(status: u16, headers: &[[&str; 2]]) -> Value {
    json!({"status": status, "message": "so it is", "headers": headers})
}

/// Every way a run goes wrong half-way: exit code, error line, statistics, receipt, and the report that was written before. Claude Code
/// by itself tries a 401 and a 429 again for three minutes; more calls than these would be that.
#[test]
fn whole_runs_that_end_badly() {
    if !ready() {
        return;
    }
    let again = json!({"tools": [{"name": "Bash", "input": {"command": "true"}}]});
    let hang = json!({"hang": true});
    // Asked for once more without streaming, after the retries.
    let cut = json!({"text": "half of it", "cut": 60});
    let cases = [
        bad(refused(401, &[]), 1, "failed", "401", 2),
        bad(refused(402, &[]), 1, "failed", "402", 2),
        bad(refused(403, &[]), 1, "failed", "403", 2),
        // The relay asks again for the agent, which then takes its word for it.
        Bad { flags: &["--retry-for", "2"], ..bad(refused(429, &[]), 1, "failed", "429", 2) },
        Bad { flags: &["--retry-for", "3"], ..bad(refused(529, &[]), 1, "failed", "529", 2) },
        bad(refused(429, &[["retry-after", "7200"]]), 1, "failed", "429", 2),
        // Left to the agent.
        Bad { flags: &["--retry-for", "0"], ..bad(refused(429, &[]), 1, "failed", "429", 4) },
        Bad {
            flags: &["--retry-for", "0"],
            ..bad(refused(429, &[["retry-after", "1"]]), 1, "failed", "429", 4)
        },
        Bad { flags: &["--retry-for", "0"], ..bad(refused(529, &[]), 1, "failed", "529", 4) },
        Bad { calls: 3..=6, ..bad(cut, 1, "failed", "lost (ECONNRESET)", 0) },
        Bad { flags: &["--max-turns", "1"], ..bad(again, 5, "cap", "turn limit", 1) },
    ];
    // Beside the others: on a busy machine the agent needs its time until the report is written.
    let timeout = Bad { flags: &["--timeout", "25"], ..bad(hang, 124, "timeout", "--timeout", 2) };
    std::thread::scope(|s| {
        s.spawn(|| ends_badly(&timeout));
        cases.iter().for_each(ends_badly);
    });
}

fn ends_badly(case: &Bad) {
    let rig = rig(&written_then(&case.then));
    let stats = rig.place.join("stats.json");
    let mut flags = vec!["--stats-file", stats.to_str().unwrap()];
    flags.extend(case.flags);
    if !flags.contains(&"--timeout") {
        flags.extend(["--timeout", "60"]);
    }
    ended(&rig, run(&rig, &flags), case);
}

/// The first call has the report written, and every later one gets `then`.
fn written_then(then: &Value) -> String {
    let write = json!({"tools": [{"name": "Bash", "input": {"command": "echo Half of it. > REPORT.md"}}],
        "usage": {"input": 10, "output": 5}});
    json!({"end": "last", "replies": [write, then]}).to_string()
}

fn ended(rig: &Rig, ran: Ran, case: &Bad) {
    let what = format!("{} then {}: {}", case.words, case.then, ran.err);
    assert_eq!(ran.code, Some(case.code.into()), "{what}");
    let report = rig.work.join("REPORT.md").canonicalize().unwrap().display().to_string();
    assert!(ran.err.contains(&format!("report -> {report}")), "{what}");
    assert_eq!(std::fs::read_to_string(&report).unwrap(), "Half of it.\n", "{what}");
    let stats: Value = serde_json::from_slice(&std::fs::read(rig.place.join("stats.json")).unwrap()).unwrap();
    let receipt = rig.receipt();
    for told in [&stats, &receipt] {
        assert_eq!((&told["exit"], &told["report"]), (&json!(case.code), &json!(report)), "{what}");
        let error = told["error"].as_str().unwrap_or_default();
        assert!(error.contains(case.words) && ran.err.contains(error), "{told} {what}");
        let usage = &told["usage"];
        let calls = usage["calls"].as_u64().unwrap();
        assert!(case.calls.contains(&calls), "{calls} calls: {what}");
        assert_eq!((usage["input"].as_u64(), usage["output"].as_u64()), (Some(10), Some(5)), "{what}");
    }
    assert_eq!(
        (&stats["ok"], &receipt["ending"], &receipt["run"]),
        (&json!(false), &json!(case.ending), &stats["run"]),
        "{what}"
    );
    assert!(stats["stats"].as_str().unwrap().contains(" call"), "{what}");
    rig.assert_clean();
}

/// SIGTERM to `run` while the provider is silent.
#[test]
fn a_whole_run_that_is_told_to_end() {
    if !ready() {
        return;
    }
    let case = bad(json!({"hang": true}), 143, "signal", "signal 15", 2);
    let rig = rig(&written_then(&case.then));
    let stats = rig.place.join("stats.json");
    let child = command(&rig, &["--stats-file", stats.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The preflight, the first call and the second.
    rig::until("the second call", || (rig.requests() == 3).then_some(()));
    rig::signal(child.id(), "TERM");
    ended(&rig, rig::ran(child.wait_with_output().unwrap()), &case);
}

/// Found before a box exists: a bad key (Claude Code would try it for three minutes), and an image that has no such agent.
#[test]
fn whole_runs_that_do_not_begin() {
    if !ready() {
        return;
    }
    let rig = rig(&json!({"key": "sk-another", "replies": []}).to_string());
    run(&rig, &[]).code(2).says("refused the key (status 401)").says("check ANTHROPIC_API_KEY");
    assert_eq!(rig::list(&rig.state.join("sanduk/receipts")).len(), 0);
    rig.assert_clean();
    let rig = self::rig(&claude_script(&[], "x"));
    let ran = run(&rig, &["--image", rig::IMAGE]).code(4).says("/usr/local/bin/claude");
    ran.says(rig::IMAGE).says("agent claude");
    rig.assert_clean();
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
