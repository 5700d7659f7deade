//! The TLS connection that is kept ready after a call: one, off the request's path, gone after its time.

use crate::rig::{PATIENCE, Relay, get, status};
use crate::secure::{Server, children, relay};
use std::time::{Duration, Instant};

const MODELS: &str = "/v1/models";

/// Until it holds; the deadline is for a failing test only.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE * 4;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn served(relay: &Relay) {
    let got = relay.ask(&get(MODELS, ""));
    assert_eq!(status(&got), "200", "{got}");
}

/// Where the provider closes each connection after its answer, the next call finds a verified one waiting.
#[test]
fn the_next_call_finds_a_verified_connection() {
    let mut server = Server::start("once", "good");
    let relay = relay(&server);
    served(&relay);
    assert_eq!(server.word("open"), "TLSv1.3");
    assert_eq!(server.word("request"), "1");
    // Nobody has asked for anything, and there is a second handshake.
    assert_eq!(server.word("open"), "TLSv1.3");
    served(&relay);
    // A connection made for the call would be the third.
    assert_eq!(server.word("request"), "2");
}

/// One beside those that serve, however many calls; after its time all are closed, and the next call works.
#[test]
fn one_spare_that_goes_with_the_idle_ones() {
    let mut server = Server::start("serve", "good");
    let relay = relay(&server);
    for _ in 0..5 {
        served(&relay);
        assert_eq!(server.word("request"), "1");
    }
    until("the spare", || children(relay.pid()).len() == 2);
    served(&relay);
    assert_eq!(children(relay.pid()).len(), 2);
    // Half a minute, as long as the limit; no child and no zombie of one stays.
    until("all are closed", || children(relay.pid()).is_empty());
    served(&relay);
    // Its last request on the first connection, and then one on the third: none was made in between.
    assert_eq!((server.word("request"), server.word("request")), ("1".into(), "3".into()));
}

/// A spare that the provider has closed is not used.
#[test]
fn a_spare_that_was_closed_is_not_used() {
    let mut server = Server::start("impatient", "good");
    let relay = relay(&server);
    served(&relay);
    assert_eq!(server.word("request"), "1");
    // The kept one and the spare are both closed by the provider; the spare without a byte of ours.
    until("the relay sees that they are closed", || server.word("closed") == "0");
    served(&relay);
    let number: u32 = server.word("request").parse().unwrap();
    assert!(number >= 3 || number == 1, "the closed one was used");
}

/// A relay that is killed leaves no openssl behind, used or not.
#[test]
fn no_orphan_of_a_killed_relay() {
    let mut server = Server::start("serve", "good");
    let relay = relay(&server);
    served(&relay);
    assert_eq!(server.word("request"), "1");
    until("the spare", || children(relay.pid()).len() == 2);
    let left = children(relay.pid());
    relay.signal(9);
    let gone = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    until("they end", || left.iter().all(gone));
}
