//! What a role does at its start: secrets, descriptors, identity, limits; then signals and children.

use super::*;

pub fn box_b9_secret_overwritten_in_place() {
    let found = lines(start("secret", &[("THE_KEY", " \tsk-canary-value\n"), ("EMPTY", " ")], vec![]));
    expect(
        &found,
        &[
            ("before", "there"),
            ("same", "yes"),
            ("after", "gone"),
            ("again", "none"),
            ("empty", "none"),
            ("path", "there"),
        ],
    );
}

pub fn secret_child() {
    let holds = |what: &str| {
        let environ = std::fs::read("/proc/self/environ").unwrap();
        if environ.windows(what.len()).any(|w| w == what.as_bytes()) { "there" } else { "gone" }
    };
    say(&format!("before={}", holds("sk-canary")));
    let secret = env::take("THE_KEY").unwrap();
    say(&format!("same={}", if secret.same(b"sk-canary-value") { "yes" } else { "no" }));
    say(&format!(
        "after={}",
        if holds("sk-") == "gone" && holds("canary") == "gone" { "gone" } else { "there" }
    ));
    say(&format!("path={}", holds("PATH=")));
    let none = |name| if env::take(name).is_none() { "none" } else { "some" };
    say(&format!("again={}", none("THE_KEY")));
    say(&format!("empty={}", none("EMPTY")));
}

pub fn box_b10_harden() {
    let (a, b) = net::pipe().unwrap();
    let (c, d) = net::pipe().unwrap();
    let kept = a.as_raw_fd().to_string();
    let dropped = [b.as_raw_fd(), c.as_raw_fd(), d.as_raw_fd()].map(|n| n.to_string()).join(",");
    let found = lines(start("harden", &[("KEPT", &kept), ("DROPPED", &dropped)], vec![a, b, c, d]));
    expect(
        &found,
        &[
            ("open_before", "4"),
            ("kept", "ok"),
            ("kept_twice", "refused"),
            ("cloexec", "true"),
            ("dropped", "0"),
            ("privileges", "1"),
            ("dumpable", "NotDumpable"),
            ("core", "Some(1) Some(1)"),
        ],
    );
}

pub fn harden_child() {
    let kept: i32 = number("KEPT").into();
    let dropped: Vec<i32> =
        std::env::var("DROPPED").unwrap().split(',').map(|n| n.parse().unwrap()).collect();
    let open = |n: &i32| Path::new(&format!("/proc/self/fd/{n}")).symlink_metadata().is_ok();
    say(&format!("open_before={}", dropped.iter().chain([&kept]).filter(|n| open(n)).count()));
    proc::harden(&[0, 1, 2, kept]).unwrap();
    say(&format!("dropped={}", dropped.iter().filter(|n| open(n)).count()));
    let fd = net::inherited(kept);
    if let Ok(fd) = &fd {
        let flags = rustix::io::fcntl_getfd(fd).unwrap();
        say(&format!("cloexec={}", flags.contains(rustix::io::FdFlags::CLOEXEC)));
    }
    tell("kept", fd);
    say(&format!("kept_twice={}", if net::inherited(kept).is_err() { "refused" } else { "given" }));
    say(&format!("privileges={}", status("NoNewPrivs")));
    say(&format!("dumpable={:?}", rustix::process::dumpable_behavior().unwrap()));
    let core = rustix::process::getrlimit(rustix::process::Resource::Core);
    say(&format!("core={:?} {:?}", core.current, core.maximum));
}

fn status(field: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with(&format!("{field}:"))).unwrap();
    line.split_once(':').unwrap().1.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn box_b2_become_user() {
    if proc::ids().0 != 0 {
        say("box_b2_become_user: only root can change its user; not tried");
        return;
    }
    let found = lines(start("user", &[], vec![]));
    expect(
        &found,
        &[
            ("Uid", "64200 64200 64200 64200"),
            ("Gid", "64201 64201 64201 64201"),
            ("Groups", ""),
            ("CapInh", "0000000000000000"),
            ("CapPrm", "0000000000000000"),
            ("CapEff", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("CapAmb", "0000000000000000"),
            ("shadow", "EACCES"),
            ("back", "EPERM"),
            ("parent", "true"),
            ("stranger", "false"),
        ],
    );
}

pub fn user_child() {
    // As a login of root's would have them.
    rustix::thread::set_thread_groups(&[4, 6].map(rustix::fs::Gid::from_raw)).unwrap();
    assert_eq!(status("Groups"), "4 6");
    proc::become_user(64_200, 64_201).unwrap();
    for field in ["Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        say(&format!("{field}={}", status(field)));
    }
    tell("shadow", file::read_named(Path::new("/etc/shadow"), 1 << 20));
    tell("back", proc::become_user(0, 0));
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
    say(&format!("parent={}", proc::die_with_parent(parent).unwrap()));
    say(&format!("stranger={}", proc::die_with_parent(1_000_000).unwrap()));
}

pub fn environment_is_read_by_name() {
    let default = lines(start("environment", &[("HOME", "/home/x"), ("PATH", "/bin")], vec![]));
    expect(
        &default,
        &[
            ("home", "/home/x"),
            ("state", "/home/x/.local/state"),
            ("config", "/home/x/.config"),
            ("credentials", ""),
            ("path", "/bin"),
            ("no_color", "false"),
            ("terminal", "false"),
        ],
    );
    let given = [
        // A relative directory counts as not set (XDG Base Directory).
        ("HOME", "home"),
        ("XDG_STATE_HOME", "/state"),
        ("XDG_CONFIG_HOME", "config"),
        ("CREDENTIALS_DIRECTORY", "/run/credentials/x"),
        ("PATH", ""),
        ("NO_COLOR", "1"),
        ("TERM", "xterm"),
    ];
    let given = lines(start("environment", &given, vec![]));
    expect(
        &given,
        &[
            ("home", ""),
            ("state", "/state"),
            ("config", ""),
            ("credentials", "/run/credentials/x"),
            ("path", "/usr/local/bin:/usr/bin:/bin"),
            ("no_color", "true"),
            ("terminal", "true"),
        ],
    );
    let odd = lines(start("environment", &[("NO_COLOR", ""), ("TERM", "dumb")], vec![]));
    expect(&odd, &[("no_color", "false"), ("terminal", "false")]);
}

pub fn environment_child() {
    let env = env::read();
    let path = |p: Option<PathBuf>| p.unwrap_or_default().display().to_string();
    say(&format!("home={}", path(env.home)));
    say(&format!("state={}", path(env.state_home)));
    say(&format!("config={}", path(env.config_home)));
    say(&format!("credentials={}", path(env.credentials)));
    say(&format!("path={}", env.path.display()));
    say(&format!("no_color={}", env.no_color));
    say(&format!("terminal={}", env.terminal));
}

pub fn limits_are_lowered_only() {
    let found = lines(start("limits", &[], vec![]));
    expect(
        &found,
        &[("lowered", "64 5000"), ("raised", "64 5000"), ("pipes", "EMFILE"), ("tty", "false None")],
    );
    // The signal that comes with it (SIGXFSZ) would end the process; the role decides about that.
    assert_eq!(found["alone"], "unchanged");
}

pub fn limits_child() {
    use rustix::process::{Resource, getrlimit};
    let shown = || {
        format!(
            "{} {}",
            getrlimit(Resource::Nofile).maximum.unwrap(),
            getrlimit(Resource::Nproc).maximum.unwrap()
        )
    };
    let size = getrlimit(Resource::Fsize);
    proc::limit(Some(5000), Some(64), None).unwrap();
    say(&format!("lowered={}", shown()));
    proc::limit(Some(1 << 40), Some(1 << 20), None).unwrap();
    say(&format!("raised={}", shown()));
    say(&format!("alone={}", if getrlimit(Resource::Fsize) == size { "unchanged" } else { "changed" }));
    let mut held = Vec::new();
    let pipes = loop {
        match net::pipe() {
            Ok(ends) if held.len() < 100 => held.push(ends),
            other => break other,
        }
    };
    tell("pipes", pipes);
    let (a, _b) = held.pop().unwrap();
    use std::os::fd::AsFd;
    say(&format!("tty={} {:?}", proc::is_terminal(a.as_fd()), proc::columns(a.as_fd())));
}

/// A server at its limit of descriptors goes on when some are free again; it neither ends nor spins.
pub fn serving_survives_a_shortage_of_descriptors() {
    let mut child = start("shortage", &[], vec![]);
    let out = net::Conn::new(child.stdout().unwrap());
    let port = line(&out).parse().unwrap();
    let mut byte = [0u8; 1];
    let first = net::connect_tcp(local(port), PATIENCE).unwrap();
    assert_eq!(first.read(&mut byte, PATIENCE).unwrap(), 1);
    // More than its limit: the rest waits in the backlog, unanswered.
    let held: Vec<net::Conn> = (0..60).map(|_| net::connect_tcp(local(port), PATIENCE).unwrap()).collect();
    let served = held.iter().filter(|c| c.wait_readable(Duration::from_millis(20)).unwrap()).count();
    assert!(served > 5 && served < 50, "{served}");
    drop(held);
    let last = net::connect_tcp(local(port), PATIENCE).unwrap();
    assert_eq!(last.read(&mut byte, PATIENCE).unwrap(), 1);
    assert_eq!(first.write_all(&[b"x"], PATIENCE).map_err(|e| e.kind()), Ok(()));
}

pub fn shortage_child() {
    let listener = net::listen_tcp(local(0)).unwrap();
    say(&listener.address().unwrap().port().to_string());
    proc::limit(None, Some(40), None).unwrap();
    let each = |conn: net::Conn| {
        conn.write_all(&[b"+"], PATIENCE).unwrap();
        // Ends when the client leaves.
        let _ = conn.read(&mut [0u8; 1], PATIENCE);
    };
    let failed = sanduk::sys::serve::serve(&listener, 1000, std::sync::Arc::new(each));
    tell("served", failed);
}

pub fn die_with_parent() {
    let mut middle = start("middle", &[], vec![]);
    let out = net::Conn::new(middle.stdout().unwrap());
    assert_eq!(line(&out), "orphan=ready");
    // SIGKILL to the middle one alone. The other holds the pipe too; that the pipe ends shows that it ended.
    proc::signal(middle.id().try_into().unwrap(), libc::SIGKILL).unwrap();
    assert_eq!(out.read(&mut [0u8; 1], PATIENCE).unwrap(), 0);
}

pub fn middle_child() {
    let mut order = order(exec::own().unwrap().to_str().unwrap(), &[]);
    order.env.push((CHILD.into(), "orphan".into()));
    order.env.push(("PARENT".into(), std::process::id().to_string().into()));
    order.stdout = Feed::Inherit;
    let mut child = exec::start(order).unwrap();
    child.wait(PATIENCE).unwrap();
}

pub fn orphan_child() {
    assert!(proc::die_with_parent(std::env::var("PARENT").unwrap().parse().unwrap()).unwrap());
    say("orphan=ready");
    std::thread::sleep(PATIENCE * 2);
}

// ---- signals and children ----

pub fn signals_are_caught_even_where_ignored() {
    let mut child = start("catch", &[], vec![]);
    let out = net::Conn::new(child.stdout().unwrap());
    assert_eq!(line(&out), "ready");
    let pid = child.id().try_into().unwrap();
    for number in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        proc::signal(pid, number).unwrap();
        assert_eq!(line(&out), format!("caught {number}"));
    }
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)));
}

pub fn catch_child() {
    proc::ignore_signals().unwrap();
    let signals = net::Conn::new(proc::catch_signals().unwrap());
    say("ready");
    for _ in 0..3 {
        let mut byte = [0u8; 1];
        signals.read(&mut byte, PATIENCE).unwrap();
        say(&format!("caught {}", byte[0]));
    }
}

pub fn ignored_signals_end_nothing() {
    let mut child = start("ignore", &[], vec![]);
    let out = net::Conn::new(child.stdout().unwrap());
    assert_eq!(line(&out), "ready");
    let pid = child.id().try_into().unwrap();
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        proc::signal(pid, number).unwrap();
    }
    drop(child.stdin());
    assert_eq!(line(&out), "end of input");
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)));
}

pub fn ignore_child() {
    proc::ignore_signals().unwrap();
    say("ready");
    let input = net::Conn::new(net::inherited(0).unwrap());
    assert_eq!(input.read(&mut [0u8; 1], PATIENCE).unwrap(), 0);
    say("end of input");
}

pub fn box_b7_reap_takes_children_and_orphans() {
    let found = lines(start("reap", &[], vec![]));
    expect(
        &found,
        &[
            ("none", "None"),
            ("child", "Code(3)"),
            ("told", "Some(Code(3))"),
            ("orphan", "Code(7)"),
            ("killed", "Signal(9)"),
        ],
    );
}

pub fn reap_child() {
    // Orphans come to us as they come to PID 1.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    say(&format!("none={:?}", proc::reap(Duration::ZERO).unwrap()));
    let mut child = exec::start(order("/bin/sh", &["-c", "read x </dev/null; exit 3"])).unwrap();
    let (pid, ended) = proc::reap(PATIENCE).unwrap().unwrap();
    assert_eq!(pid, child.id());
    say(&format!("child={ended:?}"));
    say(&format!("told={:?}", child.wait(PATIENCE).unwrap()));
    // The inner shell outlives the outer one and ends with 7 once it may.
    let script = "exec 3<&0; sh -c 'read x <&3; exit 7' & exit 0";
    let mut outer = order("/bin/sh", &["-c", script]);
    outer.stdin = Feed::Pipe;
    let mut outer = exec::start(outer).unwrap();
    let gate = outer.stdin();
    let (pid, _) = proc::reap(PATIENCE).unwrap().unwrap();
    assert_eq!(pid, outer.id());
    drop(gate);
    let (_, ended) = proc::reap(PATIENCE).unwrap().unwrap();
    say(&format!("orphan={ended:?}"));
    let sleeper = exec::start(order("/bin/sleep", &["600"])).unwrap();
    let pid = sleeper.release();
    proc::signal(pid.try_into().unwrap(), libc::SIGKILL).unwrap();
    let (dead, ended) = proc::reap(PATIENCE).unwrap().unwrap();
    assert_eq!(dead, pid);
    say(&format!("killed={ended:?}"));
}
