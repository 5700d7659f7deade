//! Programs: what a child gets, how it ends, how it is found.

use super::*;

#[test]
fn the_environment_and_the_directory_are_what_the_order_says() {
    let mut o = order("/usr/bin/env", &[]);
    o.env = vec![("ONE".into(), "1".into()), ("TWO".into(), "zwei =2".into())];
    assert_eq!(output(o), "ONE=1\nTWO=zwei =2\n");
    let mut o = order("/bin/sh", &["-c", "pwd; echo \"$0\" \"$1\"", "a b", "c'd"]);
    o.cwd = "/usr".into();
    assert_eq!(output(o), "/usr\na b c'd\n");
    for program in ["env", "./env", "usr/bin/env", ""] {
        assert_eq!(
            exec::start(order(program, &[])).err().unwrap().kind(),
            ErrorKind::InvalidInput,
            "{program:?}"
        );
    }
    assert_eq!(exec::start(order("/no/such/program", &[])).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn streams_lead_where_the_order_says() {
    let (out, into) = net::pipe().unwrap();
    let mut o = order("/bin/sh", &["-c", "cat; echo err >&2"]);
    o.stdin = Feed::Pipe;
    o.stderr = Feed::Fd(into);
    let mut child = exec::start(o).unwrap();
    let input = Conn::new(child.stdin().unwrap());
    assert!(child.stdin().is_none());
    assert!(child.stderr().is_none());
    input.write_all(&[b"through"], PATIENCE).unwrap();
    drop(input);
    assert_eq!(read_to_end(&Conn::new(child.stdout().unwrap())), b"through");
    // Our copy of the write end is gone with the order, so this ends.
    assert_eq!(read_to_end(&Conn::new(out)), b"err\n");
}

#[test]
fn wait_is_bounded_and_tells_how_it_ended() {
    let mut child = exec::start(order("/bin/sleep", &["600"])).unwrap();
    assert_eq!(child.wait(Duration::ZERO).unwrap(), None);
    assert_eq!(child.wait(SHORT).unwrap(), None);
    child.kill();
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Signal(9)));
    assert_eq!(child.wait(Duration::ZERO).unwrap(), Some(Ended::Signal(9)));
    let mut child = exec::start(order("/bin/sh", &["-c", "exit 41"])).unwrap();
    assert_eq!(child.wait(Duration::MAX).unwrap(), Some(Ended::Code(41)));
}

#[test]
fn a_dropped_child_is_killed_with_its_group_and_waited_for() {
    // The shell ends; what it left behind holds the pipe.
    for script in ["sleep 600 & echo $!; sleep 600", "sleep 600 & echo $!"] {
        let mut child = exec::start(order("/bin/sh", &["-c", script])).unwrap();
        let pid = child.id();
        let out = Conn::new(child.stdout().unwrap());
        assert!(out.wait_readable(PATIENCE).unwrap());
        if !script.ends_with("600") {
            assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)));
        }
        drop(child);
        // All holders of the pipe are dead, and the child itself is no zombie.
        read_to_end(&out);
        assert_eq!(proc::start_time(pid).unwrap(), None);
    }
}

#[test]
fn a_released_child_lives_on() {
    let mut o = order("/bin/cat", &[]);
    o.stdin = Feed::Pipe;
    let mut child = exec::start(o).unwrap();
    let (input, out) = (Conn::new(child.stdin().unwrap()), Conn::new(child.stdout().unwrap()));
    let pid = child.release();
    input.write_all(&[b"alive"], PATIENCE).unwrap();
    drop(input);
    assert_eq!(read_to_end(&out), b"alive");
    let _ = rustix::process::waitpid(
        rustix::process::Pid::from_raw(pid as i32),
        rustix::process::WaitOptions::empty(),
    );
}

/// Two threads that start children at the same moment must not hand each other's descriptors on: one that is held by a stranger
/// never ends for its reader.
#[test]
fn box_b15_inherited_descriptors_reach_their_own_child_only() {
    // Every pipe of this test, by the name that the kernel gives it. The test may itself have been started with others.
    static PIPES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let starters: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..25 {
                    let (out, into) = net::pipe().unwrap();
                    let link = std::fs::read_link(format!("/proc/self/fd/{}", into.as_raw_fd())).unwrap();
                    let own = format!("{} -> {}", into.as_raw_fd(), link.display());
                    PIPES.lock().unwrap().insert(link.display().to_string());
                    let mut o = order("/bin/ls", &["-l", "/proc/self/fd"]);
                    o.inherit = vec![into];
                    let text = output(o);
                    let pipes = PIPES.lock().unwrap();
                    let seen: Vec<&str> = text
                        .lines()
                        .filter(|l| l.rsplit_once(' ').is_some_and(|(_, to)| pipes.contains(to)))
                        .collect();
                    assert!(seen.len() == 1 && seen[0].ends_with(&own), "{own}: {text}");
                    drop(pipes);
                    // Closed on our side too.
                    assert!(read_to_end(&Conn::new(out)).is_empty());
                }
            })
        })
        .collect();
    starters.into_iter().for_each(|s| s.join().unwrap());
}

#[test]
fn box_b2_a_child_can_be_another_user() {
    if !is_root() {
        return; // Only root can.
    }
    let mut o = order("/bin/sh", &["-c", "id -u; id -g; id -G; grep CapEff /proc/self/status"]);
    o.user = Some((64_200, 64_201));
    assert_eq!(output(o), "64200\n64201\n64201\nCapEff:\t0000000000000000\n");
}

#[test]
fn programs_are_found_by_absolute_entries_only() {
    let dir = Scratch::new();
    let tool = dir.0.join("tool");
    std::fs::write(&tool, "#!/bin/sh\n").unwrap();
    std::fs::create_dir(dir.0.join("folder")).unwrap();
    let path = |entries: &[&Path]| std::env::join_paths(entries).unwrap();
    let found = |name: &str, path: &OsStr| exec::find(name, path);
    // Not executable, a directory, not there.
    assert_eq!(found("tool", &path(&[&dir.0])), None);
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(found("tool", &path(&[Path::new("/no/such"), &dir.0])), Some(tool.clone()));
    assert_eq!(found("folder", &path(&[&dir.0])), None);
    // A relative entry that leads there from where we are: a workspace must not decide what runs.
    let up = "../".repeat(std::env::current_dir().unwrap().components().count() - 1);
    let relative = Path::new(&up).join(dir.0.strip_prefix("/").unwrap());
    assert!(relative.join("tool").is_file());
    assert_eq!(found("tool", &path(&[&relative, Path::new("."), Path::new("")])), None);
    for name in ["", ".", "..", "../tool", "/bin/sh", "folder/x"] {
        assert_eq!(found(name, &path(&[&dir.0])), None, "{name}");
    }
    assert_eq!(exec::find_fixed("sh").unwrap().file_name().unwrap(), "sh");
    assert_eq!(exec::find_fixed("../bin/sh"), None);
    assert_eq!(exec::find_fixed("no-such-program"), None);
    assert_eq!(
        output(order(exec::own().unwrap().to_str().unwrap(), &["--list", "--format=terse", "no_such_test"])),
        ""
    );
}

#[test]
fn identity_of_processes() {
    let mut child = exec::start(order("/bin/sleep", &["600"])).unwrap();
    let started = proc::start_time(child.id()).unwrap().unwrap();
    assert!(started >= proc::start_time(std::process::id()).unwrap().unwrap());
    let pid: i32 = child.id().try_into().unwrap();
    proc::signal(pid, 0).unwrap();
    proc::signal(-pid, libc::SIGTERM).unwrap();
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Signal(libc::SIGTERM)));
    drop(child);
    assert!(proc::signal(pid, 0).is_err());
    // "My own group", "everybody" and what is no signal are refused, not tried.
    for (pid, number) in [(0, 15), (-1, 15), (pid, 200), (i32::MIN, 15)] {
        assert!(proc::signal(pid, number).is_err());
    }
    assert_eq!(proc::boot_id().unwrap().len(), 36);
    assert_ne!(proc::random_hex(16).unwrap(), proc::random_hex(16).unwrap());
    assert_eq!(proc::random_hex(16).unwrap().len(), 32);
    assert!(proc::threads().unwrap() > 1);
    assert!(proc::monotonic() <= proc::monotonic());
}

/// A name with parentheses and spaces must not move the fields of `/proc/PID/stat`.
#[test]
fn start_time_of_a_program_with_a_hostile_name() {
    let dir = Scratch::new();
    let program = dir.0.join("a) R 1 (b");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let child = exec::start(order(program.to_str().unwrap(), &["600"])).unwrap();
    let plain = exec::start(order("/bin/sleep", &["600"])).unwrap();
    let (a, b) =
        (proc::start_time(child.id()).unwrap().unwrap(), proc::start_time(plain.id()).unwrap().unwrap());
    assert!(a <= b && b - a < 100_000, "{a} {b}");
}
