//! Unix sockets in a directory that an enemy writes.

use super::*;

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
