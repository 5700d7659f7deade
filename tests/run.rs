//! Whole runs, mini in a sealed box on bwrap: what a run leaves, what a hostile work directory can do to it, how it ends.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[expect(dead_code, reason = "tests/docker.rs uses the rest")]
#[path = "run/rig.rs"]
mod rig;

use rig::{KEY, Rig, list, ran, root, script, until};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_whole_run() {
    let rig = Rig::new(&script(&["echo found > REPORT.md", "cat REPORT.md; id -un"], "all done"));
    let stats = rig.place.join("stats.json");
    let copy = rig.place.join("copy.md");
    let args = ["the task", "--stats-file", stats.to_str().unwrap(), "-o", copy.to_str().unwrap()];
    let ran = rig.run(&args).code(0).says("report -> ").says("> bash echo found");
    assert_eq!(ran.out, "", "the report is the answer");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), "found\n");
    assert_eq!(std::fs::metadata(&copy).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        std::fs::metadata(rig.work.join("REPORT.md")).unwrap().uid(),
        std::fs::metadata(&rig.work).unwrap().uid()
    );

    let bodies = rig.bodies();
    assert_eq!(bodies.len(), 3);
    assert!(bodies[0].contains("the task") && bodies[0].contains("REPORT.md"), "the instruction is added");
    assert!(bodies[2].contains("found\\nagent"), "box_b34: the box's uid has a name: {}", bodies[2]);

    let receipt = rig.receipt();
    assert_eq!(receipt["ending"], "finished");
    assert_eq!(receipt["exit"], 0);
    assert_eq!(receipt["usage"]["calls"], 3);
    assert_eq!(receipt["usage"]["input"], 27);
    assert_eq!(receipt["usage"]["cache_read"], 100);
    assert_eq!(receipt["usage"]["output"], 13);
    assert_eq!(receipt["usage"]["models"][0], "m-1");
    let log = std::fs::read_to_string(rig.kept().join("calls.jsonl")).unwrap();
    assert_eq!(receipt["log"]["count"], log.lines().count());
    let head = sanduk::wire::digest::sha256_hex(log.lines().last().unwrap().as_bytes());
    assert_eq!(receipt["log"]["head"], head);

    let stats = json(&stats);
    assert_eq!(
        (&stats["exit"], &stats["ok"], &stats["error"]),
        (&Value::from(0), &Value::from(true), &Value::Null)
    );
    assert_eq!(stats["report"], copy.to_str().unwrap());
    assert_eq!(stats["usage"]["calls"], 3);
    assert!(stats["stats"].as_str().unwrap().starts_with("3 calls, 127 in (100 cached) / 13 out"));
    // TRAPS 43: neither key nor token is anywhere below the state or the work directory.
    for place in [&rig.state, &rig.work] {
        let hits = Command::new("grep").args(["-rl", KEY]).arg(place).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&hits.stdout), "");
    }
    rig.assert_clean();
}

#[test]
fn without_a_report_the_answer_is_on_stdout() {
    let rig = Rig::new(&script(&[], "the answer"));
    let ran = rig.run(&["x", "-q"]).code(0).says("the agent wrote no REPORT.md");
    assert_eq!(ran.out, "the answer\n");
    assert!(!ran.err.contains("  = POST"), "-q silences the trace: {}", ran.err);
    assert!(ran.err.contains("1 call, 107 in"), "-q does not silence the summary");
}

/// TRAPS 28: a report of the last run goes; what a link of that name leads to stays. Nobody asked for one: it is not ours.
#[test]
fn trap_28_the_old_report() {
    let rig = Rig::new(&script(&[], "done"));
    std::fs::write(rig.place.join("target"), "untouched").unwrap();
    symlink(rig.place.join("target"), rig.work.join("REPORT.md")).unwrap();
    rig.run(&["x"]).code(0).says("the agent wrote no REPORT.md");
    assert!(std::fs::symlink_metadata(rig.work.join("REPORT.md")).is_err(), "the dangling name went");
    assert_eq!(std::fs::read_to_string(rig.place.join("target")).unwrap(), "untouched");
    rig.write("REPORT.md", "the project's own");
    rig.run(&["x", "--no-report-instruction"]).code(0);
    assert_eq!(std::fs::read_to_string(rig.work.join("REPORT.md")).unwrap(), "the project's own");
    assert!(!rig.bodies()[1].contains("REPORT.md"));
}

/// TRAPS 27 and 30, BOX B36: a report that is no plain file is refused at once, and `-o` gets nothing of it.
#[test]
fn trap_27_a_report_that_is_a_link_a_fifo_a_directory_or_huge() {
    for (make, why) in [
        ("ln -s /etc/passwd REPORT.md", "it is a link"),
        ("mkfifo REPORT.md", "it is not a regular file"),
        ("mkdir REPORT.md", "it is not a regular file"),
        ("echo x > a; ln a REPORT.md", "it has 2 names"),
        ("truncate -s 1G REPORT.md", "1073741824 bytes, over"),
    ] {
        let rig = Rig::new(&script(&[make], "done"));
        let (stats, copy) = (rig.place.join("stats.json"), rig.place.join("copy.md"));
        rig.run(&["x", "--stats-file", stats.to_str().unwrap(), "-o", copy.to_str().unwrap()])
            .code(0)
            .says(why);
        assert!(!copy.exists(), "{make}");
        assert_eq!(json(&stats)["report"], Value::Null, "{make}");
    }
}

#[test]
fn the_copy_of_a_report_follows_no_link() {
    let rig = Rig::new(&script(&["echo found > REPORT.md"], "done"));
    std::fs::write(rig.place.join("target"), "untouched").unwrap();
    symlink(rig.place.join("target"), rig.place.join("copy.md")).unwrap();
    rig.run(&["x", "-o", "copy.md"]).code(2).says("no regular file");
    assert_eq!(rig.requests(), 0, "refused before the run, not after it");
    assert_eq!(std::fs::read_to_string(rig.place.join("target")).unwrap(), "untouched");
    // A shorter report leaves no tail of a longer one.
    let long = rig.place.join("long.md");
    std::fs::write(&long, "x".repeat(1000)).unwrap();
    rig.run(&["x", "-o", "long.md"]).code(0);
    assert_eq!(std::fs::read_to_string(&long).unwrap(), "found\n");
    // BOX B36: never into a directory that the box writes.
    rig.run(&["x", "-o", "work/copy.md"]).code(2).says("a directory that the box can write");
}

#[test]
fn a_task_of_a_mebibyte() {
    let rig = Rig::new(&script(&[], "done"));
    let task = format!("begin {} end", "task ".repeat(210_000));
    assert!(task.len() > 1024 * 1024);
    std::fs::write(rig.place.join("task.txt"), &task).unwrap();
    rig.run(&["--task-file", "task.txt"]).code(0);
    assert!(rig.bodies()[0].contains(&task));
    // TRAPS 31: it was never a file of the work directory.
    assert_eq!(list(&rig.work), Vec::<std::path::PathBuf>::new());
}

#[test]
fn an_unreadable_work_directory_is_refused() {
    let rig = Rig::new(&script(&[], "done"));
    std::fs::set_permissions(&rig.work, PermissionsExt::from_mode(0o000)).unwrap();
    rig.run(&["x"]).code(2).says("chmod u+rwx");
    std::fs::set_permissions(&rig.work, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!((rig.requests(), rig.records().len()), (0, 0));
}

/// TRAPS 35: as root a fresh directory goes to an ordinary uid; BOX B2: one that root owns is refused.
#[test]
fn trap_35_a_work_directory_that_is_made() {
    let rig = Rig::new(&script(&["id -u > REPORT.md"], "done"));
    let fresh = rig.place.join("fresh/deep");
    let output = ran(rig.command_in(&fresh, &["x"]).output().unwrap()).code(0);
    let uid = std::fs::read_to_string(fresh.join("REPORT.md")).unwrap();
    assert_eq!(
        uid.trim().parse::<u32>().unwrap(),
        std::fs::metadata(&fresh).unwrap().uid(),
        "{}",
        output.err
    );
    if root() {
        assert_ne!(uid.trim(), "0");
        std::fs::create_dir(rig.place.join("roots")).unwrap();
        ran(rig.command_in(&rig.place.join("roots"), &["x"]).output().unwrap()).code(2).says("chown -R");
    }
}

#[test]
fn a_state_directory_that_cannot_be_written_stops_it_before_anything_starts() {
    let rig = Rig::new(&script(&[], "done"));
    std::fs::write(rig.place.join("file"), "").unwrap();
    let mut command = rig.command(&["x"]);
    command.env("XDG_STATE_HOME", rig.place.join("file"));
    ran(command.output().unwrap()).code(2).says("XDG_STATE_HOME");
    assert_eq!(rig.requests(), 0);
}

/// No record, no call: a full disk under the log ends the run before anything is forwarded. Only root can mount a small disk; what a
/// limit of file sizes does, and a log on `/dev/full`, are tests of `clumsy` and `relay` that anybody runs.
#[test]
fn a_full_disk() {
    if !root() {
        return rig::skipped("a full disk under state and log: only root can mount a small one");
    }
    let rig = Rig::new(&script(&[], "done"));
    for (name, size, flag) in [("state", "16k", None), ("logs", "16k", Some("--log-dir"))] {
        let disk = rig.place.join(name);
        std::fs::create_dir_all(&disk).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "small"])
            .arg(&disk)
            .status();
        assert!(mount.unwrap().success());
        let _ = std::fs::write(disk.join("fill"), vec![b'x'; 64 * 1024]);
        let more: Vec<&str> = flag.iter().copied().chain(flag.map(|_| name)).collect();
        let ran = rig.run(&[&["x"][..], &more].concat());
        assert!(Command::new("umount").arg(&disk).status().unwrap().success());
        assert!(matches!(ran.code, Some(2 | 3)), "{name}: {:?} {}", ran.code, ran.err);
        assert!(ran.err.contains("No space left"), "{name}: {}", ran.err);
        assert!(rig.bodies().is_empty(), "{name}: nothing was forwarded");
        rig.assert_clean();
    }
}

/// TRAPS 29: an agent can say anything; a terminal sees it escaped.
#[test]
fn trap_29_escapes_in_what_the_agent_says() {
    let rig = Rig::new(&script(&["true # \u{1b}]0;owned\u{7}\u{202e}"], "\u{1b}[2J gone \u{9b}31m"));
    let ran = rig.run(&["x"]).code(0);
    assert!(ran.err.contains("\\u{1b}]0;owned\\u{7}\\u{202e}"), "{}", ran.err);
    let bare = |c: char| c.is_control() && c != '\n';
    assert!(!ran.err.contains(bare), "{:?}", ran.err);
}

/// TRAPS 2, 4, 5, 20, 21: a silent agent that ignores SIGTERM is ended in time, and what it used is told.
#[test]
fn trap_02_04_a_silent_agent_meets_the_timeout() {
    let rig = Rig::new(&script(&["echo partly > REPORT.md", "trap '' TERM; sleep 600"], "done"));
    let stats = rig.place.join("stats.json");
    rig.run(&["x", "--timeout", "3s", "--stats-file", stats.to_str().unwrap()]).code(124).says("report -> ");
    let stats = json(&stats);
    assert_eq!((&stats["exit"], &stats["ok"]), (&Value::from(124), &Value::from(false)));
    assert_eq!(stats["usage"]["output"], 10, "TRAPS 21: the partial tally");
    assert_eq!(rig.receipt()["ending"], "timeout");
    rig.assert_clean();
}

/// TRAPS 6, 7, 18, 22: signals tear all of it down, also one that a background shell had ignored.
#[test]
fn trap_06_signals() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let rig = Rig::new(&script(&["sleep 600"], "done"));
        let mut command = Command::new("/bin/sh");
        let plain = rig.command(&["x"]);
        command
            .args(["-c", "trap '' INT HUP; exec \"$@\"", "sh"])
            .arg(plain.get_program())
            .args(plain.get_args());
        command.env_clear().envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(&rig.place);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        rig.record_with("box_pid");
        until("a call", || (rig.requests() > 0).then_some(()));
        rig::signal(child.id(), name);
        ran(child.wait_with_output().unwrap()).code(code).says("interrupted by signal");
        assert_eq!(rig.receipt()["exit"], code);
        rig.assert_clean();
    }
}

/// Checklist G4, TRAPS 28 and 46: `--dry-run` changes nothing and shows no secret.
#[test]
fn trap_46_a_dry_run_changes_nothing() {
    let rig = Rig::new(&script(&[], "done"));
    rig.write("REPORT.md", "old");
    rig.write(".env", "A=1");
    std::fs::remove_dir(rig.place.join("none")).unwrap_err();
    let all = |dir: &Path| {
        Command::new("find").arg(dir).args(["-printf", "%p %T@ %m %s\n"]).output().unwrap().stdout
    };
    let (before, tmp) = (all(&rig.place), channels());
    let ran = rig.run(&["the $task", "--dry-run", "--mask", ".env"]).code(0);
    assert_eq!(all(&rig.place), before, "nothing was made, changed or removed");
    assert!(channels().len() <= tmp.len() || root(), "no channel is made");
    assert!(
        ran.out.contains("--unshare-net") && ran.out.contains("/work/.env") && ran.out.contains("the $task")
    );
    assert!(ran.out.contains("<run token>") && ran.out.contains("<control secret>"));
    assert!(!ran.out.contains(KEY) && !ran.err.contains(KEY));
    assert_eq!(rig.requests(), 0);
}

fn channels() -> Vec<std::path::PathBuf> {
    list(Path::new("/tmp")).into_iter().filter(|p| p.to_string_lossy().starts_with("/tmp/sbx-")).collect()
}

/// A refused key: exit 2, and the last report, the missing work directory and the state are as before.
#[test]
fn trap_28_a_refused_key_touches_nothing() {
    let rig = Rig::new(r#"{"key": "another", "replies": []}"#);
    rig.write("REPORT.md", "old");
    rig.run(&["x"]).code(2).says("key");
    assert_eq!(std::fs::read_to_string(rig.work.join("REPORT.md")).unwrap(), "old");
    assert_eq!(list(&rig.state.join("sanduk/receipts")), Vec::<std::path::PathBuf>::new());
    rig.assert_clean();
}

/// Part of BOX B4: set-id bits that came with the work directory are cleared and named.
#[test]
fn box_b04_set_id_bits_are_cleared_after_the_run() {
    let rig = Rig::new(&script(&["cp /bin/true mine; chmod 4755 mine; ls -l mine > REPORT.md"], "done"));
    rig.write("given", "x");
    std::fs::set_permissions(rig.work.join("given"), PermissionsExt::from_mode(0o6755)).unwrap();
    rig.run(&["x"]).code(0).says("cleared the set-id bits of");
    for name in ["given", "mine"] {
        assert_eq!(std::fs::metadata(rig.work.join(name)).unwrap().mode() & 0o6000, 0, "{name}");
    }
    let listing = std::fs::read_to_string(rig.work.join("REPORT.md")).unwrap();
    assert!(!listing.contains("rws"), "the box could set the bit: {listing}");
    assert_eq!(rig.receipt()["set_id_cleared"].as_array().unwrap().len(), 1);
}

#[test]
fn masked_files_and_directories_are_empty_in_the_box() {
    let look =
        "cat .env sub/deep/key; ls -A private; echo no > .env; touch private/x; mv .env other; echo looked";
    let rig = Rig::new(&script(&[look], "done"));
    for dir in ["private", "sub", "sub/deep"] {
        std::fs::create_dir(rig.work.join(dir)).unwrap();
        rig.give(&rig.work.join(dir));
    }
    for file in [".env", "private/inner", "sub/deep/key", "server.pem"] {
        rig.write(file, "HIDDEN-TEXT");
    }
    rig.run(&["x", "--mask", ".env", "--mask", "private", "--mask", "sub/deep/key"])
        .code(0)
        .says("the agent can read server.pem in the work directory");
    assert!(rig.bodies()[1].contains("looked"));
    assert!(rig.bodies().iter().all(|b| !b.contains("HIDDEN-TEXT") && !b.contains("inner")));
    assert_eq!(std::fs::read_to_string(rig.work.join(".env")).unwrap(), "HIDDEN-TEXT");
    symlink("sub", rig.work.join("way")).unwrap();
    rig.run(&["x", "--mask", "way/deep/key"]).code(2).says("link");
}

#[test]
fn mounts_are_there_and_read_only_where_asked() {
    let rig = Rig::new(&script(
        &["cat /a/f; echo new > /a/g; echo new > /b/g; ls /root /home /var /srv; true"],
        "done",
    ));
    for name in ["one", "two"] {
        std::fs::create_dir(rig.place.join(name)).unwrap();
        rig.give(&rig.place.join(name));
    }
    std::fs::write(rig.place.join("two/f"), "from the host").unwrap();
    rig.run(&["x", "--mount", "two:/a:ro", "--mount", "one:/b"]).code(0);
    assert!(rig.bodies()[1].contains("from the host") && rig.bodies()[1].contains("Read-only file system"));
    assert!(!rig.place.join("two/g").exists());
    assert!(rig.place.join("one/g").exists());
}

/// `--max-turns` is a cap of the operator's.
#[test]
fn a_cap_on_turns_ends_with_5() {
    let rig = Rig::new(
        r#"{"end":"last","replies":[{"tools":[{"name":"bash","input":{"command":"echo again"}}]}]}"#,
    );
    rig.run(&["x", "--max-turns", "2"]).code(5).says("turn limit");
    assert_eq!(rig.bodies().len(), 2);
}

/// TRAPS 25: a copy that fails is exit 2, and the statistics name no report.
#[test]
fn trap_25_a_copy_that_fails_is_not_claimed() {
    let rig = Rig::new(&script(&["echo found > REPORT.md; sleep 1"], "done"));
    let (out, stats) = (rig.place.join("out"), rig.place.join("stats.json"));
    std::fs::create_dir(&out).unwrap();
    let copy = out.join("copy.md");
    let child = rig.start(&["x", "-o", copy.to_str().unwrap(), "--stats-file", stats.to_str().unwrap()]);
    rig.record_with("box_pid");
    std::fs::remove_dir(&out).unwrap();
    ran(child.wait_with_output().unwrap()).code(2).says("cannot write the report to");
    assert_eq!((&json(&stats)["report"], &json(&stats)["exit"]), (&Value::Null, &Value::from(2)));
    rig.assert_clean();
}

/// TRAPS 32: nothing of ours is written where the box can write.
#[test]
fn trap_32_no_file_of_ours_in_a_mount() {
    let rig = Rig::new(&script(&[], "done"));
    std::fs::create_dir(rig.place.join("data")).unwrap();
    rig.give(&rig.place.join("data"));
    for flags in
        [["--log-dir", "work/logs"], ["--stats-file", "data/s.json"], ["--log-dir", "data"], ["-o", "data/r"]]
    {
        rig.run(&[&["x", "--mount", "data:/data"][..], &flags].concat())
            .code(2)
            .says("a directory that the box can write");
    }
    rig.run(&["x", "--mount", "data:/data", "--log-dir", "logs"]).code(0);
    let kept = list(&rig.place.join("logs")).remove(0);
    assert!(kept.join("calls.jsonl").exists() && kept.join("receipt.json").exists());
    assert_eq!(list(&rig.state.join("sanduk/receipts")), Vec::<std::path::PathBuf>::new());
}

/// TRAPS 34: the engine takes paths as they are.
#[test]
fn trap_34_odd_paths() {
    let rig = Rig::new(&script(&["echo found > REPORT.md; touch ~/x && echo $HOME"], "done"));
    for name in ["a,b:c", "a b'c\"d", "--unshare-net", "$(touch x)\n"] {
        let work = rig.place.join(name);
        std::fs::create_dir(&work).unwrap();
        rig.give(&work);
        ran(rig.command_in(&work, &["x"]).output().unwrap()).code(0);
        assert_eq!(std::fs::read_to_string(work.join("REPORT.md")).unwrap(), "found\n", "{name}");
    }
    // TRAPS 36: a fresh home for whichever uid owns the work directory.
    assert!(rig.bodies()[1].contains("/home/agent"));
}

/// A standard error that nobody reads holds up neither `--timeout` nor a signal.
#[test]
fn a_stalled_standard_error_holds_nothing_up() {
    // Some hundred lines of trace, more than its pipe holds, which is read only after the end.
    let call = serde_json::json!({"name": "bash", "input": {"command": format!("true {}", "x".repeat(150))}});
    let mut replies: Vec<Value> = (0..30).map(|_| serde_json::json!({"tools": vec![&call; 20]})).collect();
    replies.push(serde_json::json!({"text": "done"}));
    let rig = Rig::new(&serde_json::json!({"order": "turn", "end": "last", "replies": replies}).to_string());
    let mut child = rig.start(&["x", "--timeout", "8s"]);
    let status = until("the end of the run", || child.try_wait().unwrap());
    assert!(matches!(status.code(), Some(0 | 124)), "{status:?}");
    rig.assert_clean();
}

/// A model that fails: the agent says so, exit 1, never taken for a result (TRAPS 19, 20).
#[test]
fn trap_19_an_agent_without_a_result_has_failed() {
    let rig = Rig::new(r#"{"end":"last","replies":[{"status":400,"message":"no such thing"}]}"#);
    let stats = rig.place.join("stats.json");
    rig.run(&["x", "--skip-key-check", "--stats-file", stats.to_str().unwrap()])
        .code(1)
        .says("the agent reported an error");
    assert_eq!(json(&stats)["ok"], false);
    assert!(json(&stats)["error"].as_str().unwrap().contains("no such thing"));
}

/// TRAPS 23: an engine that cannot start the box is exit 4, with its words and a remedy; nothing is left.
#[test]
fn trap_23_an_engine_that_cannot() {
    let rig = Rig::new(&script(&[], "done"));
    let fake = |body: &str| {
        let bin = rig.place.join("bin");
        let _ = std::fs::create_dir(&bin);
        std::fs::write(bin.join("bwrap"), format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(bin.join("bwrap"), PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = rig.command(&["x"]);
        command.env("PATH", bin);
        ran(command.output().unwrap())
    };
    let version = "[ \"$1\" = --version ] && { echo bubblewrap 0.9.0; exit; }";
    fake(&format!("{version}\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1"))
        .code(4)
        .says("No permissions to create a new namespace")
        .says("unprivileged_userns_clone");
    fake("echo bubblewrap 0.7.0").code(4).says("0.8");
    fake("exit 3").code(4);
    let mut none = rig.command(&["x"]);
    none.env("PATH", rig.place.join("empty"));
    ran(none.output().unwrap()).code(4).says("bubblewrap");
    assert!(rig.bodies().is_empty());
    rig.assert_clean();
}

/// TRAPS 1, the worst one: records of an unexpected shape, any bytes, any length. The box here is ours: a program that only waits in
/// the engine's place, and a control server that lies. The run ends, and nothing of it is left.
#[test]
fn trap_01_a_box_that_lies() {
    let lines = [
        "null",
        "[]",
        "{}",
        "not json",
        "\u{0}\u{1b}[2J",
        r#"{"type":null}"#,
        r#"{"type":"text","text":[1]}"#,
        r#"{"type":"tool","name":{},"arg":7}"#,
        r#"{"type":"usage","input":-1,"output":"x"}"#,
        r#"{"type":"result"}"#,
        r#"{"type":"result","ending":"done","ok":"yes","turns":1e999}"#,
        &"[".repeat(60_000),
        &"x".repeat(60_000),
    ];
    let mut events: Vec<Value> = Vec::new();
    for line in lines {
        for kind in ["stdout", "stderr"] {
            events.push(serde_json::json!({"kind": kind, "text": line, "more": line.len() > 50_000}));
        }
    }
    events.push(serde_json::json!({"kind": "turn_end", "turn": "?", "code": 0, "signal": 9}));
    let numbered: Vec<Value> =
        events.iter().zip(1u64..).map(|(e, n)| serde_json::json!({"n": n, "what": e})).collect();
    let version = sanduk::wire::control::VERSION;
    let status = serde_json::json!({"version": version, "state": "idle", "events": numbered}).to_string();

    let rig = Rig::new(&script(&[], "done"));
    let bin = rig.place.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let body = "#!/bin/sh\n[ \"$1\" = --version ] && { echo bubblewrap 0.9.0; exit; }\nexec /bin/sleep 600\n";
    std::fs::write(bin.join("bwrap"), body).unwrap();
    std::fs::set_permissions(bin.join("bwrap"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = rig.command(&["x"]);
    command.env("PATH", &bin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let record = rig.record_with("engine_pid");
    let socket = Path::new("/tmp").join(&record["channel"]).join("box/control.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for conn in listener.incoming() {
            let mut conn = conn.unwrap();
            let mut head = [0; 64 * 1024];
            let n = conn.read(&mut head).unwrap();
            let body = if head[..n].starts_with(b"GET") { status.as_str() } else { "{}" };
            let _ = write!(conn, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    let ran = ran(child.wait_with_output().unwrap()).code(1);
    assert!(!ran.err.contains("panicked") && !ran.err.contains('\u{1b}'), "{}", ran.err);
    let pid: u32 = record["engine_pid"].parse().unwrap();
    assert!(rig::processes().iter().all(|(p, line)| *p != pid || line.is_empty()), "the engine is left");
    rig.assert_clean();
}

/// TRAPS 11, 12 and BOX B13, B28: a sweep removes what a record of a dead owner names if it is ours, and nothing else.
#[test]
fn box_b13_a_sweep_touches_only_what_is_ours() {
    let rig = Rig::new(&script(&[], "done"));
    rig.run(&["x"]).code(0);
    let runs = rig.state.join("sanduk/runs");
    let record = |id: &str, text: &str| {
        std::fs::create_dir(runs.join(id)).unwrap();
        std::fs::write(runs.join(id).join("record"), text).unwrap();
    };
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let uid = std::fs::metadata("/proc/self").unwrap().uid();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let precious = rig.place.join("precious");
    std::fs::create_dir(&precious).unwrap();
    // A path that is none of ours; a pid that was reused (another start time); half a record; none at all.
    record("climbs", &format!("channel=../{}\nuid={uid}\n", precious.display()));
    record(
        "reused",
        &format!(
            "boot={boot}box_pid={}\nbox_start=1\nkeeper_pid={}\nkeeper_start=1\n",
            bystander.id(),
            bystander.id()
        ),
    );
    record("torn", "kind=run\nchannel=sbx-00000000000");
    std::fs::create_dir(runs.join("empty")).unwrap();
    // TRAPS 8, 10: what cannot be looked at is not "nothing": its record stays.
    std::fs::create_dir_all(runs.join("odd/record")).unwrap();
    std::fs::create_dir(runs.join(".new-4194304-x")).unwrap();
    // A deep tree as a channel, with a link out of it.
    let channel = "sbx-00000000c0ffee00";
    let mut deep = Path::new("/tmp").join(channel);
    let top = deep.clone();
    let _ = std::fs::remove_dir_all(&top);
    for _ in 0..60 {
        deep.push("d".repeat(60));
    }
    std::fs::create_dir_all(&deep).unwrap();
    symlink(&precious, top.join("link")).unwrap();
    record("deep", &format!("channel={channel}\nuid={uid}\n"));

    rig.run(&["x"]).code(0).says("climbs").says("its record is kept");
    assert_eq!(
        rig.records(),
        [runs.join("climbs"), runs.join("odd")],
        "one that cannot be done holds up no other"
    );
    assert!(precious.exists() && !top.exists());
    assert!(bystander.try_wait().unwrap().is_none(), "a stranger was killed");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// A live run's record is left alone by another run's sweep, and the runs do not see each other (trap 17, P11).
#[test]
fn trap_17_a_run_beside_another() {
    let rig = Rig::new(&script(&["sleep 2"], "done"));
    let long = rig.start(&["long"]);
    rig.record_with("box_pid");
    for _ in 0..2 {
        rig.run(&["short"]).code(0);
    }
    ran(long.wait_with_output().unwrap()).code(0);
    rig.assert_clean();
}

/// `audit/argv.txt`: what the engine is told, word for word, and that our own roles are told nothing.
#[test]
fn arguments_are_those_of_the_ledger() {
    use sanduk::engine::plan::{Mask, Mount, Plan};
    let mount = |host: &str, dest: &str, readonly| Mount { host: host.into(), dest: dest.into(), readonly };
    let mask = |path: &str, directory| Mask { path: path.into(), directory };
    let plan = Plan {
        user: (1234, 5678),
        channel: "/tmp/sbx-CHANNEL".into(),
        workdir: "/WORKDIR".into(),
        mounts: vec![mount("/MOUNT", "/DEST", false), mount("/MOUNT", "/RO", true)],
        masks: vec![mask("FILE", false), mask("DIR", true)],
        hole: None,
    };
    let argv = sanduk::engine::bwrap::argv(&plan);
    let words: Vec<&str> = argv.iter().map(|a| a.to_str().unwrap()).collect();
    let ours = words.join(" ").replace("1234", "UID").replace("5678", "GID");
    let ledger =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/argv.txt")).unwrap();
    let row = |id: &str| ledger.lines().find_map(|l| l.strip_prefix(id)).unwrap_or_default();
    assert_eq!(row("EXEC-41 bwrap | "), ours);

    let rig = Rig::new(&script(&["sleep 1"], "done"));
    let child = rig.start(&["x"]);
    let record = rig.record_with("engine_pid");
    let keeper: u32 = record["keeper_pid"].parse().unwrap();
    let line = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let roles: Vec<String> =
        rig::processes().into_iter().map(|(_, l)| l).filter(|l| l.contains("/sanduk ")).collect();
    assert!(line(keeper).ends_with("\0keeper\0"));
    assert!(roles.iter().any(|l| l.ends_with(" relay-role ")), "{roles:?}");
    assert_eq!((row("EXEC-43 sanduk | "), row("EXEC-40 sanduk | ")), ("keeper", "relay-role"));
    let engine: u32 = record["engine_pid"].parse().unwrap();
    for pid in [keeper, engine] {
        // BOX B9: nothing of the environment reaches a child; the keeper's is not even readable by an ordinary user.
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(environ.is_empty(), "{}", String::from_utf8_lossy(&environ));
    }
    ran(child.wait_with_output().unwrap()).code(0);
}

/// What the agent sends by hand from its shell, past its own program: sealed mode refuses the provider's own search; the flag lets it
/// pass, said at the start and kept in the receipt.
#[test]
fn a_search_by_the_provider_needs_the_flag() {
    // The token as the agent's own program has it.
    let ask = r#"while IFS= read -r -d '' v; do export "$v"; done < /proc/$1/environ
at=${SANDUK_MINI_BASE_URL#http://}
b='{"model":"m-1","max_tokens":1,"messages":[],"tools":[{"type":"web_search_20260318","name":"web_search"}]}'
exec 3<>/dev/tcp/${at%:*}/${at#*:}
printf 'POST /v1/messages HTTP/1.1\r\nHost: %s\r\nx-api-key: %s\r\nContent-Length: %s\r\n\r\n%s' "$at" "$SANDUK_MINI_TOKEN" "${#b}" "$b" >&3
timeout 2 cat <&3 > answer"#;
    let asking = || {
        let rig = Rig::new(&script(&["bash ask.sh $PPID; echo done"], "all done"));
        rig.write("ask.sh", ask);
        rig
    };
    let rig = asking();
    let ran = rig.run(&["the task"]).code(0);
    let answer = std::fs::read_to_string(rig.work.join("answer")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("web_search_20260318"), "{answer}");
    assert!(!answer.contains("--allow"), "{answer}");
    assert!(
        !rig.bodies().iter().any(|b| b.contains("web_search_20260318\",\"name")),
        "it reached the provider"
    );
    ran.says("--allow-server-tools");
    assert_eq!(rig.receipt()["policy"]["allow_server_tools"], false);

    let rig = asking();
    rig.run(&["the task", "--allow-server-tools"])
        .code(0)
        .says("--allow-server-tools: the provider may search, fetch and run things for the agent");
    assert!(rig.bodies().iter().any(|b| b.contains("\"tools\":[{\"type\":\"web_search_20260318\"")));
    assert_eq!(rig.receipt()["policy"]["allow_server_tools"], true);
}
