//! How long a connection may be silent. Two minutes of waiting, beside the other tests of this file.

use crate::rig::{PATIENCE, Place, Provider, Relay, get, read_until, status};
use sanduk::limits::{HEAD_TIME, KEEPALIVE_TIME};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// One call, answered; the connection goes on.
fn called(stream: &mut TcpStream) {
    let mut got = Vec::new();
    stream.write_all(get("/v1/models", "").as_bytes()).unwrap();
    read_until(stream, &mut got, "\r\n\r\n{}");
    assert_eq!(status(&String::from_utf8_lossy(&got)), "200");
}

/// T03: a connection that has been of use may be silent for longer than a new one, and is then closed in order, without an answer.
#[test]
fn t03_a_kept_connection_that_falls_silent() {
    let relay = Relay::start(&Provider::plain(), &[]);
    let Place::Tcp(address) = relay.place else { panic!("no address") };
    let connect = || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(KEEPALIVE_TIME + 3 * PATIENCE)).unwrap();
        stream
    };
    let (mut silent, mut slow, mut pausing) = (connect(), connect(), connect());
    let begun = Instant::now();
    for stream in [&mut silent, &mut slow, &mut pausing] {
        called(stream);
    }
    // A head that begins has its own limit, here as on a new connection.
    slow.write_all(b"GET /v1/models HTTP/1.1\r\nHost: rel").unwrap();
    let mut got = Vec::new();
    slow.read_to_end(&mut got).unwrap();
    assert_eq!(status(&String::from_utf8_lossy(&got)), "408");
    std::thread::sleep((2 * HEAD_TIME).saturating_sub(begun.elapsed()));
    called(&mut pausing);
    got.clear();
    silent.read_to_end(&mut got).unwrap();
    assert!(got.is_empty(), "{}", String::from_utf8_lossy(&got));
    assert!(begun.elapsed() >= KEEPALIVE_TIME, "closed after {:?}", begun.elapsed());
}
