//! Caps of whole runs, with mini in a sealed box on bubblewrap: how they end, what receipt and statistics say.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "shared with run.rs")]
mod rig;

use rig::Rig;
use serde_json::Value;
use std::path::Path;

/// An agent that never stops, and 10,100 tokens a call: $0.0315 by `PRICES`.
const LOOP: &str = r#"{"end":"last","replies":[{"tools":[{"name":"bash","input":{"command":"echo again"}}],
    "usage":{"input":10000,"output":100}}]}"#;
const PRICES: &str = "date = \"2026-11-30\"\n[models.\"m-1\"]\ninput = 3\noutput = 15\ncache_read = \"0.30\"\ncache_write = \"3.75\"\n";

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The receipt of the rig's only run.
fn receipt(rig: &Rig) -> Value {
    let runs = rig.state.join("sanduk/receipts");
    let run = std::fs::read_dir(runs).unwrap().next().unwrap().unwrap();
    json(&run.path().join("receipt.json"))
}

fn priced(rig: &Rig) -> String {
    let path = rig.place.join("prices.toml");
    std::fs::write(&path, PRICES).unwrap();
    path.display().to_string()
}

#[test]
fn a_budget_ends_the_run_with_5() {
    let rig = Rig::new(LOOP);
    let stats = rig.place.join("stats.json");
    let file = priced(&rig);
    let more = ["x", "--budget", "0.10", "--prices", &file, "--stats-file", &stats.display().to_string()];
    let ran = rig.run(&more).code(5).says("a cap ended the run: $0.1260 spent against a $0.1000 ceiling");
    for line in [
        "50 per cent used: $0.0630 of $0.1000",
        "80 per cent used: $0.0945",
        "95 per cent used: $0.1260",
        "$0.0315",
    ] {
        assert!(ran.err.contains(line), "{line}: {}", ran.err);
    }
    assert_eq!(rig.bodies().len(), 4, "the fourth call crosses, the fifth is not made");
    for account in [receipt(&rig), json(&stats)] {
        let caps = &account["caps"];
        assert_eq!(
            (&caps["budget"], &caps["spent"], &caps["calls"]),
            (&0.1.into(), &0.126.into(), &4.into())
        );
        assert_eq!(
            (&caps["mode"], &caps["prices"], &caps["tokens"]),
            (&"after".into(), &"2026-11-30".into(), &40_400.into())
        );
        assert_eq!(caps["reached"], "$0.1260 spent against a $0.1000 ceiling");
        assert_eq!((&account["exit"], &account["usage"]["cost"]), (&5.into(), &0.126.into()));
    }
    assert_eq!(receipt(&rig)["ending"], "cap");
}

#[test]
fn a_number_of_calls_ends_the_run_with_5() {
    let rig = Rig::new(LOOP);
    rig.run(&["x", "--max-calls", "3"]).code(5).says("3 of 3 calls were made");
    assert_eq!((rig.bodies().len(), &receipt(&rig)["caps"]["max_calls"]), (3, &3.into()));
}

/// An agent that finishes within its caps has finished.
#[test]
fn within_its_caps_a_run_is_a_run() {
    let rig = Rig::new(&rig::script(&["echo a"], "done"));
    let file = priced(&rig);
    let more = [
        "x",
        "--no-report-instruction",
        "--budget",
        "1",
        "--prices",
        &file,
        "--budget-mode",
        "strict",
        "--max-tokens-cap",
        "500",
    ];
    rig.run(&more).code(0);
    let caps = &receipt(&rig)["caps"];
    assert_eq!(
        (&caps["mode"], &caps["calls"], &caps["reached"]),
        (&"strict".into(), &2.into(), &Value::Null)
    );
}

/// A call that could cross is not made, and the operator reads what would fit.
#[test]
fn strict_ends_a_run_before_it_costs() {
    let rig = Rig::new(LOOP);
    let file = priced(&rig);
    let more =
        ["x", "--budget", "0.05", "--prices", &file, "--budget-mode", "strict", "--max-tokens-cap", "20000"];
    rig.run(&more).code(5).says("an output bound of ");
    assert_eq!((rig.bodies().len(), &receipt(&rig)["caps"]["spent"]), (0, &0.0.into()));
}

#[test]
fn what_cannot_be_counted_does_not_start() {
    let rig = Rig::new(LOOP);
    let file = priced(&rig);
    for (more, want) in [
        (vec!["--budget", "1"], "provider anthropic reports tokens, not cost"),
        (vec!["--budget", "inf"], "dollars above 0"),
        (vec!["--budget", "1", "--prices", &file, "--model", "m-2"], "model m-2 has no price"),
        (vec!["--mode", "open", "--budget", "1"], "--budget with --mode open"),
        (vec!["--mode", "open", "--max-calls", "1"], "--max-calls with --mode open"),
        (vec!["--mode", "open", "--max-tokens-total", "1"], "--max-tokens-total with --mode open"),
        (vec!["--mode", "open", "--prices", &file], "--prices with --mode open"),
    ] {
        let model = if more.contains(&"--model") { vec![] } else { vec!["--model", "m-1"] };
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command
            .args(["run", "x", "--agent", "mini", "--runtime", "bwrap", "--key-file", "/dev/null"])
            .args(model)
            .args(&more);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &rig.place)
            .env("XDG_STATE_HOME", &rig.state);
        rig::ran(command.current_dir(&rig.place).output().unwrap()).code(2).says(want);
    }
    assert_eq!(rig.requests(), 0);
}
