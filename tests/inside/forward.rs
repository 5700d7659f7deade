//! The forwarder over real sockets, without a box: whole streams, half-closes, cuts, a relay that comes late.

use sanduk::inside::forward;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("sanduk-forward-{}-{n}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn relay(&self) -> UnixListener {
        UnixListener::bind(self.0.join("relay.sock")).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A forwarder on a free port.
fn forward(dir: &Path, grace: Duration) -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if forward::start(port, dir.to_owned(), grace).is_ok() {
            return port;
        }
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

const LONG: Duration = Duration::from_secs(120);

#[test]
fn megabytes_pass_both_ways_at_once_and_a_half_close_goes_on() {
    let dir = Dir::new();
    let relay = dir.relay();
    let port = forward(&dir.0, LONG);
    let echo = std::thread::spawn(move || {
        let (mut conn, _) = relay.accept().unwrap();
        let mut back = conn.try_clone().unwrap();
        // Ends only with the client's half-close.
        let n = std::io::copy(&mut conn, &mut back).unwrap();
        back.write_all(b"tail").unwrap();
        n
    });
    let mut client = connect(port);
    let mut writer = client.try_clone().unwrap();
    let sent: Vec<u8> = (0..8_000_000_u32).map(|i| (i % 251) as u8).collect();
    let copy = sent.clone();
    let write = std::thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    write.join().unwrap();
    assert_eq!(echo.join().unwrap(), sent.len() as u64);
    assert!(got.strip_suffix(b"tail") == Some(&sent[..]));
}

#[test]
fn a_relay_that_is_started_again_is_waited_for() {
    let dir = Dir::new();
    let port = forward(&dir.0, LONG);
    let mut client = connect(port);
    client.write_all(b"ask").unwrap();
    // First no socket at all, then one that nobody listens on, then the relay.
    drop(dir.relay());
    std::thread::sleep(Duration::from_millis(200));
    std::fs::remove_file(dir.0.join("relay.sock")).unwrap();
    let relay = dir.relay();
    let (mut conn, _) = relay.accept().unwrap();
    let mut buf = [0; 3];
    conn.read_exact(&mut buf).unwrap();
    conn.write_all(b"answer").unwrap();
    drop(conn);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!((&buf, &got[..]), (b"ask", &b"answer"[..]));
}

#[test]
fn a_relay_that_never_comes_is_a_reset_after_the_grace() {
    let dir = Dir::new();
    let port = forward(&dir.0, Duration::from_millis(200));
    let mut client = connect(port);
    let error = client.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_client_that_left_while_the_relay_was_away_makes_no_call() {
    let dir = Dir::new();
    let port = forward(&dir.0, LONG);
    let mut gone = connect(port);
    gone.write_all(b"paid for by nobody").unwrap();
    drop(gone);
    // The forwarder looks every RELAY_RETRY.
    std::thread::sleep(Duration::from_millis(500));
    let relay = dir.relay();
    let mut stays = connect(port);
    stays.write_all(b"stays").unwrap();
    let (mut conn, _) = relay.accept().unwrap();
    let mut buf = [0; 5];
    conn.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"stays");
    std::thread::sleep(Duration::from_millis(300));
    relay.set_nonblocking(true).unwrap();
    assert_eq!(relay.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the other never comes");
}

#[test]
fn a_broken_relay_is_a_reset_and_no_clean_end() {
    let dir = Dir::new();
    let relay = dir.relay();
    let port = forward(&dir.0, LONG);
    let mut client = connect(port);
    client.write_all(&[b'x'; 1000]).unwrap();
    let (mut conn, _) = relay.accept().unwrap();
    conn.read_exact(&mut [0; 10]).unwrap();
    conn.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of it").unwrap();
    let mut first = [0; 1];
    client.read_exact(&mut first).unwrap();
    // Closed with bytes unread, a Unix socket tells its peer ECONNRESET (unix(7)): what a killed relay looks like.
    drop(conn);
    let error = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_client_that_leaves_is_seen_by_the_relay() {
    let dir = Dir::new();
    let relay = dir.relay();
    let port = forward(&dir.0, LONG);
    let mut client = connect(port);
    client.write_all(b"ask").unwrap();
    let (mut conn, _) = relay.accept().unwrap();
    conn.read_exact(&mut [0; 3]).unwrap();
    drop(client);
    // The relay writes until it is told; without that it would write for ever.
    let mut written = 0_usize;
    while conn.write_all(&[b'x'; 4096]).is_ok() {
        written += 4096;
        assert!(written < 64 * 1024 * 1024, "nobody told the relay");
    }
}

#[test]
fn an_early_answer_reaches_a_client_that_sends_all_before_it_reads() {
    let dir = Dir::new();
    let relay = dir.relay();
    let port = forward(&dir.0, LONG);
    let answer = std::thread::spawn(move || {
        let (mut conn, _) = relay.accept().unwrap();
        conn.read_exact(&mut [0; 10]).unwrap();
        conn.write_all(b"413").unwrap();
    });
    let mut client = connect(port);
    client.write_all(&[b'x'; 10]).unwrap();
    answer.join().unwrap();
    for _ in 0..64 {
        client.write_all(&[b'x'; 64 * 1024]).expect("what the relay does not want is taken and dropped");
    }
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"413");
}
