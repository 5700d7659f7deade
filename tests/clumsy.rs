//! Wrong command lines and odd machines: each is one clear line and the right exit code, and nothing is left of it.
#![expect(clippy::disallowed_methods, reason = "tests")]

#[path = "run/rig.rs"]
#[expect(dead_code, reason = "tests of whole runs use the rest")]
mod rig;

use rig::{KEY, Rig, ran, root, script};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `rig`'s command line below a shell, which sets the scene first: `ulimit -n 20`, `cd …`, a redirection behind it.
fn in_shell(rig: &Rig, before: &str, behind: &str, more: &[&str]) -> Output {
    let plain = rig.command(more);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", &format!("{before}\n\"$@\" {behind}"), "sh"])
        .arg(plain.get_program())
        .args(plain.get_args());
    shell.env_clear().envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(&rig.place);
    shell.stdin(Stdio::null()).output().unwrap()
}

fn made(path: &Path, rig: &Rig) {
    std::fs::create_dir(path).unwrap();
    rig.give(path);
}

/// Refused before anything was made or asked.
#[track_caller]
fn refused(rig: &Rig, more: &[&str], says: &str) {
    let ran = rig.run(more).code(2).says(says);
    assert_eq!(ran.err.lines().count(), 1, "one line: {}", ran.err);
    assert_eq!(rig.requests(), 0);
    rig.assert_clean();
}

/// TRAPS 32 and BOX B36: records, receipts and channels are not put into a box, by whichever way.
#[test]
fn trap_32_our_own_places_are_in_no_box() {
    let rig = Rig::new(&script(&[], "done"));
    for mount in ["state:/s", ".:/s:ro", "state/sanduk/runs:/s"] {
        std::fs::create_dir_all(rig.state.join("sanduk/runs")).unwrap();
        refused(&rig, &["x", "--mount", mount], "the state directory");
    }
    refused(&rig, &["x", "--mount", "/tmp:/t"], "the runs' channels");
    refused(&rig, &["x", "--mount", "/:/host:ro"], "no box may see that");
    let mut command = rig.command(&["x"]);
    command.env("XDG_STATE_HOME", rig.work.join("below"));
    ran(command.output().unwrap()).code(2).says("set XDG_STATE_HOME to another place");
    assert!(!rig.work.join("below").exists());
}

/// What is masked does not come back by a mount, and a report can be written.
#[test]
fn a_mask_is_not_undone() {
    let rig = Rig::new(&script(&[], "done"));
    made(&rig.work.join("private"), &rig);
    rig.write("private/key", "x");
    rig.write("REPORT.md", "old");
    refused(&rig, &["x", "--mask", "private", "--mount", "work/private:/p"], "shows it at /p");
    refused(&rig, &["x", "--mask", "private/key", "--mount", "work:/w:ro"], "shows it at /w");
    refused(&rig, &["x", "--mask", "REPORT.md"], "could not write its report");
    for (mask, why) in
        [("nope", "No such file"), ("/etc", "below the work directory"), ("", "below"), (".", "below")]
    {
        refused(&rig, &["x", "--mask", mask], why);
    }
    rig.run(&["x", "--mask", "REPORT.md", "--no-report-instruction"]).code(0);
    assert_eq!(std::fs::read_to_string(rig.work.join("REPORT.md")).unwrap(), "old");
}

/// Mounts that mean nothing.
#[test]
fn mounts_that_are_none() {
    let rig = Rig::new(&script(&[], "done"));
    for dir in ["one", "c:d"] {
        made(&rig.place.join(dir), &rig);
    }
    std::fs::write(rig.place.join("file"), "").unwrap();
    for (mount, why) in [
        ("one", "HOST:DEST"),
        ("one:/data:rx", "the mode is ro or rw"),
        ("c:d:/data", "a path with a colon"),
        ("none:/data", "No such file"),
        ("file:/data", "not a directory"),
        ("one:data", "not an absolute path"),
        ("one:/x/../work/y", "/work is where -w lands"),
        ("one:/", "not an absolute path"),
    ] {
        refused(&rig, &["x", "--mount", mount], why);
    }
    refused(&rig, &["x", "--mount", "one:/a", "--mount", "one:/a/../a/b"], "already holds");
}

/// The current directory and the work directory in odd states.
#[test]
fn places_that_are_none() {
    let rig = Rig::new(&script(&[], "done"));
    let odd = rig.place.join(OsStr::from_bytes(b"a\xffb"));
    made(&odd, &rig);
    made(&odd.join("work"), &rig);
    let mut command = rig.command_in(Path::new("work"), &["x", "--log-dir", "logs"]);
    let ran_there = ran(command.current_dir(&odd).output().unwrap()).code(2).says("not UTF-8");
    assert!(!odd.join("logs").exists(), "{}", ran_there.err);
    let gone = in_shell(&rig, "mkdir gone; cd gone; rmdir ../gone", "-w new", &["x"]);
    ran(gone).code(2).says("-w");
    let plain = rig.command_in(Path::new("new"), &["x"]);
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "mkdir gone; cd gone; rmdir ../gone; exec \"$@\"", "sh"]);
    shell.arg(plain.get_program()).args(plain.get_args()).env_clear().current_dir(&rig.place);
    shell.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
    ran(shell.output().unwrap()).code(2).says("the current directory is gone");
    symlink("/nowhere/at/all", rig.place.join("dangling")).unwrap();
    ran(rig.command_in(Path::new("dangling"), &["x"]).output().unwrap())
        .code(2)
        .says("link that leads nowhere");
    // A link to a directory is fine: what it leads to is the work directory.
    symlink(&rig.work, rig.place.join("way")).unwrap();
    ran(rig.command_in(Path::new("way"), &["x"]).output().unwrap()).code(0);
    let mut homeless = rig.command(&["x"]);
    homeless.env_remove("HOME").env_remove("XDG_STATE_HOME");
    ran(homeless.output().unwrap()).code(2).says("set HOME");
    rig.assert_clean();
}

/// Whatever the umask, one that shuts out its own user too: a box can be entered and what is ours is ours alone.
#[test]
fn any_umask_will_do() {
    for umask in ["077", "000", "027", "777"] {
        let rig = Rig::new(&script(&["echo found > REPORT.md"], "done"));
        ran(in_shell(&rig, &format!("umask {umask}"), "", &["x"])).code(0).says("report -> ");
        for path in [rig.state.join("sanduk"), rig.kept(), rig.kept().join("receipt.json")] {
            assert_eq!(
                std::fs::metadata(&path).unwrap().permissions().mode() & 0o077,
                0,
                "{}",
                path.display()
            );
        }
    }
}

/// Closed and full streams: a run needs none of them; an answer that nobody got is not a success.
#[test]
fn streams_that_are_closed_or_full() {
    let rig = Rig::new(&script(&["echo found > REPORT.md"], "the answer"));
    ran(in_shell(&rig, "", "<&- >&- 2>&-", &["x", "-o", "copy.md"])).code(0);
    assert_eq!(std::fs::read_to_string(rig.place.join("copy.md")).unwrap(), "found\n");
    ran(in_shell(&rig, "", "2>/dev/full", &["x"])).code(0);
    let answer = ["x", "--no-report-instruction"];
    ran(in_shell(&rig, "", ">/dev/full", &answer)).code(1).says("cannot write the answer");
    ran(in_shell(&rig, "", ">/dev/full", &["x", "--dry-run"])).code(1).says("standard output");
    rig.assert_clean();
}

/// A machine that gives little: exit 2 with the limit's name, or it works; a limit is an error and never a signal's death.
#[test]
fn few_descriptors_and_small_files() {
    let rig = Rig::new(&script(&[], "done"));
    for few in ["4", "10", "20", "40"] {
        let ran = ran(in_shell(&rig, &format!("ulimit -n {few}"), "", &["x"]));
        assert!(matches!(ran.code, Some(2 | 125)), "{few}: {:?} {}", ran.code, ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{few}: {}", ran.err);
        assert!(few == "4" || ran.err.contains("ulimit -n 1024"), "{few}: {}", ran.err);
    }
    // 0: not even the record; 64: the copy of the program does not fit.
    for small in ["0", "64"] {
        ran(in_shell(&rig, &format!("ulimit -f {small}"), "", &["x"])).code(2).says("File too large");
        rig.assert_clean();
    }
    assert_eq!(rig.requests(), 0);
}

/// A limit that the host side ignores as a signal is no gift to the agent: its programs start with the defaults.
#[test]
fn the_agent_inherits_no_ignored_signal() {
    let rig = Rig::new(&script(&["grep SigIgn /proc/self/status"], "done"));
    rig.run(&["x"]).code(0);
    let body = &rig.bodies()[1];
    let (_, after) = body.split_once("SigIgn:\\t").unwrap();
    let ignored = u64::from_str_radix(&after[..16], 16).unwrap();
    // HUP, INT, PIPE, TERM, XFSZ; the real-time ones of whoever started the tests are not ours.
    for number in [1, 2, 13, 15, 25] {
        assert_eq!(ignored >> (number - 1) & 1, 0, "signal {number}: {}", &after[..16]);
    }
}

/// TRAPS 7: a signal at any early moment: 128+N, nothing left.
#[test]
fn trap_07_a_signal_while_it_starts() {
    for millis in [1, 4, 9, 15, 22, 30, 45, 70] {
        let rig = Rig::new(&script(&["sleep 600"], "done"));
        let child = rig.start(&["x"]);
        std::thread::sleep(std::time::Duration::from_millis(millis));
        rig::signal(child.id(), "TERM");
        rig::signal(child.id(), "TERM");
        let ran = ran(child.wait_with_output().unwrap());
        // Before our handler stands, the signal itself ends it.
        assert!(matches!(ran.code, Some(143) | None), "{millis}: {:?} {}", ran.code, ran.err);
        rig.assert_clean();
    }
}

/// The channel is in /tmp, and the box runs a copy of the program from there.
#[test]
fn a_tmp_that_is_mounted_noexec() {
    let program = env!("CARGO_BIN_EXE_sanduk");
    if !root() || program.starts_with("/tmp/") {
        return rig::skipped(
            "a /tmp mounted noexec: only root can, and not where the program itself is there",
        );
    }
    let rig = Rig::new(&script(&[], "done"));
    let plain = rig.command(&["x"]);
    let mut apart = Command::new("unshare");
    let scene = "mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp && exec \"$@\"";
    apart.args(["-m", "/bin/sh", "-c", scene, "sh"]).arg(program).args(plain.get_args());
    apart.envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?)))).current_dir(&rig.place);
    ran(apart.stdin(Stdio::null()).output().unwrap())
        .code(4)
        .says("noexec")
        .says("mount -o remount,exec /tmp");
    rig.assert_clean();
}

/// Keys and tokens that are none: exit 2, which file, and not a byte of it.
#[test]
fn keys_and_tokens_that_are_none() {
    let rig = Rig::new(&script(&[], "done"));
    let at = |name: &str| rig.place.join(name).display().to_string();
    for (name, bytes) in
        [("empty", &b" \n"[..]), ("two", b"sk-aaaa1\nsk-bbbb2\n"), ("nul", b"sk-cc\0c"), ("hi", b"sk-\xff")]
    {
        std::fs::write(rig.place.join(name), bytes).unwrap();
    }
    std::fs::write(rig.place.join("big"), "k".repeat(10_000)).unwrap();
    std::fs::write(rig.place.join("good"), KEY).unwrap();
    std::fs::create_dir(rig.place.join("dir")).unwrap();
    for name in ["empty", "two", "nul", "hi", "big", "dir", "missing"] {
        refused(&rig, &["x", "--key-file", &at(name)], &at(name));
        for (token, key) in [(name, "good"), ("good", name)] {
            let upstream = format!("http://{}", rig.address);
            // One that takes them serves on: the test shall then fail, not wait.
            let mut relay = Command::new("timeout");
            relay.args(["20", env!("CARGO_BIN_EXE_sanduk")]).args([
                "relay",
                "--listen",
                "tcp:127.0.0.1:0",
                "--upstream",
                &upstream,
            ]);
            relay.args(["--token-file", &at(token), "--key-file", &at(key)]);
            let ran = ran(relay.stdin(Stdio::null()).output().unwrap()).code(2).says(&at(name));
            assert!(ran.err.contains(if token == name { "the token" } else { "the key" }), "{}", ran.err);
            assert!(!ran.err.contains("sk-") && ran.err.lines().count() == 1, "{}", ran.err);
        }
    }
    let mut none = rig.command(&["x"]);
    ran(none.env_remove("ANTHROPIC_API_KEY").output().unwrap())
        .code(2)
        .says("ANTHROPIC_API_KEY")
        .says("--key-file");
}

/// As root the relay is a user of its own: authorities that it could not read are refused before the run, not at its first call.
#[test]
fn a_ca_file_that_the_relay_could_not_read() {
    let rig = Rig::new(&script(&[], "done"));
    let at = rig.place.join("ca.pem");
    std::fs::write(&at, "x").unwrap();
    let run = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command.args(["run", "x", "-w"]).arg(&rig.work).args(["--model", "m", "--skip-key-check"]);
        command.args(["--upstream", "https://127.0.0.1:1", "--ca-file", file, "--dry-run"]);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &rig.place);
        ran(command.current_dir(&rig.place).output().unwrap())
    };
    run("none.pem").code(2).says("--ca-file none.pem").says("No such file");
    run("work").code(2).says("not a regular file");
    run("ca.pem").code(0);
    if !root() {
        return rig::skipped("a --ca-file that only root may read: only root's relay is another user");
    }
    std::fs::set_permissions(&at, PermissionsExt::from_mode(0o600)).unwrap();
    run("ca.pem").code(2).says("may not read it");
}

/// TRAPS 9, 12: what fails late, when records and pipes would be next, leaves neither.
#[test]
fn trap_12_what_fails_late_leaves_nothing() {
    let rig = Rig::new(&script(&[], "done"));
    std::fs::write(rig.place.join("file"), "").unwrap();
    refused(&rig, &["x", "--log-dir", "file/logs"], "Not a directory");
    std::fs::create_dir(rig.place.join("shut")).unwrap();
    std::fs::set_permissions(rig.place.join("shut"), PermissionsExt::from_mode(0o500)).unwrap();
    if !root() {
        refused(&rig, &["x", "--log-dir", "shut"], "Permission denied");
    }
    let mut other = Rig::new(&script(&[], "done"));
    other.address = "127.0.0.1:1".into();
    other.run(&["x"]).code(2).says("Connection refused");
    other.assert_clean();
    assert!(rig::list(&other.state.join("sanduk/receipts")).is_empty(), "no call was made");
}

/// TRAPS 79: the call that `--timeout` cut off is in the sum: it may be billed.
#[test]
fn trap_79_a_call_in_flight_at_the_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut rig = Rig::new(&script(&[], "done"));
    rig.address = silent.local_addr().unwrap().to_string();
    rig.run(&["x", "--skip-key-check", "--timeout", "2"]).code(124).says("1 call, 0 in / 0 out, 1 usage=?");
    assert_eq!(rig.receipt()["usage"]["uncounted"], 1);
    rig.assert_clean();
}

/// An error is one line that no terminal acts on, whatever was typed.
#[test]
fn errors_are_one_line_without_escapes() {
    for words in [
        &["fo\u{1b}[31mo\nx"][..],
        &["run", "--fo\u{1b}]0;x\u{7}", "x"],
        &["run", "x", "--mode", "a\nb\u{9b}31m\u{202e}"],
        &["run", "x", "--upstream", "http://a\u{1b}[31m"],
        &["run", "x", "--provider", "\r\u{7f}"],
        &["man", "\u{1b}c"],
        &["version", "more"],
        &["list", "\u{1b}c"],
        &["keeper"],
        &["relay-role"],
        &["mini"],
        &["inside", "/none/such"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanduk"));
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/none")
            .stdin(Stdio::null());
        let ran = ran(command.current_dir("/").output().unwrap());
        assert!(matches!(ran.code, Some(2 | 125)), "{words:?}: {:?} {}", ran.code, ran.err);
        let bare = ran.err.strip_suffix('\n').unwrap();
        assert!(
            bare.starts_with("sanduk: cannot ") && !bare.contains(char::is_control),
            "{words:?}: {:?}",
            ran.err
        );
        assert!(!bare.contains('\u{202e}'), "{words:?}: {bare}");
    }
}
