//! What `attest` and the probe in its box say to each other, JSON: the task goes in by standard input, what was found comes back as a
//! file of the work directory, which the host reads as hostile bytes like any other.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The name of the probe's file in the work directory.
pub const FOUND: &str = "found.json";
/// The file that tells a box which only holds its sockets open to end.
pub const STOP: &str = "stop";
/// What a listener of the host's says to whoever connects or sends; so a connection is known to be to it.
pub const GREETING: &[u8] = b"sanduk attest\n";
/// The word in a call's body that makes the scripted provider send the key back.
pub const REFLECT: &str = "attest-reflect";

/// What the probe is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Try nothing: open sockets, say where, and wait for `STOP`.
    pub hold: bool,
    /// The key's bytes, each inverted, as hex digits: so that the probe can look for the key without being a hit itself.
    pub inverted: String,
    /// Addresses to reach.
    pub targets: Vec<Target>,
    /// Abstract Unix sockets to reach.
    pub abstracts: Vec<Abstract>,
    /// Namespaces of the host, as `/proc/self/ns` names them: `net:[4026531840]`.
    pub namespaces: Vec<String>,
}

/// An address to reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The probe's id.
    pub id: String,
    /// Where.
    pub at: SocketAddr,
    /// By a datagram; else by a connection.
    pub udp: bool,
}

/// An abstract Unix socket to reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abstract {
    /// The probe's id.
    pub id: String,
    /// Its name, without the leading NUL.
    pub name: String,
}

/// What a probe came to, as the box sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// It led out, or the thing looked for is there.
    Open,
    /// The kernel or the relay said no, in a way that leaves no doubt.
    Shut,
    /// Nothing came back: that counts only where the same probe works from outside.
    Silent,
    /// It could not be made.
    Untested,
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Its id.
    pub id: String,
    /// What happened, in words.
    pub got: String,
    /// What it comes to.
    pub way: Way,
}

/// What the probe's file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// What was tried, in order.
    pub found: Vec<Found>,
    /// A box that only holds: where its sockets can be reached, as it sees its own addresses.
    pub targets: Vec<Target>,
    /// Its abstract socket.
    pub abstracts: Vec<Abstract>,
    /// All was tried; false in a report that was written before the last probe, which may end the run.
    pub complete: bool,
}

impl Found {
    /// A probe's outcome.
    pub fn new(id: impl Into<String>, way: Way, got: impl Into<String>) -> Found {
        Found { id: id.into(), got: got.into(), way }
    }
}

/// The key as `Task::inverted` has it.
pub fn invert(key: &[u8]) -> String {
    let mut out = String::with_capacity(key.len().saturating_mul(2));
    for byte in key {
        let inverted = !byte;
        for digit in [inverted >> 4, inverted & 15] {
            out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    out
}

/// Back to inverted bytes; `None`: not hex digits, or none.
pub fn inverted(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits.filter(|d| !d.is_empty() && d.len() % 2 == 0)?;
    digits.chunks(2).map(|pair| Some(pair.first()? << 4 | pair.get(1)?)).collect()
}

/// Whether `bytes` hold what `inverted` is the inversion of.
pub fn holds(bytes: &[u8], inverted: &[u8]) -> bool {
    let Some((first, rest)) = inverted.split_first() else { return false };
    let mut from = 0;
    while let Some(at) = bytes.get(from..).and_then(|b| b.iter().position(|b| *b == !*first)) {
        let next = from.saturating_add(at).saturating_add(1);
        let tail = bytes.get(next..).unwrap_or_default();
        if tail.len() < rest.len() {
            return false;
        }
        if tail.iter().zip(rest).all(|(b, i)| *b == !*i) {
            return true;
        }
        from = next;
    }
    false
}

/// Local addresses in `/proc/net/fib_trie` (leaves that are `/32 host LOCAL`) and `/proc/net/if_inet6` (link-local ones, which need an
/// interface's number, are left out).
pub fn local_addresses(trie: &str, six: &str) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            all.extend(leaf.map(IpAddr::V4));
        }
    }
    for line in six.lines() {
        let digits = line.split_whitespace().next().unwrap_or_default();
        let address = u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from);
        all.extend(address.filter(|a| a.segments().first() != Some(&0xfe80)).map(IpAddr::V6));
    }
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_inversion_and_the_inversion_is_no_hit() {
        let key = b"sk-made-up-0123";
        let text = invert(key);
        let back = inverted(&text).unwrap();
        assert!(holds(b"PATH=/bin\0KEY=sk-made-up-0123\0", &back));
        assert!(holds(key, &back) && holds(b"ssk-made-up-0123", &back));
        for no in [text.as_bytes(), &back, b"sk-made-up-012", b"", b"sk-made-up-0124"] {
            assert!(!holds(no, &back));
        }
        assert_eq!([inverted(""), inverted("0"), inverted("zz")], [None, None, None]);
    }

    #[test]
    fn addresses_as_the_kernel_lists_them() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     +-- 127.0.0.0/8 2 0 2\n           |-- 127.0.0.0\n              /8 host LOCAL\n           |-- 127.0.0.1\n              /32 host LOCAL\n     |-- 172.17.0.1\n        /32 host LOCAL\n     |-- 172.17.255.255\n        /32 link BROADCAST\n";
        let six = "00000000000000000000000000000001 01 80 10 80       lo\nfe800000000000000042acfffe110002 02 40 20 80   docker0\n20010db8000000000000000000000005 02 40 00 80     eth0\n";
        let found: Vec<String> = local_addresses(trie, six).iter().map(IpAddr::to_string).collect();
        assert_eq!(found, ["127.0.0.1", "172.17.0.1", "::1", "2001:db8::5"]);
        assert!(local_addresses("", "zz\n").is_empty());
    }
}
