//! Threads: a panic, the cap, reuse, the stack.

use super::*;

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
    // Counted once the unwinding is over, a moment after the connection closed.
    while serve::panics() == before {
        std::thread::sleep(Duration::from_millis(1));
    }
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
