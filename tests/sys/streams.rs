//! Connected streams: waits, stalls, ends, TCP options.

use super::*;

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
