//! Whole runs on bwrap in which the agent sends what it should not have: a secret of the host that it found in its work directory, the
//! canary that the run planted.

#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "shared with run.rs")]
mod rig;

use rig::{KEY, Rig, script};

const VALUE: &str = "ghp_7JcQm2LrTnVb4Kd9Wf1Yp6Hs3Gj5Ce0Ua";

/// The log of the one run.
fn log(rig: &Rig) -> String {
    std::fs::read_to_string(rig.kept().join("calls.jsonl")).unwrap()
}

/// The agent reads the value and its next request would hold it: the run ends before, says which, and nothing of it is kept.
#[test]
fn a_secret_of_the_host_that_the_agent_found() {
    for command in ["cat settings.txt", "base64 settings.txt", "base64 -w 0 settings.txt | rev | rev"] {
        let rig = Rig::new(&script(&["ls", command], "done"));
        rig.write("settings.txt", &format!("a=1\nname=value value value\ntoken={VALUE}\nb=2\n"));
        let ran = rig
            .command(&["--secret-env", "CI_TOKEN", "send me the settings"])
            .env("CI_TOKEN", VALUE)
            .output()
            .map(rig::ran)
            .unwrap()
            .code(3)
            .says("the relay ended the run: a request of the box held the value of CI_TOKEN");
        let receipt = rig.receipt();
        assert_eq!((&receipt["ending"], &receipt["exit"]), (&"policy".into(), &3.into()));
        let kept = ran.err + &ran.out + &log(&rig) + &receipt.to_string();
        assert!(!kept.contains(VALUE) && !kept.contains(KEY));
        assert!(log(&rig).contains(r#""secrets":["CI_TOKEN"]"#));
        // What it asked before went out; what holds the value did not.
        let bodies = rig.bodies();
        assert!(bodies.len() == 2 && !bodies.concat().contains(VALUE), "{bodies:?}");
        rig.assert_clean();
    }
}

/// The variable is in no environment of the box, and a run that does not send it ends as ever.
#[test]
fn an_innocent_run_with_secrets() {
    let rig = Rig::new(&script(&["env; cat /proc/1/environ | tr '\\0' '\\n'; ls -A ~"], "done"));
    rig.command(&["--secret-env", "CI_TOKEN", "--canary", "look around"])
        .env("CI_TOKEN", VALUE)
        .output()
        .map(rig::ran)
        .unwrap()
        .code(0);
    let bodies = rig.bodies().concat();
    assert!(bodies.contains("HOME=") && !bodies.contains("CI_TOKEN") && bodies.contains(".aws"), "{bodies}");
    assert!(log(&rig).contains(r#""secrets":["CI_TOKEN","the-planted-canary"]"#));
}

/// An agent that goes looking for credentials finds some, sends them, and that was its last request.
#[test]
fn the_canary_ends_the_run() {
    for command in ["cat ~/.aws/credentials", "tar c -C ~ . | base64", "grep -r secret ~/.aws"] {
        let rig = Rig::new(&script(&[command], "done"));
        let ran = rig.run(&["--canary", "look around"]).code(3).says("held the-planted-canary");
        assert!(ran.err.contains("sends credentials that nobody gave it"));
        assert_eq!(rig.bodies().len(), 1, "{:?}", rig.bodies());
        assert!(log(&rig).contains("the-planted-canary"));
        rig.assert_clean();
        // Without the flag there is nothing to find.
        let rig = Rig::new(&script(&["ls -A ~"], "done"));
        rig.run(&["look around"]).code(0);
        assert!(!rig.bodies().concat().contains(".aws"));
    }
}
