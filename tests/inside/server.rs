//! The control server over a real socket, without a box: the rule for who is the host is given by the test, which is what
//! the constructor's parameter is for; the shipped role cannot be told.

use crate::client::{Client, SECRET, read_reply, shell, start};
use sanduk::inside::control::{self, HostRule};
use sanduk::inside::events::{State, Store};
use sanduk::inside::routes::Routes;
use sanduk::inside::supervise::Order;
use sanduk::inside::switch::Switch;
use sanduk::limits;
use sanduk::sys::net::{Peer, listen_unix};
use sanduk::wire::control::{Line, SECRET_HEADER, Start, What};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Server {
    client: Client,
    store: Arc<Store>,
    switch: Arc<Switch>,
    orders: Mutex<Receiver<Order>>,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn anybody(_: Peer) -> bool {
    true
}

fn server(rule: HostRule) -> Server {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("sanduk-server-{}-{n}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let listener = listen_unix(&dir, "control.sock", 0o600).unwrap();
    let (give, orders) = channel();
    let (store, switch) = (Arc::new(Store::new()), Arc::new(Switch::new()));
    let routes = Routes::new(Arc::clone(&store), Arc::clone(&switch), give, dir.clone());
    control::start(listener, &Arc::new(routes), rule).unwrap();
    Server { client: Client::new(&dir), store, switch, orders: Mutex::new(orders), dir }
}

fn json(start: &Start) -> Vec<u8> {
    serde_json::to_vec(start).unwrap()
}

fn started(rule: HostRule) -> Server {
    let server = server(rule);
    assert_eq!(
        server.client.call_as("POST", "/start", "", &json(&start(shell("true")))).unwrap().status,
        200
    );
    server
}

#[test]
fn routes_methods_and_errors() {
    let s = server(anybody);
    let ask = |method, target| s.client.call(method, target, b"").unwrap();
    let health = ask("GET", "/health");
    assert_eq!((health.status, health.body["state"].as_str()), (200, Some("waiting")));
    assert_eq!(health.body["version"], sanduk::wire::control::VERSION);
    assert_eq!(ask("GET", "/nowhere").status, 404);
    assert_eq!(ask("GET", "/status/").status, 404);
    assert_eq!(ask("GET", "//status").status, 404);
    let wrong = ask("POST", "/status");
    assert_eq!(wrong.status, 405);
    assert!(wrong.head.contains("allow: GET\r\n") && wrong.body["error"].is_string(), "{}", wrong.head);
    // Before /start there is no secret that could be right.
    assert_eq!(ask("GET", "/status?since=0").status, 409);
    assert_eq!(ask("DELETE", "/shutdown").status, 409);
    assert_eq!(ask("POST", "/tool/send").status, 404);
    let s = started(anybody);
    for route in ["/message", "/pause", "/resume"] {
        let reply = s.client.call("POST", route, b"").unwrap();
        assert_eq!(reply.status, 501);
        assert!(reply.body["error"].as_str().unwrap().contains("not built yet"));
    }
}

#[test]
fn the_first_start_counts_and_only_it() {
    let s = server(anybody);
    let mut other = start(shell("true"));
    other.version += 1;
    let mut newer = serde_json::to_value(&other).unwrap();
    newer["field_of_a_later_version"] = 1.into();
    let reply = s.client.call_as("POST", "/start", "", newer.to_string().as_bytes()).unwrap();
    assert_eq!(reply.status, 409, "another version is said to be that, not an unknown field");
    assert!(reply.body["error"].as_str().unwrap().contains("one binary"), "{}", reply.body);

    let mut weak = start(shell("true"));
    weak.control_secret = "short".to_owned();
    assert_eq!(s.client.call_as("POST", "/start", "", &json(&weak)).unwrap().status, 400);
    let mut endless = start(shell("true"));
    endless.grace_seconds = 0;
    assert_eq!(s.client.call_as("POST", "/start", "", &json(&endless)).unwrap().status, 400);
    for bad in [&b""[..], b"{", b"[]", b"{\"version\":1}", b"{\"version\":1,\"version\":1}", b"\xff"] {
        assert_eq!(s.client.call_as("POST", "/start", "", bad).unwrap().status, 400);
    }
    assert!(s.orders.lock().unwrap().try_recv().is_err(), "nothing was started by a refused start");

    let good = json(&start(shell("true")));
    assert_eq!(s.client.call_as("POST", "/start", "", &good).unwrap().status, 200);
    assert!(matches!(s.orders.lock().unwrap().recv().unwrap(), Order::Turn(turn) if turn.id == "t1"));
    assert_eq!(s.client.call_as("POST", "/start", "", &good).unwrap().status, 409);
    assert_eq!(s.client.call("POST", "/start", &good).unwrap().status, 409, "the secret does not help");
    assert!(s.orders.lock().unwrap().try_recv().is_err());
}

#[test]
fn a_refused_start_does_not_quote_its_secrets() {
    let s = server(anybody);
    let bad = format!("{{\"version\":1,\"{SECRET}\":\"{SECRET}\"}}");
    let reply = s.client.call_as("POST", "/start", "", bad.as_bytes()).unwrap();
    assert_eq!(reply.status, 400);
    assert!(!reply.body.to_string().contains(SECRET), "{}", reply.body);
}

#[test]
fn box_b01_host_routes_want_the_control_secret() {
    // BOX B1: not the run token, nor anything else.
    let s = started(anybody);
    for fields in [
        String::new(),
        format!("{SECRET_HEADER}: \r\n"),
        format!("{SECRET_HEADER}: {}\r\n", &SECRET[..31]),
        format!("{SECRET_HEADER}: {SECRET}0\r\n"),
        format!("{SECRET_HEADER}: {}\r\n", SECRET.to_uppercase()),
        format!("authorization: Bearer {SECRET}\r\n"),
    ] {
        for (method, target) in
            [("GET", "/status?since=0"), ("DELETE", "/shutdown"), ("POST", "/message"), ("POST", "/pause")]
        {
            assert_eq!(s.client.call_as(method, target, &fields, b"").unwrap().status, 403, "{fields}");
        }
    }
    let twice = format!("{SECRET_HEADER}: {SECRET}\r\n{SECRET_HEADER}: {SECRET}\r\n");
    assert_eq!(s.client.call_as("GET", "/status?since=0", &twice, b"").unwrap().status, 400);
    assert_eq!(s.client.call("GET", "/status?since=0", b"").unwrap().status, 200);
}

#[test]
fn box_b01_a_peer_in_the_box_gets_no_host_route() {
    // BOX B1, B32: here every peer is in our pid namespace, so the shipped rule must take none of them for the host.
    let s = server(control::outside);
    let good = json(&start(shell("true")));
    for (method, target, body) in [
        ("POST", "/start", &good[..]),
        ("GET", "/health", b""),
        ("GET", "/status?since=0", b""),
        ("DELETE", "/shutdown", b""),
        ("POST", "/message", b""),
        ("POST", "/pause", b""),
        ("GET", "/nowhere", b""),
    ] {
        assert_eq!(s.client.call(method, target, body).unwrap().status, 403, "{target}");
    }
    assert_eq!(s.client.call("POST", "/tool/send", b"").unwrap().status, 404);
    assert!(s.orders.lock().unwrap().try_recv().is_err());
    assert_eq!(s.store.state(), State::Waiting);
}

#[test]
fn only_a_call_with_the_secret_feeds_the_switch() {
    let s = started(anybody);
    s.switch.arm(Duration::from_secs(3600));
    let before = s.switch.left();
    s.client.call_as("GET", "/health", "", b"").unwrap();
    s.client.call_as("GET", "/status?since=0", "", b"").unwrap();
    assert!(s.switch.left() < before, "a stranger keeps no box alive");
    let before = s.switch.left();
    // On a busy machine one call may take longer than all that went before it; without feeding, none ever gains.
    let gained = (0..1000).any(|_| {
        s.client.call("GET", "/health", b"").unwrap();
        s.switch.left() > before
    });
    assert!(gained, "a call with the secret is a sign of life");
}

#[test]
fn a_cursor_beyond_what_was_given_is_refused() {
    let s = started(anybody);
    let line = |text: &str| What::Stdout(Line { text: text.to_owned(), more: false });
    s.store.output(line("one"));
    s.store.output(line("two"));
    assert_eq!(s.client.call("GET", "/status?since=2", b"").unwrap().status, 400);
    assert_eq!(s.client.status(0, 0).events.len(), 2);
    assert_eq!(s.client.call("GET", "/status?since=3", b"").unwrap().status, 400);
    assert!(s.client.status(2, 0).events.is_empty());
    assert_eq!(s.client.call("GET", "/status?since=1", b"").unwrap().status, 400);
    for bad in ["/status", "/status?", "/status?since=x", "/status?since=2&since=2", "/status?since=2&x=1"] {
        assert_eq!(s.client.call("GET", bad, b"").unwrap().status, 400, "{bad}");
    }
}

#[test]
fn a_long_poll_wakes_for_an_event_and_for_a_state() {
    let s = started(anybody);
    std::thread::scope(|scope| {
        let polled = scope.spawn(|| s.client.status(0, 20));
        s.store.output(What::Stdout(Line { text: "late".to_owned(), more: false }));
        assert_eq!(polled.join().unwrap().events.len(), 1);
        let polled = scope.spawn(|| s.client.status(1, 20));
        s.store.enter(State::Ending);
        assert_eq!(polled.join().unwrap().state, "ending");
    });
}

#[test]
fn a_connection_is_kept_and_requests_may_follow_at_once() {
    let s = started(anybody);
    let conn = s.client.connect().unwrap();
    let one = format!("GET /status?since=0 HTTP/1.1\r\nhost: box\r\n{SECRET_HEADER}: {SECRET}\r\n\r\n");
    for byte in one.as_bytes() {
        conn.write_all(&[&[*byte]], Duration::from_secs(10)).unwrap();
    }
    assert_eq!(read_reply(&conn, "GET").unwrap().status, 200);
    conn.write_all(&[one.replace("GET", "PUT").as_bytes()], Duration::from_secs(10)).unwrap();
    let last = read_reply(&conn, "PUT").unwrap();
    assert_eq!(last.status, 405);
    assert!(last.head.contains("connection: close\r\n"));
    assert_eq!(conn.read(&mut [0; 1], Duration::from_secs(10)).unwrap(), 0);
}

#[test]
fn box_b14_heads_and_bodies_have_a_limit() {
    // BOX B14: an endless head, a body larger than its route takes, and nonsense are refused, and the server goes on.
    let s = started(anybody);
    let conn = s.client.connect().unwrap();
    let long = format!("GET /status?since=0 HTTP/1.1\r\nx: {}", "y".repeat(limits::CONTROL_HEAD_BYTES));
    conn.write_all(&[long.as_bytes()], Duration::from_secs(10)).unwrap();
    assert_eq!(read_reply(&conn, "GET").unwrap().status, 431);
    assert_eq!(s.client.call("GET", "/status?since=0", &[b'x'; 100_000]).unwrap().status, 413);
    let fresh = server(anybody);
    let conn = fresh.client.connect().unwrap();
    let head =
        format!("POST /start HTTP/1.1\r\nhost: b\r\ncontent-length: {}\r\n\r\n", limits::START_BYTES + 1);
    conn.write_all(&[head.as_bytes()], Duration::from_secs(10)).unwrap();
    assert_eq!(read_reply(&conn, "POST").unwrap().status, 413);
    for nonsense in
        [&b"\0\0\0\0\r\n\r\n"[..], b"GET /health HTTP/1.0\r\n\r\n", b"GET http://x/ HTTP/1.1\r\n\r\n"]
    {
        let conn = s.client.connect().unwrap();
        conn.write_all(&[nonsense], Duration::from_secs(10)).unwrap();
        assert!(read_reply(&conn, "GET").unwrap().status >= 400);
    }
    assert_eq!(s.client.call("GET", "/status?since=0", b"").unwrap().status, 200);
}

#[test]
fn box_b14_in_box_connections_take_no_place_of_the_host() {
    // BOX B14: by this rule the first 500 peers are in the box; they say nothing and hold their connections.
    static TURN: AtomicUsize = AtomicUsize::new(0);
    fn after_the_flood(_: Peer) -> bool {
        TURN.fetch_add(1, Ordering::SeqCst) >= 500
    }
    let s = server(after_the_flood);
    let held: Vec<_> = (0..500).map(|_| s.client.connect().unwrap()).collect();
    assert_eq!(s.client.call("GET", "/health", b"").unwrap().status, 200);
    let most = limits::CONTROL_BOX_THREADS + limits::CONTROL_BOX_QUEUE;
    let open = held.iter().filter(|conn| !conn.readable()).count();
    assert!(open <= most, "{open} in-box connections are open, the quota is {most}");
}

#[test]
fn a_start_of_many_megabytes_is_taken() {
    let s = server(anybody);
    let mut large = start(shell("true"));
    large.turn.stdin = "\u{20ac}".repeat(4 * 1024 * 1024);
    assert_eq!(s.client.call_as("POST", "/start", "", &json(&large)).unwrap().status, 200);
    assert!(
        matches!(s.orders.lock().unwrap().recv().unwrap(), Order::Turn(turn) if turn.stdin == large.turn.stdin)
    );
}
