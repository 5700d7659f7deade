//! What a role gives up, tried from inside a process that gave it up: both filters, Landlock, `harden`, `become_user`, signals,
//! the overwritten secret. Has no libtest harness: a role has one thread, and libtest runs every test on a second one. Each test
//! starts this program again with `CHILD` set, and judges the lines that the child prints.
#![expect(clippy::disallowed_methods, reason = "tests")]

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sanduk::sys::exec::{self, Child, Ended, Feed, Order};
use sanduk::sys::{confine, env, file, net, proc};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which of the children below to be.
const CHILD: &str = "SANDUK_TEST_CHILD";
/// Long enough for a busy machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

type Lines = BTreeMap<String, String>;

const TESTS: &[(&str, fn())] = &[
    ("relay_filter_and_landlock", relay_filter_and_landlock),
    ("relay_filter_on_raw_calls", relay_filter_on_raw_calls),
    ("box_b5_families", box_b5_families),
    ("box_b4_set_id_bits", box_b4_set_id_bits),
    ("box_b35_kernel_doors", box_b35_kernel_doors),
    ("box_filter_lets_tools_work", box_filter_lets_tools_work),
    ("box_b15_confine_refuses_a_second_thread", box_b15_confine_refuses_a_second_thread),
    ("box_b9_secret_overwritten_in_place", box_b9_secret_overwritten_in_place),
    ("box_b10_harden", box_b10_harden),
    ("box_b2_become_user", box_b2_become_user),
    ("die_with_parent", die_with_parent),
    ("signals_are_caught_even_where_ignored", signals_are_caught_even_where_ignored),
    ("ignored_signals_end_nothing", ignored_signals_end_nothing),
    ("box_b7_reap_takes_children_and_orphans", box_b7_reap_takes_children_and_orphans),
];

fn main() -> std::process::ExitCode {
    if let Ok(role) = std::env::var(CHILD) {
        return child(&role);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--list") {
        TESTS.iter().for_each(|(name, _)| say(&format!("{name}: test")));
        return std::process::ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> =
        args.iter().filter(|a| !a.starts_with('-') && a.parse::<u32>().is_err()).collect();
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
            continue;
        }
        let good = std::panic::catch_unwind(test).is_ok();
        failed += u8::from(!good);
        say(&format!("test {name} ... {}", if good { "ok" } else { "FAILED" }));
    }
    std::process::ExitCode::from(failed.min(1))
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // A reader that left is no fault of the test.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

// ---- the parent's side ----

/// Starts this program as the child `role`.
fn start(role: &str, more: &[(&str, &str)], inherit: Vec<OwnedFd>) -> Child {
    let mut env: Vec<(String, OsString)> = vec![
        (CHILD.into(), role.into()),
        ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
        ("HOME".into(), std::env::var_os("HOME").unwrap_or_default()),
    ];
    env.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())));
    exec::start(Order {
        program: exec::own().unwrap(),
        args: Vec::new(),
        env,
        stdin: Feed::Pipe,
        stdout: Feed::Pipe,
        stderr: Feed::Inherit,
        inherit,
        user: None,
        cwd: "/".into(),
        own_group: true,
    })
    .unwrap()
}

fn to_end(child: &mut Child) -> String {
    let out = net::Conn::new(child.stdout().unwrap());
    let (mut bytes, mut buf) = (Vec::new(), [0u8; 4096]);
    loop {
        match out.read(&mut buf, PATIENCE).unwrap() {
            0 => break,
            n => bytes.extend_from_slice(&buf[..n]),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The `name=result` lines of a child that must end with 0.
fn lines(mut child: Child) -> Lines {
    let text = to_end(&mut child);
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)), "{text}");
    text.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[track_caller]
fn expect(lines: &Lines, wanted: &[(&str, &str)]) {
    for (name, value) in wanted {
        assert_eq!(lines.get(*name).map(String::as_str), Some(*value), "{name} in {lines:#?}");
    }
}

// ---- the child's side ----

fn child(role: &str) -> std::process::ExitCode {
    match role {
        "relay" => relay_child(),
        "raw" => python_child(true),
        "box" => python_child(false),
        "tools" => tools_child(),
        "threads" => threads_child(),
        "secret" => secret_child(),
        "harden" => harden_child(),
        "user" => user_child(),
        "middle" => middle_child(),
        "orphan" => orphan_child(),
        "catch" => catch_child(),
        "ignore" => ignore_child(),
        "reap" => reap_child(),
        other => panic!("no child {other}"),
    }
    std::process::ExitCode::SUCCESS
}

fn tell(name: &str, result: Result<impl Sized, impl Into<io::Error>>) {
    let result = result.map_err(Into::into);
    say(&format!("{name}={}", result.map_or_else(|e: io::Error| word(&e), |_| "ok".to_owned())));
}

fn word(e: &io::Error) -> String {
    let names = [
        (Errno::ACCESS, "EACCES"),
        (Errno::PERM, "EPERM"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::NOENT, "ENOENT"),
    ];
    let known = names.iter().find(|(n, _)| Some(n.raw_os_error()) == e.raw_os_error());
    known.map_or_else(|| e.to_string(), |(_, w)| (*w).to_owned())
}

fn number(name: &str) -> u16 {
    std::env::var(name).unwrap().parse().unwrap()
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn order(program: &str, args: &[&str]) -> Order {
    Order {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())],
        stdin: Feed::Null,
        stdout: Feed::Pipe,
        stderr: Feed::Null,
        inherit: Vec::new(),
        user: None,
        cwd: "/".into(),
        own_group: true,
    }
}

/// Runs a program to its end; its output.
fn run(program: &str, args: &[&str]) -> io::Result<String> {
    let mut child = exec::start(order(program, args))?;
    let text = to_end(&mut child);
    match child.wait(PATIENCE)? {
        Some(Ended::Code(0)) => Ok(text),
        other => Err(io::Error::other(format!("{other:?}"))),
    }
}

// ---- the relay's confinement ----

/// What Debian's and Alpine's openssl need; a path that is not there grants nothing.
fn openssl_rules(ports: Vec<u16>) -> confine::Relay {
    let openssl = exec::find_fixed("openssl").expect("openssl is installed");
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let arch = std::env::consts::ARCH;
    let debian = format!("/lib/{arch}-linux-gnu");
    let usr = format!("/usr/lib/{arch}-linux-gnu");
    let mut execute = vec![openssl];
    execute.extend(paths(&["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"]));
    execute.push(format!("/lib/ld-musl-{arch}.so.1").into());
    let mut read = paths(&["/etc/ssl", "/usr/lib/ssl/openssl.cnf", "/etc/ld.so.cache", "/usr/lib64"]);
    for library in [
        "libssl.so.3",
        "libcrypto.so.3",
        "libc.so.6",
        "libpthread.so.0",
        "libdl.so.2",
        "libz.so.1",
        "libzstd.so.1",
    ] {
        read.extend([&debian, &usr, &"/usr/lib".to_owned()].map(|d| Path::new(d).join(library)));
    }
    confine::Relay { read, execute, write: paths(&["/dev/null"]), ports }
}

fn relay_filter_and_landlock() {
    let dir = Scratch::new();
    let allowed = net::listen_tcp(local(0)).unwrap();
    let other = net::listen_tcp(local(0)).unwrap();
    let unix = net::listen_unix(&dir.0, "engine.sock", 0o666).unwrap();
    let (mine, theirs) = net::pipe().unwrap();
    drop(mine);
    std::fs::write(dir.0.join("log"), b"0123456789").unwrap();
    let log = file::Dir::open(&dir.0).unwrap().append("log").unwrap();
    let allowed_port = allowed.address().unwrap().port().to_string();
    let other_port = other.address().unwrap().port().to_string();
    let variables = [
        ("ALLOWED", allowed_port.as_str()),
        ("OTHER", other_port.as_str()),
        ("DIR", dir.0.to_str().unwrap()),
        ("LOG", &log.as_raw_fd().to_string()),
    ];
    let mut child = start("relay", &variables, vec![theirs, log]);

    // The child prints the port of a listener that it bound before, then confines itself and accepts one connection on it.
    let out = net::Conn::new(child.stdout().unwrap());
    let first = line(&out);
    let port = first.strip_prefix("port=").unwrap().parse().unwrap();
    let client = net::connect_tcp(local(port), PATIENCE).unwrap();
    let mut hello = [0u8; 2];
    assert_eq!(client.read(&mut hello, PATIENCE).unwrap(), 2);
    assert_eq!(&hello, b"hi");

    // Two connections come to the allowed port: ours, then openssl's, which begins with a TLS handshake record (RFC 8446 5.1).
    drop(allowed.accept().unwrap());
    let tls = allowed.accept().unwrap();
    let mut record = [0u8; 2];
    assert_eq!(tls.read(&mut record, PATIENCE).unwrap(), 2);
    assert_eq!(record, [0x16, 0x03]);
    drop(tls);

    let mut found = Lines::new();
    while let Some((k, v)) = line(&out).split_once('=') {
        found.insert(k.to_owned(), v.to_owned());
    }
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)));
    expect(
        &found,
        &[
            ("unix", "EACCES"),
            ("unix_pair", "EACCES"),
            ("udp", "EACCES"),
            ("udp6", "EACCES"),
            ("netlink", "EACCES"),
            ("vsock", "EACCES"),
            ("mptcp", "EACCES"),
            ("shadow", "EACCES"),
            ("hosts", "EACCES"),
            ("status", "EACCES"),
            ("log_dir", "EACCES"),
            ("sh", "EACCES"),
            ("self", "EACCES"),
            ("getfd", "EACCES"),
            ("log_cut", "EACCES"),
            ("log_flags", "EACCES"),
            ("log_write", "ok"),
            ("allowed", "ok"),
            ("openssl", "ok"),
            ("s_client", "ok"),
        ],
    );
    // TCP rules came with ABI 4 (Linux 6.7); below that the filter and the uid are all there is, and the receipt says so.
    let ports = found["effect"].contains("TCP ports");
    expect(
        &found,
        &[("other", if ports { "EACCES" } else { "ok" }), ("bind", if ports { "EACCES" } else { "ok" })],
    );
    assert!(found["effect"].contains("seccomp"), "{found:?}");
    assert_eq!(std::fs::read(dir.0.join("log")).unwrap(), b"0123456789+");
    drop(unix);
}

/// One line, without its end; empty at the end of the stream.
fn line(out: &net::Conn) -> String {
    let (mut text, mut byte) = (Vec::new(), [0u8; 1]);
    while out.read(&mut byte, PATIENCE).unwrap() == 1 && byte[0] != b'\n' {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn relay_child() {
    let listener = net::listen_tcp(local(0)).unwrap();
    say(&format!("port={}", listener.address().unwrap().port()));
    let dir = PathBuf::from(std::env::var("DIR").unwrap());
    let log = net::inherited(number("LOG").into()).unwrap();
    let rules = openssl_rules(vec![number("ALLOWED")]);
    let openssl = rules.execute[0].to_str().unwrap().to_owned();
    let own = exec::own().unwrap();
    // Before the confinement everything asked for below is possible.
    for path in ["/etc/hosts", "/proc/self/status"] {
        file::read_named(Path::new(path), 1 << 20).unwrap();
    }
    net::connect_unix(&dir, "engine.sock", PATIENCE).unwrap();

    let effect = confine::relay(&rules).unwrap().join("; ");

    let conn = listener.accept().unwrap();
    conn.write_all(&[b"hi"], PATIENCE).unwrap();
    tell("allowed", net::connect_tcp(local(number("ALLOWED")), PATIENCE));
    // The handshake never ends: the other side only looks at the first bytes, and closes.
    let at = format!("127.0.0.1:{}", number("ALLOWED"));
    let s_client =
        exec::start(order(&openssl, &["s_client", "-connect", &at])).map(|mut c| c.wait(PATIENCE).unwrap());
    tell("s_client", s_client);
    say(&format!("effect={effect}"));
    tell("unix", net::connect_unix(&dir, "engine.sock", PATIENCE));
    let socket = |family, kind| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    tell("udp", socket(AddressFamily::INET, SocketType::DGRAM));
    tell("udp6", socket(AddressFamily::INET6, SocketType::DGRAM));
    tell("netlink", socket(AddressFamily::NETLINK, SocketType::RAW));
    tell("vsock", socket(AddressFamily::VSOCK, SocketType::STREAM));
    let mptcp = rustix::net::Protocol::from_raw(262.try_into().unwrap());
    tell("mptcp", rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp)));
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    tell("unix_pair", pair);
    tell("shadow", file::read_named(Path::new("/etc/shadow"), 1 << 20));
    tell("hosts", file::read_named(Path::new("/etc/hosts"), 1 << 20));
    tell("status", file::read_named(Path::new("/proc/self/status"), 1 << 20));
    tell("log_dir", file::Dir::open(&dir));
    tell("other", net::connect_tcp(local(number("OTHER")), PATIENCE));
    tell("bind", net::listen_tcp(local(0)));
    tell("sh", run("/bin/sh", &["-c", "exit 0"]));
    tell("self", run(own.to_str().unwrap(), &["--list"]));
    tell("getfd", pidfd_getfd());
    tell("log_cut", rustix::fs::ftruncate(&log, 0));
    tell("log_flags", rustix::fs::fcntl_setfl(&log, rustix::fs::OFlags::empty()));
    tell("log_write", rustix::io::write(&log, b"+"));
    tell("openssl", run(&openssl, &["version"]));
}

fn pidfd_getfd() -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let us = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(us, 0, PidfdGetfdFlags::empty())?)
}

// ---- calls that only Python reaches without `unsafe` ----

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
call("io_uring", 425, 1, 0)
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

fn python_child(as_relay: bool) {
    let python = exec::find("python3", &std::env::var_os("PATH").unwrap()).expect("python3 is installed");
    if as_relay {
        let all = vec![PathBuf::from("/")];
        let rules = confine::Relay {
            read: all.clone(),
            execute: all,
            write: vec!["/dev/null".into()],
            ports: vec![],
        };
        confine::relay(&rules).unwrap();
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

fn relay_filter_on_raw_calls() {
    let found = lines(start("raw", &[], vec![]));
    expect(
        &found,
        &[
            ("ptrace", "EACCES"),
            ("readv", "EACCES"),
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

fn box_b5_families() {
    let found = lines(start("box", &[], vec![]));
    for good in ["family_unix", "family_inet", "family_udp", "family_inet6", "family_netlink", "pair_unix"] {
        expect(&found, &[(good, "ok")]);
    }
    for bad in ["family_vsock", "family_alg", "family_packet", "family_tipc", "family_bluetooth", "pair_tipc"]
    {
        expect(&found, &[(bad, "EAFNOSUPPORT")]);
    }
}

fn box_b4_set_id_bits() {
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

fn box_b35_kernel_doors() {
    let found = lines(start("box", &[], vec![]));
    for name in ["io_uring", "clone3", "openat2"] {
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
        "bpf",
        "perf",
        "userfaultfd",
        "add_key",
        "request_key",
        "keyctl",
        "tiocsti",
    ] {
        expect(&found, &[(name, "EPERM")]);
    }
    x32_is_killed(&found);
}

fn box_filter_lets_tools_work() {
    let dir = Scratch::new();
    let found = lines(start("tools", &[("DIR", dir.0.to_str().unwrap())], vec![]));
    expect(&found, &[("git", "ok"), ("tar", "ok"), ("threads", "ok"), ("server", "ok")]);
}

fn tools_child() {
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

fn box_b15_confine_refuses_a_second_thread() {
    let found = lines(start("threads", &[], vec![]));
    assert!(found["boxed"].contains("threads already"), "{found:?}");
    assert!(found["relay"].contains("threads already"), "{found:?}");
    assert!(found["user"].contains("threads already"), "{found:?}");
}

fn threads_child() {
    let (wait, end) = net::pipe().unwrap();
    let conn = net::Conn::new(wait);
    let body = Box::new(move || drop(conn.read(&mut [0u8; 1], PATIENCE)));
    let thread = sanduk::sys::serve::spawn("second", body).unwrap();
    tell("boxed", confine::boxed());
    let none = confine::Relay { read: vec![], execute: vec![], write: vec![], ports: vec![] };
    tell("relay", confine::relay(&none));
    tell("user", proc::become_user(64_200, 64_200));
    drop(end);
    thread.join().unwrap();
}

// ---- secrets, descriptors, identity ----

fn box_b9_secret_overwritten_in_place() {
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

fn secret_child() {
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

fn box_b10_harden() {
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

fn harden_child() {
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

fn box_b2_become_user() {
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

fn user_child() {
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

fn die_with_parent() {
    let mut middle = start("middle", &[], vec![]);
    let out = net::Conn::new(middle.stdout().unwrap());
    assert_eq!(line(&out), "orphan=ready");
    // SIGKILL to the middle one alone. The other holds the pipe too; that the pipe ends shows that it ended.
    proc::signal(middle.id().try_into().unwrap(), libc::SIGKILL).unwrap();
    assert_eq!(out.read(&mut [0u8; 1], PATIENCE).unwrap(), 0);
}

fn middle_child() {
    let mut order = order(exec::own().unwrap().to_str().unwrap(), &[]);
    order.env.push((CHILD.into(), "orphan".into()));
    order.env.push(("PARENT".into(), std::process::id().to_string().into()));
    order.stdout = Feed::Inherit;
    let mut child = exec::start(order).unwrap();
    child.wait(PATIENCE).unwrap();
}

fn orphan_child() {
    assert!(proc::die_with_parent(std::env::var("PARENT").unwrap().parse().unwrap()).unwrap());
    say("orphan=ready");
    std::thread::sleep(PATIENCE * 2);
}

// ---- signals and children ----

fn signals_are_caught_even_where_ignored() {
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

fn catch_child() {
    proc::ignore_signals().unwrap();
    let signals = net::Conn::new(proc::catch_signals().unwrap());
    say("ready");
    for _ in 0..3 {
        let mut byte = [0u8; 1];
        signals.read(&mut byte, PATIENCE).unwrap();
        say(&format!("caught {}", byte[0]));
    }
}

fn ignored_signals_end_nothing() {
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

fn ignore_child() {
    proc::ignore_signals().unwrap();
    say("ready");
    let input = net::Conn::new(net::inherited(0).unwrap());
    assert_eq!(input.read(&mut [0u8; 1], PATIENCE).unwrap(), 0);
    say("end of input");
}

fn box_b7_reap_takes_children_and_orphans() {
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

fn reap_child() {
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

/// A directory of the test's own, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("sanduk-confine-{}", proc::random_hex(8).unwrap()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
