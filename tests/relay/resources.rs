//! Group T: many silent connections, and a client that does not read.

use crate::rig::{PATIENCE, Place, Provider, Relay, answer, get, read_until, status};
use sanduk::limits;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn of_process(relay: &Relay, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", relay.pid())).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

fn connect(relay: &Relay) -> TcpStream {
    let Place::Tcp(at) = &relay.place else { unreachable!() };
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn asked(stream: &mut TcpStream) -> String {
    stream.write_all(get("/v1/models", "").as_bytes()).unwrap();
    let mut got = Vec::new();
    read_until(stream, &mut got, "\r\n\r\n{}");
    status(&String::from_utf8(got).unwrap()).to_string()
}

/// T04: what is over the limit is closed at once, costs no thread, and holds nobody up who was there before.
#[test]
fn t04_three_hundred_silent_connections() {
    let provider = Provider::plain();
    let relay = Relay::start(&provider, &[]);
    let mut before = connect(&relay);
    assert_eq!(asked(&mut before), "200");
    let silent: Vec<TcpStream> = (0..300).map(|_| connect(&relay)).collect();
    silent.iter().for_each(|s| s.set_nonblocking(true).unwrap());
    let closed = || {
        silent
            .iter()
            .filter(|s| !matches!(s.peek(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock))
            .count()
    };
    let (over, until) = (300 + 1 - limits::CONNECTIONS, Instant::now() + PATIENCE);
    while closed() < over {
        assert!(Instant::now() < until, "{} of 300 are closed", closed());
        std::thread::sleep(Duration::from_millis(10));
    }
    let threads = of_process(&relay, "status", "Threads:");
    assert!(threads <= u64::try_from(limits::CONNECTIONS).unwrap() + 8, "{threads} threads");
    assert_eq!(asked(&mut before), "200");
    drop(silent);
    // There is room again: a new one is served as soon as the relay has seen the others go.
    loop {
        let mut new = connect(&relay);
        if new.write_all(get("/v1/models", "").as_bytes()).is_ok()
            && matches!(new.read(&mut [0; 64]), Ok(n) if n > 0)
        {
            break;
        }
        assert!(Instant::now() < until, "no new connection is served");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// T05: 200 MB for a client that reads nothing of it wait at the provider, not in the relay's memory; then they come whole.
#[test]
fn t05_a_client_that_stops_reading() {
    const LONG: usize = 200 << 20;
    let body = "x".repeat(LONG);
    let provider = Provider::start(move |_, _| {
        vec![answer("200 OK", "Content-Type: application/octet-stream\r\n", &body)]
    });
    let relay = Relay::start(&provider, &[]);
    let mut client = connect(&relay);
    client.write_all(get("/v1/models", "").as_bytes()).unwrap();
    let mut got = vec![0; 65_536];
    let mut all = client.read(&mut got).unwrap();
    let head = String::from_utf8_lossy(&got[..all]).find("\r\n\r\n").unwrap() + 4;
    let (until, mut same, mut last) = (Instant::now() + PATIENCE, 0, 0);
    while same < 5 {
        assert!(Instant::now() < until, "the relay reads on and on");
        std::thread::sleep(Duration::from_millis(100));
        let read = of_process(&relay, "io", "rchar:");
        same = if read == last { same + 1 } else { 0 };
        last = read;
    }
    assert!(last < u64::try_from(LONG).unwrap() / 2, "{last} bytes are in the relay or beyond it");
    let kib = of_process(&relay, "status", "VmHWM:");
    assert!(kib < 24 * 1024, "{kib} KiB");
    while all < head + LONG {
        all += match client.read(&mut got).unwrap() {
            0 => panic!("cut after {all} bytes"),
            n => n,
        };
    }
    assert_eq!(all, head + LONG);
}
