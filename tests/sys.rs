//! The doors to the kernel: programs, streams, threads, files. What needs a process of its own (filters, users, signals) is in
//! `tests/confine.rs`.
#![expect(clippy::disallowed_methods, reason = "tests")]

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt;
use sanduk::sys::exec::{self, Ended, Feed, Order};
use sanduk::sys::file::{self, Dir};
use sanduk::sys::net::{self, Conn, Listener};
use sanduk::sys::{proc, serve};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Long enough for a busy machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);
/// A wait that is meant to run out.
const SHORT: Duration = Duration::from_millis(50);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }

    /// In memory where the host has that: thousands of directories take minutes on a busy disk.
    fn fast() -> Scratch {
        let memory = Path::new("/dev/shm");
        if file::facts(memory).is_ok_and(|f| f.mode & 0o2 != 0) {
            Scratch::below(memory)
        } else {
            Scratch::new()
        }
    }

    fn below(parent: &Path) -> Scratch {
        let path = parent.join(format!("sanduk-sys-{}", proc::random_hex(8).unwrap()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn open(&self) -> Dir {
        Dir::open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        let _ = Dir::open(self.0.parent().unwrap()).and_then(|d| d.remove_tree(name));
    }
}

fn is_root() -> bool {
    proc::ids().0 == 0
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn tcp_pair() -> (Conn, Conn) {
    let listener = net::listen_tcp(local(0)).unwrap();
    let a = net::connect_tcp(listener.address().unwrap(), PATIENCE).unwrap();
    (a, listener.accept().unwrap())
}

fn read_to_end(conn: &Conn) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), [0u8; 4096]);
    loop {
        match conn.read(&mut buf, PATIENCE).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

// ---- streams ----

#[test]
fn read_waits_times_out_and_ends() {
    let (pipe_out, pipe_in) = net::pipe().unwrap();
    let (a, b) = tcp_pair();
    for (from, to) in [(a, b), (Conn::new(pipe_out), Conn::new(pipe_in))] {
        let mut buf = [0u8; 8];
        assert_eq!(from.read(&mut buf, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(from.read(&mut buf, Duration::ZERO).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(!from.readable());
        to.write_all(&[b"ab", b"", b"cde"], PATIENCE).unwrap();
        assert!(from.wait_readable(PATIENCE).unwrap());
        assert_eq!(from.read(&mut buf[..2], PATIENCE).unwrap(), 2);
        assert_eq!(&buf[..2], b"ab");
        // The buffer was filled, so the next read is tried at once; then again there is nothing.
        assert_eq!(from.read(&mut buf, Duration::ZERO).unwrap(), 3);
        assert_eq!(&buf[..3], b"cde");
        assert_eq!(from.read(&mut buf, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        // Waits of any length are taken.
        to.write_all(&[b"f"], Duration::MAX).unwrap();
        assert_eq!(from.read(&mut buf, Duration::MAX).unwrap(), 1);
        drop(to);
        assert!(from.readable());
        assert_eq!(from.read(&mut buf, PATIENCE).unwrap(), 0);
    }
}

#[test]
fn a_socket_that_came_nonblocking_is_waited_for() {
    let (a, b) = tcp_pair();
    rustix::io::ioctl_fionbio(&a, true).unwrap();
    let reader = std::thread::spawn(move || {
        let mut buf = [0u8; 1];
        a.read(&mut buf, PATIENCE).unwrap()
    });
    b.write_all(&[b"x"], PATIENCE).unwrap();
    assert_eq!(reader.join().unwrap(), 1);
}

#[test]
fn all_is_written_to_a_slow_reader_and_a_stall_is_bounded() {
    let (pipe_out, pipe_in) = net::pipe().unwrap();
    let (a, b) = tcp_pair();
    for (from, to) in [(a, b), (Conn::new(pipe_out), Conn::new(pipe_in))] {
        let body: Vec<u8> = (0..8_000_000u32).map(|i| (i % 251) as u8).collect();
        let copy = body.clone();
        let reader = std::thread::spawn(move || {
            let all = read_to_end(&from);
            (all, from)
        });
        to.write_all(&[&body[..3], &[], &body[3..5_000_000], &body[5_000_000..]], PATIENCE).unwrap();
        let stalled = {
            drop(to);
            let (all, _) = reader.join().unwrap();
            assert!(all == copy);
            let (_a, b) = tcp_pair();
            b.write_all(&[&body], SHORT).unwrap_err().kind()
        };
        assert_eq!(stalled, ErrorKind::TimedOut);
    }
    let (_kept, pipe_in) = net::pipe().unwrap();
    let stalled = Conn::new(pipe_in).write_all(&[&[0; 1 << 20]], SHORT).unwrap_err();
    assert_eq!(stalled.kind(), ErrorKind::TimedOut);
}

#[test]
fn more_parts_than_one_writev_takes() {
    let (a, b) = tcp_pair();
    let parts: Vec<&[u8]> = (0..3000).map(|_| &b"xy"[..]).collect();
    let reader = std::thread::spawn(move || read_to_end(&a));
    b.write_all(&parts, PATIENCE).unwrap();
    drop(b);
    assert_eq!(reader.join().unwrap().len(), 6000);
}

#[test]
fn writing_to_a_closed_peer_is_an_error_not_a_signal() {
    let (out, into) = net::pipe().unwrap();
    drop(out);
    assert_eq!(Conn::new(into).write_all(&[b"x"], PATIENCE).unwrap_err().kind(), ErrorKind::BrokenPipe);
    let (a, b) = tcp_pair();
    a.reset_on_close();
    drop(a);
    let failed = (0..1000).find_map(|_| b.write_all(&[&[0; 65536]], PATIENCE).err());
    assert!(matches!(failed.unwrap().kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
}

#[test]
fn send_stops_when_the_peer_answers_early() {
    let (client, server) = tcp_pair();
    let big = vec![0u8; 64 << 20];
    let answer = std::thread::spawn(move || {
        let mut buf = [0u8; 1024];
        server.read(&mut buf, PATIENCE).unwrap();
        server.write_all(&[b"413"], PATIENCE).unwrap();
        server
    });
    assert!(!client.send(&[b"head", &big], PATIENCE).unwrap());
    let mut buf = [0u8; 8];
    assert_eq!(client.read(&mut buf, PATIENCE).unwrap(), 3);
    drop(answer.join().unwrap());
    // What fits is sent whole, and an answer that lies there already does not matter then.
    let (client, server) = tcp_pair();
    server.write_all(&[b"100"], PATIENCE).unwrap();
    assert!(client.wait_readable(PATIENCE).unwrap());
    assert!(client.send(&[b"head", b"body"], PATIENCE).unwrap());
    // A peer that is gone counts as an answer: reading tells.
    server.reset_on_close();
    drop(server);
    assert!(!client.send(&[&big], PATIENCE).unwrap());
}

#[test]
fn half_close_and_hang_up() {
    let (a, b) = tcp_pair();
    assert!(!a.hung_up());
    b.write_all(&[b"last"], PATIENCE).unwrap();
    b.shutdown_write().unwrap();
    assert!(a.wait_readable(PATIENCE).unwrap());
    assert_eq!(read_to_end(&a), b"last");
    assert!(a.hung_up());
    a.write_all(&[b"still"], PATIENCE).unwrap();
    let mut buf = [0u8; 8];
    assert_eq!(b.read(&mut buf, PATIENCE).unwrap(), 5);
    // shutdown_read wakes a reader.
    let (a, _b) = tcp_pair();
    let a = Arc::new(a);
    let other = Arc::clone(&a);
    let reader = std::thread::spawn(move || other.read(&mut [0u8; 1], PATIENCE).unwrap());
    a.shutdown_read().unwrap();
    assert_eq!(reader.join().unwrap(), 0);
}

#[test]
fn reset_on_close_is_seen_as_an_error_not_an_end() {
    let (a, b) = tcp_pair();
    b.reset_on_close();
    drop(b);
    assert_eq!(a.read(&mut [0u8; 1], PATIENCE).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// TRAPS 55: without it each call after the first on a kept connection takes 44 ms.
#[test]
fn trap_55_no_delay_on_every_tcp_connection() {
    let listener = net::listen_tcp(local(0)).unwrap();
    let a = net::connect_tcp(listener.address().unwrap(), PATIENCE).unwrap();
    let b = listener.accept().unwrap();
    assert!(sockopt::tcp_nodelay(a.as_fd()).unwrap());
    assert!(sockopt::tcp_nodelay(b.as_fd()).unwrap());
    // A listener that came as a descriptor too.
    let fd: OwnedFd = listener.into();
    sockopt::set_tcp_nodelay(&fd, false).unwrap();
    let listener = Listener::new(fd);
    let _a = net::connect_tcp(listener.address().unwrap(), PATIENCE).unwrap();
    assert!(sockopt::tcp_nodelay(listener.accept().unwrap().as_fd()).unwrap());
}

/// TRAPS 54: with a backlog of 5 the kernel drops SYNs and clients stall for seconds.
#[test]
fn trap_54_backlog_holds_many_connections() {
    let listener = net::listen_tcp(local(0)).unwrap();
    let address = listener.address().unwrap();
    // Nobody accepts; all of these are queued. A dropped SYN is sent again after a second at the earliest.
    let held: Vec<io::Result<Conn>> =
        (0..200).map(|_| net::connect_tcp(address, Duration::from_millis(900))).collect();
    assert!(held.iter().all(Result::is_ok));
}

#[test]
fn connect_tcp_is_bounded_and_refusals_are_told() {
    let listener = net::listen_tcp(local(0)).unwrap();
    let address = listener.address().unwrap();
    drop(listener);
    assert_eq!(net::connect_tcp(address, PATIENCE).err().unwrap().kind(), ErrorKind::ConnectionRefused);
    // A backlog of 0 holds one; further SYNs are not answered.
    let fd =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&fd, &local(0)).unwrap();
    rustix::net::listen(&fd, 0).unwrap();
    let address = Listener::new(fd.try_clone().unwrap()).address().unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match net::connect_tcp(address, SHORT * 4) {
            Ok(c) => held.push(c),
            Err(e) => break e,
        }
        assert!(held.len() < 100);
    };
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
}

#[test]
fn descriptors_are_close_on_exec() {
    let (a, b) = tcp_pair();
    let (out, into) = net::pipe().unwrap();
    let dir = Scratch::new();
    let unix = net::listen_unix(&dir.0, "s", 0o600).unwrap();
    let client = net::connect_unix(&dir.0, "s", PATIENCE).unwrap();
    let log = dir.open().append("log").unwrap();
    let lock = dir.open().lock("log").unwrap().unwrap();
    let fds: Vec<OwnedFd> = vec![a.into(), b.into(), out, into, unix.into(), client.into(), log];
    for fd in fds.iter().chain([lock.fd()]) {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn resolve_gives_addresses_in_order() {
    assert_eq!(net::resolve("127.0.0.1", 80).unwrap(), [local(80)]);
    assert!(net::resolve("::1", 443).unwrap().iter().all(|a| a.port() == 443 && a.is_ipv6()));
}

// ---- Unix sockets in a directory that an enemy writes ----

/// BOX A1 and B14: what stands in place of the socket is refused by its type, without being opened or followed.
#[test]
fn box_b14_planted_names() {
    let dir = Scratch::new();
    let host = Scratch::new();
    let real = net::listen_unix(&host.0, "engine.sock", 0o600).unwrap();
    symlink(host.0.join("engine.sock"), dir.0.join("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.0.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    std::fs::create_dir(dir.0.join("dir")).unwrap();
    std::fs::write(dir.0.join("file"), b"").unwrap();
    for name in ["link", "fifo", "dir", "file"] {
        let e = net::connect_unix(&dir.0, name, PATIENCE).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::InvalidInput, "{name}: {e}");
    }
    assert_eq!(net::connect_unix(&dir.0, "missing", PATIENCE).err().unwrap().kind(), ErrorKind::NotFound);
    for name in ["", ".", "..", "../engine.sock", "a/b", "a\0b"] {
        assert!(net::connect_unix(&dir.0, name, PATIENCE).is_err(), "{name:?}");
    }
    // The directory itself may not be a link either.
    symlink(&host.0, dir.0.join("to_host")).unwrap();
    assert!(net::connect_unix(&dir.0.join("to_host"), "engine.sock", PATIENCE).is_err());
    assert!(net::listen_unix(&dir.0.join("to_host"), "new.sock", 0o600).is_err());
    // Nobody reached the host's socket.
    let real: OwnedFd = real.into();
    let mut waiting = [rustix::event::PollFd::new(&real, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut waiting, Some(&rustix::event::Timespec::default())).unwrap(), 0);
}

/// BOX B14: an agent parks connections until the backlog is full; connect(2) would then block for good.
#[test]
fn box_b14_hung_control_socket() {
    let dir = Scratch::new();
    let fd =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    let address = rustix::net::SocketAddrUnix::new(dir.0.join("control.sock")).unwrap();
    rustix::net::bind(&fd, &address).unwrap();
    rustix::net::listen(&fd, 1).unwrap();
    let mut parked = Vec::new();
    let e = loop {
        match net::connect_unix(&dir.0, "control.sock", SHORT) {
            Ok(c) => parked.push(c),
            Err(e) => break e,
        }
        assert!(parked.len() < 100);
    };
    assert_eq!(e.kind(), ErrorKind::TimedOut);
    // A place that becomes free within the wait is taken.
    let listener = Listener::new(fd);
    let waiting = {
        let dir = dir.0.clone();
        std::thread::spawn(move || net::connect_unix(&dir, "control.sock", PATIENCE).map(drop))
    };
    for _ in 0..parked.len() {
        drop(listener.accept().unwrap());
    }
    waiting.join().unwrap().unwrap();
}

#[test]
fn unix_sockets_below_long_paths_with_their_mode() {
    let dir = Scratch::new();
    let long = dir.0.join("x".repeat(100)).join("y".repeat(100));
    std::fs::create_dir_all(&long).unwrap();
    let listener = net::listen_unix(&long, "relay.sock", 0o666).unwrap();
    let mode = |name| Dir::open(&long).unwrap().facts(name).unwrap().mode & 0o7777;
    assert_eq!(mode("relay.sock"), 0o666);
    let client = net::connect_unix(&long, "relay.sock", PATIENCE).unwrap();
    let server = listener.accept().unwrap();
    let us = net::Peer { pid: std::process::id().try_into().unwrap(), uid: proc::ids().0 };
    assert_eq!(server.peer().unwrap(), us);
    assert_eq!(client.peer().unwrap(), us);
    assert_eq!(listener.address(), None);
    // `docker restart`: the old socket is there, and nobody listens on it.
    drop(listener);
    let again = net::listen_unix(&long, "relay.sock", 0o600).unwrap();
    assert_eq!(mode("relay.sock"), 0o600);
    drop(net::connect_unix(&long, "relay.sock", PATIENCE).unwrap());
    drop(again.accept().unwrap());
    // Something that is no socket is not removed.
    std::fs::write(long.join("file"), b"kept").unwrap();
    assert_eq!(net::listen_unix(&long, "file", 0o600).err().unwrap().kind(), ErrorKind::AddrInUse);
    assert_eq!(std::fs::read(long.join("file")).unwrap(), b"kept");
}

/// BOX A1: a peer outside our pid namespace has pid 0 there; the value must come through as it is.
#[test]
fn box_b1_peer_from_outside_the_pid_namespace_is_0() {
    if !is_root() {
        return; // unshare(1) needs root or a permitted user namespace.
    }
    let dir = Scratch::new();
    let listener = net::listen_unix(&dir.0, "s", 0o600).unwrap();
    let script = "import socket,struct,sys\nc=socket.socket(socket.AF_UNIX);c.connect(sys.argv[1])\n\
                  print(struct.unpack('3i',c.getsockopt(socket.SOL_SOCKET,socket.SO_PEERCRED,12))[0])";
    let path = dir.0.join("s");
    let args = ["--pid", "--fork", "python3", "-c", script, path.to_str().unwrap()];
    let mut child = exec::start(order("/usr/bin/unshare", &args)).unwrap();
    let conn = listener.accept().unwrap();
    // Seen from here the peer has a pid; seen from there we have none: the control server's case is the second.
    assert!(conn.peer().unwrap().pid > 0);
    let out = Conn::new(child.stdout().unwrap());
    assert_eq!(String::from_utf8(read_to_end(&out)).unwrap().trim(), "0");
}

// ---- threads ----

/// Serves on a thread that ends with the process.
fn served(most: usize, each: impl Fn(Conn) + Send + Sync + 'static) -> SocketAddr {
    let listener = net::listen_tcp(local(0)).unwrap();
    let address = listener.address().unwrap();
    let each: Arc<dyn Fn(Conn) + Send + Sync> = Arc::new(each);
    std::thread::spawn(move || serve::serve(&listener, most, each));
    address
}

#[test]
fn a_panic_ends_its_connection_only() {
    let address = served(8, |conn| {
        let mut byte = [0u8; 1];
        conn.read(&mut byte, PATIENCE).unwrap();
        assert_ne!(&byte, b"!", "asked to panic");
        conn.write_all(&[&byte], PATIENCE).unwrap();
    });
    let before = serve::panics();
    let bad = net::connect_tcp(address, PATIENCE).unwrap();
    bad.write_all(&[b"!"], PATIENCE).unwrap();
    // The connection is closed by the unwinding.
    assert_eq!(bad.read(&mut [0u8; 1], PATIENCE).unwrap(), 0);
    let good = net::connect_tcp(address, PATIENCE).unwrap();
    good.write_all(&[b"x"], PATIENCE).unwrap();
    assert_eq!(read_to_end(&good), b"x");
    assert_eq!(serve::panics(), before + 1);
}

#[test]
fn one_connection_too_many_is_closed_at_once() {
    let address = served(2, |conn| {
        let mut byte = [0u8; 1];
        conn.write_all(&[b"+"], PATIENCE).unwrap();
        conn.read(&mut byte, PATIENCE).unwrap();
    });
    let mut byte = [0u8; 1];
    let held: Vec<Conn> = (0..2).map(|_| net::connect_tcp(address, PATIENCE).unwrap()).collect();
    for conn in &held {
        assert_eq!(conn.read(&mut byte, PATIENCE).unwrap(), 1);
    }
    let third = net::connect_tcp(address, PATIENCE).unwrap();
    assert_eq!(third.read(&mut byte, PATIENCE).unwrap(), 0);
    // A place that becomes free is given again.
    drop(held);
    let mut tries = 0;
    while net::connect_tcp(address, PATIENCE).unwrap().read(&mut byte, PATIENCE).unwrap_or(0) == 0 {
        tries += 1;
        assert!(tries < 1000);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn threads_are_reused_and_start_in_parallel() {
    let (ids, seen) = mpsc::channel();
    let ids = Mutex::new(ids);
    let address = served(64, move |conn| {
        ids.lock().unwrap().send(std::thread::current().id()).unwrap();
        conn.read(&mut [0u8; 1], PATIENCE).unwrap();
    });
    // One after the other: the worker is given back a moment after its client sees the end, so two may be needed, not twenty.
    let mut used = BTreeSet::new();
    for _ in 0..20 {
        let conn = net::connect_tcp(address, PATIENCE).unwrap();
        used.insert(format!("{:?}", seen.recv_timeout(PATIENCE).unwrap()));
        conn.shutdown_write().unwrap();
        assert_eq!(conn.read(&mut [0u8; 1], PATIENCE).unwrap(), 0);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(used.len() < 5, "{} threads for 20 connections in turn", used.len());
    // All at once: each has its own.
    let held: Vec<Conn> = (0..40).map(|_| net::connect_tcp(address, PATIENCE).unwrap()).collect();
    let at_once: BTreeSet<String> =
        held.iter().map(|_| format!("{:?}", seen.recv_timeout(PATIENCE).unwrap())).collect();
    assert_eq!(at_once.len(), 40);
}

/// A worker inflates compressed answers and parses their usage; an overflow would end the whole process. Debug builds, which
/// this test mostly runs as, use several times the stack of the shipped one.
#[test]
fn a_worker_has_stack_for_inflate_and_json() {
    use std::io::{Read, Write};
    let (done, result) = mpsc::channel();
    let body = move || {
        let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(deep.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        done.send(value).unwrap();
    };
    serve::spawn("stack", Box::new(body)).unwrap().join().unwrap();
    assert!(result.recv_timeout(PATIENCE).unwrap().is_array());
}

// ---- programs ----

fn order(program: &str, args: &[&str]) -> Order {
    Order {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_default())],
        stdin: Feed::Null,
        stdout: Feed::Pipe,
        stderr: Feed::Inherit,
        inherit: Vec::new(),
        user: None,
        cwd: "/".into(),
        own_group: true,
    }
}

fn output(order: Order) -> String {
    let mut child = exec::start(order).unwrap();
    let text = String::from_utf8(read_to_end(&Conn::new(child.stdout().unwrap()))).unwrap();
    assert_eq!(child.wait(PATIENCE).unwrap(), Some(Ended::Code(0)));
    text
}

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
    // From "/" these relative entries would lead there: a workspace must not decide what runs.
    let relative = dir.0.strip_prefix("/").unwrap();
    assert_eq!(found("tool", &path(&[relative, Path::new("."), Path::new("")])), None);
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

// ---- files ----

#[test]
fn trap_27_reads_follow_nothing_and_block_on_nothing() {
    let dir = Scratch::new();
    let d = dir.open();
    std::fs::write(dir.0.join("secret"), b"host").unwrap();
    symlink(dir.0.join("secret"), dir.0.join("REPORT.md")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.0.join("fifo"), Mode::from_bits_truncate(0o600)).unwrap();
    std::fs::create_dir(dir.0.join("dir")).unwrap();
    let _socket = net::listen_unix(&dir.0, "socket", 0o600).unwrap();
    for name in ["REPORT.md", "fifo", "dir", "socket"] {
        assert!(d.read(name, 100).is_err(), "{name}");
        assert!(d.append(name).is_err(), "{name}");
    }
    assert_eq!(std::fs::read(dir.0.join("secret")).unwrap(), b"host");
    assert!(d.below("REPORT.md").is_err());
    assert_eq!(d.read("secret", 4).unwrap(), b"host");
    assert_eq!(d.read("secret", 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
    for name in ["", ".", "..", "dir/x", "/etc/passwd", "../x", "x\0"] {
        assert_eq!(d.read(name, 100).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        assert!(
            d.remove(name).is_err() && d.remove_tree(name).is_err() && d.write_new(name, b"", 0o600).is_err()
        );
    }
    // A device of any size stays bounded.
    assert!(file::read_named(Path::new("/dev/zero"), 1000).is_err());
    assert_eq!(file::read_named(&dir.0.join("REPORT.md"), 4).unwrap(), b"host");
}

/// TRAPS 28: a dangling link is something that is there.
#[test]
fn trap_28_dangling_links_are_seen_and_replaced() {
    let dir = Scratch::new();
    let d = dir.open();
    symlink("/no/such/target", dir.0.join("REPORT.md")).unwrap();
    assert_eq!(d.facts("REPORT.md").unwrap().mode & 0o170_000, 0o120_000);
    assert!(d.write_new("REPORT.md", b"x", 0o600).is_err());
    d.replace("REPORT.md", b"new", 0o644).unwrap();
    let facts = d.facts("REPORT.md").unwrap();
    assert_eq!((facts.mode, facts.size, facts.links), (0o100_644, 3, 1));
    assert_eq!(d.names().unwrap(), ["REPORT.md"]);
}

#[test]
fn writes_are_whole_private_and_leave_nothing() {
    let dir = Scratch::new();
    let d = dir.open();
    d.write_new("record", b"one", 0o600).unwrap();
    assert_eq!(d.write_new("record", b"two", 0o600).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(d.read("record", 10).unwrap(), b"one");
    d.replace("record", b"three", 0o600).unwrap();
    assert_eq!(d.read("record", 10).unwrap(), b"three");
    // The target is a directory: the rename fails, and the temporary file is gone.
    d.make("sub", 0o700).unwrap();
    assert!(d.replace("sub", b"x", 0o600).is_err());
    assert_eq!(d.names().unwrap(), ["record", "sub"]);
    d.write_new("other", b"o", 0o600).unwrap();
    assert_eq!(d.rename_new("other", "record").unwrap_err().kind(), ErrorKind::AlreadyExists);
    d.rename_new("other", "third").unwrap();
    d.remove("third").unwrap();
    d.remove("third").unwrap();
    let log = d.append("log").unwrap();
    rustix::io::write(&log, b"a").unwrap();
    rustix::io::write(d.append("log").unwrap(), b"b").unwrap();
    assert_eq!(d.read("log", 10).unwrap(), b"ab");
    assert_eq!(d.facts("log").unwrap().mode, 0o100_600);
    // A whole directory appears at once, made under another name.
    let hidden = d.make(".new", 0o700).unwrap();
    hidden.write_new("record", b"r", 0o600).unwrap();
    d.rename_new(".new", "run").unwrap();
    assert!(d.make("run", 0o700).is_err());
    assert_eq!(d.below("run").unwrap().read("record", 10).unwrap(), b"r");
}

#[test]
fn modes_are_exact_whatever_the_umask() {
    let dir = Scratch::new();
    let d = dir.open();
    d.make("box", 0o1777).unwrap();
    assert_eq!(d.facts("box").unwrap().mode, 0o041_777);
    d.write_new("public", b"", 0o666).unwrap();
    assert_eq!(d.facts("public").unwrap().mode, 0o100_666);
    std::fs::create_dir(dir.0.join("old")).unwrap();
    std::fs::set_permissions(dir.0.join("old"), PermissionsExt::from_mode(0o755)).unwrap();
    Dir::make_all(&dir.0.join("old/a/b"), 0o700).unwrap().write_new("f", b"", 0o600).unwrap();
    let mode = |p: &str| file::facts(&dir.0.join(p)).unwrap().mode & 0o7777;
    assert_eq!((mode("old"), mode("old/a"), mode("old/a/b")), (0o755, 0o700, 0o700));
    Dir::make_all(&dir.0.join("old/a/b"), 0o755).unwrap();
    assert_eq!(mode("old/a/b"), 0o700);
    // A component that is a file is an error, and so is a link at the end.
    assert!(Dir::make_all(&dir.0.join("old/a/b/f/c"), 0o700).is_err());
    symlink("/tmp", dir.0.join("link")).unwrap();
    assert!(Dir::make_all(&dir.0.join("link"), 0o700).is_err() && Dir::open(&dir.0.join("link")).is_err());
    if is_root() {
        d.give("box", 64_200, 64_201).unwrap();
        d.give("link", 64_200, 64_201).unwrap();
        let facts = d.facts("box").unwrap();
        assert_eq!((facts.uid, facts.gid), (64_200, 64_201));
        assert_eq!(file::facts(Path::new("/tmp")).unwrap().uid, 0);
        assert!(d.give("box", u32::MAX, 0).is_err());
    }
    assert_eq!(file::real_path(&dir.0.join("link/.")).unwrap(), Path::new("/tmp"));
}

/// BOX B29: a lock ends with its holder, though a child of it lives on.
#[test]
fn box_b29_a_lock_is_not_inherited() {
    let dir = Scratch::new();
    let d = dir.open();
    assert_eq!(d.lock("record").err().unwrap().kind(), ErrorKind::NotFound);
    d.write_new("record", b"", 0o600).unwrap();
    let held = d.lock("record").unwrap().unwrap();
    assert!(d.lock("record").unwrap().is_none());
    let child = exec::start(order("/bin/sleep", &["600"])).unwrap();
    drop(held);
    let again = d.lock("record").unwrap();
    assert!(again.is_some());
    // A rename keeps it; a directory can be locked as well.
    d.rename_new("record", "renamed").unwrap();
    assert!(d.lock("renamed").unwrap().is_none());
    d.make("run", 0o700).unwrap();
    let run = d.lock("run").unwrap();
    assert!(run.is_some() && d.lock("run").unwrap().is_none());
    drop(child);
}

/// Makes a chain of directories `depth` deep below `name`, a file in every thousandth, and `bits` on the deepest file.
fn deep(top: &Path, name: &str, depth: usize, bits: u32) {
    std::fs::create_dir(top.join(name)).unwrap();
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = rustix::fs::open(top.join(name), flags, Mode::empty()).unwrap();
    for level in 1..=depth {
        if level % 1000 == 0 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = rustix::fs::openat(&here, "f", flags, Mode::from_bits_truncate(0o644)).unwrap();
            if level == depth {
                rustix::fs::fchmod(&file, Mode::from_bits_truncate(bits)).unwrap();
            }
        }
        rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "d", flags, Mode::empty()).unwrap();
    }
}

/// BOX B28: `std::fs::remove_dir_all` runs out of descriptors at this depth, and a sweep would fail for ever.
#[test]
fn box_b28_deep_trees_are_removed() {
    let dir = Scratch::fast();
    let d = dir.open();
    deep(&dir.0, "deep", 20_000, 0o644);
    d.remove_tree("deep").unwrap();
    assert!(d.names().unwrap().is_empty());
    d.remove_tree("deep").unwrap();
}

#[test]
fn box_b28_removal_follows_no_link_and_takes_all() {
    let dir = Scratch::fast();
    let outside = Scratch::fast();
    std::fs::write(outside.0.join("kept"), b"kept").unwrap();
    let top = dir.0.join("tree");
    std::fs::create_dir_all(top.join("a/b/c")).unwrap();
    symlink(&outside.0, top.join("link")).unwrap();
    symlink(&outside.0, top.join("a/b/link")).unwrap();
    symlink(outside.0.join("kept"), top.join("a/kept")).unwrap();
    std::fs::hard_link(outside.0.join("kept"), top.join("a/hard")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, top.join("a/fifo"), Mode::RWXU).unwrap();
    let _socket = net::listen_unix(&top.join("a"), "socket", 0o600).unwrap();
    // Names that are no UTF-8, more entries than one batch, directories that nobody may enter.
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(top.join(OsStr::from_bytes(b"\xff\xfe\n")), b"").unwrap();
    std::fs::create_dir(top.join("many")).unwrap();
    for i in 0..2500 {
        std::fs::create_dir_all(top.join(format!("many/{i}/x"))).unwrap();
    }
    for closed in ["a/b/c", "a/b", "many/7/x", "many/7"] {
        std::fs::set_permissions(top.join(closed), PermissionsExt::from_mode(0o0)).unwrap();
    }
    dir.open().remove_tree("tree").unwrap();
    assert!(dir.open().names().unwrap().is_empty());
    assert_eq!(std::fs::read(outside.0.join("kept")).unwrap(), b"kept");
    // A link is removed, not what it leads to.
    symlink(&outside.0, dir.0.join("link")).unwrap();
    dir.open().remove_tree("link").unwrap();
    assert_eq!(outside.open().names().unwrap(), ["kept"]);
}

/// What closed directories cost an ordinary user; root is stopped by nothing, so the test above does not show it.
#[test]
fn box_b28_removal_by_an_ordinary_user() {
    if !is_root() {
        return; // The other tests run as an ordinary user then.
    }
    let dir = Scratch::new();
    std::fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o777)).unwrap();
    let own = exec::own().unwrap();
    let copy = dir.0.join("tests");
    std::fs::copy(own, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let mut o = order(copy.to_str().unwrap(), &["--exact", "box_b28_removal_follows_no_link_and_takes_all"]);
    o.user = Some((64_200, 64_200));
    let told = output(o);
    assert!(told.contains("1 passed"), "{told}");
}

#[test]
fn box_b28_removal_stops_at_a_mount() {
    if !is_root() {
        return; // Only root can mount.
    }
    let dir = Scratch::new();
    let host = Scratch::new();
    std::fs::write(host.0.join("kept"), b"kept").unwrap();
    std::fs::create_dir_all(dir.0.join("tree/a/mounted")).unwrap();
    std::fs::create_dir_all(dir.0.join("top")).unwrap();
    for at in ["tree/a/mounted", "top"] {
        output(order("/bin/mount", &["--bind", host.0.to_str().unwrap(), dir.0.join(at).to_str().unwrap()]));
    }
    let results = [dir.open().remove_tree("tree"), dir.open().remove_tree("top")];
    let cleared = dir.open().clear_set_id(1000);
    // The removal moves the mount point's parent up, or stops before it; it is unmounted wherever it is.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours =
        mounts.lines().filter_map(|l| l.split(' ').nth(4)).filter(|p| p.starts_with(dir.0.to_str().unwrap()));
    for place in ours.map(str::to_owned).collect::<Vec<_>>() {
        output(order("/bin/umount", &[&place]));
    }
    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!(std::fs::read(host.0.join("kept")).unwrap(), b"kept");
    assert_eq!(cleared.unwrap(), (Vec::new(), false));
}

/// BOX B4: set-id files that an agent planted would act on the host.
#[test]
fn box_b4_set_id_bits_are_cleared() {
    let dir = Scratch::new();
    let outside = Scratch::new();
    let mode = |p: &Path| std::fs::symlink_metadata(p).unwrap().permissions().mode() & 0o7777;
    let plant = |p: &Path, bits| {
        std::fs::write(p, b"").unwrap();
        std::fs::set_permissions(p, PermissionsExt::from_mode(bits)).unwrap();
    };
    plant(&outside.0.join("host"), 0o4755);
    std::fs::create_dir_all(dir.0.join("a/b")).unwrap();
    std::fs::create_dir_all(dir.0.join("z")).unwrap();
    plant(&dir.0.join("root"), 0o6755);
    plant(&dir.0.join("a/one"), 0o4711);
    plant(&dir.0.join("a/b/two"), 0o2000);
    plant(&dir.0.join("z/plain"), 0o1755);
    std::fs::set_permissions(dir.0.join("z"), PermissionsExt::from_mode(0o2755)).unwrap();
    symlink(outside.0.join("host"), dir.0.join("link")).unwrap();
    symlink(&outside.0, dir.0.join("a/dirlink")).unwrap();
    let (mut changed, unfinished) = dir.open().clear_set_id(1000).unwrap();
    changed.sort();
    assert_eq!(changed, ["a/b/two", "a/one", "root"]);
    assert!(!unfinished);
    let after = ["root", "a/one", "a/b/two", "z/plain"].map(|p| mode(&dir.0.join(p)));
    assert_eq!(after, [0o755, 0o711, 0, 0o1755]);
    assert_eq!(mode(&outside.0.join("host")), 0o4755);
    // Nothing is left to do; and a walk that was cut says so.
    assert_eq!(dir.open().clear_set_id(1000).unwrap(), (Vec::new(), false));
    assert!(dir.open().clear_set_id(3).unwrap().1);
}

#[test]
fn box_b4_set_id_bits_at_any_depth() {
    let dir = Scratch::fast();
    deep(&dir.0, "deep", 5000, 0o4755);
    let (changed, unfinished) = dir.open().clear_set_id(100_000).unwrap();
    assert!(!unfinished);
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0], format!("deep/{}f", "d/".repeat(4999)));
}
