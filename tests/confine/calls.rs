//! Both filters against calls that only Python reaches without `unsafe`, and the tools that must go on working.

use super::*;

/// Prints `name=result` for each probe; `call` makes a raw system call.
const PROBES: &str = r#"
import ctypes, errno, os, socket, sys, stat, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"
def told(name, f):
    try: f(); r = "ok"
    except OSError as e: r = errno.errorcode.get(e.errno, str(e.errno))
    print(name + "=" + r, flush=True)
def call(name, nr, *args):
    def f():
        if libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args]) == -1:
            n = ctypes.get_errno(); raise OSError(n, "")
    told(name, f)
def nr(x, arm): return x if x86 else arm
for name, family, kind in [("unix",1,1),("inet",2,1),("udp",2,2),("inet6",10,1),("netlink",16,2),("vsock",40,1),("alg",38,5),("packet",17,2),("tipc",30,1),("bluetooth",31,3)]:
    told("family_" + name, lambda: socket.socket(family, kind).close())
told("pair_unix", lambda: socket.socketpair())
told("pair_tipc", lambda: socket.socketpair(30, 1))
call("ptrace", nr(101,117), 16, 0x7fffffff, 0, 0)
call("readv", nr(310,270), os.getpid(), 0, 0, 0, 0, 0)
call("writev", nr(311,271), os.getpid(), 0, 0, 0, 0, 0)
call("fallocate", nr(285,47), -1, 0, 0, 1)
call("pwritev2", nr(328,287), -1, 0, 0, 0, 0, 0)
call("io_uring", 425, 1, 0)
call("io_uring_enter", 426, -1, 0, 0, 0, 0, 0)
call("io_uring_register", 427, -1, 0, 0, 0)
call("move_mount", 429, -1, 0, -1, 0, 0)
call("fsconfig", 431, -1, 0, 0, 0, 0)
call("fsmount", 432, -1, 0, 0)
call("fspick", 433, -1, 0, 0)
call("open_tree_attr", 467, -1, 0, 0, 0, 0)
call("unshare", nr(272,97), 0x10000000)
call("setns", nr(308,268), 0, 0)
call("clone_user", nr(56,220), 0x10000000 | 17, 0, 0, 0, 0)
call("clone3", 435, 0, 0)
call("mount", nr(165,40), 0, 0, 0, 0, 0)
call("umount", nr(166,39), 0, 0)
call("pivot_root", nr(155,41), 0, 0)
call("fsopen", 430, 0, 0)
call("open_tree", 428, -100, 0, 0)
call("mount_setattr", 442, -100, 0, 0, 0, 0)
call("bpf", nr(321,280), 0, 0, 0)
call("perf", nr(298,241), 0, 0, -1, -1, 0)
call("userfaultfd", nr(323,282), 0)
call("add_key", nr(248,217), 0, 0, 0, 0, -3)
call("request_key", nr(249,218), 0, 0, 0, 0)
call("keyctl", nr(250,219), 0, -3, 0)
call("openat2", 437, -100, 0, 0, 0)
call("tiocsti", nr(16,29), 0, 0x5412, 0)
call("tioclinux", nr(16,29), 0, 0x541c, 0)
if x86:
    pid = os.fork()
    if pid == 0:
        libc.syscall(ctypes.c_long(0x40000000 | 39)); os._exit(0)
    status = os.waitpid(pid, 0)[1]
    print("x32=" + str(os.WTERMSIG(status) if os.WIFSIGNALED(status) else "lived"), flush=True)
d = sys.argv[1] if len(sys.argv) > 1 else None
if d:
    os.umask(0); f = d + "/f"; open(f, "w").close()
    fd = os.open(f, os.O_RDWR)
    p = ctypes.c_char_p
    for bits, word in [(0o4755, "setuid"), (0o2755, "setgid"), (0o1755, "sticky"), (0o777, "plain")]:
        told("chmod_" + word, lambda: os.chmod(f, bits))
        told("fchmod_" + word, lambda: os.fchmod(fd, bits))
        told("open_" + word, lambda: os.close(os.open(d + "/o" + word, os.O_CREAT | os.O_WRONLY, bits)))
        told("tmpfile_" + word, lambda: os.close(os.open(d, os.O_TMPFILE | os.O_WRONLY, bits)))
        told("mkdir_" + word, lambda: os.mkdir(d + "/d" + word, bits))
        told("mknod_" + word, lambda: os.mknod(d + "/n" + word, stat.S_IFREG | bits))
        call("fchmodat_" + word, nr(268,53), -100, p(f.encode()), bits)
        call("fchmodat2_" + word, 452, -100, p(f.encode()), bits, 0)
        call("openat_" + word, nr(257,56), -100, p((d + "/a" + word).encode()), os.O_CREAT | os.O_WRONLY, bits)
        call("mkdirat_" + word, nr(258,34), -100, p((d + "/e" + word).encode()), bits)
        call("mknodat_" + word, nr(259,33), -100, p((d + "/m" + word).encode()), stat.S_IFREG | bits, 0)
        if x86:
            call("old_chmod_" + word, 90, p(f.encode()), bits)
            call("old_open_" + word, 2, p((d + "/p" + word).encode()), os.O_CREAT | os.O_WRONLY, bits)
            call("creat_" + word, 85, p((d + "/c" + word).encode()), bits)
            call("old_mkdir_" + word, 83, p((d + "/g" + word).encode()), bits)
            call("old_mknod_" + word, 133, p((d + "/h" + word).encode()), stat.S_IFREG | bits, 0)
    # Without O_CREAT the mode argument is not read, whatever lies there.
    call("open_existing", nr(257,56), -100, p(f.encode()), 0, 0o4755)
"#;

pub fn python_child(as_relay: bool) {
    let python = exec::find("python3", &std::env::var_os("PATH").unwrap()).expect("python3 is installed");
    if as_relay {
        let all = vec![PathBuf::from("/")];
        let rules = confine::Relay {
            read: all.clone(),
            execute: all,
            write: vec!["/dev/null".into()],
            ports: vec![],
            unix: false,
        };
        confine::relay(&rules, None).unwrap();
    } else {
        confine::boxed().unwrap();
    }
    let dir = std::env::var("DIR").unwrap_or_default();
    let mut args = vec!["-c", PROBES];
    if !dir.is_empty() {
        args.push(&dir);
    }
    let mut order = order(python.to_str().unwrap(), &args);
    order.stderr = Feed::Inherit;
    let mut child = exec::start(order).unwrap();
    let text = to_end(&mut child);
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)), "{text}");
    say(text.trim_end());
}

pub fn relay_filter_on_raw_calls() {
    let found = lines(start("raw", &[], vec![]));
    expect(
        &found,
        &[
            ("ptrace", "EACCES"),
            ("readv", "EACCES"),
            ("writev", "EACCES"),
            ("fallocate", "EACCES"),
            ("pwritev2", "EACCES"),
            ("io_uring", "ENOSYS"),
            ("family_unix", "EACCES"),
            ("family_inet", "ok"),
            ("family_inet6", "ok"),
            ("family_udp", "EACCES"),
            ("family_packet", "EACCES"),
            ("unshare", "EPERM"),
            ("bpf", "EPERM"),
            ("keyctl", "EPERM"),
        ],
    );
    x32_is_killed(&found);
}

fn x32_is_killed(found: &Lines) {
    if cfg!(target_arch = "x86_64") {
        // SIGSYS.
        expect(found, &[("x32", "31")]);
    }
}

pub fn box_b5_families() {
    let found = lines(start("box", &[], vec![]));
    for good in ["family_unix", "family_inet", "family_udp", "family_inet6", "family_netlink", "pair_unix"] {
        expect(&found, &[(good, "ok")]);
    }
    for bad in ["family_vsock", "family_alg", "family_packet", "family_tipc", "family_bluetooth", "pair_tipc"]
    {
        expect(&found, &[(bad, "EAFNOSUPPORT")]);
    }
}

pub fn box_b4_set_id_bits() {
    let dir = Scratch::new();
    let found = lines(start("box", &[("DIR", dir.0.to_str().unwrap())], vec![]));
    let mut judged = 0;
    for (name, result) in &found {
        let wanted = match name.rsplit_once('_') {
            Some((_, "setuid" | "setgid")) => "EPERM",
            Some((_, "sticky" | "plain")) => "ok",
            _ => continue,
        };
        judged += 1;
        // Kernels before 6.6 have no fchmodat2.
        let too_old = name.starts_with("fchmodat2_") && wanted == "ok" && result == "ENOSYS";
        assert!(result == wanted || too_old, "{name}={result}, wanted {wanted}");
    }
    assert_eq!(judged, if cfg!(target_arch = "x86_64") { 64 } else { 44 });
    expect(&found, &[("open_existing", "ok")]);
    for entry in std::fs::read_dir(&dir.0).unwrap() {
        use std::os::unix::fs::PermissionsExt;
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o6000, 0, "{:?}", entry.path());
    }
}

pub fn box_b35_kernel_doors() {
    let found = lines(start("box", &[], vec![]));
    for name in ["io_uring", "io_uring_enter", "io_uring_register", "clone3", "openat2"] {
        expect(&found, &[(name, "ENOSYS")]);
    }
    for name in [
        "unshare",
        "setns",
        "clone_user",
        "mount",
        "umount",
        "pivot_root",
        "fsopen",
        "open_tree",
        "mount_setattr",
        "open_tree_attr",
        "move_mount",
        "fsconfig",
        "fsmount",
        "fspick",
        "bpf",
        "perf",
        "userfaultfd",
        "add_key",
        "request_key",
        "keyctl",
        "tiocsti",
        "tioclinux",
    ] {
        expect(&found, &[(name, "EPERM")]);
    }
    x32_is_killed(&found);
}

pub fn box_filter_lets_tools_work() {
    let dir = Scratch::new();
    let found = lines(start("tools", &[("DIR", dir.0.to_str().unwrap())], vec![]));
    expect(&found, &[("git", "ok"), ("tar", "ok"), ("threads", "ok"), ("server", "ok")]);
}

pub fn tools_child() {
    confine::boxed().unwrap();
    let dir = std::env::var("DIR").unwrap();
    let sh = |script: &str| run("/bin/sh", &["-ec", &format!("cd {dir}; export HOME={dir}; {script}")]);
    tell(
        "git",
        sh(
            "git init -q g; cd g; echo x > f; git add f; git -c user.name=n -c user.email=e@x commit -qm m; git log -1 >/dev/null",
        ),
    );
    tell("tar", sh("mkdir -p t/u; echo y > t/u/v; tar czf t.tgz t; rm -r t; tar xzf t.tgz; test -f t/u/v"));
    tell(
        "threads",
        sh("python3 -c 'import threading as t; x = t.Thread(target=print); x.start(); x.join()'"),
    );
    tell(
        "server",
        sh(
            "python3 -c 'import socket as s; l = s.create_server((\"127.0.0.1\", 0)); s.create_connection(l.getsockname()); l.accept()'",
        ),
    );
}

pub fn box_b15_confine_refuses_a_second_thread() {
    let found = lines(start("threads", &[], vec![]));
    assert!(found["boxed"].contains("threads already"), "{found:?}");
    assert!(found["relay"].contains("threads already"), "{found:?}");
    assert!(found["user"].contains("threads already"), "{found:?}");
}

pub fn threads_child() {
    let (wait, end) = net::pipe().unwrap();
    let conn = net::Conn::new(wait);
    let body = Box::new(move || drop(conn.read(&mut [0u8; 1], PATIENCE)));
    let thread = sanduk::sys::serve::spawn("second", body).unwrap();
    tell("boxed", confine::boxed());
    let none = confine::Relay { read: vec![], execute: vec![], write: vec![], ports: vec![], unix: false };
    tell("relay", confine::relay(&none, None));
    tell("user", proc::become_user(64_200, 64_200));
    drop(end);
    thread.join().unwrap();
}
