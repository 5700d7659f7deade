//! Turns in a real box: what the agent is given, what becomes of its output, and how a turn and a box end.

use crate::client::{SECRET, ending, shell, start, text};
use crate::small_box::SmallBox;
use sanduk::wire::control::{SECRET_HEADER, What};
use std::fmt::Write;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

#[test]
fn the_agent_gets_argv_environment_files_and_directory_as_given() {
    let mut turn = shell("");
    turn.argv = [
        "/bin/sh",
        "-c",
        "pwd; printf '%s\\n' \"$@\"; env; umask; cat \"$HOME/.a/b/c\"; stat -c %a ~/.a ~/.a/b/c; ps",
        "x",
        "",
        "a b",
        "-n",
        "*",
    ]
    .map(str::to_owned)
    .to_vec();
    turn.env = [("HOME", "/home/agent"), ("ONE", "1 2"), ("PATH", "/usr/bin:/bin")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .to_vec();
    turn.files = vec![(".a/b/c".to_owned(), "content\n".to_owned()), ("top".to_owned(), String::new())];
    let events = SmallBox::events_of(turn);
    let out = text(&events, false);
    assert_eq!(out[..5], ["/work", "", "a b", "-n", "*"]);
    assert!(out.contains(&"ONE=1 2".to_owned()));
    // sh adds PWD and its like by itself; nothing of ours is among them.
    let names: Vec<_> = out[5..].iter().filter_map(|l| l.split_once('=')).map(|(name, _)| name).collect();
    assert!(
        names.iter().all(|n| ["HOME", "ONE", "PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(n)),
        "{names:?}"
    );
    assert!(out.contains(&"content".to_owned()));
    assert!(out.contains(&"700".to_owned()) && out.contains(&"600".to_owned()), "{out:?}");
    assert_eq!(ending(&events), (Some(0), None));
}

#[test]
fn both_streams_are_kept_apart_and_the_end_comes_last() {
    let events = SmallBox::events_of(shell("echo one; echo two >&2; printf three; exit 7"));
    assert_eq!(text(&events, false), ["one", "three"]);
    assert_eq!(text(&events, true), ["two"]);
    assert_eq!(ending(&events), (Some(7), None));
    assert!(matches!(&events.last().unwrap().what, What::TurnEnd(end) if end.turn == "t1"));
}

#[test]
fn an_agent_that_dies_by_a_signal_is_told_apart() {
    assert_eq!(ending(&SmallBox::events_of(shell("kill -SEGV $$"))), (None, Some(11)));
    assert_eq!(ending(&SmallBox::events_of(shell("kill -KILL $$"))), (None, Some(9)));
}

#[test]
fn a_turn_that_cannot_start_says_why_and_the_box_lives_on() {
    let failed = |edit: &dyn Fn(&mut sanduk::wire::control::Turn)| {
        let mut turn = shell("echo started");
        edit(&mut turn);
        let events = SmallBox::events_of(turn);
        match &events[..] {
            [event] => match &event.what {
                What::TurnFailed(failed) => failed.why.clone(),
                other => panic!("{other:?}"),
            },
            more => panic!("{more:?}"),
        }
    };
    assert!(failed(&|t| t.argv[0] = "/no/such".to_owned()).contains("/no/such"));
    assert!(failed(&|t| t.argv[0] = "sh".to_owned()).contains("absolute"));
    assert!(failed(&|t| t.argv[0] = "/etc".to_owned()).contains("/etc"));
    assert!(failed(&|t| t.argv.clear()).contains("argv"));
    assert!(failed(&|t| t.argv.push("nul\0in it".to_owned())).contains("nul"));
    for name in ["../x", "/etc/x", "a//b", "a/../../b", ".", "", "a/", "nul\0"] {
        assert!(
            failed(&|t| t.files = vec![(name.to_owned(), String::new())]).contains("cannot write"),
            "{name}"
        );
    }
    let no_home = |t: &mut sanduk::wire::control::Turn| {
        t.env.clear();
        t.files = vec![("x".to_owned(), String::new())];
    };
    assert!(failed(&no_home).contains("HOME"));
}

#[test]
fn files_of_a_turn_follow_no_link() {
    // The workspace is hostile and here it is also the home: a link in it must not lead the write elsewhere.
    let small = SmallBox::with(|root| {
        std::os::unix::fs::symlink("/tmp", root.join("work/dir")).unwrap();
        std::os::unix::fs::symlink("/tmp/through", root.join("work/file")).unwrap();
    });
    let mut turn = shell("cat /work/file; ls -A /tmp");
    turn.env.iter_mut().filter(|(k, _)| k == "HOME").for_each(|(_, v)| v.replace_range(.., "/work"));
    turn.files = vec![("file".to_owned(), "own\n".to_owned())];
    small.start(&start(turn.clone_for("t1")));
    assert_eq!(text(&small.client.events(), false), ["own"]);
    let small = SmallBox::with(|root| std::os::unix::fs::symlink("/tmp", root.join("work/dir")).unwrap());
    turn.files = vec![("dir/x".to_owned(), String::new())];
    small.start(&start(turn));
    let events = small.client.events();
    assert!(matches!(&events[..], [e] if matches!(e.what, What::TurnFailed(_))), "{events:?}");
}

trait CloneFor {
    fn clone_for(&self, id: &str) -> sanduk::wire::control::Turn;
}

impl CloneFor for sanduk::wire::control::Turn {
    fn clone_for(&self, id: &str) -> sanduk::wire::control::Turn {
        sanduk::wire::control::Turn {
            id: id.to_owned(),
            argv: self.argv.clone(),
            env: self.env.clone(),
            files: self.files.clone(),
            stdin: self.stdin.clone(),
        }
    }
}

#[test]
fn trap_87_no_task_is_an_empty_standard_input() {
    assert_eq!(text(&SmallBox::events_of(shell("cat; readlink /proc/self/fd/0")), false), ["/dev/null"]);
}

#[test]
fn a_task_of_ten_megabytes_arrives_whole_or_is_not_read_at_all() {
    let mut turn = shell("sha256sum; exit 3");
    turn.stdin = "0123456789abcde\n".repeat(10 * 65_536);
    let digest = {
        use sha2::Digest;
        let bytes = sha2::Sha256::digest(turn.stdin.as_bytes());
        bytes.iter().fold(String::new(), |mut hex, b| {
            write!(hex, "{b:02x}").unwrap();
            hex
        })
    };
    let events = SmallBox::events_of(turn.clone_for("t1"));
    assert_eq!(text(&events, false), [format!("{digest}  -")]);
    assert_eq!(ending(&events), (Some(3), None));
    turn.argv[2] = "echo not read; exit 4".to_owned();
    let events = SmallBox::events_of(turn.clone_for("t1"));
    assert_eq!((text(&events, false), ending(&events).0), (vec!["not read".to_owned()], Some(4)));
    // It closes its input and goes on.
    turn.argv[2] = "exec <&-; sleep 0.3; echo went on".to_owned();
    assert_eq!(text(&SmallBox::events_of(turn), false), ["went on"]);
}

#[test]
fn trap_1_and_29_any_bytes_of_the_agent_are_events() {
    let script = r"printf 'a\377\376b\n'; printf '\033]0;title\007\033[2J\r\n'; head -c 300000 /dev/urandom; echo; echo last";
    let events = SmallBox::events_of(shell(script));
    let out = text(&events, false);
    assert_eq!(out[0], "a\u{fffd}\u{fffd}b");
    assert_eq!(out[1], "\u{1b}]0;title\u{7}\u{1b}[2J\r", "kept as it came; the host escapes when it prints");
    assert_eq!(out.last().unwrap(), "last");
    assert_eq!(ending(&events), (Some(0), None));
}

#[test]
fn trap_30_a_line_of_four_megabytes_arrives_whole() {
    let events = SmallBox::events_of(shell("head -c 4194304 /dev/zero | tr '\\0' x; echo; echo next"));
    let out = text(&events, false);
    assert!(out[0].len() == 4 * 1024 * 1024 && out[0].bytes().all(|b| b == b'x'));
    assert_eq!(out[1], "next");
}

#[test]
fn box_a7_zombies_are_reaped() {
    let script = "for i in $(seq 200); do (sh -c 'exit 3' & ); done; sleep 0.5
        for n in $(seq 100); do z=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l)
        test $z = 0 && break; sleep 0.1; done; echo zombies $z";
    assert_eq!(text(&SmallBox::events_of(shell(script)), false), ["zombies 0"]);
}

#[test]
fn a_daemon_that_holds_the_output_does_not_hold_the_turn() {
    let small =
        SmallBox::run(shell("setsid sh -c 'echo from the daemon; exec sleep 1000' & echo agent; exit 5"));
    let events = small.client.events();
    let mut out = text(&events, false);
    out.sort();
    assert_eq!(out, ["agent", "from the daemon"]);
    assert_eq!(ending(&events), (Some(5), None));
    assert!(small.below().is_empty(), "what the agent left is dead once its turn ended");
}

/// TRAPS 3: the end of the output is not the end of the agent: it is waited for, by nobody's clock but the host's, and its code told.
#[test]
fn trap_03_an_agent_that_closes_its_output_and_goes_on() {
    let events = SmallBox::events_of(shell("echo first; exec >&- 2>&-; sleep 1; exit 7"));
    assert_eq!(text(&events, false), ["first"]);
    assert_eq!(ending(&events), (Some(7), None));
}

#[test]
fn trap_14_nothing_of_the_agent_outlives_its_turn() {
    let small = SmallBox::run(shell(
        "for i in 1 2 3; do setsid sleep 1000 >/dev/null 2>&1 & done; nohup sleep 1000 >/dev/null 2>&1 & exit 0",
    ));
    assert_eq!(ending(&small.client.events()), (Some(0), None));
    assert!(small.below().is_empty());
    assert_eq!(small.client.status(1, 0).state, "idle", "the box itself waits for what is next");
}

#[test]
fn a_last_stage_that_still_flushes_is_waited_for() {
    let script = "(trap '' TERM; sleep 0.4; echo flushed) & echo first";
    assert_eq!(text(&SmallBox::events_of(shell(script)), false), ["first", "flushed"]);
}

#[test]
fn shutdown_ends_the_box_cleanly_in_every_state() {
    let mut waiting = SmallBox::run(shell("true"));
    waiting.client.events();
    let reply = waiting.client.call("DELETE", "/shutdown", b"").unwrap();
    assert_eq!((reply.status, reply.body["state"].as_str()), (200, Some("ending")));
    assert_eq!(waiting.ended().code(), Some(0));

    let mut stubborn = SmallBox::run(shell(
        "trap 'echo term >> /work/seen' TERM; echo > /work/up; while :; do sleep 0.1; done",
    ));
    stubborn.wait_for("up", 1);
    assert_eq!(stubborn.client.call("DELETE", "/shutdown", b"").unwrap().status, 200);
    assert_eq!(stubborn.ended().code(), Some(0), "an agent that ignores TERM is killed");
    assert_eq!(fs::read_to_string(stubborn.root.join("work/seen")).unwrap(), "term\n", "and was asked first");
}

#[test]
fn box_a7_term_ends_the_box_with_143() {
    let mut small = SmallBox::run(shell("echo > /work/up; exec sleep 1000"));
    small.wait_for("up", 1);
    let inside = i32::try_from(small.inside()).unwrap();
    for ignored in [1, 2, 13] {
        sanduk::sys::proc::signal(inside, ignored).unwrap();
    }
    assert_eq!(small.client.status(0, 0).state, "running");
    sanduk::sys::proc::signal(inside, 15).unwrap();
    let status = small.ended();
    assert_eq!((status.code(), status.signal()), (Some(143), None));
}

#[test]
fn a_box_whose_host_falls_silent_ends_itself() {
    let mut small = SmallBox::new();
    let mut start = start(shell("echo > /work/up; exec sleep 1000"));
    start.grace_seconds = 2;
    small.start(&start);
    small.wait_for("up", 1);
    // Calls without the secret are no sign of life.
    for _ in 0..20 {
        let _ = small.client.call_as("GET", "/health", "", b"");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(small.ended().code(), Some(1));
}

#[test]
fn an_open_long_poll_is_a_sign_of_life() {
    let small = SmallBox::new();
    let mut start = start(shell("sleep 5; echo alive"));
    start.grace_seconds = 2;
    small.start(&start);
    assert_eq!(small.client.status(0, 20).events.len(), 1);
}

#[test]
fn box_a1_an_old_socket_is_replaced() {
    let small = SmallBox::with(|root| {
        drop(std::os::unix::net::UnixListener::bind(root.join("box/control.sock")).unwrap());
    });
    assert_eq!(small.client.call_as("GET", "/health", "", b"").unwrap().status, 200);
}

#[test]
fn the_control_secret_and_the_task_are_on_no_command_line() {
    let mut turn = shell("sleep 1000");
    turn.stdin = "the task itself".to_owned();
    let small = SmallBox::run(turn);
    let inside = small.inside();
    for what in ["cmdline", "environ"] {
        let shown = fs::read(format!("/proc/{inside}/{what}")).unwrap_or_default();
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(!shown.contains(SECRET) && !shown.contains("the task itself"), "{shown}");
        assert!(!shown.contains(SECRET_HEADER));
    }
}
